// The time and the commit that a release states, and its notes. The time is that of SOURCE_DATE_EPOCH, else the commit's; never the
// clock's.

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { BatonError } from '../../agent/words.ts'
import { run } from '../lib/shell.ts'

const NOTES_MAX_BYTES = 64 * 1024

/** Time of the commit, ISO 8601, UTC; null if there is none. https://reproducible-builds.org/docs/source-date-epoch/ */
export async function publicationTime(folder: string, environment: NodeJS.ProcessEnv): Promise<string | null> {
  const given = environment['SOURCE_DATE_EPOCH']
  const seconds = given ?? (await git(folder, 'log', '-1', '--format=%ct'))
  if (seconds === null || !/^[0-9]{1,12}$/.test(seconds)) {
    if (given === undefined) return null
    throw new BatonError('invalid_request', `expected seconds in SOURCE_DATE_EPOCH, got ${JSON.stringify(given)}`)
  }
  return new Date(Number(seconds) * 1000).toISOString()
}

/** The commit, 40 hex; null if `folder` is no clone. */
export async function commitOf(folder: string): Promise<string | null> {
  const commit = await git(folder, 'rev-parse', 'HEAD')
  return commit !== null && /^[0-9a-f]{40}$/.test(commit) ? commit : null
}

/** Files that differ from the commit, as git names them; none if there is no commit. Leaves out those that git does not know. */
export async function uncommittedIn(folder: string): Promise<string[]> {
  const changed = (await git(folder, 'status', '--porcelain', '--untracked-files=no', '--no-renames', '--', '.')) ?? ''
  return changed.split('\n').flatMap((line) => /^\s*\S{1,2}\s+(.+)$/.exec(line)?.[1] ?? [])
}

/**
 * The notes of a release: of the file, if `textOrFile` is one line that names an existing file, else `textOrFile` itself. Throws if they are
 * longer than 64 KiB.
 */
export async function readNotes(textOrFile: string): Promise<string> {
  const isFile = textOrFile !== '' && !textOrFile.includes('\n') && existsSync(textOrFile)
  const notes = isFile ? await readFile(textOrFile, 'utf8') : textOrFile
  if (Buffer.byteLength(notes) <= NOTES_MAX_BYTES) return notes
  throw new BatonError('invalid_request', `expected notes of at most ${NOTES_MAX_BYTES} bytes`)
}

async function git(folder: string, ...args: string[]): Promise<string | null> {
  try {
    const { exitCode, stdout } = await run(['git', '-C', folder, ...args], { allowFailure: true })
    return exitCode === 0 && stdout.trim() !== '' ? stdout.trim() : null
  } catch {
    return null // no git on this machine
  }
}
