// The steps of a handover, each published just after it. Tests subscribe to the channel and kill, stop or end either process at that
// moment; in a service nothing subscribes.

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

/** The old process's steps in a stop-first switch. */
export const ALONE_STEPS = ['spawned', 'waiting', 'named', 'quiet', 'settled', 'claimed', 'closed', 'left'] as const

/** The holder's steps in a stop-first switch. */
export const HOLDER_STEPS = [
  'held',
  'said waiting',
  'old is gone',
  'opened',
  'locked',
  'greeted',
  'probed',
  'allowed',
  'ready',
  'claimed',
  'passed on',
  'asked to prove',
  'stood',
  'noted',
  'told to commit',
  'committed',
  'reverting',
  'ended',
  'put back',
  'started again',
] as const

/** The predecessor's steps if the handover fails. */
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
  | (typeof ALONE_STEPS)[number]
  | (typeof HOLDER_STEPS)[number]
  | (typeof REVERT_STEPS)[number]
  | (typeof SUCCESSOR_STEPS)[number]

/** The diagnostics channel whose messages are the names of the steps. */
export const STEPS_CHANNEL = 'baton.handover'

const steps = channel(STEPS_CHANNEL)

export function took(step: HandoverStep): void {
  if (steps.hasSubscribers) steps.publish(step)
}
