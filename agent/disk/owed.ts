// What must be done before a release may begin, though the process that was to do it may have been killed: a snapshot that is taken while
// no process of the application lives, or a restore that a command has begun. The first code of a release reads it.
// Power cut: the file is there whole or not at all; an operation that has ended owes nothing.

import { readFileSync } from 'node:fs'
import { type Disk, exists } from './disk.ts'
import { owedPath } from './places.ts'
import { isOpenOperation } from './state-mark.ts'
import type { SnapshotPlan } from '../words/snapshot.ts'
import type { Kind } from '../words/state.ts'

export type Owed =
  | {
      owes: 'snapshot'
      operationId: string
      kind: Kind
      /** tag of the release whose data are copied: it may begin without */
      from: string
      plan: SnapshotPlan
      /** executable of that release */
      executable: string
    }
  /** `name`: of the copy; `aside`: where the data are that were there */
  | { owes: 'restore'; name: string; aside: string | null }

const OWED_MAX_BYTES = 256 * 1024

/** Null: nothing is owed. */
export function readOwed(stateDirectory: string): Owed | null {
  let owed: Owed
  try {
    const text = readFileSync(owedPath(stateDirectory), 'utf8')
    if (text.length > OWED_MAX_BYTES) return null
    owed = JSON.parse(text) as Owed
  } catch {
    return null
  }
  return owed.owes === 'restore' || isOpenOperation(stateDirectory, owed.operationId) ? owed : null
}

export async function writeOwed(disk: Disk, stateDirectory: string, owed: Owed): Promise<void> {
  await disk.writeWhole(owedPath(stateDirectory), JSON.stringify(owed), 0o600)
}

/** It has been done, or an operation that owed it has ended. Another debt stays. */
export async function forgetOwed(disk: Disk, stateDirectory: string, owes: Owed['owes']): Promise<void> {
  if ((readOwed(stateDirectory)?.owes ?? owes) !== owes || !(await exists(owedPath(stateDirectory)))) return
  await disk.remove(owedPath(stateDirectory))
}
