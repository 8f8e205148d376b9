// Dist folders whose releases are signed with keys that the test holds. The test can play the maintainer, or an attacker who holds
// some of the keys. It can write the metadata by hand, so that they can be wrong in every way; `publish` writes good ones.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Role } from '../../agent/publish.ts'
import type { Anchor } from '../../agent/words/release.ts'
import { makeSigner, type Signer } from '../../deploy/trust/keys.ts'
import { describeRepository, sealed } from '../../deploy/trust/repository.ts'
import { type Dist, type DistOptions, makeDist } from './dist.ts'
import { type Temporary, temporary } from './temporary.ts'

export type Signed = Record<string, unknown> & { version: number; expires: string }
export type Keys = Record<Role, Signer[]>

export interface Publication {
  /** default: every release in the folder, as it is */
  targets?: Record<string, unknown>
  /** changes a role's content before it is signed */
  edit?: Partial<Record<Exclude<Role, 'root'>, (signed: Signed) => void>>
  /** default: the maintainer's */
  signers?: Partial<Keys>
  /** default: one more than the last version */
  versions?: Partial<Record<Exclude<Role, 'root'>, number>>
}

export interface SignedDist extends AsyncDisposable {
  dist: Dist
  /** `verified/` */
  folder: string
  keys: Keys
  anchor: Anchor
  versions: Record<Role, number>
  /** signs and writes new targets, snapshot and timestamp */
  publish(publication?: Publication): Promise<void>
  /** writes a new root, signed by these keys (default: those of the old root and of the new one) */
  publishRoot(edit: (root: Signed, keys: Keys) => void, signers?: Signer[]): Promise<void>
  /** writes a metadata file with any content */
  write(name: string, signed: Record<string, unknown>, signers: readonly Signer[]): Promise<Buffer>
  read(name: string): Promise<{ signed: Signed; signatures: { keyid: string; sig: string }[] }>
}

export const FAR = '2099-01-01T00:00:00Z'
export const PAST = '2020-01-01T00:00:00Z'

export interface SignedDistOptions extends DistOptions {
  thresholds?: Partial<Record<Role, number>>
  /** number of keys of each role; default 3 for root, else 1 */
  counts?: Partial<Record<Role, number>>
  signedAs?: string
}

export async function makeSignedDist(tags: string[], options: SignedDistOptions = {}): Promise<SignedDist> {
  const { thresholds = {}, counts = {}, signedAs = 'beacon', ...own } = options
  const dist = await makeDist(tags, own)
  const folder = join(dist.dir, 'verified')
  await mkdir(folder)
  const make = (role: Role, count: number): Signer[] => Array.from({ length: counts[role] ?? count }, makeSigner)
  const keys: Keys = {
    root: make('root', 3),
    targets: make('targets', 1),
    snapshot: make('snapshot', 1),
    timestamp: make('timestamp', 1),
  }
  const versions: Record<Role, number> = { root: 0, targets: 0, snapshot: 0, timestamp: 0 }
  const common = (role: Role, version: number): Record<string, unknown> & { version: number; expires: string } => ({
    _type: role,
    spec_version: '1.0.31',
    version,
    expires: FAR,
    'x-baton-signed-at': '2026-11-01T12:00:00Z',
  })
  const signedDist: SignedDist = {
    dist,
    folder,
    keys,
    anchor: { root: '', builtAt: null },
    versions,
    async write(name, signed, signers) {
      const bytes = sealed(signed, signers)
      await writeFile(join(folder, name), bytes)
      return bytes
    },
    async read(name) {
      return JSON.parse(await readFile(join(folder, name), 'utf8')) as never
    },
    async publish({ targets, edit = {}, signers = {}, versions: wanted = {} } = {}) {
      const seal = async (role: Exclude<Role, 'root'>, body: Record<string, unknown>) => {
        const version = wanted[role] ?? versions[role] + 1
        versions[role] = version
        const signed = { ...common(role, version), ...body }
        edit[role]?.(signed)
        const name = role === 'timestamp' ? 'timestamp.json' : `${version}.${role}.json`
        return describeRepository(version, await signedDist.write(name, signed, signers[role] ?? keys[role]))
      }
      const described = await seal('targets', { targets: targets ?? (await targetsOf(dist.dir, signedAs)) })
      const snapshot = await seal('snapshot', { meta: { 'targets.json': described } })
      await seal('timestamp', { meta: { 'snapshot.json': snapshot } })
    },
    async publishRoot(edit, signers) {
      const before = [...keys.root]
      const root = {
        ...common('root', ++versions.root),
        consistent_snapshot: true,
        'x-baton-service': signedAs,
      } as unknown as Signed
      edit(root, keys)
      root['keys'] ??= Object.fromEntries(
        Object.values(keys).flatMap((all) => all.map(({ keyid, key }) => [keyid, key])),
      )
      root['roles'] ??= Object.fromEntries(
        Object.entries(keys).map(([role, all]) => {
          const threshold = thresholds[role as Role] ?? (role === 'root' ? 2 : 1)
          return [role, { keyids: all.map(({ keyid }) => keyid), threshold }]
        }),
      )
      const signing = signers ?? [...new Map([...before, ...keys.root].map((one) => [one.keyid, one])).values()]
      await signedDist.write(`${root.version}.root.json`, root, signing)
    },
    [Symbol.asyncDispose]: () => dist[Symbol.asyncDispose](),
  }
  await signedDist.publishRoot(() => {})
  signedDist.anchor = { root: await readFile(join(folder, '1.root.json'), 'utf8'), builtAt: null }
  await signedDist.publish()
  return signedDist
}

/** The targets that an honest maintainer signs for the releases in a folder. */
export async function targetsOf(
  dir: string,
  service: string,
  custom: Record<string, Record<string, unknown>> = {},
): Promise<Record<string, Record<string, unknown>>> {
  const { releases } = JSON.parse(await readFile(join(dir, 'releases.json'), 'utf8')) as { releases: { tag: string }[] }
  const targets: Record<string, Record<string, unknown>> = {}
  for (const { tag } of releases) {
    const bytes = await readFile(join(dir, tag, 'release.json'))
    const sha256 = createHash('sha256').update(bytes).digest('hex')
    targets[`${tag}/release.json`] = {
      length: bytes.length,
      hashes: { sha256 },
      custom: { service, ...custom[tag] },
    }
  }
  return targets
}

/** A state directory for a host; disposing removes it. */
export async function stateFolder(): Promise<Temporary> {
  return await temporary('host')
}
