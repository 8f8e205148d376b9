// What the command lines have in common. Throws BatonError invalid_request, which ends with exit code 2.

import { parseArgs, type ParseArgsConfig } from 'node:util'
import { BatonError } from '../../agent/errors.ts'

const SECONDS_MAX = 86_400

/** of every deploy script */
export const SCRIPT_FLAGS = {
  'dry-run': { type: 'boolean', short: 'n', default: false },
  json: { type: 'boolean', default: false },
  quiet: { type: 'boolean', short: 'q', default: false },
  help: { type: 'boolean', short: 'h', default: false },
} as const satisfies ParseArgsConfig['options']

/** of those that deploy to this very host */
export const HOST_FLAGS = {
  ...SCRIPT_FLAGS,
  'health-url': { type: 'string' },
  'health-timeout': { type: 'string', default: '60' },
  'lock-timeout': { type: 'string', default: '60' },
} as const satisfies ParseArgsConfig['options']

/** What `parseArgs` of node:util gives; an unknown flag and a missing value are usage errors. */
export function parseFlags<const T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  try {
    return parseArgs(config)
  } catch (cause) {
    throw usage(cause instanceof Error ? cause.message : String(cause))
  }
}

/** Milliseconds from seconds, of which there may be a day's worth. */
export function secondsOf(flag: string, text: string): number {
  const seconds = Number(text)
  if (/^\d{1,5}(\.\d{1,3})?$/.test(text) && seconds <= SECONDS_MAX) return Math.round(seconds * 1000)
  throw usage(`expected 0 to ${SECONDS_MAX} seconds in ${flag}, got ${JSON.stringify(text.slice(0, 40))}`)
}

export function usage(message: string): BatonError {
  return new BatonError('invalid_request', message, { hint: 'see --help' })
}
