// What the command lines have in common. Throws BatonError invalid_request, which ends with exit code 2.

import { parseArgs, type ParseArgsConfig } from 'node:util'
import { BatonError } from '../../agent/errors.ts'

const SECONDS_MAX = 86_400

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
