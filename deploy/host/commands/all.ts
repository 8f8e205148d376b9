// `status --all`, `check --all` and `upgrade --all`: every service of this host, or of this user. Each install's own program says or
// does it, so no service knows another one, and none needs to be of the same release of Baton.
// Must hold: `upgrade` moves one after the other, and none after the first that does not end well.

import { BatonError, type ErrorCode, EXIT, type OperationReport, reasonOf, withoutWords } from '../../../agent/words.ts'
import { recordOf } from '../../lib/agent-answer.ts'
import { printError } from '../../lib/printer.ts'
import { END_SIGNALS, onSignals } from '../../lib/signals.ts'
import { errorOf, flagsFor, type Line, runProgram, type EndedProgram } from '../program.ts'
import type { Scope } from '../place/choices.ts'
import { type FoundInstall, installsOf } from '../place/installs.ts'
import { isRoot } from '../place/identity.ts'
import { type Context, personOf } from './context.ts'

/** What is said of one service. Null: not known. */
export interface ServiceRow {
  service: string
  version: string | null
  /** one word, such as `well` or `down` */
  health: string | null
  latest: string | null
  last: { kind: string; to: string | null; outcome: string | null; at: string | null } | null
  /** ISO 8601, UTC: when it acts or looks by itself */
  next: string | null
  /** what waits for a person, one sentence each */
  waits: string[]
  /** why nothing more is known */
  problem: string | null
  exit: number
}

/** What became of one service in a night. `outcome` null: it was not tried. */
export interface ServiceMove {
  service: string
  from: string | null
  to: string | null
  outcome: string | null
  error: { code: ErrorCode; message: string; hint: string | null } | null
  exit: number | null
}

type Install = Extract<FoundInstall, { program: string }>

/** of one service's answer; a feed may take a minute */
const ANSWER_MS = 120_000
const AT_ONCE = 4

export async function statusOfAll(context: Context, word: 'status' | 'check'): Promise<number> {
  const rest = await found(context)
  const rows: ServiceRow[] = []
  const ask = async () => {
    for (let one = rest.shift(); one !== undefined; one = rest.shift()) rows.push(await rowFor(one, word))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, ask))
  const services = rows.toSorted((one, other) => (one.service < other.service ? -1 : 1))
  const exit = services.find((row) => row.exit !== EXIT.done)?.exit ?? EXIT.done
  return context.report.result({ services, exit }, statusLines(services))
}

export async function upgradeAll(context: Context): Promise<number> {
  const flags = flagsOf(context)
  const installs = await found(context)
  const moves: ServiceMove[] = installs.map(({ service }) => ({ ...NOT_TRIED, service }))
  let isEnded = false
  using _ends = onSignals(END_SIGNALS, () => void (isEnded = true))
  for (const [at, install] of installs.entries()) {
    if (isEnded) break
    context.report.note(`${install.service}: upgrade`)
    const move = (moves[at] = await moved(install, flags))
    if (move.error !== null) break
  }
  const failed = moves.find(({ error }) => error !== null)
  const exit = failed?.exit ?? (isEnded ? EXIT.refused : EXIT.done)
  context.report.result({ services: moves, exit }, moveLines(moves))
  if (failed?.error) printError({ ...failed.error, message: `${failed.service}: ${failed.error.message}` })
  return exit
}

const NOT_TRIED = { from: null, to: null, outcome: null, error: null, exit: null }

/** Throws invalid_request for what can be meant for one service only. */
function flagsOf({ flags }: Context): string[] {
  const { release, healthUrl, rehearse, now } = flags
  if (release !== null || healthUrl !== null)
    throw new BatonError('invalid_request', '`--all` cannot be used with a release or `--health-url`')
  return [...flagsFor(flags), ...(rehearse ? ['--trial'] : []), ...(now ? ['--now'] : [])]
}

/** Root gets the host's, else root's own; a user theirs. Throws refused if there is none. */
async function found({ flags, environment }: Context): Promise<FoundInstall[]> {
  const { scope, prefix } = flags.said
  if (prefix !== undefined && prefix !== null)
    throw new BatonError('invalid_request', '`--all` finds every install, so it cannot be used with `--prefix`')
  const person = personOf(environment)
  const scopes: Scope[] = scope !== undefined ? [scope] : isRoot() ? ['system', 'user'] : ['user']
  for (const one of scopes) {
    const installs = await installsOf(one, person)
    if (installs.length > 0) return installs
  }
  const whose = scopes
    .map((one) => (one === 'system' ? 'a system-wide install' : `an install owned by ${person.name}`))
    .join(' or ')
  const hint = scopes.includes('system') ? {} : { hint: '`--system` lists the system-wide installs' }
  throw new BatonError('refused', `expected ${whose} on this host, found none`, hint)
}

async function rowFor(install: FoundInstall, word: 'status' | 'check'): Promise<ServiceRow> {
  const { service } = install
  if (!('program' in install)) return { ...rowFrom(service, {}), problem: install.why, exit: EXIT.refused }
  try {
    const said = await run(install, [word], { timeoutMs: ANSWER_MS })
    const { last, exit } = said
    const row = rowFrom(service, last?.['event'] === 'result' ? last : {})
    return { ...row, problem: last?.['event'] === 'result' ? problemIn(last) : errorOf(said).message, exit }
  } catch (cause) {
    return { ...rowFrom(service, {}), problem: reasonOf(cause), exit: EXIT.unexpected }
  }
}

async function moved(install: FoundInstall, flags: readonly string[]): Promise<ServiceMove> {
  const { service } = install
  const failed = ({ code, message, hint, members }: BatonError, exit: number): ServiceMove => {
    const { from, to, outcome } = members
    const [was, wanted, ended] = [from, to, outcome ?? 'failed'].map((one) => (typeof one === 'string' ? one : null))
    const error = { code, message, hint }
    return { service, from: was ?? null, to: wanted ?? null, outcome: ended ?? null, error, exit }
  }
  if (!('program' in install)) return failed(new BatonError('refused', install.why), EXIT.refused)
  try {
    // a terminal tells the program of Ctrl-C itself
    const said = await run(install, ['upgrade', ...flags], { signals: ['SIGTERM', 'SIGHUP'] })
    const { last, exit } = said
    if (exit !== EXIT.done || last?.['event'] !== 'result') return failed(errorOf(said), exit || EXIT.unexpected)
    const [from, to, outcome] = ['from', 'to', 'outcome'].map((key) => textIn(last[key]))
    return { service, from: from ?? null, to: to ?? null, outcome: outcome ?? null, error: null, exit }
  } catch (cause) {
    return failed(new BatonError('unexpected', reasonOf(cause)), EXIT.unexpected)
  }
}

async function run(
  { program, receipt: { scope, node } }: Install,
  words: readonly string[],
  options: { timeoutMs?: number; signals?: readonly NodeJS.Signals[] },
): Promise<EndedProgram> {
  const [word = '', ...flags] = words
  // a release that is a script runs with the Node that it was installed with, never with that of the one which asks
  const env = { ...process.env, BATON_NODE: node }
  return await runProgram([program, word, `--${scope}`, ...flags, '--json'], () => {}, { ...options, env })
}

/** codes of waits that name a release which this host does not want */
const NOT_ON_OFFER = ['failed', 'failed_here', 'left', 'went_back', 'yanked']

/** Pure. `said`: what a program of any release has answered; nothing of it is taken on trust. */
export function rowFrom(service: string, said: Line): ServiceRow {
  const schedule = recordOf(said['schedule'])
  const now = recordOf(schedule['now'])
  const waits = Array.isArray(schedule['waits']) ? schedule['waits'].map(recordOf) : []
  const operation = said['operation'] as Partial<OperationReport> | null | undefined
  const offered = [...waits, now].find(
    ({ code, tag }) => typeof tag === 'string' && !NOT_ON_OFFER.includes(String(code)),
  )
  const newest = textIn(said['latest']) ?? textIn(offered?.['tag'])
  const { kind, to, outcome, finishedAt } = recordOf(operation)
  return {
    service,
    version: textIn(said['running']) ?? textIn(said['installed']),
    health: healthIn(said),
    latest: newest,
    last:
      textIn(kind) === null
        ? null
        : { kind: String(kind), to: textIn(to), outcome: textIn(outcome), at: textIn(finishedAt) },
    next: textIn(schedule['next']),
    waits: waits.flatMap(({ says }) => textIn(says) ?? []),
    problem: null,
    exit: EXIT.done,
  }
}

function healthIn(said: Line): string | null {
  if (said['event'] !== 'result') return null
  const { crashes, word } = recordOf(said['supervisor'])
  if (recordOf(crashes)['isLooping'] === true) return 'crashing'
  if (recordOf(said['instance'])['id'] === undefined)
    return word === 'activating' ? 'starting' : said['exit'] === EXIT.down ? 'down' : 'stopped'
  if (said['state'] === 'in_flight') return 'switching'
  const health = said['health']
  if (typeof health === 'string') return 'unhealthy'
  if (typeof health === 'number' && Math.floor(health / 100) !== 2) return `unhealthy (${health})`
  if (said['probation'] !== null && said['probation'] !== undefined) return 'on probation'
  return typeof health === 'number' ? 'healthy' : 'answers'
}

function problemIn(said: Line): string | null {
  return textIn(recordOf(said['problem'])['message'])
}

export function statusLines(rows: readonly ServiceRow[]): string[] {
  const cells = rows.map(({ service, version, health, latest, last, next }) => [
    service,
    version ?? '-',
    health ?? '-',
    latest ?? '-',
    last === null
      ? '-'
      : `${last.outcome ?? last.kind} ${last.to ?? ''} ${minuteOf(last.at)}`.replaceAll(/ +/g, ' ').trim(),
    minuteOf(next) || '-',
  ])
  const more = rows.flatMap(({ service, problem, waits }) => [
    ...(problem === null ? [] : [`${service}: ${problem}`]),
    ...waits.map((says) => `${service}: ${withoutWords(says)}`),
  ])
  return [...tableOf([['service', 'version', 'health', 'latest', 'last', 'next'], ...cells]), ...more]
}

export function moveLines(moves: readonly ServiceMove[]): string[] {
  const cells = moves.map(({ service, from, to, outcome, error }) => [
    service,
    outcome ?? 'not tried',
    from === null ? (to ?? '') : to === null || to === from ? from : `${from} to ${to}`,
    error?.message ?? '',
  ])
  return tableOf(cells)
}

function tableOf(rows: readonly string[][]): string[] {
  const width = (at: number) => Math.max(...rows.map((row) => row[at]?.length ?? 0))
  return rows.map((row) =>
    row
      .map((cell, at) => (at === row.length - 1 ? cell : cell.padEnd(width(at))))
      .join('  ')
      .trimEnd(),
  )
}

/** `2026-11-24 01:18Z` */
function minuteOf(time: string | null): string {
  return time === null ? '' : time.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d).*$/, '$1 $2Z')
}

const TEXT_MAX = 400

/** One line, since each cell is one. */
function textIn(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value.slice(0, TEXT_MAX).replaceAll(/\s+/g, ' ') : null
}
