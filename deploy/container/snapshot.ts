// Copies the database before a new version opens it. The old version makes the copy: its image says how (`baton.snapshot`).

import { BatonError, reasonOf } from '../../agent/words.ts'
import { tellsOfFullDisk } from '../lib/refusal.ts'
import { type Engine, isAway } from './engine/engine.ts'
import { type ContainerInspection, type ImageInspection, labelsOf } from './inspection.ts'
import { IMAGE_LABELS } from './reference.ts'

const SNAPSHOT_MS = 15 * 60_000

/** The command; null if the image names none. Throws BatonError refused if the label cannot be read. */
export function snapshotCommand(image: ImageInspection): string[] | null {
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
 * Path of the copy inside the container; null if there is no database yet. Throws BatonError refused; nothing has changed then.
 */
export async function takeSnapshot(
  { Id }: ContainerInspection,
  command: readonly string[],
  engine: Engine,
): Promise<string | null> {
  try {
    const { exitCode, output } = await engine.exec(Id, command, SNAPSHOT_MS)
    if (exitCode === 0) return output.trim().split('\n').at(-1) || null
    throw new Error(`\`${command.join(' ')}\` ended with ${exitCode}: ${output.trim().slice(0, 500)}`)
  } catch (cause) {
    if (isAway(cause)) throw cause
    const reason = reasonOf(cause)
    const hint = tellsOfFullDisk(reason)
      ? 'make room on its volume'
      : 'nothing has changed; the old container says more'
    throw new BatonError('refused', `copying the database before the switch: ${reason}`, { cause, hint })
  }
}
