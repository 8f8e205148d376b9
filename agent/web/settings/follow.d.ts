import type { Instance, Operation, Progress, Status } from '../../words/state.ts'

export interface Follow {
  id: string
  /** the instance that answered before the switch; null if the successor answered already when the page was opened */
  instanceId: string | null
  expected: string | null
}

export type Phase = 'running' | 'probation' | 'unconfirmed' | 'done' | 'gone'

export interface Sample {
  at: number
  bytes: number
}

export const POLL: {
  busyMs: number
  idleMs: number
  unmanagedMs: number
  timeoutMs: number
  backOffMs: number[]
  silentAfterMs: number
  silentMs: number
  gapMaxMs: number
}
export function begin(operation: Operation, instanceId: string | null, expected: string | null): Follow
export function join(status: { operation: Operation; instance: Instance }): Follow
export function judge(
  follow: Follow,
  status: Pick<Status, 'operation' | 'instance' | 'history'>,
): { phase: Phase; operation: Operation | null; expected: string | null }
export function delayOf(now: { failures: number; failingMs: number; busy: boolean; managed: boolean }): number
export function measure(
  samples: Sample[],
  progress: Progress,
  atMs: number,
): { samples: Sample[]; bytesPerSecond: number | null; secondsLeft: number | null }
