// Turns the flags of deploy-fleet.sh into variables of the role and flags of ansible-playbook. Pure.

import { resolve } from 'node:path'
import { BatonError, isTag } from '../../agent/words.ts'
import { durationOf, releaseIn, usage } from '../lib/flags.ts'

export interface FleetArguments {
  inventory?: string | undefined
  limit?: string | undefined
  tag?: string | undefined
  release?: string | undefined
  rollback: boolean
  waves?: string | undefined
  soak?: string | undefined
  gate?: string | undefined
  throttle?: string | undefined
  'on-failure'?: string | undefined
  'max-fail-percentage'?: string | undefined
  'lock-timeout'?: string | undefined
  'health-timeout'?: string | undefined
  'before-host'?: string | undefined
  'after-host'?: string | undefined
  'allow-downgrade': boolean
  service: string
  check: boolean
  'pause-until'?: string | undefined
  unpause: boolean
}

export type Variables = Record<`fleet_${string}`, string | number | boolean | readonly (string | number)[]>

const HOSTS_MAX = 100_000
const WAVES_MAX = 100

/** A variable is there only if its flag is: the role has the other values. */
export function variablesOf(given: FleetArguments, isCheck: boolean): Variables {
  const { rollback } = given
  const release = releaseIn(given) ?? ''
  const pause = pauseOf(given)
  if (release === '' && !rollback && !isCheck && pause === '')
    throw usage('expected a release or --rollback; to see what runs where, use --check alone')
  if (release !== '' && release !== 'latest' && !isTag(release))
    throw new BatonError('invalid_tag', `expected \`latest\` or a tag of the form vX.Y.Z, got ${quote(release)}`)
  if (release === 'latest' && rollback)
    throw usage('--rollback takes a tag, not `latest`; omit the tag to use each host’s backup')
  const variables: Variables = { fleet_release: release, fleet_rollback: rollback, fleet_service: given.service }
  if (pause !== '') variables.fleet_pause = pause
  if (given.waves !== undefined) variables.fleet_waves = wavesOf(given.waves)
  if (given['on-failure'] !== undefined) variables.fleet_on_failure = policyOf(given['on-failure'])
  if (given['allow-downgrade']) variables.fleet_allow_downgrade = true
  for (const name of ['soak', 'lock-timeout', 'health-timeout'] as const)
    if (given[name] !== undefined) variables[variable(name)] = Math.ceil(durationOf(`--${name}`, given[name]) / 1000)
  for (const [name, most] of [['throttle', HOSTS_MAX] as const, ['max-fail-percentage', 99] as const])
    if (given[name] !== undefined) variables[variable(name)] = numberOf(`--${name}`, given[name], most)
  for (const name of ['gate', 'before-host', 'after-host'] as const)
    if (given[name] !== undefined) variables[variable(name)] = given[name]
  return variables
}

/** `more`: what the operator gives to ansible-playbook itself. */
export function ansibleFlagsOf(given: FleetArguments, isCheck: boolean, more: readonly string[]): string[] {
  const { inventory, limit } = given
  if (inventory === undefined) throw usage('expected --inventory')
  const check = isCheck && !more.some((flag) => flag === '--check' || flag === '-C')
  return [
    '--inventory',
    inventory.includes(',') ? inventory : resolve(inventory),
    ...(limit === undefined ? [] : ['--limit', limit]),
    ...(check ? ['--check'] : []),
    ...more,
  ]
}

/** What hosts do by themselves is paused until a day, or the pause ends; '' if neither is asked for. Nothing else is done then. */
export function pauseOf(given: FleetArguments): string {
  const { 'pause-until': day, unpause: ends, rollback } = given
  if (day === undefined && !ends) return ''
  if (day !== undefined && ends) throw usage('expected --pause-until or --unpause, got both')
  if (releaseIn(given) !== null || rollback)
    throw usage('--pause-until and --unpause cannot be used with a release or --rollback')
  if (day === undefined) return 'end'
  if (/^\d{4}-\d\d-\d\d$/.test(day)) return day
  throw usage(`expected a date such as 2026-12-27 for --pause-until, got ${quote(day)}`)
}

function wavesOf(text: string): (string | number)[] {
  const waves = text.split(',').map((part) => part.trim())
  const good = (part: string) => /^[1-9]\d{0,5}$/.test(part) || /^([1-9]\d?|100)%$/.test(part)
  if (waves.length > WAVES_MAX || !waves.every(good))
    throw usage(`expected waves such as 1,10%,50%,100%, got ${quote(text)}`)
  return waves.map((part) => (part.endsWith('%') ? part : Number(part)))
}

function numberOf(flag: string, text: string, most: number): number {
  if (/^\d{1,6}$/.test(text) && Number(text) <= most) return Number(text)
  throw usage(`expected 0 to ${most} in ${flag}, got ${quote(text)}`)
}

function policyOf(text: string): string {
  if (['fleet', 'wave', 'none'].includes(text)) return text
  throw usage(`expected fleet, wave or none for --on-failure, got ${quote(text)}`)
}

function variable(flag: string): `fleet_${string}` {
  return `fleet_${flag.replaceAll('-', '_')}`
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 40))
}
