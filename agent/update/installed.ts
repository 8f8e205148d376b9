// A note of the release that was installed last. It is in the state directory, where the agent may write.
// People and installers read it. It decides nothing, except if the executable itself does not run.

import { join } from 'node:path'
import { readSmall } from '../disk/disk.ts'
import { reasonOf } from '../words/errors.ts'
import { updateDirectory } from '../disk/places.ts'
import type { ManagedInstall } from '../disk/managed-install.ts'
import type { Places } from '../disk/places.ts'
import type { InPlace } from './decide.ts'
import { isTag } from '../words/release.ts'
import { sha256OfFile } from './steps/verify.ts'
import { installedTag } from './version.ts'

export interface Installed {
  tag: string
  /** of the executable, hex */
  sha256: string
  /** ISO 8601, UTC */
  at: string
}

/** The executable that was put in place last. */
export interface Placed {
  tag: string
  /** of the executable, hex; null if unknown: `noteTag` then hashes the file, which takes time */
  sha256: string | null
}

const NOTE_MAX_BYTES = 4096

/** Null if there is no note, or if it cannot be parsed. */
export async function readInstalled(stateDirectory: string): Promise<Installed | null> {
  try {
    const text = await readSmall(notePath(stateDirectory), NOTE_MAX_BYTES)
    if (text === null) return null
    const { tag, sha256, at } = JSON.parse(text) as Record<string, unknown>
    return isTag(tag) && typeof sha256 === 'string' && typeof at === 'string' ? { tag, sha256, at } : null
  } catch {
    return null
  }
}

/** The tag that `executable` reports; if it does not run, the tag in the note. Throws verify_failed if there is neither. */
export async function tagInPlace(stateDirectory: string, executable: string): Promise<string> {
  try {
    return await installedTag(executable)
  } catch (cause) {
    const note = await readInstalled(stateDirectory)
    if (note === null) throw cause
    return note.tag
  }
}

/**
 * Which of the two releases of an operation is the executable, of which only the tag is known. If both have that tag, by their sums; if
 * the sums cannot tell either, it does not matter.
 */
export async function inPlaceOf(
  { executable, backup }: Places,
  tag: string,
  between: { from: string; to: string | null; sha256: string | null },
): Promise<InPlace> {
  if (tag !== between.to) return tag === between.from ? 'old' : 'other'
  if (tag !== between.from) return 'new'
  const [own, other] = await Promise.all([executable, backup].map((path) => sha256OfFile(path).catch(() => null)))
  if (between.sha256 === null || own === other) return 'either'
  return own === between.sha256 ? 'new' : 'old'
}

/** Writes the note. Never throws: it logs a warning. The caller need not hold the lock. */
export async function noteTag(
  install: Pick<ManagedInstall, 'disk' | 'places' | 'stateDirectory' | 'log'>,
  { tag, sha256: told }: Placed,
): Promise<void> {
  const { disk, places, stateDirectory, log } = install
  try {
    if (told !== null && (await readInstalled(stateDirectory))?.sha256 === told) return
    const sha256 = told ?? (await sha256OfFile(places.executable))
    await disk.makeDirectory(updateDirectory(stateDirectory), 0o700)
    const note: Installed = { tag, sha256, at: new Date().toISOString() }
    await disk.writeNote(notePath(stateDirectory), `${JSON.stringify(note)}\n`, 0o600)
  } catch (cause) {
    log({ event: 'warning', message: `recording that ${tag} is installed: ${reasonOf(cause)}` })
  }
}

function notePath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'installed.json')
}
