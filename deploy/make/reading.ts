// Reads one setting of `baton.config.json` at a time. A value that is not as expected becomes a fault, so that one message can report
// all faults. Pure.

import { isAbsolute, normalize } from 'node:path'

/** `name`: as a message names it, such as "`port`". Returns something of the type even if there is a fault. */
export type Read<T> = (value: unknown, name: string, faults: string[]) => T

export function oneOf<T extends string>(all: readonly T[], normal: T): Read<T> {
  return (value, name, faults) => {
    const found = value === undefined ? normal : all.find((one) => one === value)
    if (found === undefined) faults.push(`expected ${all.join(' or ')} in ${name}, got ${shownValue(value)}`)
    return found ?? normal
  }
}

export function textOr(normal: string | null): Read<string | null> {
  return (value, name, faults) => {
    if (value === undefined || value === null) return normal
    if (typeof value === 'string' && value !== '' && value.length <= 4096) return value
    faults.push(`expected a text in ${name}, got ${shownValue(value)}`)
    return normal
  }
}

export function number(least: number, most: number, normal: number): Read<number> {
  return (value, name, faults) => {
    if (value === undefined) return normal
    if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value
    faults.push(`expected ${least} to ${most} in ${name}, got ${shownValue(value)}`)
    return normal
  }
}

export function texts(value: unknown, name: string, faults: string[]): string[] {
  if (value === undefined) return []
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value
  faults.push(`expected a list of texts in ${name}, got ${shownValue(value)}`)
  return []
}

export function record(value: unknown, name: string, faults: string[]): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  faults.push(`expected an object in ${name}, got ${shownValue(value)}`)
  return {}
}

/** A fault for each member that nobody reads. `where`: what has these members. */
export function refuseOthers(
  fields: Record<string, unknown>,
  known: readonly string[],
  where: string,
  faults: string[],
): void {
  for (const key of Object.keys(fields).filter((one) => !known.includes(one)))
    faults.push(`unknown setting \`${key.slice(0, 40)}\` in ${where}, expected one of ${known.join(', ')}`)
}

/** Whether a relative path stays inside its folder. */
export function isBelow(path: string): boolean {
  return path !== '' && !isAbsolute(path) && !path.includes('\0') && !normalize(path).split('/').includes('..')
}

export function shownValue(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 80)
}
