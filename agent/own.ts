// What this process is: the release that it is of, how it was started, the container around it. Read once, at the start.
// Must hold: the release comes from what the build has put beside the code, never from the environment, which a successor
// inherits from a process of another release. What is noted here stays in this process.

import { existsSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { hostname } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import type * as Sea from 'node:sea'
import { type Anchor, type ReleaseKind, serviceName } from './words/release.ts'

export interface OwnRelease {
  service: string
  /** `vX.Y.Z`; v0.0.0 from source */
  tag: string
  /** of the author's repository, 40 hex; null where the build was not told */
  commit: string | null
  kind: ReleaseKind | 'source'
  /** path that answers 2xx where the service is well, such as `/healthz` */
  healthPath: string | null
  /** SQLite database to snapshot before a swap, relative to the state directory; null for none */
  database: string | null
  /** how many servers of the process are handed over */
  servers: number
  /** the root that its feed is signed by; null: not signed */
  trust: Anchor | null
}

declare const __BATON_RELEASE__: string | undefined
/** of a release whose words are constants */
declare const __BATON_TRUST__: string | undefined
declare const __BATON_TAG__: string | undefined

let known: Readonly<OwnRelease> | null = null
const NOTED = Symbol.for('baton.release')

/** For code that is not of the release itself: the operator's words inside a script, an application that runs from source. */
export function noteRelease(release: OwnRelease): void {
  Object.defineProperty(globalThis, NOTED, { value: release, configurable: true })
}

/** Beside a copy of the sources that `baton dev` runs: what its workers and children, which are plain Node, are of. */
export const RELEASE_WORDS = 'baton.release.json'

/** Read once. From source: the name in the nearest package.json of the program that was started, and v0.0.0. */
export function ownRelease(): Readonly<OwnRelease> {
  return (known ??= Object.freeze(readBuilt() ?? fromSource()))
}

/** Path of the database inside the state directory; null for none. A program that was built without a release's words has `<service>.db`. */
export function ownDatabase(service: string): string | null {
  const { kind, database } = ownRelease()
  return kind === 'source' ? `${service}.db` : database
}

function readBuilt(): OwnRelease | null {
  if (typeof __BATON_RELEASE__ === 'string') return whole(JSON.parse(__BATON_RELEASE__) as OwnRelease)
  const noted = (globalThis as { [NOTED]?: OwnRelease })[NOTED]
  if (noted !== undefined) return whole(noted)
  const sea = process.getBuiltinModule('node:sea') as typeof Sea | undefined
  if (sea === undefined || !sea.isSea()) return null
  try {
    return whole(JSON.parse(sea.getAsset('release', 'utf8')) as OwnRelease)
  } catch {
    return null // an executable that was made without us
  }
}

/** Only what is the agent's; a build that knows of no root leaves it out. */
function whole({ service, tag, commit, kind, healthPath, database, servers, trust }: OwnRelease): OwnRelease {
  return { service, tag, commit, kind, healthPath, database, servers, trust: trust ?? null }
}

function fromSource(): OwnRelease {
  const release: OwnRelease = {
    service: 'service',
    tag: 'v0.0.0',
    commit: null,
    kind: 'source',
    healthPath: null,
    database: null,
    servers: 1,
    trust: typeof __BATON_TRUST__ === 'string' ? (JSON.parse(__BATON_TRUST__) as Anchor | null) : null,
  }
  // around a release everybody's files may lie: in /tmp, while it is installed
  if (typeof __BATON_TAG__ === 'string') return release
  const started = process.argv[1]
  for (let folder = dirname(resolve(started ?? '.')); folder !== dirname(folder); folder = dirname(folder)) {
    const words = readJson(join(folder, RELEASE_WORDS))
    if (words !== null) return whole(words as unknown as OwnRelease)
    const own = readJson(join(folder, 'baton.config.json')) ?? {}
    const name = own['service'] ?? readJson(join(folder, 'package.json'))?.['name']
    if (typeof name !== 'string') continue
    for (const key of ['healthPath', 'database'] as const) if (typeof own[key] === 'string') release[key] = own[key]
    if (typeof own['servers'] === 'number') release.servers = own['servers']
    return { ...release, service: serviceName(name) }
  }
  return release
}

function readJson(path: string): Record<string, unknown> | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>
  } catch {
    return null
  }
}

/** What an installer's `config.json` holds, as far as the agent reads it for an author who leaves it to us. */
export interface InstallConfiguration {
  dashboard?: { password?: string }
  listen?: { host?: string; port?: number; path?: string }
  basePath?: string
  stateDirectory?: string
  feed?: string
  update?: Record<string, number>
}

export interface OwnStart {
  /** what the program was started with, before the first code took its own words away */
  readonly argv: readonly string[]
  /** path of the file to replace: the executable, or the script */
  readonly executable: string
  /** a file of the application that the application itself has forked: not the service */
  readonly isChild: boolean
  /** working directory, before the application changed it; null where that is not wanted */
  readonly directory: string | null
  /** null where it was not started by an installer's words */
  readonly configuration: Readonly<InstallConfiguration> | null
}

const START = Symbol.for('baton.start')
/** In the environment of what the application starts: the id of the process of the service that it comes from. */
export const PARENT = 'BATON_PARENT'

/** Null where no first code of ours has run: from source, or in a program that was built without us. */
export function ownStart(): OwnStart | null {
  return (globalThis as { [START]?: OwnStart })[START] ?? null
}

export function noteStart(start: OwnStart): void {
  Object.defineProperty(globalThis, START, { value: Object.freeze(start), configurable: true })
}

/** Captured at start: after a swap `process.execPath` is still right, but `/proc/self/exe` says `(deleted)`. */
export function ownExecutable(): string | null {
  return ownStart()?.executable ?? (isSingleExecutable() ? process.execPath : null)
}

/** In a single executable argv is [executable, argv0 as typed, …own], in a script [node, script, …own]. */
export function ownArguments(): string[] {
  return [...(ownStart()?.argv ?? process.argv.slice(2))]
}

/** Where this process was started, for the next one; absent if nobody has noted it, or it is gone. */
export function ownDirectory(): { cwd?: string } {
  const cwd = ownStart()?.directory ?? null
  return cwd === null || !existsSync(cwd) ? {} : { cwd }
}

export function isSingleExecutable(): boolean {
  const sea = createRequire(process.execPath)('node:sea') as { isSea(): boolean }
  return sea.isSea()
}

/** Id, or null outside of a container and where it cannot be told. */
export async function ownContainerId(): Promise<string | null> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '')
  return containerIdIn(mounts, hostname())
}

/** The whole command that updates this container, to be run on its host. `id` null: where it cannot be told. Pure. */
export function updateCommand(id: string | null, environment: Readonly<Record<string, string | undefined>>): string {
  const image = environment['BATON_DEPLOY_IMAGE'] ?? ''
  const socket = '/var/run/docker.sock'
  const program = image === '' ? 'deploy-container.sh' : `docker run --rm -v ${socket}:${socket} ${image} deploy`
  return `${program}${id === null ? '' : ` --container ${id.slice(0, 12)}`} --release latest`
}

/** The engine mounts a container's own `hostname` and `resolv.conf` from a folder that has its id for a name. Pure. */
export function containerIdIn(mountinfo: string, host: string): string | null {
  const mounted = /\/(?:containers|overlay-containers)\/([0-9a-f]{64})\/\S*(?:hostname|resolv\.conf) \/etc\//.exec(
    mountinfo,
  )?.[1]
  if (mounted !== undefined) return mounted
  return mountinfo !== '' && /^[0-9a-f]{12}$/.test(host) ? host : null
}
