// What must be done before a release may begin, though the process that was to do it may have been killed: a snapshot that is taken while
// no process of the application lives, or a restore that a command has begun. The first code of a release reads it.
// In a container there is no operation: what is owed names the container that pays it, and a note says what became of it.
// Power cut: the file is there whole or not at all; an operation that has ended owes nothing.

import { lstatSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Disk } from './disk.ts'
import { owedPath, updateDirectory } from './places.ts'
import { isOpenOperation } from './state-mark.ts'
import type { SnapshotPlan } from '../words/snapshot.ts'
import type { Kind, MadeCopy } from '../words/state.ts'

export type Owed =
  | {
      owes: 'snapshot'
      operationId: string
      kind: Kind
      /** tag of the release whose data are copied: it may begin without */
      from: string
      plan: SnapshotPlan
      /** executable of that release; in a container, of the one that pays */
      executable: string
      /** id of the container that pays; absent: this is no container */
      container?: string
    }
  /**
   * `name`: of the copy; `aside`: where the data are that were there, once it has begun. With `plan` the first code does it, without a person: of
   * `container`, and of any once it has begun
   */
  | { owes: 'restore'; name: string; aside: string | null; plan?: SnapshotPlan; container?: string }

/** What became of what was owed in a container: the deployment on its host reads it there. */
export interface Paid {
  /** id of the container; of a restore the name of the copy */
  by: string
  copies: MadeCopy[]
  aside: string | null
  /** why nothing was copied, or restored; null: it was */
  error: string | null
}

export const OWED_MAX_BYTES = 256 * 1024

/** Null: nothing is owed. `container`: finds the id of this one. */
export function readOwed(stateDirectory: string, container: () => string | null = () => null): Owed | null {
  let owed: Owed
  try {
    const text = readFileSync(owedPath(stateDirectory), 'utf8')
    if (text.length > OWED_MAX_BYTES) return null
    owed = JSON.parse(text) as Owed
  } catch {
    return null
  }
  if (owed.owes === 'restore' && owed.aside !== null) return owed
  const isDue =
    owed.container !== undefined
      ? owed.container === container()
      : owed.owes === 'restore' || isOpenOperation(stateDirectory, owed.operationId)
  return isDue ? owed : null
}

/**
 * How long it may take. Copies: the command, what checks its copy, and the folders. A restore: what checks the copy, the command and its check
 * for what is there, and the command that restores.
 */
export function mostMsOf(owes: Owed['owes'], { timeoutMs }: Pick<SnapshotPlan, 'timeoutMs'>): number {
  return (owes === 'snapshot' ? 3 : 4) * timeoutMs
}

export async function writeOwed(disk: Disk, stateDirectory: string, owed: Owed): Promise<void> {
  await disk.writeWhole(owedPath(stateDirectory), JSON.stringify(owed), 0o600)
}

/** It has been done, or an operation that owed it has ended. Another debt stays. */
export async function forgetOwed(disk: Disk, stateDirectory: string, owes: Owed['owes']): Promise<void> {
  const path = owedPath(stateDirectory)
  const isThere = lstatSync(path, { throwIfNoEntry: false }) !== undefined
  if (isThere && (readOwed(stateDirectory)?.owes ?? owes) === owes) await disk.remove(path)
}

/** The path of a `Paid`. */
export function paidPath(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'paid.json')
}

/** For a deployment. It may be lost: then nothing is told of it. */
export async function notePaid(disk: Disk, stateDirectory: string, paid: Paid): Promise<void> {
  await disk.writeNote(paidPath(stateDirectory), JSON.stringify(paid), 0o600)
}
