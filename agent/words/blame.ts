// Failures that say nothing about the release: an update to it may be tried again. Blame needs evidence. Pure.

import { BatonError, type Details, type ErrorCode } from './errors.ts'

export function blameless(code: ErrorCode, reason: string, details: Omit<Details, 'members'> = {}): BatonError {
  return new BatonError(code, reason, { ...details, members: { blameless: true } })
}

export function isBlameless(cause: unknown): boolean {
  return cause instanceof BatonError && cause.members['blameless'] === true
}

/** the end of a process that the kernel killed to have its memory */
export const KILLED_FOR_MEMORY = 'it was ended by SIGKILL when the kernel had no memory left'

/** what a process has said that ended well without one message of the switch */
export const KNOWS_NO_SWITCH = 'nothing that this switch knows, as a release of an older kit does'

/** what a host may lack or another process may hold, by what systems, Node and SQLite say of it */
const LACKS: readonly (readonly [RegExp, string])[] = [
  [
    /\b(?:ENOSPC|EDQUOT|SQLITE_FULL)\b|no space left on device|disk quota exceeded|database or disk is full/i,
    'this host has no disk space or no inodes left',
  ],
  [/\b(?:EMFILE|ENFILE)\b|too many open files/i, 'this host has no descriptors for open files left'],
  [/\bENOMEM\b|cannot allocate memory/i, 'this host has no memory left'],
  [
    /\b(?:fork|spawn|clone|uv_thread_create)\b.*\bEAGAIN\b|resource temporarily unavailable/i,
    'this host starts no more processes or threads',
  ],
  [/\b(?:SQLITE_BUSY|database is locked)\b/i, 'another process has a lock on the database'],
]

/** How a release ended that did not come well through its switch, and what it said: each one line, `said` null if nothing. */
export interface Ended {
  how: string
  said: string | null
}

/** What stood in its way here, one clause, so that the end says nothing about the release; null: it is the release's fault, as far as this shows. */
export function hindranceOf({ how, said }: Ended): string | null {
  if (how.includes(KILLED_FOR_MEMORY)) return 'this host has no memory left'
  if (said?.includes(KNOWS_NO_SWITCH) === true) return 'it cannot take over from this release'
  const text = said === null ? how : `${how}\n${said}`
  return LACKS.find(([pattern]) => pattern.test(text))?.[1] ?? null
}
