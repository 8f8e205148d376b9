// Changes a signed feed: a new root, new targets, or only a later expiry; and signs again everything that depends on the change.
// Must hold: a file is signed before the files that depend on it, so that all published files belong together. Each file has as
// many signatures as the root asks for. If the keys are not at hand, nothing is written at all. The files of new keys are on the disk
// before a root names them, and are not left where none does.

import { hash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  LIST_NAME,
  parseManifest,
  parseReleases,
  type Role,
  SERVICE_MEMBER,
  SIGNED_AT,
  verifyRoot,
} from '../../agent/publish.ts'
import { DAY_MS, BatonError, isTag } from '../../agent/words.ts'
import type { Signer, WrittenKeys } from './keys.ts'
import {
  type Days,
  describeRepository,
  type NewFile,
  nextVersion,
  publish,
  type Repository,
  sealed,
  type TargetFile,
} from './repository.ts'

export const DAYS: Days = { root: 365, targets: 90, snapshot: 30, timestamp: 30 }
const DAYS_MEMBER = 'x-baton-days'
const SPEC = '1.0.31'

/** Resolves to as many signers of a role as its threshold; throws if there are fewer. */
export type Signers = (role: Role, root: Repository['root']) => Promise<Signer[]>

export interface TrustChange {
  repository: Repository
  signers: Signers
  /** days until the snapshot, the timestamp and any newly signed targets expire; null: as the root says */
  offlineDays: number | null
  now: Date
}

export interface RootPlan {
  service: string
  days: Days
  roles: Record<Role, { keys: Signer[]; threshold: number }>
}

/** Writes the files of the new keys that a root names. It is called when all is signed and nothing is published. */
export type KeepKeys = () => Promise<Pick<WrittenKeys, 'undo'>>

/** Signs and publishes the first root, with no releases yet. */
export async function beginChange(folder: string, plan: RootPlan, now: Date, keep: KeepKeys): Promise<void> {
  const { service, days, roles } = plan
  const keys = Object.fromEntries(
    Object.values(roles).flatMap((role) => role.keys.map(({ keyid, key }) => [keyid, key])),
  )
  const named = Object.fromEntries(
    Object.entries(roles).map(([role, { keys, threshold }]) => [
      role,
      { keyids: keys.map(({ keyid }) => keyid), threshold },
    ]),
  )
  const root = {
    _type: 'root',
    consistent_snapshot: true,
    expires: after(now, days.root),
    keys,
    roles: named,
    spec_version: SPEC,
    version: 1,
    [SERVICE_MEMBER]: service,
    [DAYS_MEMBER]: days,
    [SIGNED_AT]: seconds(now),
  } as unknown as Repository['root']
  const bytes = sealed(root, roles.root.keys)
  verifyRoot(bytes)
  const repository: Repository = {
    folder,
    root,
    targets: { version: 0, expires: '', targets: {} },
    snapshot: { version: 0, expires: '' },
    timestamp: { version: 0, expires: '' },
  }
  const signers: Signers = (role) => Promise.resolve(roles[role].keys)
  const rest = await signedAnew({ repository, signers, offlineDays: null, now }, {})
  await publishRoot(folder, { name: '1.root.json', bytes }, rest, keep)
}

/** Signs targets that have changed (null: they have not), the snapshot and the timestamp. */
export async function signTargets(change: TrustChange, targets: Record<string, TargetFile> | null): Promise<void> {
  await publish(change.repository.folder, await signedAnew(change, targets))
}

/** Signs a new root with other keys, thresholds or expiries, with the keys of the old root and with its own. */
export async function signRoot(
  change: TrustChange,
  edit: (root: Repository['root']) => void,
  keep: KeepKeys,
): Promise<void> {
  const { repository, signers, now } = change
  const root = structuredClone(repository.root)
  edit(root)
  root.version = repository.root.version + 1
  root.expires = after(now, daysOf(root).root)
  root[SIGNED_AT] = seconds(now)
  const used = new Set(Object.values(root.roles).flatMap(({ keyids }) => keyids))
  root.keys = Object.fromEntries(Object.entries(root.keys).filter(([id]) => used.has(id)))
  const signing = new Map<string, Signer>()
  for (const one of [repository.root, root])
    for (const signer of await signers('root', one)) signing.set(signer.keyid, signer)
  const bytes = sealed(root, [...signing.values()])
  verifyRoot(bytes)
  const changed = { ...change, repository: { ...repository, root } }
  // a role with new keys is signed again by them, even if its content is the same
  const isSame = JSON.stringify(root.roles.targets) === JSON.stringify(repository.root.roles.targets)
  const rest = await signedAnew(changed, isSame ? null : repository.targets.targets)
  await publishRoot(repository.folder, { name: `${root.version}.root.json`, bytes }, rest, keep)
}

async function publishRoot(folder: string, root: NewFile, rest: readonly NewFile[], keep: KeepKeys): Promise<void> {
  const kept = await keep()
  try {
    await publish(folder, [root, ...rest])
  } catch (error) {
    const names = await readdir(folder).catch(() => null)
    if (names?.includes(root.name) === false) await kept.undo() // a root that is there needs its keys, whatever came after it
    throw error
  }
}

/** The newly signed files, each after those that it depends on; timestamp.json last. */
async function signedAnew(change: TrustChange, targets: Record<string, TargetFile> | null): Promise<NewFile[]> {
  const { repository, signers, offlineDays, now } = change
  const { folder, root } = repository
  const files: NewFile[] = []
  const seal = async (role: Role, current: number, body: Record<string, unknown>): Promise<Record<string, unknown>> => {
    const version = await nextVersion(folder, role, current)
    const signed = {
      _type: role,
      spec_version: SPEC,
      version,
      expires: after(now, offlineDays ?? daysOf(root)[role]),
      [SIGNED_AT]: seconds(now),
      ...body,
    }
    const bytes = sealed(signed, await signers(role, root))
    files.push({ name: role === 'timestamp' ? 'timestamp.json' : `${version}.${role}.json`, bytes })
    return describeRepository(version, bytes)
  }
  const described =
    targets === null ? await currentTargets(repository) : await seal('targets', repository.targets.version, { targets })
  const snapshot = await seal('snapshot', repository.snapshot.version, { meta: { 'targets.json': described } })
  await seal('timestamp', repository.timestamp.version, { meta: { 'snapshot.json': snapshot } })
  return files
}

async function currentTargets({ folder, targets }: Repository): Promise<Record<string, unknown>> {
  return describeRepository(targets.version, await readFile(join(folder, `${targets.version}.targets.json`)))
}

/** Targets with the releases of a feed's folder that are not signed yet. Refuses a release with a missing or changed file. */
export async function newTargets(
  feed: string,
  repository: Repository,
  image: { repository: string; digest: string } | null,
  again: boolean,
): Promise<{ tags: string[]; drafts: string[]; targets: Record<string, TargetFile> }> {
  const list = await readFile(join(feed, LIST_NAME), 'utf8').catch(() => null)
  const taken = list === null ? [] : parseReleases(list).filter(({ draft }) => draft)
  const drafts: string[] = []
  const service = String(repository.root[SERVICE_MEMBER])
  const targets = { ...repository.targets.targets }
  const tags: string[] = []
  for (const tag of (await readdir(feed)).filter(isTag)) {
    const path = `${tag}/release.json`
    const bytes = await readFile(join(feed, path)).catch(() => null)
    if (bytes === null) continue
    const before = targets[path]
    const sha256 = hash('sha256', bytes)
    if (before?.hashes.sha256 === sha256) continue
    if (before === undefined && taken.some((one) => one.tag === tag)) {
      drafts.push(tag)
      continue
    }
    if (before !== undefined && !again) {
      const hint = 'a signed release must not change; if only a platform was added, sign it with --again'
      throw new BatonError('refused', `the release.json of ${tag} has changed since it was signed`, { hint })
    }
    await checkRelease(join(feed, tag), bytes, tag, service)
    const custom = { service, ...(image === null ? {} : { image }) }
    targets[path] = { length: bytes.length, hashes: { sha256 }, custom }
    tags.push(tag)
  }
  return { tags, drafts, targets }
}

async function checkRelease(folder: string, bytes: Buffer, tag: string, service: string): Promise<void> {
  const parsed = parseManifest(bytes.toString())
  const refused = (why: string): BatonError => new BatonError('verify_failed', `${tag} cannot be signed: ${why}`)
  if ('why' in parsed) throw refused(parsed.why)
  const { manifest } = parsed
  if (manifest.service !== service) throw refused(`it is a release of \`${manifest.service}\`, not of \`${service}\``)
  if (manifest.tag !== tag) throw refused(`its release.json says ${manifest.tag}`)
  for (const { name, sizeBytes, sha256 } of manifest.assets) {
    const file = await readFile(join(folder, name)).catch(() => null)
    if (file?.length !== sizeBytes)
      throw refused(`size of ${name}: expected ${sizeBytes}, got ${file?.length ?? 'no file'}`)
    const got = hash('sha256', file)
    if (got !== sha256) throw refused(`sha256 of ${name}: expected ${sha256}, got ${got}`)
  }
}

export function daysOf(root: Repository['root']): Days {
  return { ...DAYS, ...(root[DAYS_MEMBER] as Partial<Days> | undefined) }
}

function after(now: Date, days: number): string {
  return seconds(new Date(now.getTime() + days * DAY_MS))
}

function seconds(date: Date): string {
  return date.toISOString().replace(/\.\d+Z$/, 'Z')
}
