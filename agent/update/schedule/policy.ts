// Reads a policy, and combines the operator's limits with what the panel has written. Pure; fuzzed.
// Must hold: with a policy that is not valid the service installs nothing by itself; the panel's policy can only tighten the limits.

import type { Tag } from '../../words/release.ts'
import { isTag } from '../../words/release.ts'
import { type Allowance, ALLOWANCES, type Day, DAYS, type Mode, MODES } from '../../words/schedule.ts'
import { isObject, isTime, quoted } from '../../words/untrusted.ts'

/** Days and hours. `from`, `to`: minutes of the day; if `to` is not after `from`, it is on the next day. */
export interface OpenHours {
  days: readonly Day[]
  from: number
  /** at most 1440 */
  to: number
  zone: string
}

export interface Policy {
  mode: Mode
  /** open when all of these are; empty: always */
  hours: readonly OpenHours[]
  minAgeMs: number
  jitterMs: number
  /** epoch milliseconds; null: nothing is held */
  pauseUntil: number | null
  skip: readonly Tag[]
  allow: readonly Allowance[]
}

export interface PolicyRead {
  policy: Policy
  /** what is not valid; then the service installs nothing by itself */
  faults: string[]
}

export const MIN_AGE_MAX_HOURS = 8760
export const JITTER_MAX_MINUTES = 1440
const HOUR_MS = 3_600_000
const FIELDS = ['mode', 'days', 'hours', 'zone', 'minAgeHours', 'jitterMinutes', 'pauseUntil', 'skip']

/** The policy if the operator sets none: reports new releases. */
export const USUAL: Policy = Object.freeze({
  mode: 'notify',
  hours: [],
  minAgeMs: 0,
  jitterMs: 0,
  pauseUntil: null,
  skip: [],
  allow: [],
})

/** `value`: parsed JSON. `zone`: the host's. `isLimit`: the operator's policy, which may have `allow`. */
export function readPolicy(value: unknown, zone: string, isLimit: boolean): PolicyRead {
  const faults: string[] = []
  if (!isObject(value)) return { policy: USUAL, faults: [`expected an object, got ${quoted(value)}`] }
  const fields = isLimit ? [...FIELDS, 'allow'] : FIELDS
  for (const key of Object.keys(value)) {
    if (!fields.includes(key)) faults.push(`unknown \`${key.slice(0, 40)}\`, expected one of ${fields.join(', ')}`)
    if (faults.length > 8) break
  }
  const at = zoneFrom(value['zone'], zone, faults)
  const unsaid = isLimit ? 'notify' : 'all' // without a mode the panel's policy tightens nothing
  const policy: Policy = {
    mode: oneOf(MODES, value['mode'], unsaid, 'mode', faults),
    hours: hoursFrom(value, at, faults),
    minAgeMs: HOUR_MS * numberFrom(value['minAgeHours'], 'minAgeHours', MIN_AGE_MAX_HOURS, faults),
    jitterMs: 60_000 * numberFrom(value['jitterMinutes'], 'jitterMinutes', JITTER_MAX_MINUTES, faults),
    pauseUntil: holdFrom(value['pauseUntil'], at, faults),
    skip: skipFrom(value['skip'], faults),
    allow: isLimit ? listFrom(ALLOWANCES, value['allow'] ?? [], 'allow', faults) : [],
  }
  return { policy: faults.length === 0 ? policy : { ...policy, mode: lower(policy.mode, 'notify') }, faults }
}

/** The limits, tightened by what the panel has written. */
export function tightened(limits: Policy, own: Policy): Policy {
  const [one, other] = [limits.pauseUntil, own.pauseUntil]
  return {
    mode: lower(limits.mode, own.mode),
    hours: [...limits.hours, ...own.hours],
    minAgeMs: Math.max(limits.minAgeMs, own.minAgeMs),
    jitterMs: Math.max(limits.jitterMs, own.jitterMs),
    pauseUntil: one === null ? other : Math.max(one, other ?? one),
    skip: [...limits.skip, ...own.skip],
    allow: limits.allow,
  }
}

/** The policy in one line, for a person. */
export function formatPolicy({ mode, hours, minAgeMs, skip, allow }: Policy): string {
  if (mode === 'off' || mode === 'notify') return mode
  const age = minAgeMs / HOUR_MS
  return [
    mode,
    ...hours.map(({ days, from, to, zone }) => `${formatDays(days)} ${clock(from)}-${clock(to)} ${zone}`),
    ...(age === 0 ? [] : [`${age % 24 === 0 ? count(age / 24, 'day') : count(age, 'hour')} after a release`]),
    ...(skip.length === 0 ? [] : [`without ${skip.join(', ')}`]),
    ...(allow.length === 0 ? [] : [`also ${allow.join(', ')}`]),
  ].join(', ')
}

export function count(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? '' : 's'}`
}

function formatDays(days: readonly Day[]): string {
  if (days.length === DAYS.length) return 'every day'
  const at = DAYS.indexOf(days[0] ?? 'mon')
  const isRow = days.length > 2 && days.every((day, i) => day === DAYS[at + i])
  return isRow ? `${days[0]} to ${days.at(-1)}` : days.join(', ')
}

function clock(minutes: number): string {
  return `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`
}

function lower(one: Mode, other: Mode): Mode {
  return MODES.indexOf(one) < MODES.indexOf(other) ? one : other
}

function oneOf<T extends string>(all: readonly T[], value: unknown, unsaid: T, name: string, faults: string[]): T {
  const found = value === undefined ? unsaid : all.find((one) => one === value)
  if (found !== undefined) return found
  faults.push(`expected ${all.join(', ')} in \`${name}\`, got ${quoted(value)}`)
  return all[0] as T
}

/** In the order of `all`, each once. */
function listFrom<T extends string>(all: readonly T[], value: unknown, name: string, faults: string[]): T[] {
  const given: unknown[] = Array.isArray(value) ? value.slice(0, 2 * all.length) : []
  if (!Array.isArray(value) || given.length < value.length || !given.every((one) => all.includes(one as T)))
    faults.push(`expected a list of ${all.join(', ')} in \`${name}\`, got ${quoted(value)}`)
  return all.filter((one) => given.includes(one))
}

function numberFrom(value: unknown, name: string, most: number, faults: string[]): number {
  if (value === undefined) return 0
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most) return value
  faults.push(`expected a whole number from 0 to ${most} in \`${name}\`, got ${quoted(value)}`)
  return 0
}

function hoursFrom(value: Record<string, unknown>, zone: string, faults: string[]): OpenHours[] {
  const { days: named, hours } = value
  if (named === undefined && hours === undefined) return []
  const days = named === undefined ? DAYS : listFrom(DAYS, named, 'days', faults)
  if (days.length === 0 && Array.isArray(named) && named.length === 0)
    faults.push('expected at least one day in `days`, got none')
  if (hours === undefined) return [{ days, from: 0, to: 1440, zone }]
  const [, ...parts] = (typeof hours === 'string' ? /^(\d\d):(\d\d)-(\d\d):(\d\d)$/.exec(hours) : null) ?? []
  const [h1 = 99, m1 = 99, h2 = 99, m2 = 99] = parts.map(Number)
  const [from, to] = [h1 * 60 + m1, h2 * 60 + m2]
  if (from < 1440 && to <= 1440 && from !== to && m1 < 60 && m2 < 60) return [{ days, from, to, zone }]
  faults.push(`expected hours such as \`02:00-05:00\` in \`hours\`, got ${quoted(hours)}`)
  return []
}

/** A name of the IANA database; not an offset, which has no summer time. */
function zoneFrom(value: unknown, usual: string, faults: string[]): string {
  if (value === undefined) return usual
  if (typeof value === 'string' && /^[A-Za-z][A-Za-z0-9_+/-]{1,63}$/.test(value) && isZone(value)) return value
  faults.push(`expected a time zone such as \`Europe/Berlin\` in \`zone\`, got ${quoted(value)}`)
  return usual
}

function isZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== ''
  } catch {
    return false
  }
}

function holdFrom(value: unknown, zone: string, faults: string[]): number | null {
  if (value === undefined || value === null) return null
  if (isTime(value)) return Date.parse(value)
  if (typeof value === 'string' && /^\d{4}-\d\d-\d\d$/.test(value)) {
    try {
      return Temporal.PlainDate.from(value, { overflow: 'reject' }).toZonedDateTime(zone).epochMilliseconds
    } catch {
      // the fault is added below
    }
  }
  faults.push(`expected a day such as \`2026-12-27\` or a time with an offset in \`pauseUntil\`, got ${quoted(value)}`)
  return null
}

function skipFrom(value: unknown, faults: string[]): Tag[] {
  if (value === undefined || value === null) return []
  if (isTag(value)) return [value]
  faults.push(`expected a tag of the form vX.Y.Z in \`skip\`, got ${quoted(value)}`)
  return []
}
