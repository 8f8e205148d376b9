// Reports on what the service does by itself: for the status, the panel, the command and the operator's program. Reads only, but for
// `policyReport`, which can write the panel's rules first.

import type { JournalState } from '../../disk/journal.ts'
import type { ManagedInstall } from '../../disk/managed-install.ts'
import type { Operation, OwnDeed, PolicyReport, ScheduleReport, TrustReport } from '../../words/state.ts'
import type { NextSwitch } from '../../words/order.ts'
import { compareTags } from '../../words/release.ts'
import { feedProblem, type Wait } from '../../words/waits.ts'
import { factsOf, leftBehind, tookMsOf } from './facts.ts'
import { corrected, type Remembered, newMemory, readMemory } from './memory.ts'
import { next, type Next } from './next.ts'
import { type PersonAsked, asksOf } from './person.ts'
import { type Policy, policyInForce, USUAL } from './policy.ts'
import { type Rules, rulesOf, writeOwn } from './policy-files.ts'

const DEEDS_MAX = 5
/** how many questions in a row the feed may leave without an answer, and how many attempts may fail, before the report says so */
const TROUBLES_MAX = 2
const MINUTE_MS = 60_000

/** Everything that a decision rests on. */
export interface ScheduleKnown {
  rules: Rules
  memory: Remembered
  journal: JournalState
  trust: Pick<TrustReport, 'signed' | 'yanked'>
  next: Omit<NextSwitch, 'expectedMs'>
}

/** A thing that waits for a person. `key` identifies it, and stays the same if only figures in the sentence change. */
export interface Waiting extends Wait {
  key: string
}

/** What to do now, and why the release that is on offer waits for a person, if it does. */
export async function whatNow(
  install: PersonAsked,
  known: ScheduleKnown,
  now: number,
): Promise<{ decided: Next; asks: Wait | null }> {
  const { rules, memory, journal } = known
  const { operation, history } = journal
  const asks = await asksOf(install, { ...known, policy: rules.policy })
  const isInFlight = operation !== null && operation.outcome === null
  const running = install.current
  const left = leftBehind({ ...known, running })
  const facts = factsOf({ memory, running, isInFlight, asks, left, tookMs: tookMsOf(history) })
  return { decided: next(rules.policy, facts, now), asks }
}

/** What waits for a person, most urgent first. */
export function waitingFor({ rules, memory, trust }: ScheduleKnown, running: string, asks: Wait | null): Waiting[] {
  const { faults, policy } = rules
  const { passed, offer, hookProblem } = memory
  const out = trust.yanked.find(({ tag }) => tag === running)
  const isOff = policy.mode === 'off'
  return [
    ...(out === undefined
      ? []
      : [
          {
            key: `yanked ${running}`,
            code: 'yanked' as const,
            says: `${running}, the running release, was yanked; run \`rollback\` to go back. Reason: ${out.why}`,
            tag: running,
            why: out.why,
          },
        ]),
    ...(asks === null || isOff ? [] : [{ key: `asks ${offer?.sha256}`, ...asks }]),
    ...(isOff ? [] : passed)
      .filter(({ tag }) => compareTags(tag, running) > 0 && tag !== offer?.tag)
      .map(({ tag, why }) => ({ key: `passed ${tag}`, ...why })),
    ...(isLasting(memory) && !isOff ? [{ key: 'feed', ...feedProblem(memory.asked.problem ?? '') }] : []),
    ...(memory.failures > TROUBLES_MAX && !isOff ? [failuresIn(memory)] : []),
    ...faults.map((says) => ({ key: says, code: 'rules' as const, says, why: says })),
    ...(hookProblem === null ? [] : [reportProblem(hookProblem)]),
  ]
}

function reportProblem(why: string): Waiting {
  return { key: 'hook', code: 'report', says: `\`update.onOutcome\`: ${why}`, why }
}

function failuresIn({ failures: count, attempt }: Remembered): Waiting {
  const tag = attempt?.tag ?? ''
  const says = `the last ${count} automatic attempts failed, most recently with ${tag}: see the history for the reasons`
  return { key: 'failures', code: 'failures', says, count, tag }
}

/** Whether the feed's problem is worth a report: it lasts, or the feed answers with something that cannot be used. */
function isLasting({ asked: { problem, failures } }: Remembered): boolean {
  return problem !== null && (failures === 0 || failures > TROUBLES_MAX)
}

/** The part of the status. */
export async function scheduleReport(
  install: PersonAsked,
  known: Omit<ScheduleKnown, 'rules' | 'memory'>,
  now = Date.now(),
): Promise<ScheduleReport> {
  const [rules, read] = await Promise.all([rulesOf(install), readMemory(install.stateDirectory)])
  const memory = corrected(read ?? newMemory([], now), now)
  const whole = { ...known, rules, memory }
  const { decided, asks } = await whatNow(install, whole, now)
  const { do: act, at: decidedAt, ...present } = decided
  const at = read === null && act === 'nothing' ? null : decidedAt
  const { at: askedAt } = memory.asked
  return {
    mode: rules.policy.mode,
    most: rules.limits.mode ?? USUAL.mode,
    policy: policyInForce(rules.policy),
    next: at === null ? null : minuteOf(Math.max(at, now)),
    now: present,
    askedAt: askedAt === null ? null : new Date(askedAt).toISOString(),
    pausedUntil: pausedUntil(rules.policy, now),
    waits: waitingFor(whole, install.current, asks).map(({ key: _, ...wait }) => wait),
    since: deedsIn(known.journal.history),
  }
}

/**
 * Answers the endpoint `policy`. Writes `own` first, if it is given. Throws invalid_request with every fault of `own`; then nothing has
 * changed.
 */
export async function policyReport(
  install: ManagedInstall,
  next: Omit<NextSwitch, 'expectedMs'>,
  own: unknown,
): Promise<PolicyReport> {
  if (own !== undefined) await writeOwn(install, own)
  const [{ limits, own: written, faults }, journal, trust] = await Promise.all([
    rulesOf(install),
    install.journal.read(),
    install.feed.trust(),
  ])
  return { limits, own: written, faults, schedule: await scheduleReport(install, { journal, trust, next }) }
}

function pausedUntil({ pauseUntil }: Policy, now: number): string | null {
  return pauseUntil === null || pauseUntil <= now ? null : new Date(pauseUntil).toISOString()
}

/** What the service did by itself since a person last asked for an operation. `history`: newest first. */
export function deedsIn(history: readonly Operation[]): OwnDeed[] {
  const asked = history.findIndex(({ by }) => by === undefined)
  return history
    .slice(0, asked === -1 ? undefined : asked)
    .slice(0, DEEDS_MAX)
    .map(deedOf)
}

function deedOf({ id, from, to, outcome, finishedAt, startedAt, handover, error }: Operation): OwnDeed {
  return {
    id,
    from,
    to,
    outcome: outcome ?? 'failed',
    at: finishedAt ?? startedAt,
    pauseMs: handover?.pauseMs ?? null,
    error: error === null ? null : { code: error.code, message: error.message },
  }
}

/** A whole minute, not before the moment: `2026-11-24T02:17:00Z`. */
function minuteOf(ms: number): string {
  return new Date(Math.ceil(ms / MINUTE_MS) * MINUTE_MS).toISOString().replace('.000', '')
}
