// What people use instead, each configured so that its own experts would not complain. A switch has three parts:
// `prepare` (nothing is measured yet), `go` (the order is given; the clock starts) and, once the new version answers,
// `finish` (the old one is retired and gone). All peers get the same time to drain.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { put } from '../lab/managed.ts'
import { bootHost } from '../lab/systemd.ts'
import { end, send, start, track, untilAnswers } from './processes.ts'
import { type Bare, type Peer, type Place, type Tag, TAGS } from './peer.ts'
import { caddy, haproxy, nginx } from './proxies.ts'
import type { Started } from './processes.ts'
import type { Missing, Tool, Tools } from './setup.ts'

export type Entry = Peer | ({ id: string; title: string } & Missing)

export function peers(tools: Tools): Entry[] {
  const node = `node ${process.version.slice(1)}`
  return [
    naiveReusePort(tools.app, node),
    rollingCluster(tools.app, node),
    'missing' in tools.pm2 ? { id: 'pm2', title: 'pm2 reload', ...tools.pm2 } : pm2(tools.app, tools.pm2),
    'missing' in tools.nginx ? { id: 'nginx', title: 'nginx binary upgrade', ...tools.nginx } : nginx(tools.nginx),
    'missing' in tools.haproxy ? { id: 'haproxy', title: 'HAProxy reload', ...tools.haproxy } : haproxy(tools.haproxy),
    'missing' in tools.caddy ? { id: 'caddy', title: 'Caddy reload', ...tools.caddy } : caddy(tools.caddy),
    'missing' in tools.systemd
      ? { id: 'socket', title: 'systemd socket activation', ...tools.systemd }
      : socketActivation(tools.app, tools.systemd),
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

/** On a host of its own, in the network of the bench. */
function socketActivation(app: string, { version }: Tool): Peer {
  return {
    id: 'socket',
    title: 'systemd socket activation',
    version,
    native: false,
    configuration:
      'A `.socket` unit (`Backlog=4096`) and a service that listens on what it is handed. The order is `systemctl restart` of the service: SIGTERM, it stops as above (`server.close()`, 1012, drain deadline) and exits, the new one is started; connections wait in the queue that systemd holds.',
    bare: (place) => openApp(app, 'plain', place),
    async open(place) {
      const host = await bootHost({ netns: '.' })
      const folder = '/var/lib/bench'
      const writeTagThere = (tag: Tag) => put(host, `${folder}/tag`, tag)
      await writeTagThere(TAGS[0])
      const command = [process.execPath, app, 'activated', place.port, `${folder}/tag`, folder, place.drainMs].join(' ')
      await put(
        host,
        '/etc/systemd/system/bench.socket',
        `[Socket]\nListenStream=127.0.0.1:${place.port}\nBacklog=4096\n`,
      )
      await put(
        host,
        '/etc/systemd/system/bench.service',
        `[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=${command}\nStandardError=null\nTimeoutStopSec=${place.drainMs + 2000}ms\n`,
      )
      await host.ok('systemctl', 'daemon-reload')
      await host.ok('systemctl', 'start', 'bench.socket', 'bench.service')
      let restarted: Promise<unknown> = Promise.resolve()
      return {
        prepare: writeTagThere,
        async go() {
          restarted = host.ok('systemctl', 'restart', 'bench.service')
          restarted.catch(() => {}) // `finish` says it
        },
        finish: async () => void (await restarted),
        [Symbol.asyncDispose]: () => host.off(),
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
