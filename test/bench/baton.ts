// Baton as a peer: real executables, a managed install of its own folder, and every switch ordered through the endpoints.

import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { chmod, link, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { createZstdDecompress } from 'node:zlib'
import { receiptPath } from '../../agent/disk/places.ts'
import type { Receipt } from '../../agent/disk/receipt.ts'
import { SCHEMA } from '../../agent/service/schema.ts'
import type { Operation, Status } from '../../agent/words/state.ts'
import { buildRelease, DEFAULT_SERVICE, definitions } from '../../deploy/make/release.ts'
import { bundle } from '../../deploy/make/bundle.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import type { Effort } from '../../deploy/make/pack.ts'
import { createProgress } from '../../deploy/lib/progress.ts'
import { assetName } from '../../deploy/make/release-folder.ts'
import { TAGS } from './peer.ts'
import type { Peer, Place } from './peer.ts'
import { end, gone, start, track } from './processes.ts'
import { CACHE } from './setup.ts'

export const PASSWORD = 'bench-0000000000000000'
const PROBATION_MS = 1000
const OPERATION_MS = 120_000
export const SERVICE_ENTRY = join(PROJECT, 'test/bench/service.ts')

export interface Release {
  tag: string
  /** the executable, unpacked; link it, never write to it */
  executable: string
  executableBytes: number
  assetBytes: number
}

export interface Releases {
  /** a static feed */
  feed: string
  v100: Release
  v110: Release
}

/** Builds v1.0.0 of `entry`, and v1.1.0 of it or of `newer`, into `.cache/bench/<name>`: a feed, and beside it the executables. */
export async function buildReleases(name: string, entry: string, effort: Effort, newer = entry): Promise<Releases> {
  const feed = join(CACHE, name)
  const tags = [...TAGS]
  const built: Release[] = []
  for (const [i, tag] of tags.entries()) built.push(await build(feed, tag, i === 0 ? entry : newer, effort))
  const [v100, v110] = built
  if (v100 === undefined || v110 === undefined) throw new Error('expected two releases')
  return { feed, v100, v110 }
}

/** Building is slow, so a release is kept until its sources change. */
async function build(feed: string, tag: string, entry: string, effort: Effort): Promise<Release> {
  await mkdir(feed, { recursive: true })
  const asset = join(feed, tag, `${assetName(DEFAULT_SERVICE)}.zst`)
  const executable = `${feed}-${tag}`
  const script = await bundle({ entry, define: definitions(DEFAULT_SERVICE, tag) })
  const key = createHash('sha256').update(`${process.version} ${effort}\n`).update(script).digest('hex')
  if ((await readFile(`${executable}.key`, 'utf8').catch(() => '')) !== key) {
    await buildRelease({
      entry,
      tag,
      out: feed,
      service: DEFAULT_SERVICE,
      feed: null,
      notes: '',
      effort,
      schema: SCHEMA.length,
      publishedAt: '2026-01-02T03:04:05.000Z',
      force: true,
      progress: createProgress({ quiet: true }),
    })
    await rm(executable, { force: true }) // what was linked to it stays whole
    await pipeline(createReadStream(asset), createZstdDecompress(), createWriteStream(executable))
    await chmod(executable, 0o755)
    await writeFile(`${executable}.key`, key)
  }
  return { tag, executable, executableBytes: (await stat(executable)).size, assetBytes: (await stat(asset)).size }
}

export async function baton(): Promise<Peer> {
  const releases = await buildReleases('bench-releases', SERVICE_ENTRY, 'fast')
  return peerOf('baton', 'Baton', releases)
}

/** The same service, of which no two processes may live at once. */
export async function batonAlone(): Promise<Peer> {
  const releases = await buildReleases('bench-releases-alone', join(PROJECT, 'test/bench/service-alone.ts'), 'fast')
  return peerOf('baton-one', 'Baton, stop-first', releases)
}

function peerOf(id: string, title: string, releases: Releases): Peer {
  return {
    id,
    title,
    version: `node ${process.version.slice(1)}`,
    native: false,
    configuration: `A managed install of the reference service (a Node single executable) with a WebSocket echo added. \`probation\` ${PROBATION_MS} ms, \`drainTimeout\` the drain deadline. The order is \`POST /admin/update/rollback\`, there and back: everything from the request on counts, the database snapshot and the exchange of the files too. The WebSockets are carried (\`agent.carry\`), streams are left to finish.`,
    // in one folder: like a successor, all but the first find their database
    bare: (place) => install({ ...place, folder: join(place.folder, '..', 'bare') }, releases),
    async open(place) {
      const installed = await install(place, releases, { backup: true })
      const client = createClient(place.port)
      let ordered: Operation | null = null
      let restartMs = 0
      return {
        prepare: async () => undefined,
        async go() {
          ordered = await client.order('/admin/update/rollback')
        },
        async finish() {
          if (!(await gone(installed.pid, OPERATION_MS)))
            throw new Error(`the predecessor ${installed.pid} is still there`)
        },
        async confirm() {
          const status = await client.ended(ordered?.id ?? '')
          installed.pid = status.instance.pid
          restartMs = status.operation?.handover?.switchMs ?? 0
          track(installed.pid)
        },
        restartMs: () => restartMs,
        [Symbol.asyncDispose]: () => installed[Symbol.asyncDispose](),
      }
    },
  }
}

export interface Installed extends AsyncDisposable {
  pid: number
  /** `performance.now()` */
  startedAt: number
  executable: string
  /** what the service writes, line by line */
  onLine(listener: (line: string) => void): void
}

export interface InstallOptions {
  /** v1.1.0 stands by as the backup executable */
  backup?: boolean
  feed?: string
}

/** A managed install of v1.0.0 in the place's folder, started. Its files are links to the built ones. */
export async function install(place: Place, releases: Releases, options: InstallOptions = {}): Promise<Installed> {
  const { v100, v110 } = releases
  const folder = join(place.folder, 'app')
  const stateDirectory = join(place.folder, 'state')
  const configPath = join(place.folder, 'config.json')
  const executable = join(folder, DEFAULT_SERVICE)
  const feed = options.feed ?? releases.feed
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  await mkdir(stateDirectory, { recursive: true })
  await link(v100.executable, executable)
  if (options.backup === true) await link(v110.executable, `${executable}.backup`)
  const receipt: Receipt = {
    format: 1,
    service: DEFAULT_SERVICE,
    executable,
    scope: 'user',
    supervisor: 'none',
    user: 'bench',
    stateDirectory,
    configPath,
    feed,
    installedAt: '2026-01-02T03:04:05.000Z',
    options: {},
  }
  await writeFile(receiptPath(executable), JSON.stringify(receipt))
  const config = {
    dashboard: { password: PASSWORD },
    listen: { host: '127.0.0.1', port: place.port },
    stateDirectory,
    feed,
    update: { probation: `${PROBATION_MS}ms`, drainTimeout: `${place.drainMs}ms` },
  }
  await writeFile(configPath, JSON.stringify(config), { mode: 0o600 })
  const startedAt = performance.now()
  const started = start(executable, ['--config', configPath])
  const installed: Installed = {
    pid: started.pid,
    startedAt,
    executable,
    onLine: (listener) => {
      if (started.child.stdout !== null) createInterface({ input: started.child.stdout }).on('line', listener)
    },
    [Symbol.asyncDispose]: () => end(installed.pid, 'SIGKILL'),
  }
  return installed
}

export interface Client {
  order(path: string, body?: unknown): Promise<Operation>
  status(): Promise<Status>
  /** Waits until the operation has ended well; throws when it has not. */
  ended(id: string): Promise<Status>
}

export function createClient(port: number): Client {
  const ask = async (method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${PASSWORD}`,
        connection: 'close',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(10_000),
    })
    return { status: response.status, body: await response.json() }
  }
  const status = async (): Promise<Status> => {
    const answer = await ask('GET', '/admin/update/status')
    if (answer.status !== 200)
      throw new Error(`status: expected 200, got ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body as Status
  }
  return {
    async order(path, body) {
      const answer = await ask('POST', path, body)
      if (answer.status !== 202)
        throw new Error(`${path}: expected 202, got ${answer.status} ${JSON.stringify(answer.body)}`)
      return answer.body as Operation
    },
    status,
    async ended(id) {
      const deadline = performance.now() + OPERATION_MS
      for (;;) {
        const now = await status()
        const { operation } = now
        if (operation?.id === id && operation.outcome !== null && now.instance.version === operation.to) {
          if (operation.error !== null) throw new Error(`${operation.error.code}: ${operation.error.message}`)
          return now
        }
        if (operation?.id === id && (operation.outcome === 'reverted' || operation.outcome === 'failed')) {
          throw new Error(`${operation.outcome}: ${operation.error?.message}`)
        }
        if (performance.now() > deadline) throw new Error(`operation ${id} has not ended: ${JSON.stringify(operation)}`)
        await sleep(50)
      }
    },
  }
}
