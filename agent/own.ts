// This process's own release, and how it was started. Read once, at the start.
// Must hold: the release comes from what the build put beside the code, never from the environment, which a successor inherits
// from a process of another release. What is noted here stays in this process.

import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join, resolve } from 'node:path'
import type * as Sea from 'node:sea'
import type { Configuration, Listen } from './words/configuration.ts'
import { type Anchor, type ReleaseKind, serviceName } from './words/release.ts'
import type { Rehearse } from './words/rehearsal.ts'
import type { Order } from './words/order.ts'
import type { SnapshotRules } from './words/snapshot.ts'
import type { UnitWishes } from './words/unit.ts'

export interface OwnRelease {
  service: string
  /** `vX.Y.Z`; v0.0.0 from source */
  tag: string
  /** commit of the author's repository, 40 hex; null if the build did not know it */
  commit: string | null
  kind: ReleaseKind | 'source'
  /** path that answers 2xx if the service is healthy, such as `/healthz` */
  healthPath: string | null
  /** what a browser needs to reach it, if its author says so; absent or null: http. Commands see what is spoken by asking */
  scheme?: 'http' | 'https' | null
  /** SQLite database to snapshot before a swap, relative to the state directory; null for none */
  database: string | null
  /** how many servers of HTTP a handover covers; null: everything that listens */
  servers: number | null
  /** the root of its signed feed; null: not signed */
  trust: Anchor | null
  order: Order
  /** `baton`: operators type `baton` before a command, every other first word is the application's. Null: the command comes first */
  commands: 'baton' | null
  /** where the author wants the endpoints and the panel, such as `/_baton`; '' for `/admin` and `/web` */
  basePath: string
  /** `SIGTERM`: what the application does on that signal is its `onStop`; absent or null: an update calls none of it */
  onStop?: 'SIGTERM' | null
  /** URLPatterns of the paths whose answers never end by themselves; absent: none */
  longLivedPaths?: readonly string[] | null
  /** what its author says about rehearsals; absent or null: nothing */
  rehearse?: Rehearse | null
  /** `none`: its author declares that it keeps nothing on the host that a release could change. Absent or null: nothing is said */
  state?: 'none' | null
  /** how data that are not in SQLite are copied; absent or null: there are none */
  snapshot?: SnapshotRules | null
  /** folders of static files with hashes in their names, which old pages ask for; absent or null: none */
  assets?: readonly string[] | null
  /** what it asks of its unit; unchecked: see `wishesOf`. Absent or null: nothing */
  unit?: UnitWishes | null
}

declare const __BATON_RELEASE__: string | undefined
/** defined in a release that has its record compiled in as constants */
declare const __BATON_TRUST__: string | undefined
declare const __BATON_TAG__: string | undefined

let known: Readonly<OwnRelease> | null = null
const NOTED = Symbol.for('baton.release')

/** Notes the release for code built without it: the operator's commands inside a script, an application that runs from source. */
export function noteRelease(release: OwnRelease): void {
  Object.defineProperty(globalThis, NOTED, { value: release, configurable: true })
}

/**
 * Name of the release record beside the copy of the sources that `baton dev` runs. Its workers and children, which are plain
 * Node, read their release there.
 */
export const RELEASE_FILE = 'baton.release.json'

/** This process's release; read once. From source: v0.0.0, and the name in the nearest package.json of the started program. */
export function ownRelease(): Readonly<OwnRelease> {
  return (known ??= Object.freeze(readBuilt() ?? fromSource()))
}

/** The state directory, unless an author gives another one to `embed()`. */
export function ownStateDirectory(service: string): string {
  return ownStart()?.configuration?.stateDirectory ?? defaultStateDirectory(service)
}

/** The directory that the installer would choose, for a process that was started without the installer. */
function defaultStateDirectory(service: string): string {
  const { STATE_DIRECTORY, XDG_STATE_HOME } = process.env
  const systemd = STATE_DIRECTORY?.split(':')[0] // set by systemd for `StateDirectory=`
  if (systemd !== undefined && isAbsolute(systemd)) return systemd
  if (process.getuid?.() === 0) return join('/var/lib', service)
  const home = XDG_STATE_HOME !== undefined && isAbsolute(XDG_STATE_HOME) ? XDG_STATE_HOME : null
  return join(home ?? join(homedir(), '.local', 'state'), service)
}

/** Path of the database; null for none. In the state directory, `<service>.db` from source if its author names none. */
export function ownDatabase(service: string, stateDirectory: string): string | null {
  const { kind, database } = ownRelease()
  const name = database ?? (kind === 'source' ? `${service}.db` : null)
  return name === null ? null : join(stateDirectory, name)
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
    return null // a single executable that Baton did not build
  }
}

/** The record of a program that Baton did not build. */
const NOTHING_SAID: Readonly<Required<OwnRelease>> = {
  service: 'service',
  tag: 'v0.0.0',
  commit: null,
  kind: 'source',
  healthPath: null,
  scheme: null,
  database: null,
  servers: null,
  trust: null,
  order: 'stop-first',
  commands: null,
  basePath: '',
  onStop: null,
  longLivedPaths: null,
  rehearse: null,
  state: null,
  snapshot: null,
  assets: null,
  unit: null,
}

/** Keeps only the members that the agent uses. An older build lacks the last ones, a build without a root lacks `trust`. */
function whole(given: Partial<OwnRelease>): OwnRelease {
  const all = Object.entries(NOTHING_SAID).map(([key, other]) => [key, given[key as keyof OwnRelease] ?? other])
  return { ...NOTHING_SAID, ...Object.fromEntries(all) }
}

function fromSource(): OwnRelease {
  const trust = typeof __BATON_TRUST__ === 'string' ? (JSON.parse(__BATON_TRUST__) as Anchor | null) : null
  const release: OwnRelease = { ...NOTHING_SAID, trust }
  // Do not search the folders around a release: any user's files may be there, for instance in /tmp during an install.
  if (typeof __BATON_TAG__ === 'string') return release
  const started = process.argv[1]
  for (let folder = dirname(resolve(started ?? '.')); folder !== dirname(folder); folder = dirname(folder)) {
    const words = readJson(join(folder, RELEASE_FILE))
    if (words !== null) return whole(words)
    const own = readJson(join(folder, 'baton.config.json')) ?? {}
    const name = own['service'] ?? readJson(join(folder, 'package.json'))?.['name']
    if (typeof name !== 'string') continue
    for (const key of ['healthPath', 'database', 'basePath'] as const)
      if (typeof own[key] === 'string') release[key] = own[key]
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

export interface OwnStart {
  /** arguments of the program, before the first code removed its own */
  readonly argv: readonly string[]
  /** path of the file that an update replaces: the executable, or the script */
  readonly executable: string
  /** true: this process is a file that the application has forked, not the service */
  readonly isChild: boolean
  /** working directory before the application changed it; null for an operator's command and for a forked file */
  readonly directory: string | null
  /** null if it was not started by an installer's command */
  readonly configuration: Readonly<Omit<Configuration, 'listen'> & { listen?: readonly Listen[] }> | null
  /** the word of the application that was typed, and where the service listens: a word is no service, and must not listen there */
  readonly word?: { readonly typed: string; readonly port: number; readonly path: string }
}

const START = Symbol.for('baton.start')
/** Variable in the environment of the application's children: the pid of the service's process that they come from. */
export const PARENT = 'BATON_PARENT'

/** In the environment of a word of the application that an operator has typed: the install's configuration, which it works with. */
export const WORD = 'BATON_WORD'

/** In the environment of a command that runs before the application: the pid of the process that is to become the application. */
export const BEFORE = 'BATON_BEFORE'

/**
 * `1` in the environment: the first word is an operator's command, whatever `commands` of the release says. install.sh and other
 * programs set it, because they do not know which release they call.
 */
export const COMMAND = 'BATON_COMMAND'

/** Null if none of Baton's first code has run: from source, or in a program that Baton did not build. */
export function ownStart(): OwnStart | null {
  return (globalThis as { [START]?: OwnStart })[START] ?? null
}

export function noteStart(start: OwnStart): void {
  Object.defineProperty(globalThis, START, { value: Object.freeze(start), configurable: true })
}

/**
 * Path of this process's executable. Captured at start: after a swap `process.execPath` is still right, but `/proc/self/exe`
 * says `(deleted)`.
 */
export function ownExecutable(): string | null {
  return ownStart()?.executable ?? (isSingleExecutable() ? process.execPath : null)
}

export function isSingleExecutable(): boolean {
  return process.getBuiltinModule('node:sea').isSea()
}
