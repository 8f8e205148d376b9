// Says whether a value that this code has written to a disk, and that others may have changed, still has its shape: yes or no, with no word
// about what is wrong. What an author or an operator has written is read by what names each fault (decision 0044). Pure.

import { isObject } from './untrusted.ts'

export type Is = (value: unknown) => boolean

/** An object with these members; it may have others. A member that is missing is `undefined`. */
export function shape(members: Readonly<Record<string, Is>>): Is {
  return (value) => isObject(value) && Object.entries(members).every(([name, is]) => is(value[name]))
}

export function listOf(is: Is, most = Infinity): Is {
  return (value) => Array.isArray(value) && value.length <= most && value.every((one) => is(one))
}

export function orNull(is: Is): Is {
  return (value) => value === null || is(value)
}

export function textLike(pattern: RegExp): Is {
  return (value) => typeof value === 'string' && pattern.test(value)
}

export function isText(value: unknown): value is string {
  return typeof value === 'string'
}

export function isFlag(value: unknown): value is boolean {
  return typeof value === 'boolean'
}

/** Epoch milliseconds. */
export function isMs(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}
