// What an operator allows the service to do by itself, and the steps in which a publisher lets hosts update. Pure.

import type { Duration } from './duration.ts'
import { isCount, isObject, isTime } from './untrusted.ts'

/** The most restrictive first. `notify`: reports a new release and waits for a person. The rest: installs such releases by itself. */
export const MODES = ['off', 'notify', 'patch', 'minor', 'all'] as const
export type Mode = (typeof MODES)[number]

export const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const
export type Day = (typeof DAYS)[number]

/**
 * What the operator allows beyond the rule, in the configuration alone. `unproven`: a patch whose way back a rehearsal could not
 * prove. `untried`: a patch for which there was no rehearsal. `unsigned`: releases of a feed that is not signed.
 */
export const ALLOWANCES = ['unproven', 'untried', 'unsigned'] as const
export type Allowance = (typeof ALLOWANCES)[number]

/** `update.auto` of the operator's configuration; without `allow` also `update/policy.json`, which the panel writes. */
export interface PolicyFile {
  mode?: Mode
  /** absent: every day */
  days?: Day[]
  /** `02:00-05:00`, over midnight too; absent: the whole day */
  hours?: string
  /** an IANA name; absent: the host's */
  zone?: string
  /** of a release, since it was published; at most `365d` */
  minAge?: Duration
  /** how far hosts are spread after the moment at which all of them could update; at most `1d` */
  jitter?: Duration
  /** a day (`2026-12-27`, in the zone) or a time with an offset: the service installs nothing by itself before it */
  pauseUntil?: string
  /** a tag that the service never installs by itself */
  skip?: string
  allow?: Allowance[]
}

/** The rules in force: the operator's, tightened by the panel's. */
export interface PolicyInForce {
  /** one line in English: `patch, mon to fri 02:00-05:00 Europe/Berlin, 3 days after a release` */
  says: string
  /** an update may begin while all of these are open; empty: always */
  hours: { days: Day[]; from: string; to: string; zone: string }[]
  minAgeMs: number
  /** tags that are never installed by itself */
  skip: string[]
  allow: Allowance[]
}

/** A step of a staged release: from `at` on (ISO 8601, UTC) this share of the hosts may install it by itself. */
export interface RolloutStep {
  at: string
  percent: number
}

export const ROLLOUT_STEPS_MAX = 64

/** The steps in a verified file. Null: `trust rollout` would not sign them. */
export function rolloutFrom(value: unknown): RolloutStep[] | null {
  if (!Array.isArray(value) || value.length === 0 || value.length > ROLLOUT_STEPS_MAX) return null
  const isStep = (one: unknown): one is RolloutStep =>
    isObject(one) && isTime(one['at']) && isCount(one['percent']) && one['percent'] <= 100
  return value.every(isStep) ? value.map(({ at, percent }) => ({ at, percent })) : null
}
