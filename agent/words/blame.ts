// Failures that say nothing about the release: an update to it may be tried again. Pure.

import { BatonError, type Details, type ErrorCode } from './errors.ts'

export function blameless(code: ErrorCode, reason: string, details: Omit<Details, 'members'> = {}): BatonError {
  return new BatonError(code, reason, { ...details, members: { blameless: true } })
}

export function isBlameless(cause: unknown): boolean {
  return cause instanceof BatonError && cause.members['blameless'] === true
}
