// Reads and changes the signed metadata in a feed's folder, so that no reader ever sees half of a change. Every file but
// timestamp.json has its version in its name and is never replaced. timestamp.json is replaced last, by a rename.
// A power cut may leave numbered files that nothing refers to; the next change skips their numbers.

import { createHash } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { canonicalize, formFault, METADATA_FOLDER, type Role, type SignedRoot } from '../../agent/publish.ts'
import { BatonError, reasonOf, type RolloutStep } from '../../agent/words.ts'
import type { Signer } from './keys.ts'

export interface TargetFile {
  length: number
  hashes: { sha256: string }
  custom: {
    service: string
    yanked?: string
    image?: { repository: string; digest: string }
    rollout?: RolloutStep[]
  }
}

export interface SignedTargets {
  version: number
  expires: string
  targets: Record<string, TargetFile>
}

export type Days = Record<Role, number>

export interface Repository {
  /** absolute path of `verified/` */
  folder: string
  root: SignedRoot & { [member: string]: unknown }
  targets: SignedTargets
  snapshot: { version: number; expires: string }
  timestamp: { version: number; expires: string }
}

export interface NewFile {
  name: string
  bytes: Buffer
}

/** snapshots and targets that stay, for a host in the middle of reading; of each role the newest */
const KEPT = 8

/**
 * Reads the feed's newest trust metadata; `feed`: folder with the releases. Throws BatonError refused if there is no root, or a file is
 * missing or malformed. Does not verify signatures.
 */
export async function readRepository(feed: string): Promise<Repository> {
  const folder = join(feed, METADATA_FOLDER)
  const names = await readdir(folder).catch(() => [])
  const newest = Math.max(0, ...versionsOf('root', names))
  if (newest === 0) {
    const hint = 'generate keys for the feed with `trust init`'
    throw new BatonError('refused', `${folder} has no root.json: this feed is not signed`, { hint })
  }
  const root = (await readSigned(folder, 'root', `${newest}.root.json`)) as unknown as Repository['root']
  const timestamp = await readSigned(folder, 'timestamp', 'timestamp.json')
  const snapshot = await readSigned(folder, 'snapshot', `${metaOf(timestamp, 'snapshot.json')}.snapshot.json`)
  const targets = await readSigned(folder, 'targets', `${metaOf(snapshot, 'targets.json')}.targets.json`)
  return {
    folder,
    root,
    targets: targets as unknown as SignedTargets,
    snapshot: snapshot as unknown as Repository['snapshot'],
    timestamp: timestamp as unknown as Repository['timestamp'],
  }
}

/** Bytes of a metadata file: canonical JSON, signed by each of `signers`. */
export function sealed(signed: Record<string, unknown>, signers: readonly Signer[]): Buffer {
  const message = Buffer.from(canonicalize(signed))
  const signatures = signers
    .toSorted((a, b) => (a.keyid < b.keyid ? -1 : 1))
    .map((signer) => ({ keyid: signer.keyid, sig: signer.sign(message) }))
  return Buffer.from(canonicalize({ signatures, signed }))
}

/** The entry by which another metadata file refers to this one. */
export function describeRepository(version: number, bytes: Buffer): Record<string, unknown> {
  return { version, length: bytes.length, hashes: { sha256: createHash('sha256').update(bytes).digest('hex') } }
}

/** One more than the highest version in the folder, even if nothing refers to that file. */
export async function nextVersion(folder: string, role: Role, current: number): Promise<number> {
  return Math.max(current, ...versionsOf(role, await readdir(folder).catch(() => []))) + 1
}

/** Writes the files in this order, timestamp.json last; each is whole and on the disk before the next. Removes outdated ones. */
export async function publish(folder: string, files: readonly NewFile[]): Promise<void> {
  await mkdir(folder, { recursive: true })
  for (const { name, bytes } of files) {
    const temporary = join(folder, `.${name}.tmp`)
    try {
      await using file = await open(temporary, 'w', 0o644)
      await file.writeFile(bytes)
      await file.sync()
    } catch (error) {
      throw new BatonError('unexpected', `writing ${temporary}: ${reasonOf(error)}`, { cause: error })
    }
    await rename(temporary, join(folder, name))
    await using directory = await open(folder, 'r')
    await directory.sync()
  }
  for (const name of outdatedAmong(await readdir(folder))) await rm(join(folder, name), { force: true })
}

/** Snapshots and targets that are older than the newest `KEPT` of their role. */
export function outdatedAmong(names: readonly string[]): string[] {
  return (['snapshot', 'targets'] as const).flatMap((role) => {
    const versions = [...new Set(versionsOf(role, names))].toSorted((a, b) => b - a)
    return versions.slice(KEPT).map((version) => `${version}.${role}.json`)
  })
}

async function readSigned(folder: string, role: Role, name: string): Promise<Record<string, unknown>> {
  const path = join(folder, name)
  try {
    const bytes = await readFile(path)
    const fault = formFault(role, bytes, canonicalize)
    if (fault !== null) throw new Error(fault)
    return (JSON.parse(bytes.toString()) as { signed: Record<string, unknown> }).signed
  } catch (error) {
    throw new BatonError('refused', `reading ${path}: ${reasonOf(error)}`, { cause: error })
  }
}

function metaOf(signed: Record<string, unknown>, name: string): number {
  return (signed['meta'] as Record<string, { version: number }>)[name]?.version ?? 0
}

/** Versions of a role's numbered files among these names, in no order. */
export function versionsOf(role: Role, names: readonly string[]): number[] {
  const pattern = new RegExp(`^([1-9]\\d{0,9})\\.${role}\\.json$`)
  return names.map((name) => Number(pattern.exec(name)?.[1] ?? 0)).filter((version) => version > 0)
}
