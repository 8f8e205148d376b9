// How long a stop may take, and how whoever ends this process by force then learns that: systemd and the supervision without it hear the
// same letter (sd_notify(3), EXTEND_TIMEOUT_USEC=). Only this process knows: an author may set the limits, and an operator's change counts
// from the next start.

import { UPDATE_BOUNDS } from '../words/bounds.ts'
import { hasSupervisor, notifySystemd } from './systemd.ts'

interface Limits {
  drainMs: number
  stopMs: number
}

/** what a manager gives a stop that has said nothing: `TimeoutStopSec=` of deploy/host/place/unit.ts, and the supervision without systemd */
export const USUAL_STOP_MS = 60_000
/** for what no limit bounds, before this process is ended by force */
const AROUND_MS = 5000

const { drainMs, stopMs } = UPDATE_BOUNDS
/** what the defaults come to if all are used up: they have always had USUAL_STOP_MS */
const DEFAULT_MS = longestStopMs({ drainMs: drainMs[2], stopMs: stopMs[2] })
/** no stop takes longer */
export const STOP_MAX_MS = longestStopMs({ drainMs: drainMs[1], stopMs: stopMs[1] }) + AROUND_MS

/** Work and requests (handover/give/parting.ts); then what the author has registered as `singleton`, and `onStop`. */
export function longestStopMs({ drainMs, stopMs }: Limits): number {
  return 1.5 * drainMs + 2 * stopMs
}

/**
 * Has the manager wait for the end of this process as long as its limits say, if that is longer than usual. Call it at the beginning of
 * a stop, before the usual time is up. Does nothing if no manager waits.
 */
export async function allowLongStop(limits: Limits): Promise<void> {
  const ms = longestStopMs(limits)
  if (ms > DEFAULT_MS && hasSupervisor()) await notifySystemd([`EXTEND_TIMEOUT_USEC=${(ms + AROUND_MS) * 1000}`])
}
