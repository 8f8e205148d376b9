// The peers that are no Node services: C and Go servers that stand in front of one, each with its own way of being replaced.

import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Peer, type Place, type Tag, TAGS } from './peer.ts'
import { alive, end, gone, send, start, type Started, track } from './processes.ts'
import type { Tool } from './setup.ts'

export function nginx(tool: Tool): Peer {
  return {
    id: 'nginx',
    title: 'nginx binary upgrade',
    version: tool.version,
    native: true,
    configuration:
      '`worker_processes 1`, `keepalive_timeout 75s`, `keepalive_requests` high enough never to end a connection, `worker_shutdown_timeout` of the drain deadline, no access log. It answers itself (`return 200`) and proxies streams and WebSockets to a service that is not restarted (`proxy_buffering off`). USR2 to the master; when the new version answers, QUIT to the old master.',
    async open(place) {
      const configuration = join(place.folder, 'nginx.conf')
      const pidFile = join(place.folder, 'nginx.pid')
      const pidOf = (path: string): number => {
        try {
          return Number(readFileSync(path, 'utf8'))
        } catch {
          return 0
        }
      }
      await writeFile(configuration, nginxConfiguration(place, TAGS[0]))
      const started = start(tool.path, ['-p', place.folder, '-c', configuration, '-e', 'error.log'], { env: tool.env })
      await started.exited // it runs in the background: a master started in the foreground ignores USR2 while its parent lives
      if (pidOf(pidFile) === 0) throw new Error(`nginx did not start: ${started.output()}`)
      track(pidOf(pidFile))
      let old = 0
      return {
        prepare: (tag) => writeFile(configuration, nginxConfiguration(place, tag)),
        async go() {
          old = pidOf(pidFile)
          send(old, 'SIGUSR2')
        },
        finish: async () => {
          track(pidOf(pidFile))
          await end(old, 'SIGQUIT', place.drainMs + 5000)
        },
        async [Symbol.asyncDispose]() {
          await Promise.all([pidOf(pidFile), pidOf(`${pidFile}.oldbin`)].filter(Boolean).map((pid) => end(pid)))
        },
      }
    },
  }
}

function nginxConfiguration({ folder, port, backendPort, drainMs }: Place, tag: Tag): string {
  const root = process.getuid?.() === 0 ? 'user root;' : ''
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  )
  return `${root}
worker_processes 1;
worker_shutdown_timeout ${drainMs}ms;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events { worker_connections 8192; }
http {
  ${temporary.join(' ')}
  access_log off;
  keepalive_timeout 75s;
  keepalive_requests 100000000;
  upstream backend { server 127.0.0.1:${backendPort}; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    default_type text/plain;
    location = / { return 200 "beacon ${tag}\\n"; }
    location = /version { default_type application/json; return 200 '{"tag":"${tag}"}\\n'; }
    location / {
      proxy_pass http://backend;
      proxy_buffering off;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $http_connection;
    }
  }
}
`
}

export function haproxy(tool: Tool): Peer {
  return {
    id: 'haproxy',
    title: 'HAProxy reload',
    version: tool.version,
    native: true,
    configuration:
      'Master-worker (`-W`), `expose-fd listeners`, `hard-stop-after` of the drain deadline, `timeout http-keep-alive 75s`, and `option idle-close-on-response` (an idle connection is not closed at once: its next response says `Connection: close`). It answers itself (`http-request return`) and proxies streams and WebSockets to a service that is not restarted. The order is SIGUSR2 to the master.',
    async open(place) {
      const configuration = join(place.folder, 'haproxy.cfg')
      await writeFile(configuration, haproxyConfiguration(place, TAGS[0]))
      const master = start(tool.path, ['-W', '-f', configuration, '-p', join(place.folder, 'haproxy.pid')], {
        env: tool.env,
      })
      let before: number[] = []
      return {
        prepare: (tag) => writeFile(configuration, haproxyConfiguration(place, tag)),
        async go() {
          before = childrenOf(master.pid)
          send(master.pid, 'SIGUSR2')
        },
        finish: async () => void (await Promise.all(before.map((pid) => gone(pid, place.drainMs + 5000)))),
        async [Symbol.asyncDispose]() {
          const workers = childrenOf(master.pid)
          await end(master.pid)
          await Promise.all(workers.map((pid) => end(pid)))
        },
      }
    },
  }
}

function haproxyConfiguration({ folder, port, backendPort, drainMs }: Place, tag: Tag): string {
  return `
global
  maxconn 8192
  hard-stop-after ${drainMs}ms
  stats socket ${folder}/admin.sock mode 600 expose-fd listeners
defaults
  mode http
  timeout connect 5s
  timeout client 75s
  timeout server 75s
  timeout http-keep-alive 75s
  timeout tunnel 1h
  option idle-close-on-response
frontend front
  bind 127.0.0.1:${port} backlog 4096
  http-request return status 200 content-type text/plain string "beacon ${tag}\\n" if { path / }
  http-request return status 200 content-type application/json string '{"tag":"${tag}"}' if { path /version }
  default_backend back
backend back
  server only 127.0.0.1:${backendPort}
`
}

export function caddy(tool: Tool): Peer {
  return {
    id: 'caddy',
    title: 'Caddy reload',
    version: tool.version,
    native: true,
    configuration:
      '`grace_period` of the drain deadline, no automatic HTTPS, no access log. It answers itself (`respond`) and proxies streams and WebSockets to a service that is not restarted. The order is the command `caddy reload`: the configuration is replaced within one process, so no executable is.',
    async open(place) {
      const configuration = join(place.folder, 'Caddyfile')
      const socket = join(place.folder, 'admin.sock')
      await writeFile(configuration, caddyConfiguration(place, socket, TAGS[0]))
      const arguments_ = ['--config', configuration, '--adapter', 'caddyfile']
      const env = { ...tool.env, HOME: place.folder, XDG_DATA_HOME: place.folder, XDG_CONFIG_HOME: place.folder }
      const server = start(tool.path, ['run', ...arguments_], { env })
      let reload: Started | null = null
      return {
        prepare: (tag) => writeFile(configuration, caddyConfiguration(place, socket, tag)),
        go: async () => {
          const address = ['--address', `unix/${socket}`]
          reload = start(tool.path, ['reload', ...arguments_, ...address], { env })
        },
        finish: async () => await reload?.exited,
        [Symbol.asyncDispose]: () => end(server.pid),
      }
    },
  }
}

function caddyConfiguration({ port, backendPort, drainMs }: Place, socket: string, tag: Tag): string {
  return `
{
  admin unix/${socket}
  auto_https off
  grace_period ${drainMs}ms
}
:${port} {
  bind 127.0.0.1
  respond / "beacon ${tag}
"
  respond /version "{\\"tag\\":\\"${tag}\\"}"
  reverse_proxy 127.0.0.1:${backendPort} {
    flush_interval -1
  }
}
`
}

function childrenOf(pid: number): number[] {
  const path = `/proc/${pid}/task/${pid}/children`
  return alive(pid) ? readFileSync(path, 'utf8').trim().split(' ').filter(Boolean).map(Number) : []
}
