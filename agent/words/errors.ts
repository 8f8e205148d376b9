// One error class, a closed union of codes, and the two tables that give each code its HTTP status and its exit code.
// A message is one sentence: what was expected, then what was found. The next step goes into the hint, not into the message.

/** Exit codes of every command. They are defined here and nowhere else. */
export const EXIT = {
  done: 0,
  unexpected: 1,
  usage: 2,
  unsupportedHost: 3,
  network: 4,
  verification: 5,
  locked: 6,
  refused: 7,
  reverted: 8,
  down: 9,
} as const

/** What each exit code means, for every usage text. */
export const EXITS = {
  0: 'done or nothing to do',
  1: 'unexpected',
  2: 'usage',
  3: 'unsupported host',
  4: 'network or release not found',
  5: 'verification failed, nothing changed',
  6: 'locked',
  7: 'refused',
  8: 'the new version failed, the previous one is running',
  9: 'the service is down',
} as const satisfies Record<(typeof EXIT)[keyof typeof EXIT], string>

interface Meaning {
  /** HTTP status of the answer that refuses a request with this code */
  status: number
  exit: number
  title: string
}

export const MEANINGS = {
  // requests
  unauthorized: { status: 401, exit: EXIT.refused, title: 'a bearer token is needed' },
  no_password: { status: 403, exit: EXIT.refused, title: 'no dashboard.password is set' },
  too_many_failures: { status: 429, exit: EXIT.refused, title: 'too many failed attempts' },
  invalid_request: { status: 400, exit: EXIT.usage, title: 'the request is not understood' },
  invalid_tag: { status: 400, exit: EXIT.usage, title: 'the tag is not of the form vX.Y.Z' },
  body_too_large: { status: 413, exit: EXIT.usage, title: 'the request body is too large' },
  not_found: { status: 404, exit: EXIT.usage, title: 'there is nothing at this path' },
  method_not_allowed: { status: 405, exit: EXIT.usage, title: 'the method is not allowed here' },
  update_in_flight: { status: 409, exit: EXIT.locked, title: 'an operation is in flight' },
  too_late: { status: 409, exit: EXIT.refused, title: 'it is too late to cancel' },
  no_backup: { status: 404, exit: EXIT.refused, title: 'there is no backup executable' },
  not_managed: { status: 501, exit: EXIT.refused, title: 'this is not a managed install' },
  node_unsupported: { status: 501, exit: EXIT.unsupportedHost, title: 'this Node cannot hand over' },
  // settings and host
  invalid_settings: { status: 500, exit: EXIT.usage, title: 'the settings are not valid' },
  unsupported_host: { status: 501, exit: EXIT.unsupportedHost, title: 'this host is not supported' },
  refused: { status: 409, exit: EXIT.refused, title: 'refused' },
  // trust in a feed
  metadata_missing: { status: 502, exit: EXIT.verification, title: 'the feed has no trust metadata' },
  metadata_expired: { status: 502, exit: EXIT.verification, title: 'the trust metadata of the feed have expired' },
  metadata_older: {
    status: 502,
    exit: EXIT.verification,
    title: 'the feed offers older trust metadata than it did before',
  },
  metadata_mixed: {
    status: 502,
    exit: EXIT.verification,
    title: 'the trust metadata of the feed do not belong together',
  },
  metadata_invalid: { status: 502, exit: EXIT.verification, title: 'the trust metadata of the feed are not valid' },
  signature_missing: { status: 502, exit: EXIT.verification, title: 'the feed is not signed by a trusted key' },
  threshold_not_met: {
    status: 502,
    exit: EXIT.verification,
    title: 'too few trusted keys have signed the feed',
  },
  root_unreachable: {
    status: 502,
    exit: EXIT.verification,
    title: "the feed's current keys cannot be verified from this executable",
  },
  clock_wrong: { status: 500, exit: EXIT.verification, title: 'the clock of this host is wrong' },
  withdrawn: { status: 502, exit: EXIT.verification, title: 'the release was withdrawn' },
  not_signed: { status: 502, exit: EXIT.verification, title: 'the release is not signed' },
  // stages
  check_failed: { status: 502, exit: EXIT.network, title: 'the check failed' },
  release_not_found: { status: 502, exit: EXIT.network, title: 'the release was not found' },
  release_unusable: { status: 502, exit: EXIT.verification, title: 'the release cannot be used' },
  rate_limited: { status: 502, exit: EXIT.network, title: 'the feed refuses more requests for now' },
  download_failed: { status: 502, exit: EXIT.network, title: 'the download failed' },
  verify_failed: { status: 502, exit: EXIT.verification, title: 'the verification failed' },
  swap_failed: { status: 500, exit: EXIT.unexpected, title: 'the swap failed' },
  restart_failed: { status: 500, exit: EXIT.reverted, title: 'the successor did not take over' },
  probation_failed: { status: 500, exit: EXIT.reverted, title: 'the successor failed in probation' },
  cannot_update_further: { status: 500, exit: EXIT.reverted, title: 'the new version cannot install later updates' },
  undo_failed: { status: 500, exit: EXIT.down, title: 'putting the previous executable back failed too' },
  one_way: { status: 409, exit: EXIT.refused, title: 'there is no way back' },
  schema_newer: {
    status: 409,
    exit: EXIT.refused,
    title: 'the data are too new for the backup',
  },
  busy: { status: 409, exit: EXIT.refused, title: 'requests did not end in time' },
  cancelled: { status: 409, exit: EXIT.refused, title: 'the operation was cancelled' },
  interrupted: { status: 500, exit: EXIT.unexpected, title: 'the operation was interrupted' },
  locked: { status: 409, exit: EXIT.locked, title: 'another process holds the lock' },
  service_down: { status: 503, exit: EXIT.down, title: 'the service is down' },
  unexpected: { status: 500, exit: EXIT.unexpected, title: 'an unexpected error' },
} as const satisfies Record<string, Meaning>

export type ErrorCode = keyof typeof MEANINGS

export interface Details {
  cause?: unknown
  /** what to do next, one sentence */
  hint?: string
  /** more members for the problem document, such as `retryAfterSeconds` */
  members?: Record<string, string | number | boolean | null>
}

export class BatonError extends Error {
  readonly code: ErrorCode
  readonly hint: string | null
  readonly members: Record<string, string | number | boolean | null>

  constructor(code: ErrorCode, message: string, details: Details = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.name = 'BatonError'
    this.code = code
    this.hint = details.hint ?? null
    this.members = details.members ?? {}
  }
}

/** Returns a BatonError unchanged. Wraps anything else in one with `code` that says what was being done and keeps the cause. */
export function asBatonError(cause: unknown, code: ErrorCode, doing: string): BatonError {
  if (cause instanceof BatonError) return cause
  return new BatonError(code, `${doing}: ${reasonOf(cause)}`, { cause })
}

/** The reason in one line. Adds the innermost cause if the outer message says little. */
export function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  // A BatonError's code is for programs: its message already says it in full.
  const code = 'code' in cause && typeof cause.code === 'string' && !(cause instanceof BatonError) ? cause.code : null
  const message = cause.message || cause.name
  const own = code !== null && !message.includes(code) ? `${message} (${code})` : message
  return cause.cause instanceof Error && !own.includes(cause.cause.message) ? `${own}: ${reasonOf(cause.cause)}` : own
}
