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
  0: 'done, or nothing to do',
  1: 'unexpected error',
  2: 'usage error',
  3: 'unsupported host',
  4: 'network error, or release not found',
  5: 'verification failed; nothing changed',
  6: 'locked by another operation',
  7: 'refused',
  8: 'the new version failed; the previous one is running',
  9: 'the service is down',
} as const satisfies Record<(typeof EXIT)[keyof typeof EXIT], string>

interface Meaning {
  /** HTTP status of the answer that refuses a request with this code */
  status: number
  exit: number
  title: string
}

const means = (status: number, exit: number, title: string): Meaning => ({ status, exit, title })

const { unexpected, usage, unsupportedHost, network, verification, locked, refused, reverted, down } = EXIT

export const MEANINGS = {
  // requests
  unauthorized: means(401, refused, 'neither a valid password nor an authorized login'),
  no_password: means(403, refused, 'no dashboard.password is set'),
  too_many_failures: means(429, refused, 'too many wrong passwords'),
  invalid_request: means(400, usage, 'the request is not valid'),
  invalid_tag: means(400, usage, 'the tag is not of the form vX.Y.Z'),
  body_too_large: means(413, usage, 'the request body is too large'),
  not_found: means(404, usage, 'there is nothing at this path'),
  method_not_allowed: means(405, usage, 'the method is not allowed here'),
  update_in_flight: means(409, locked, 'an operation is running'),
  too_late: means(409, refused, 'no operation is running, or it is too late to cancel it'),
  no_backup: means(404, refused, 'there is no backup of the executable'),
  not_managed: means(501, refused, 'this is not a managed install'),
  node_unsupported: means(501, unsupportedHost, 'this Node version does not support handover'),
  // settings and host
  invalid_settings: means(500, usage, 'the settings are not valid'),
  unsupported_host: means(501, unsupportedHost, 'this host is not supported'),
  refused: means(409, refused, 'refused'),
  // trust in a feed
  metadata_missing: means(502, verification, 'the feed has no trust metadata'),
  metadata_expired: means(502, verification, 'the trust metadata of the feed has expired'),
  metadata_older: means(502, verification, 'the feed offers older trust metadata than before'),
  metadata_mixed: means(502, verification, 'the trust metadata of the feed is inconsistent'),
  metadata_invalid: means(502, verification, 'the trust metadata of the feed is not valid'),
  signature_missing: means(502, verification, 'the feed is not signed by a trusted key'),
  threshold_not_met: means(502, verification, 'too few trusted keys have signed the feed'),
  root_unreachable: means(502, verification, "this executable cannot verify the feed's current keys"),
  clock_wrong: means(500, verification, "this host's clock is wrong"),
  yanked: means(502, verification, 'the release was yanked'),
  not_signed: means(502, verification, 'the release is not signed'),
  // stages
  check_failed: means(502, network, 'the check failed'),
  release_not_found: means(404, network, 'the release was not found'),
  release_unusable: means(502, verification, 'the release cannot be used'),
  rate_limited: means(502, network, 'the feed is refusing requests for now'),
  download_failed: means(502, network, 'the download failed'),
  verify_failed: means(502, verification, 'the verification failed'),
  swap_failed: means(500, unexpected, 'the release could not be installed'),
  restart_failed: means(500, reverted, 'the new release did not take over'),
  probation_failed: means(500, reverted, 'the new release failed during probation'),
  cannot_update_further: means(500, reverted, 'the new version cannot install later updates'),
  undo_failed: means(500, down, 'the previous executable could not be restored either'),
  irreversible: means(409, refused, 'the release cannot be rolled back'),
  schema_newer: means(409, refused, 'the data is too new for the previous release'),
  busy: means(409, refused, 'requests did not finish in time'),
  cancelled: means(409, refused, 'the operation was cancelled'),
  interrupted: means(500, unexpected, 'the operation was interrupted'),
  locked: means(409, locked, 'another process holds the lock'),
  service_down: means(503, down, 'the service is down'),
  unexpected: means(500, unexpected, 'unexpected error'),
} satisfies Record<string, Meaning>

export type ErrorCode = keyof typeof MEANINGS

/** the page that tells of each code what causes it and what to do, in the project and in its package */
export const ERRORS_PAGE = 'docs/reference/errors.md'

/** The address of the code's entry: the `type` of a problem document (RFC 9457). */
export function errorAddress(code: ErrorCode): string {
  return `${ERRORS_PAGE}#${code}`
}

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

/** The code of an error of Node's, such as ENOENT; '' if it has none. */
export function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : ''
}

/** The reason in one line. Adds the innermost cause if the outer message says little. */
export function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  // A BatonError's code is for programs: its message already says it in full.
  const code = cause instanceof BatonError ? '' : codeOf(cause)
  const message = cause.message || cause.name
  const own = message.includes(code) ? message : `${message} (${code})`
  return cause.cause instanceof Error && !own.includes(cause.cause.message) ? `${own}: ${reasonOf(cause.cause)}` : own
}
