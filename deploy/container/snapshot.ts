// Copies the database before a new version opens it. The old version makes the copy: its image says how (`baton.snapshot`).

import { posix } from 'node:path'
import { plainOf } from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { tellsOfFullDisk } from '../lib/refusal.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { type ContainerInspection, type ImageInspection, labelsOf } from './inspection.ts'
import { again } from './moves.ts'
import { IMAGE_LABELS } from './reference.ts'

const SNAPSHOT_MS = 15 * 60_000
/** as many as `trial.files` may name */
const FILES_MAX = 16

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
    `expected a JSON array of words in the image's label ${IMAGE_LABELS.snapshot}, got ${label.slice(0, 80)}`,
  )
}

/**
 * Has the old container copy its database. Null: there is no database yet. Throws BatonError refused if the copy fails; nothing has
 * changed then. An error of an engine that is away is thrown as it is.
 */
export async function takeSnapshot(
  { Id }: ContainerInspection,
  command: readonly string[],
  engine: Engine,
): Promise<ContainerSnapshot | null> {
  try {
    const { exitCode, output } = await again(engine, () => engine.exec(Id, command, SNAPSHOT_MS))
    if (exitCode === 0) return snapshotIn(output)
    throw new Error(`\`${command.join(' ')}\` ended with ${exitCode}: ${plainOf(output).slice(0, 500)}`)
  } catch (cause) {
    if (isAway(cause)) throw cause
    const reason = reasonOf(cause)
    const hint = tellsOfFullDisk(reason)
      ? 'make room on its volume'
      : 'nothing has changed; the old container says more'
    throw new BatonError('refused', `copying the database before the switch: ${reason}`, { cause, hint })
  }
}

/** The last line is the path. An older release prints no other line. Pure. */
export function snapshotIn(output: string): ContainerSnapshot | null {
  const lines = output.trim().split('\n')
  const path = lines.at(-1) ?? ''
  return path === '' ? null : { path, files: filesIn(lines.at(-2) ?? '') }
}

/** Only paths below the state directory: a container says this. */
function filesIn(line: string): string[] {
  let said: unknown
  try {
    said = (JSON.parse(line) as { files?: unknown } | null)?.files
  } catch {
    return []
  }
  if (!Array.isArray(said)) return []
  const names = said.filter((name) => typeof name === 'string').map((name) => posix.join(name).replace(/\/$/, ''))
  return names.filter((name) => !/^(\/|\.\.?(\/|$)|$)/.test(name)).slice(0, FILES_MAX)
}
