// What the service or an operation waits for, and what waits for a person: one type for both. Pure.

import type { Mode } from './schedule.ts'

/** A client may have its own words for each code. The comment behind a code names the members that such words can use. */
export const WAIT_CODES = [
  // the service, by itself
  'off',
  'in_flight',
  'asks_feed',
  'feed', // why
  'not_asked',
  'current',
  'left', // tag
  'failed_here', // tag
  'goes', // tag, because
  'goes_now', // tag
  'never_open', // tag
  // an update waits until
  'young', // tag, hours
  'staged', // tag
  'paused',
  'failures', // count, tag
  'again', // tag, why
  // a person is asked
  'available', // tag
  'unsigned', // tag
  'went_back', // tag
  'failed', // tag, why
  'beyond', // tag, mode
  'irreversible', // tag, why
  'unproven', // tag, why
  'untried', // tag, why
  'pause', // tag, why
  'room', // tag, why
  'yanked', // tag, why
  'rules', // why
  'report', // why
  // an operation
  'requests', // why
  'work', // count, why
] as const
export type WaitCode = (typeof WAIT_CODES)[number]

export interface Wait {
  code: WaitCode
  /** one sentence in English, for a client that has none of its own */
  says: string
  tag?: string
  mode?: Mode
  count?: number
  hours?: number
  /** what somebody else has said: an error's message, a publisher's reason */
  why?: string
  because?: Wait[]
}

/** Whether an operation waits for the application's work, with nothing changed yet. Pure. */
export function isResting(waits: readonly Wait[] | undefined): boolean {
  return waits?.some(({ code }) => code === 'work') === true
}

/** A release that waits for a person. */
export function forPerson(code: WaitCode, tag: string, why: string, more: Partial<Wait> = {}): Wait {
  return { code, says: `${tag} is waiting for you: ${why}`, tag, ...more }
}

/** Why the feed gave no usable answer. */
export function feedProblem(why: string): Wait {
  return { code: 'feed', says: `the feed: ${why}`, why }
}
