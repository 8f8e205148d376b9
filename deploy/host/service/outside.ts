// What work on the service's files needs from outside: a listener for progress, and the right to start and stop the service. If
// root runs the command, root's process provides both, and accepts only these calls.

import type { Receipt } from '../../../agent/install.ts'
import { type FeedChoice, type Operation, STAGES } from '../../../agent/words.ts'
import type { Supervisor } from '../supervisor/supervisor.ts'

/** `wait`: for the application's work; `unpack`: the executable unpacks itself before its start; `probation`: the new process serves */
export const HOST_STAGES = [...STAGES, 'wait', 'unpack', 'start', 'probation', 'health'] as const
export type HostStage = (typeof HOST_STAGES)[number]

export interface Outside {
  /** `tookMs`: of the stage before, if the service says so */
  stage(stage: HostStage, tookMs?: number): void
  bytes(done: number, total: number): void
  note(line: string): void
  /** starts and stops this install, with and without systemd */
  supervisor(receipt: Receipt): Supervisor
  /** what the new release says of its start while nobody answers, one line; null: nothing */
  starting?(operation: Operation): Promise<string | null>
  /** where to read the feed from; differs from the choice only if root has opened the feed's folder for a worker */
  feedAt(choice: FeedChoice): FeedChoice
}
