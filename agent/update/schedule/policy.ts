// Reads a policy, and combines the operator's limits with what the panel has written. Pure; fuzzed.
// Must hold: with a policy that is not valid the service installs nothing by itself; the panel's policy can only tighten the limits.

import { DAY_MS, durationText, msOf } from '../../words/duration.ts'
import type { Tag } from '../../words/release.ts'
import {
  type Allowance,
  ALLOWANCES,
  type Day,
  DAYS,
  type Mode,
  MODES,
  type PolicyFile,
  type PolicyInForce,
} from '../../words/schedule.ts'
import { RULES } from '../../words/settings-table.ts'
import { type Faults, keep } from '../../words/table.ts'
import { isTime, quoted } from '../../words/untrusted.ts'

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
  /** as it was written; empty if it is not valid */
  file: PolicyFile
  /** what is not valid; then the service installs nothing by itself */
  faults: string[]
}

const FAULTS_MAX = 8
const { allow: _, ...OWN } = RULES.properties

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
  const reading: Faults = { faults: [], unknown: [] }
  const file = keep(isLimit ? RULES : { ...RULES, properties: OWN }, value, '', reading) as PolicyFile | undefined
  const strange = reading.unknown.map(
    ({ name, expected }) => `unknown \`${name}\`, expected one of ${expected.join(', ')}`,
  )
  const faults = [...reading.faults, ...strange].slice(0, FAULTS_MAX)
  if (file === undefined) return { policy: USUAL, file: {}, faults }
  const { mode = isLimit ? 'notify' : 'all' } = file // without a mode the panel's policy tightens nothing
  const at = zoneFrom(file, zone, faults)
  const policy: Policy = {
    mode,
    hours: hoursFrom(file, at, faults),
    minAgeMs: msOf(file.minAge ?? '0'),
    jitterMs: msOf(file.jitter ?? '0'),
    pauseUntil: pauseFrom(file, at, faults),
    skip: file.skip === undefined ? [] : [file.skip],
    allow: ALLOWANCES.filter((one) => file.allow?.includes(one)),
  }
  return faults.length === 0
    ? { policy, file, faults }
    : { policy: { ...policy, mode: lower(mode, 'notify') }, file: {}, faults }
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

/** The policy as a client gets it. */
export function policyInForce(policy: Policy): PolicyInForce {
  const { hours, minAgeMs, skip, allow } = policy
  return {
    says: formatPolicy(policy),
    hours: hours.map(({ days, from, to, zone }) => ({ days: [...days], from: clock(from), to: clock(to), zone })),
    minAgeMs,
    skip: [...skip],
    allow: [...allow],
  }
}

/** The policy in one line, for a person. */
export function formatPolicy({ mode, hours, minAgeMs, skip, allow }: Policy): string {
  if (mode === 'off') return 'off (no checks)'
  if (mode === 'notify') return 'notify only'
  return [
    mode,
    ...hours.map(({ days, from, to, zone }) => `${formatDays(days)} ${clock(from)}-${clock(to)} ${zone}`),
    ...(minAgeMs === 0 ? [] : [`${formatAge(minAgeMs)} after a release`]),
    ...(skip.length === 0 ? [] : [`without ${skip.join(', ')}`]),
    ...(allow.length === 0
      ? []
      : [`also ${allow.map((kind) => `${kind} ${kind === 'unsigned' ? 'releases' : 'patches'}`).join(', ')}`]),
  ].join(', ')
}

/** `3 days`, `90m` */
export function formatAge(ms: number): string {
  const days = ms / DAY_MS
  return days % 1 === 0 ? count(days, 'day') : durationText(ms)
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

function hoursFrom({ days, hours }: PolicyFile, zone: string, faults: string[]): OpenHours[] {
  if (days === undefined && hours === undefined) return []
  const open = { days: DAYS.filter((one) => days?.includes(one) ?? true), zone } // in their order, each once
  if (hours === undefined) return [{ ...open, from: 0, to: 1440 }]
  const [h1 = 99, m1 = 99, h2 = 99, m2 = 99] = hours.split(/[:-]/).map(Number)
  const [from, to] = [h1 * 60 + m1, h2 * 60 + m2]
  if (from < 1440 && to <= 1440 && from !== to && m1 < 60 && m2 < 60) return [{ ...open, from, to }]
  faults.push(`expected ${RULES.properties.hours.form} in \`hours\`, got ${quoted(hours)}`)
  return []
}

/** A name of the IANA database; not an offset, which has no summer time. */
function zoneFrom({ zone }: PolicyFile, usual: string, faults: string[]): string {
  if (zone === undefined || isZone(zone)) return zone ?? usual
  faults.push(`expected ${RULES.properties.zone.form} in \`zone\`, got ${quoted(zone)}`)
  return usual
}

function isZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== ''
  } catch {
    return false
  }
}

function pauseFrom({ pauseUntil }: PolicyFile, zone: string, faults: string[]): number | null {
  if (pauseUntil === undefined) return null
  if (isTime(pauseUntil)) return Date.parse(pauseUntil)
  try {
    if (/^\d{4}-\d\d-\d\d$/.test(pauseUntil))
      return Temporal.PlainDate.from(pauseUntil, { overflow: 'reject' }).toZonedDateTime(zone).epochMilliseconds
  } catch {
    // the fault is added below
  }
  faults.push(`expected ${RULES.properties.pauseUntil.form} in \`pauseUntil\`, got ${quoted(pauseUntil)}`)
  return null
}
