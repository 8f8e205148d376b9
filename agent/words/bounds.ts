// The numbers and words of `update` that a service reads when it starts.

/**
 * The header that carries the password of the endpoints. The second one is for a proxy that uses `Authorization` itself; then both count,
 * and the panel sends the second one alone.
 */
export const PASSWORD_HEADERS = ['authorization', 'x-baton-authorization'] as const
export type PasswordHeader = (typeof PASSWORD_HEADERS)[number]

/** Lowest, highest, default; milliseconds. `TIME_SETTINGS` has the names by which they are set. */
export const UPDATE_BOUNDS = {
  probationMs: [0, 3_600_000, 30_000],
  readyMs: [100, 3_600_000, 60_000],
  drainMs: [0, 3_600_000, 30_000],
  stopMs: [100, 600_000, 10_000],
  hangMs: [500, 600_000, 5_000],
  quietMs: [0, 600_000, 2_000],
  // more than `stopMs` and `quietMs` together: what two limits allow, a third one must not forbid
  maxPauseMs: [100, 600_000, 15_000],
  busyMaxMs: [0, 86_400_000, 600_000],
} as const

/** What a member of `update` sets. */
export const TIME_SETTINGS = {
  probation: 'probationMs',
  readyTimeout: 'readyMs',
  drainTimeout: 'drainMs',
  stopTimeout: 'stopMs',
  hangTimeout: 'hangMs',
  quietTimeout: 'quietMs',
  maxPause: 'maxPauseMs',
  busyMax: 'busyMaxMs',
} as const satisfies Readonly<Record<string, keyof typeof UPDATE_BOUNDS>>

export const BUSY = ['cut', 'give-up'] as const
export type Busy = (typeof BUSY)[number]

export const REHEARSE_MODES = ['auto', 'always', 'never'] as const
/** `auto`: a database of at most 1 GiB is rehearsed with, a larger one is not. */
export type RehearseMode = (typeof REHEARSE_MODES)[number]

/** of `config.json` */
export const CONFIGURATION_MAX_BYTES = 256 * 1024

/** a shorter password gets a warning */
export const PASSWORD_USUAL_MIN = 16
