// Which release this process is of: the words that the build has put beside the code. In an executable they are an asset, so
// they are right in worker threads and forked children too; in a script they are a constant; from source nothing is released.
// Must hold: never from the environment, which a successor inherits from a process of another release.

import { readFileSync } from 'node:fs'
import type * as Sea from 'node:sea'
import { dirname, join, resolve } from 'node:path'
import { type ReleaseKind, serviceName } from './words/release.ts'
import type { Anchor } from './update/trust/anchor.ts'

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
