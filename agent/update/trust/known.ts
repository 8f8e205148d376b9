// Keeps the trust metadata that this host has verified, in `<state directory>/update/trust.json`. The file is replaced whole, so
// after a power cut it holds either the old set or the new one. Must hold: an older set never replaces a newer one.

import { join } from 'node:path'
import { type Disk, readSmall } from '../../disk/disk.ts'
import { updateDirectory } from '../../disk/places.ts'
import { BatonError, codeOf, reasonOf } from '../../words/errors.ts'
import { ROLES } from './form.ts'
import type { Role } from './form.ts'
import { sha256Of } from './release-texts.ts'
import { isObject, isSha256, parsedJson } from '../../words/untrusted.ts'

export interface Known {
  /** sha256 of each root from the compiled one on, oldest first; shows whether the last root descends from another executable's */
  chain: string[]
  /** the files as fetched; a host that has asked no feed yet has only the root */
  files: { root: string } & Partial<Record<Role, string>>
}

export interface KnownStore {
  /** What to verify the feed from: the metadata kept here, or the compiled root if it is not in their chain. */
  read(): Promise<Known>
  write(known: Known): Promise<void>
}

const MAX_BYTES = 8 * 1024 * 1024
const CHAIN_MAX = 1_000

export function metadataVersionOf(file: string | undefined): number {
  return file === undefined ? 0 : (JSON.parse(file) as { signed: { version: number } }).signed.version
}

/** `stateDirectory` null: keeps the metadata in memory only. `anchor`: text of the compiled root. */
export function knownStore(disk: Disk, stateDirectory: string | null, anchor: string): KnownStore {
  const directory = stateDirectory === null ? null : updateDirectory(stateDirectory)
  const path = directory === null ? null : join(directory, 'trust.json')
  const start: Known = { chain: [sha256Of(anchor)], files: { root: anchor } }
  let memory: Known | null = null

  const readDisk = async (): Promise<Known | null> => {
    if (path === null) return memory
    try {
      const text = await readSmall(path, MAX_BYTES)
      return text === null ? null : parseKnown(text)
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return null
      throw new BatonError('unexpected', `reading ${path}: ${reasonOf(error)}`, { cause: error })
    }
  }

  return {
    async read() {
      const known = await readDisk()
      if (known === null) return start
      if (known.chain.includes(sha256Of(anchor))) return known
      // This executable has another root compiled in, so the chain starts from that root. If the keys are the same, the other
      // files on disk still protect against older versions of them.
      return { chain: start.chain, files: { ...known.files, root: anchor } }
    },
    async write(known) {
      const before = await readDisk()
      if (before !== null && isNewer(before, known)) return // another check was faster
      if (path === null || directory === null) {
        memory = known
        return
      }
      const text = `${JSON.stringify({ format: 1, ...known, chain: known.chain.slice(-CHAIN_MAX) }, null, 2)}\n`
      await disk.makeDirectory(directory, 0o700)
      await disk.writeWhole(path, text, 0o600)
    },
  }
}

/** Under a newer root the versions of the other files may start again: that is how a maintainer recovers from stolen keys. */
function isNewer(before: Known, after: Known): boolean {
  if (!before.chain.includes(after.chain[0] ?? '')) return false
  const [had, has] = [metadataVersionOf(before.files.root), metadataVersionOf(after.files.root)]
  return (
    had > has || (had === has && metadataVersionOf(before.files.timestamp) > metadataVersionOf(after.files.timestamp))
  )
}

/** Null if the text is damaged, or not Baton's; then this host starts again from the compiled root. */
export function parseKnown(text: string): Known | null {
  const value = parsedJson(text)
  if (!isObject(value) || value['format'] !== 1) return null
  const { chain, files } = value
  if (!Array.isArray(chain) || !chain.every(isSha256) || !isObject(files)) return null
  const known: Partial<Record<Role, string>> = {}
  for (const role of ROLES) {
    const file = files[role]
    if (file === undefined) continue
    const parsed = typeof file === 'string' ? parsedJson(file) : undefined
    if (!isObject(parsed) || !isObject(parsed['signed']) || typeof parsed['signed']['version'] !== 'number') return null
    known[role] = file as string
  }
  const { root } = known
  return root === undefined ? null : { chain, files: { ...known, root } }
}
