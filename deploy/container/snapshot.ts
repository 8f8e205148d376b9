// Copies the data before a new version reaches them: the database, and what is not in SQLite. The old version makes the copies: its image
// says how (`baton.snapshot`).

import { posix } from 'node:path'
import { isCount, plainOf } from '../../agent/install.ts'
import { BatonError, isObject, parsedJson, reasonOf } from '../../agent/words.ts'
import { tellsOfFullDisk } from '../lib/refusal.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { type ContainerInspection, type ImageInspection, labelsOf } from './inspection.ts'
import { again } from './moves.ts'
import { IMAGE_LABELS } from './reference.ts'
import type { TakenCopy } from './state-order.ts'

/** the commands in the container have deadlines of their own, of a day at most each */
const SNAPSHOT_MS = 4 * 86_400_000
const OWED_MAX_MS = 3 * 86_400_000
/** as many as `trial.files` may name */
const FILES_MAX = 16
/** one of a command, one of folders */
const COPIES_MAX = 2
const SAID_MAX = 1000

/** What the old container has copied. */
export interface Taken {
  /** null: there is no database (yet) */
  database: ContainerSnapshot | null
  /** of what is not in SQLite */
  copies: TakenCopy[]
  /** how long those may take that are to be made once it has ended; null: none */
  owesMs: number | null
}

export interface ContainerSnapshot {
  /** of the copy, inside the container */
  path: string
  /** what else a rehearsal needs, relative to the state directory */
  files: string[]
}

/** The command; null if the image names none. Throws BatonError refused if the label cannot be read. */
export function snapshotCommand(image: Pick<ImageInspection, 'Config'> | ContainerInspection): string[] | null {
  const label = labelsOf(image)[IMAGE_LABELS.snapshot]
  if (label === undefined || label === '') return null
  try {
    const command: unknown = JSON.parse(label)
    if (Array.isArray(command) && command.length > 0 && command.every((word) => typeof word === 'string'))
      return command
  } catch {
    // reported below
  }
  throw new BatonError(
    'refused',
    `expected a JSON array of strings in the image's label ${IMAGE_LABELS.snapshot}, got ${label.slice(0, 80)}`,
  )
}

/**
 * Has the old container copy its data. Throws BatonError refused if that fails; nothing has changed then. An error of an engine that
 * is away is thrown as it is.
 */
export async function takeSnapshot(
  { Id }: ContainerInspection,
  command: readonly string[],
  engine: Engine,
): Promise<Taken> {
  try {
    const { exitCode, output } = await again(engine, () => engine.exec(Id, command, SNAPSHOT_MS))
    if (exitCode === 0) return takenIn(output)
    const said = plainOf(output.replaceAll(/^\.\n/gm, '')).slice(0, SAID_MAX)
    throw new Error(`\`${command.join(' ')}\` exited with code ${exitCode}: ${said}`)
  } catch (cause) {
    if (isAway(cause)) throw cause
    const reason = reasonOf(cause)
    const hint = tellsOfFullDisk(reason)
      ? 'free up disk space on the container’s volume'
      : 'nothing has changed; see the log of the old container'
    throw new BatonError('refused', `copying the data before the switch: ${reason}`, { cause, hint })
  }
}

/** The last line is the path, and the one before it JSON. An older release prints no other line; one without a database no path. Pure. */
export function takenIn(output: string): Taken {
  const lines = output.trim().split('\n')
  const last = lines.at(-1) ?? ''
  const hasPath = last !== '' && last !== '.' && !isObject(parsedJson(last))
  const said = parsedJson((hasPath ? lines.at(-2) : last) ?? '')
  const { files, copies, owesMs } = isObject(said) ? said : {}
  return {
    database: hasPath ? { path: last, files: filesIn(files) } : null,
    copies: takenCopies(copies),
    owesMs: isCount(owesMs) ? Math.min(owesMs, OWED_MAX_MS) : null,
  }
}

export function takenCopies(said: unknown): TakenCopy[] {
  if (!Array.isArray(said)) return []
  const all = said.filter(isObject).slice(0, COPIES_MAX)
  return all.flatMap(({ path, bytes, ms }) =>
    typeof path === 'string' && isCount(bytes) && isCount(ms)
      ? [{ path: plainOf(path).slice(0, SAID_MAX), bytes, ms }]
      : [],
  )
}

/** Only paths below the state directory: a container says this. */
function filesIn(said: unknown): string[] {
  if (!Array.isArray(said)) return []
  const names = said.filter((name) => typeof name === 'string').map((name) => posix.join(name).replace(/\/$/, ''))
  return names.filter((name) => !/^(\/|\.\.?(\/|$)|$)/.test(name)).slice(0, FILES_MAX)
}
