// Turns the flags of deploy-fleet.sh into the variables of the role; a resume starts from the options of the earlier run. Pure,
// except that it reads that run's report.

import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { BatonError, isTag } from '../../agent/words.ts'
import { usage } from '../lib/flags.ts'
import { type FleetEvent, readLines } from './events.ts'

export interface FleetArguments {
  inventory?: string | undefined
  limit?: string | undefined
  release?: string | undefined
  rollback: boolean
  waves?: string | undefined
  soak?: string | undefined
  gate?: string | undefined
  'on-failure'?: string | undefined
  'tolerate-bad'?: string | undefined
  'tolerate-gone'?: string | undefined
  'lock-timeout'?: string | undefined
  'health-timeout'?: string | undefined
  'before-host'?: string | undefined
  'after-host'?: string | undefined
  'allow-downgrade': boolean
  service: string
  check: boolean
  hold?: string | undefined
  'release-hold': boolean
}

/** Variables of the role, and two more: the inventory, and the flags for Ansible itself. */
export interface Variables {
  fleet_inventory: string
  fleet_ansible_flags: string[]
  [name: `fleet_${string}`]: string | number | boolean | readonly (string | number)[]
}

const SECONDS_MAX = 86_400
const HOSTS_MAX = 100_000
const WAVES_MAX = 100
const UNITS = { s: 1, m: 60, h: 3600 } as const

/** The variables of a fresh run. */
export function variablesOf(given: FleetArguments, ansibleFlags: readonly string[]): Variables {
  if (given.inventory === undefined) throw usage('expected --inventory')
  const hold = holdOf(given)
  const check = given.check || hold !== '' || ansibleFlags.some((flag) => flag === '--check' || flag === '-C')
  if (given.release === undefined && !given.rollback && !check)
    throw usage('expected --release or --rollback; --check by itself says what runs where')
  const { release = '' } = given
  if (release !== '' && release !== 'latest' && !isTag(release)) {
    const got = quote(String(release))
    throw new BatonError('invalid_tag', `expected \`latest\` or a tag of the form vX.Y.Z, got ${got}`)
  }
  if (release === 'latest' && given.rollback) throw usage('a rollback goes to a tag, or with none to each backup')
  return {
    ...changesOf(given),
    fleet_inventory: given.inventory.includes(',') ? given.inventory : resolve(given.inventory),
    fleet_ansible_flags: [...ansibleFlags],
    fleet_release: release,
    fleet_rollback: given.rollback,
    fleet_waves: wavesOf(given.waves ?? '1,10%,50%,100%'),
    fleet_service: given.service,
    fleet_hosts: given.limit ?? 'all',
    fleet_check: check,
    ...(hold === '' ? {} : { fleet_hold: hold }),
  }
}

/** The settings that a resume may change. One that is not given stays as it was. */
export function changesOf(given: FleetArguments): Record<`fleet_${string}`, string | number | boolean> {
  const changes: Record<`fleet_${string}`, string | number | boolean> = {}
  if (given.soak !== undefined) changes.fleet_soak = durationOf('--soak', given.soak)
  if (given.gate !== undefined) changes.fleet_gate = given.gate
  if (given['on-failure'] !== undefined) changes.fleet_on_failure = policyOf(given['on-failure'])
  if (given['tolerate-bad'] !== undefined) changes.fleet_tolerate_bad = countOf('--tolerate-bad', given['tolerate-bad'])
  if (given['tolerate-gone'] !== undefined)
    changes.fleet_tolerate_gone = countOf('--tolerate-gone', given['tolerate-gone'])
  if (given['lock-timeout'] !== undefined)
    changes.fleet_lock_timeout = durationOf('--lock-timeout', given['lock-timeout'])
  if (given['health-timeout'] !== undefined)
    changes.fleet_health_timeout = durationOf('--health-timeout', given['health-timeout'])
  if (given['allow-downgrade']) changes.fleet_allow_downgrade = true
  if (given['before-host'] !== undefined) changes.fleet_before_host = given['before-host']
  if (given['after-host'] !== undefined) changes.fleet_after_host = given['after-host']
  return changes
}

/** The variables to resume a run that did not end, from its report. The tag, the waves and the hosts stay as they were. */
export async function resumedFrom(path: string, given: FleetArguments): Promise<Variables> {
  for (const flag of ['release', 'waves', 'inventory', 'limit'] as const) {
    if (given[flag] !== undefined) throw usage(`--${flag} cannot be given with --resume: it stays as it was`)
  }
  if (given.rollback || given.check || given.hold !== undefined || given['release-hold'])
    throw usage('--rollback, --check and --hold do not go with --resume')
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new BatonError('refused', `there is no report to go on from: ${path}`, { cause, hint: 'name it: --report' })
  })
  const events = readLines(`${text}\n`).events
  const last = events.findLastIndex((event) => event.event === 'run' && !event.resumed)
  const run = events[last] as Extract<FleetEvent, { event: 'run' }> | undefined
  if (run === undefined) throw new BatonError('refused', `${path} is not the report of a fleet`)
  if (run.options['fleet_check']) {
    throw new BatonError('refused', 'that run was a check: there is nothing to go on with', { hint: 'start a new one' })
  }
  const result = events.slice(last).findLast((event) => event.event === 'result')
  if (result !== undefined && result.outcome !== 'refused') {
    throw new BatonError('refused', `that run has ended (${result.outcome}): there is nothing to go on with`, {
      hint: 'start a new one',
    })
  }
  return { ...(run.options as unknown as Variables), ...changesOf(given), fleet_resume_from: path }
}

/** What hosts do by themselves is held until a day, or the hold ends; '' if neither is asked for. Nothing else is done then. */
function holdOf({ hold, 'release-hold': ends, release, rollback }: FleetArguments): string {
  if (hold === undefined && !ends) return ''
  if (hold !== undefined && ends) throw usage('expected --hold or --release-hold, got both')
  if (release !== undefined || rollback)
    throw usage('--hold and --release-hold move nothing: they go without a release')
  if (hold === undefined) return 'end'
  if (/^\d{4}-\d\d-\d\d$/.test(hold)) return hold
  throw usage(`expected a day such as 2026-12-27 in --hold, got ${quote(hold)}`)
}

/** Seconds from `90`, `30s`, `5m`, `1h`. */
export function durationOf(flag: string, text: string): number {
  const [, digits = '', unit = 's'] = /^(\d{1,5})([smh]?)$/.exec(text) ?? []
  const seconds = Number(digits) * UNITS[(unit || 's') as keyof typeof UNITS]
  if (digits !== '' && seconds <= SECONDS_MAX) return seconds
  throw usage(`expected a time such as 90, 30s, 5m or 1h in ${flag}, at most a day, got ${quote(text)}`)
}

function wavesOf(text: string): (string | number)[] {
  const waves = text.split(',').map((part) => part.trim())
  const good = (part: string) => /^[1-9]\d{0,5}$/.test(part) || /^([1-9]\d?|100)%$/.test(part)
  if (waves.length > WAVES_MAX || !waves.every(good))
    throw usage(`expected waves such as 1,10%,50%,100%, got ${quote(text)}`)
  return waves.map((part) => (part.endsWith('%') ? part : Number(part)))
}

function countOf(flag: string, text: string): number {
  if (/^\d{1,6}$/.test(text) && Number(text) <= HOSTS_MAX) return Number(text)
  throw usage(`expected a number of hosts in ${flag}, got ${quote(text)}`)
}

function policyOf(text: string): string {
  if (['fleet', 'wave', 'none'].includes(text)) return text
  throw usage(`expected fleet, wave or none in --on-failure, got ${quote(text)}`)
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 40))
}
