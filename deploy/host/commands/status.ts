// `status`: what is installed and running. `check`: also what the feed has. `releases`: all that the feed has, newest first, and what is
// known of each here.

import {
  compareTags,
  EXIT,
  formatLeft,
  formatRehearsal,
  isResting,
  MEANINGS,
  type NextSwitch,
  type OwnDeed,
  type ScheduleReport,
  type Operation,
  type OperationReport,
  reportOf,
  type Wait,
  type WaitCode,
  withoutWords,
} from '../../../agent/words.ts'
import { installedTag, ownCommand, ownRelease } from '../../../agent/install.ts'
import { formatBytes } from '../../lib/progress.ts'
import { formatPause, nextPause, outcomeText, stageText, whyBeside } from '../../lib/switch.ts'
import { supervisorOf } from '../boundary/open.ts'
import { formatSigned } from '../doctor/feed.ts'
import { formatCrashes } from '../supervisor/crashes.ts'
import type { Supervisor, SupervisorState } from '../supervisor/supervisor.ts'
import { isWell, type Look, type Offer } from '../service/look.ts'
import type { ListedRelease } from '../service/releases.ts'
import { type Context, locate, sideOf } from './context.ts'

/** Asks the feed only if `check`: that may cost quota, and people ask for a status often. */
export async function status(context: Context, check: boolean): Promise<number> {
  const { service, report } = context
  const located = await locate(context)
  const { receipt, layout } = located
  await using open = await sideOf(context, located)
  const supervisor = supervisorOf(receipt, open.side)
  const [state, look] = await Promise.all([supervisor.state(), open.side.look({ receipt, check })])
  // root may run its own copy of the program; for a user the command is the executable itself
  const commandTag =
    layout.program === layout.executable ? look.installed : await installedTag(layout.program).catch(() => null)
  const { offer, operation, probation, stalled: _, ...rest } = look
  const isDown = look.running === null && receipt.options['start'] !== false
  const problem = offer?.problem ?? null
  const exit = isDown ? EXIT.down : problem === null ? EXIT.done : MEANINGS[problem.code].exit
  const object = {
    scope: receipt.scope,
    user: receipt.user,
    commandTag,
    ...rest,
    probation,
    operation: operation === null ? null : reportOf(operation, probation),
    supervisor: { description: supervisor.description, ...state },
    ...(offer ?? { latest: null, updateAvailable: null, skipped: [], beyond: null, problem: null }),
    executable: receipt.executable,
    stateDirectory: receipt.stateDirectory,
    configPath: receipt.configPath,
    exit,
  }
  const lines = linesOf({ service, look, supervisor, state, stateDirectory: receipt.stateDirectory })
  const offered = offer === null ? [] : offerLines(offer, look.running ?? look.installed)
  return report.result(object, [...lines, ...offered, ...scheduleLines(look.schedule), ...stalledLines(look)])
}

interface Shown {
  service: string
  look: Look
  supervisor: Supervisor
  state: SupervisorState
  stateDirectory: string
}

function linesOf({ service, look, supervisor, state, stateDirectory }: Shown): string[] {
  const { instance, installed, backup, probation, operation, running } = look
  const first =
    instance === null
      ? `${service} ${downText(state)} (${state.word}; ${supervisor.description})`
      : `${service} ${running ?? ''} is running, pid ${instance.pid}, since ${instance.startedAt} (${supervisor.description})`
  return [
    first,
    ...healthLines(look),
    ...crashLines(state, supervisor.logCommand),
    ...(probation === null ? [] : [`probation  ${probation.tag}, until ${probation.until} at the earliest`]),
    `installed  ${installed ?? 'cannot be run'}`,
    `backup     ${backup === null ? 'none: no earlier executable is kept' : `${backup}, the executable that was replaced last`}`,
    ...(look.switch === null ? [] : [`switch     ${switchLine(look.switch)}`]),
    `state      ${stateDirectory}`,
    ...trustLines(look.trust),
    ...(operation === null ? [] : [`last       ${lastLine(operation, probation)}`]),
    ...dataLines(operation),
    ...(operation?.trial === undefined ? [] : [`trial      ${formatRehearsal(operation.trial)}`]),
  ]
}

const isStarting = ({ word, crashes }: SupervisorState): boolean => word === 'activating' && crashes === null

/** What a service is doing that does not answer. */
function downText(state: SupervisorState): string {
  if (isStarting(state)) return 'is starting and does not answer yet'
  return state.word === 'inactive' ? 'is stopped' : 'does not answer'
}

/** What it answers where it should answer 2xx. */
function healthLines({ health }: Look): string[] {
  if (health === null) return []
  const more = isWell(health) ? '' : ', expected 2xx'
  const said = typeof health === 'number' ? `returns ${health}${more}` : `does not answer: ${health}`
  return [`health     ${ownRelease().healthPath} ${said}`]
}

/** Where the rows lie, unless the line before says it. */
function dataLines(operation: Look['operation']): string[] {
  if (!operation?.stateMoved) return []
  const left = formatLeft(operation.stateMoved)
  return lastLine(operation, null).includes(left) ? [] : [`data       ${left}`]
}

function crashLines({ crashes, word }: SupervisorState, logCommand: string): string[] {
  if (crashes === null) return []
  const end = word === 'failed' ? '; it will not be restarted' : crashes.isLooping ? '; it keeps restarting' : ''
  return [`crashes    ${formatCrashes(crashes)}${end}; see \`${logCommand}\``]
}

/** The end of a status: what the service did by itself since a person's last operation, what is next, what waits for a person. */
export function scheduleLines(schedule: ScheduleReport | null): string[] {
  if (schedule === null) return []
  const { policy, next, now, waits, since, pausedUntil } = schedule
  const pause = pausedUntil === null ? '' : `; paused until ${pausedUntil.replace(/:00\.000Z$/, 'Z')}`
  // "there is no newer release" is one that it may install
  const isAsked = waits.some(({ says, tag }) => says === now.says || (now.code === 'current' && tag !== undefined))
  return [
    ...since.toReversed().map((deed) => `automatic  ${deedLine(deed)}`),
    `automatic  ${policy.says}${pause}${isAsked ? '' : `; ${withoutWords(now.says)}`}${next === null ? '' : `; next check ${next.replace(/:00Z$/, 'Z')}`}`,
    ...waits.map((wait) => `attention  ${withoutWords(wait.says)}${stepOf(wait)}`),
  ]
}

const FOR_A_PERSON: readonly WaitCode[] = ['available', 'unsigned', 'beyond', 'unproven', 'untried', 'pause']

/** The command that installs the release, if a person's word is all that it waits for. */
function stepOf({ code, tag }: Wait): string {
  if (tag === undefined) return ''
  if (FOR_A_PERSON.includes(code)) return `; \`${ownCommand(`upgrade ${tag}`)}\` installs it`
  return code === 'irreversible' ? `; \`${ownCommand(`upgrade ${tag} --allow-irreversible`)}\` installs it` : ''
}

/** Only if no release waits for that reason already. */
function stalledLines({ stalled, schedule }: Look): string[] {
  const isSaid = schedule?.waits.some(({ code }) => code === 'unsigned') === true
  return stalled === null || isSaid ? [] : [`attention  ${stalled}`]
}

function deedLine({ from, to, outcome, at, pauseMs, error }: OwnDeed): string {
  const waited = formatPause({ pauseMs }) ?? 'no request had to wait'
  const what = `${formatWay(from, to)}: ${outcomeText(outcome)} at ${at}`
  return error === null ? `${what}; ${waited}` : `${what} (${withoutWords(error.message)})`
}

const formatWay = (from: string, to: string | null) => (to === null ? `from ${from}` : `${from} to ${to}`)

function switchLine({ order, expectedMs }: NextSwitch): string {
  return order === 'start-first' || expectedMs === null ? order : `${order}; ${nextPause(expectedMs)}`
}

function trustLines({ signed, metadata, warning }: Look['trust']): string[] {
  if (!signed) return ['feed       not signed: anyone who can write to it decides what runs here']
  return [`feed       ${formatSigned(metadata)}`, ...(warning === null ? [] : [`warning    ${warning.message}`])]
}

function offerLines(
  { latest, updateAvailable, skipped, beyond, problem, trust }: Offer,
  current: string | null,
): string[] {
  const isNews = ({ tag }: { tag: string }) => current === null || compareTags(tag, current) >= 0
  return [
    `latest     ${latest ?? `unknown: ${problem?.message ?? 'the feed has no release'}`}${updateAvailable ? `; \`${ownCommand('upgrade')}\` installs it` : ''}`,
    ...(beyond === null ? [] : [`then       ${beyond.tag}, once ${beyond.from} or later is installed`]),
    ...(latest === null || problem === null ? [] : [`problem    ${problem.message}`]),
    ...trust.yanked.filter(isNews).map(({ tag, why }) => `yanked     ${tag}: ${why}`),
    ...skipped.map(
      ({ tag, why, at }) =>
        `bad        ${tag}: ${whyBeside(tag, why)} (${at}); \`${ownCommand(`upgrade ${tag}`)}\` tries it again`,
    ),
  ]
}

function lastLine(operation: Operation | (OperationReport & Operation), probation: Look['probation']): string {
  const { kind, from, to, outcome, finishedAt, error, handover, waits } = operation
  const what = `${kind} ${formatWay(from, to)}`
  if (outcome === null) {
    const told = [
      ...(isResting(waits) ? [] : [stageText(operation, probation)]),
      ...(waits ?? []).map(({ says }) => says),
    ]
    return `${what}: ${told.join('; ')}`
  }
  const why = error === null ? operation.bad : withoutWords(error.message)
  const pause = formatPause(handover ?? {})
  const at = `${finishedAt === null ? '' : ` at ${finishedAt}`}${pause === null ? '' : `, ${pause}`}`
  return `${what}: ${outcomeText(outcome, { from, to })}${at}${why === undefined ? '' : ` (${why})`}`
}

export async function releases(context: Context): Promise<number> {
  const located = await locate(context)
  await using open = await sideOf(context, located)
  const found = await open.side.releases(located.receipt)
  const more = found.isWhole ? [] : ['older releases are not shown']
  const lines = found.releases.length === 0 ? [`${found.feed} has no release`] : found.releases.map(releaseLine)
  return context.report.result({ ...found }, [...lines, ...more])
}

function releaseLine(release: ListedRelease): string {
  const { tag, publishedAt, sizeBytes, isRunning, isInstalled, isBackup, isOffered, bad, yanked, unusable } = release
  const here =
    isRunning && isInstalled ? 'running' : isRunning ? 'running, not installed' : isInstalled ? 'installed' : ''
  const marks = [
    here,
    isBackup ? 'backup' : '',
    bad === null ? '' : `bad: ${whyBeside(tag, bad.why)} (${bad.at})`,
    yanked === null ? '' : `yanked: ${yanked}`,
    unusable === null ? '' : `cannot be used: ${unusable}`,
    isOffered ? '' : 'not in the feed',
  ]
  const size = sizeBytes === null ? '' : formatBytes(sizeBytes)
  const row = `${tag.padEnd(10)} ${(publishedAt ?? '').slice(0, 10).padEnd(10)} ${size.padStart(9)}  `
  return `${row}${marks.filter(Boolean).join(', ')}`.trimEnd()
}
