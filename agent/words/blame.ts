// What a failure says about the release: nothing, so that an update to it may be tried again; that it was late, and with how much time;
// or that it is bad. Blame needs evidence. Pure.

import { BatonError, type Details, type ErrorCode } from './errors.ts'
import { LOCKED } from './locked.ts'

export function blameless(code: ErrorCode, reason: string, details: Omit<Details, 'members'> = {}): BatonError {
  return new BatonError(code, reason, { ...details, members: { blameless: true } })
}

export function isBlameless(cause: unknown): boolean {
  return cause instanceof BatonError && cause.members['blameless'] === true
}

/** The failure of a release that was not ready in `hadMs`: with more time it may be tried again. */
export function lateBy(
  code: ErrorCode,
  reason: string,
  hadMs: number,
  details: Omit<Details, 'members'> = {},
): BatonError {
  return new BatonError(code, reason, { ...details, members: { hadMs } })
}

/** The failure of `to`, and why it says nothing about that release if this host lacked what it needed. */
export function orHindered(failure: BatonError, to: string, ended: Ended): BatonError {
  const hindrance = isBlameless(failure) ? null : hindranceOf(ended)
  if (hindrance === null) return failure
  const { code, message, hint, cause } = failure
  const reason = `${message}; ${hindrance}, so ${to} is not marked as failed`
  return blameless(code, reason, { cause, ...(hint !== null && { hint }) })
}

/** What is remembered of a failure. */
export interface Blame {
  isBlameless: boolean
  /** milliseconds that the release had to become ready, if it was late; absent: that is not why it failed */
  hadMs?: number
}

export function blameOf(cause: unknown): Blame {
  const hadMs = cause instanceof BatonError ? cause.members['hadMs'] : undefined
  return { isBlameless: isBlameless(cause), ...(typeof hadMs === 'number' && { hadMs }) }
}

/** the end of a process that the kernel killed to have its memory */
export const KILLED_FOR_MEMORY = 'the kernel killed it because memory ran out (SIGKILL)'
/** the same in the words of older releases: a cage may be of one */
export const KILLED_FOR_MEMORY_ONCE = 'it was ended by SIGKILL when the kernel had no memory left'

/** what a process has said that ended well without one message of the switch */
export const KNOWS_NO_SWITCH =
  'without sending a message that the running release understands (it may have been built with an older version of Baton)'

/** what a host may lack or another process may hold, by what systems, Node and SQLite say of it */
const LACKS: readonly (readonly [RegExp, string])[] = [
  [
    /\b(?:ENOSPC|SQLITE_FULL)\b|no space left on device|database or disk is full/i,
    'this host has no disk space or inodes left',
  ],
  [/\bEDQUOT\b|disk quota exceeded/i, 'the service has used up its disk quota on this host'],
  [/\b(?:EMFILE|ENFILE)\b|too many open files/i, 'this host has no file descriptors left'],
  [/\bENOMEM\b|cannot allocate memory|^oom-kill\b/i, 'this host is out of memory'],
  [
    /\b(?:fork|spawn|clone|uv_thread_create)\b.*\bEAGAIN\b|resource temporarily unavailable/i,
    'this host cannot start any more processes or threads',
  ],
  [/\bthe configuration \([^)]*\) is not valid\b/, 'the configuration of this host is not valid'],
]

/** that V8 or an allocator had no memory left, which in a cage is less than a service has */
const OUT_OF_MEMORY = /heap out of memory|std::bad_alloc|allocation failed/i

/** How a release ended that did not come well through its switch, and what it said: each one line, `said` null if nothing. */
export interface Ended {
  how: string
  said: string | null
  /** a lock that it met was held by itself, and by nobody else. False: another process had it, or it cannot be told */
  isOwnLock?: boolean
  /** it ran in a cage: nobody else can have had a lock there, and there is less memory than a service has */
  isCaged?: boolean
}

/** What stood in its way here, one clause, so that the end says nothing about the release; null: it is the release's fault, as far as this shows. */
export function hindranceOf({ how, said, isOwnLock = false, isCaged = false }: Ended): string | null {
  if ([KILLED_FOR_MEMORY, KILLED_FOR_MEMORY_ONCE].some((end) => how.includes(end))) return 'this host is out of memory'
  if (said?.includes(KNOWS_NO_SWITCH) === true) return 'it cannot take over from this release'
  const text = said === null ? how : `${how}\n${said}`
  const lack = LACKS.find(([pattern]) => pattern.test(text))?.[1] ?? null
  if (lack !== null) return lack
  if (isCaged) return OUT_OF_MEMORY.test(text) ? 'the trial has less memory than the service would have' : null
  return LOCKED.test(text) && !isOwnLock ? 'another process has locked the database' : null
}
