// What people use instead, each configured so that its own experts would not complain. A switch has three parts:
// `prepare` (nothing is measured yet), `go` (the order is given; the clock starts) and, once the new version answers,
// `finish` (the old one is retired and gone). All peers get the same time to drain.

import { readFileSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { alive, end, gone, send, start, track, untilAnswers } from './processes.ts'
import type { Started } from './processes.ts'
import type { Missing, Tool, Tools } from './setup.ts'

/** The two versions that every peer switches between. */
export const TAGS = ['v1.0.0', 'v1.1.0'] as const
export type Tag = (typeof TAGS)[number]

export interface Place {
  /** an empty folder of its own */
  folder: string
  port: number
  /** where streams and websockets of a proxy are served */
  backendPort: number
  drainMs: number
}

export interface Running extends AsyncDisposable {
  prepare(tag: Tag): Promise<void>
  go(): Promise<void>
  finish(): Promise<void>
  /** Asks whether all went well, where the peer can tell; the load goes on, and what it sees counts for nothing. */
  confirm?(): Promise<void>
  /** milliseconds of the last switch that went into starting and taking over, where the peer tells */
  restartMs?(): number
}

export interface Bare extends AsyncDisposable {
  /** `performance.now()` of the spawn, where something else came before it */
  startedAt?: number
}

export interface Peer {
  id: string
  title: string
  version: string
  /** how it is configured, for docs/performance.md */
  configuration: string
  /** a C server: comparable in what it loses, not in how fast it starts */
  native: boolean
  /** path of the streaming responses */
  open(place: Place): Promise<Running>
  /** one process of the same executable, for the bare start-up time; by default what `open` starts */
  bare?(place: Place): Promise<Bare>
}

export type Entry = Peer | ({ id: string; title: string } & Missing)

export function peers(tools: Tools): Entry[] {
  const node = `node ${process.version.slice(1)}`
  return [
    naiveReusePort(tools.app, node),
    rollingCluster(tools.app, node),
    'missing' in tools.pm2 ? { id: 'pm2', title: 'pm2 reload', ...tools.pm2 } : pm2(tools.app, tools.pm2),
    'missing' in tools.nginx ? { id: 'nginx', title: 'nginx binary upgrade', ...tools.nginx } : nginx(tools.nginx),
    'missing' in tools.haproxy ? { id: 'haproxy', title: 'HAProxy reload', ...tools.haproxy } : haproxy(tools.haproxy),
    plainRestart(tools.app, node),
  ]
}

function naiveReusePort(app: string, version: string): Peer {
  const bare = (place: Place) => openApp(app, 'reuseport', place)
  return {
    id: 'reuseport',
    title: 'naive SO_REUSEPORT restart',
    version,
    native: false,
    configuration:
      'Two processes share the port with `server.listen({ reusePort: true })`. The new one is started; when it answers, the old one gets SIGTERM: `http.Server.close()`, responses in flight are finished, WebSockets get a close frame 1012, exit when all is done or at the drain deadline.',
    bare,
    async open(place) {
      let old = await bare(place)
      let next: AppProcess | null = null
      return {
        prepare: (tag) => writeTag(place, tag),
        go: async () => void (next = await bare(place)),
        async finish() {
          await end(old.pid, 'SIGTERM', place.drainMs + 2000)
          if (next !== null) old = next
          next = null
        },
        async [Symbol.asyncDispose]() {
          for (const one of [old, next]) await one?.[Symbol.asyncDispose]()
        },
      }
    },
  }
}

function plainRestart(app: string, version: string): Peer {
  const bare = (place: Place) => openApp(app, 'plain', place)
  return {
    id: 'restart',
    title: 'plain restart',
    version,
    native: false,
    configuration:
      'SIGTERM to a service without a handler for it, wait until it is gone, start the new one: what `systemctl restart` does to most services.',
    bare,
    async open(place) {
      let only = await bare(place)
      return {
        prepare: (tag) => writeTag(place, tag),
        async go() {
          await end(only.pid)
          only = await bare(place)
        },
        finish: async () => undefined,
        [Symbol.asyncDispose]: () => only[Symbol.asyncDispose](),
      }
    },
  }
}

function rollingCluster(app: string, version: string): Peer {
  return {
    id: 'cluster',
    title: 'node:cluster rolling restart',
    version,
    native: false,
    configuration:
      'Two workers, round-robin (the default). For each worker: fork a new one, wait until it listens, then the old one stops as above (`server.close()`, 1012, drain deadline) and exits. The primary itself can never be updated this way.',
    bare: (place) => openApp(app, 'plain', place),
    async open(place) {
      await writeTag(place, TAGS[0])
      const args = [app, 'cluster', String(place.port), tagFile(place), place.folder, String(place.drainMs)]
      const primary = start(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
      let rolled: Promise<unknown> = Promise.resolve()
      return {
        prepare: (tag) => writeTag(place, tag),
        async go() {
          rolled = new Promise((resolve) => primary.child.once('message', resolve))
          send(primary.pid, 'SIGUSR2')
        },
        finish: async () => void (await Promise.race([rolled, primary.exited, sleep(2 * place.drainMs + 10_000)])),
        [Symbol.asyncDispose]: () => end(primary.pid),
      }
    },
  }
}

function pm2(app: string, tool: Tool): Peer {
  return {
    id: 'pm2',
    title: 'pm2 reload',
    version: tool.version,
    native: false,
    configuration:
      '`exec_mode: cluster`, two instances, `wait_ready: true` (the service says `ready` when it listens), `listen_timeout` 10 s, `kill_timeout` of the drain deadline plus 500 ms; on SIGINT the service stops as above. The order is the command `pm2 reload`.',
    bare: (place) => openApp(app, 'plain', place),
    async open(place) {
      await writeTag(place, TAGS[0])
      const ecosystem = join(place.folder, 'ecosystem.config.json')
      const config = {
        name: 'bench',
        script: app,
        args: ['pm2', String(place.port), tagFile(place), place.folder, String(place.drainMs)],
        exec_mode: 'cluster',
        instances: 2,
        wait_ready: true,
        listen_timeout: 10_000,
        kill_timeout: place.drainMs + 500,
        vizion: false,
        automation: false,
        pmx: false,
        out_file: '/dev/null',
        error_file: join(place.folder, 'error.log'),
      }
      await writeFile(ecosystem, JSON.stringify({ apps: [config] }))
      const env = {
        ...process.env,
        PM2_HOME: join(place.folder, 'pm2'),
        PM2_DISABLE_VERSION_CHECK: 'true',
        NODE_NO_WARNINGS: '1',
      }
      const order = (...args: string[]): Started =>
        start(process.execPath, [tool.path, ...args], { env, cwd: place.folder })
      await order('start', ecosystem, '--silent').exited
      track(Number(await readFile(join(place.folder, 'pm2/pm2.pid'), 'utf8')))
      let reload: Started | null = null
      return {
        prepare: (tag) => writeTag(place, tag),
        go: async () => void (reload = order('reload', 'bench', '--silent')),
        finish: async () => await reload?.exited,
        async [Symbol.asyncDispose]() {
          const daemon = Number(await readFile(join(place.folder, 'pm2/pm2.pid'), 'utf8').catch(() => '0'))
          await order('kill', '--silent').exited
          if (daemon > 1) await end(daemon)
        },
      }
    },
  }
}

function nginx(tool: Tool): Peer {
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

function haproxy(tool: Tool): Peer {
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

function childrenOf(pid: number): number[] {
  const path = `/proc/${pid}/task/${pid}/children`
  return alive(pid) ? readFileSync(path, 'utf8').trim().split(' ').filter(Boolean).map(Number) : []
}

// ---- the service without the agent

interface AppProcess extends AsyncDisposable {
  pid: number
}

/** Starts one process of the service, at the tag that `writeTag` has written last. */
export async function openApp(app: string, role: string, place: Place): Promise<AppProcess> {
  await mkdir(place.folder, { recursive: true })
  if (!(await readFile(tagFile(place), 'utf8').catch(() => ''))) await writeTag(place, TAGS[0])
  const args = [app, role, String(place.port), tagFile(place), place.folder, String(place.drainMs)]
  const { pid } = start(process.execPath, args)
  return { pid, [Symbol.asyncDispose]: () => end(pid, 'SIGKILL') }
}

function tagFile({ folder }: Place): string {
  return join(folder, 'tag')
}

function writeTag(place: Place, tag: Tag): Promise<void> {
  return writeFile(tagFile(place), tag)
}

/** Starts it, waits until it answers, ends it; milliseconds from the start to the first answer. */
export async function bareStartMs(peer: Peer, place: Place): Promise<number> {
  await mkdir(place.folder, { recursive: true })
  const since = performance.now()
  await using one: Bare = await (peer.bare ?? peer.open)(place)
  return await untilAnswers(place.port, null, one.startedAt ?? since)
}
