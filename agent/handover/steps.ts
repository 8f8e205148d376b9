// The steps of a handover, each named where it has just been taken. Whoever subscribes to the channel hears of it in that very
// moment, which is where the tests kill, stop and end either process; nobody does in a service.

import { channel } from 'node:diagnostics_channel'

export const PREDECESSOR_STEPS = [
  'spawned',
  'greeted',
  'probed',
  'allowed',
  'ready',
  'claimed',
  'let go',
  'asked to prove',
  'half',
  'gave',
  'drained',
  'stood',
  'noted',
  'told to commit',
  'committed',
  'closed',
] as const

/** Of a handover that fails. */
export const REVERT_STEPS = ['reverting', 'reclaimed', 'ended', 'listening again', 'took back'] as const

export const SUCCESSOR_STEPS = [
  'born',
  'bound',
  'said hello',
  'accepting',
  'said ready',
  'said proved',
  'adopted',
  'heard commit',
  'said committed',
  'alone',
] as const

export type HandoverStep =
  | (typeof PREDECESSOR_STEPS)[number]
  | (typeof REVERT_STEPS)[number]
  | (typeof SUCCESSOR_STEPS)[number]

/** Its messages are the steps' names. */
export const STEPS_CHANNEL = 'baton.handover'

const steps = channel(STEPS_CHANNEL)

export function took(step: HandoverStep): void {
  if (steps.hasSubscribers) steps.publish(step)
}
