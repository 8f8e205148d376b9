// Runs the schedule in a process of the service: looks, asks the feed, begins an operation, reports. `next.ts` decides.
// Must hold: only one process of a service acts, the one that serves alone; an attempt is on the disk before it begins, under the lock
// of the operation; no timer is longer than LOOK_MS, so a host that slept or whose clock was set looks soon; nothing here ends or
// delays the service.

import { randomUUID } from 'node:crypto'
import type { JournalState } from '../../disk/journal.ts'
import { takeLock } from '../../disk/lock.ts'
import type { ManagedInstall } from '../../disk/managed-install.ts'
import type { Settings } from '../../settings.ts'
import { BatonError, reasonOf } from '../../words/errors.ts'
import type { OpenFeed } from '../../words/release.ts'
import type { Wait } from '../../words/waits.ts'
import type { OperationRequest } from '../operation.ts'
import { openFeed } from '../feed/open.ts'
import { askFeed } from './ask.ts'
import { leftIn } from './facts.ts'
import { sendLetters, withNews } from './letters.ts'
import {
  askAgainAt,
  type Attempt,
  corrected,
  isOfAnother,
  marksOf,
  newMemory,
  readMemory,
  type Remembered,
  settled,
  writeMemory,
} from './memory.ts'
import type { Next, Offered } from './next.ts'
import { aloneUnder } from './person.ts'
import { rulesOf } from './policy-files.ts'
import { type ScheduleKnown, waitingFor, whatNow } from './say.ts'

export type StartAlone = (asked: Omit<OperationRequest, 'who'>) => Promise<unknown>

export interface Attended {
  install: ManagedInstall
  settings: Pick<Settings, 'service' | 'order' | 'update'>
  /** the schedule's own feed: it passes over other releases than an operation does */
  feed: OpenFeed
  leaving: AbortSignal
  start: StartAlone
  now: () => number
}

const [LOOK_MS, LOOK_AT_LEAST_MS, BUSY_MS] = [300_000, 5_000, 60_000]

export interface AttendOptions {
  install: ManagedInstall
  settings: Settings
  /** this process: settles when it serves, whether it still has to end the operation that started it, whether it hands over */
  serving: { began: Promise<void> | null; isSettling: boolean; handingOver: Promise<unknown> | null }
  life: { isStopping(): boolean; leaving: AbortSignal }
}

/** Looks now, and again until this process ends. Never throws. */
export function attend({ install, settings, serving, life }: AttendOptions, start: StartAlone): void {
  const { service, trust, log } = settings
  const choice = { ...settings.choice, feed: settings.feed ?? install.feed.description }
  let attended: Attended | null = null
  let [last, timer] = ['', null as NodeJS.Timeout | null]
  const look = async () => {
    let at: number | null = null
    try {
      await serving.began
      if (isOurTurn(serving, life)) {
        attended ??= {
          install,
          settings,
          feed: openFeed(choice, { service, stateDirectory: install.stateDirectory, trust }),
          leaving: life.leaving,
          start,
          now: Date.now,
        }
        at = await attendOnce(attended)
      } else at = Date.now() + BUSY_MS
    } catch (cause) {
      const message = `automatic updates: ${reasonOf(cause)}`
      if (message !== last) log({ event: 'warning', message }) // once, not every five minutes
      last = message
    }
    if (life.isStopping()) return
    const wait = at === null ? LOOK_MS : Math.min(LOOK_MS, Math.max(LOOK_AT_LEAST_MS, at - Date.now()))
    timer = setTimeout(() => void look(), wait).unref()
  }
  life.leaving.addEventListener('abort', () => clearTimeout(timer ?? undefined))
  void look()
}

/** Whether this process serves alone. While it takes over or hands over, the other process may look. */
function isOurTurn({ began, isSettling, handingOver }: AttendOptions['serving'], life: AttendOptions['life']): boolean {
  return began !== null && !isSettling && handingOver === null && !life.isStopping()
}

/** One look. Resolves to the time of the next look, epoch milliseconds; null: no particular time. */
export async function attendOnce(attended: Attended): Promise<number | null> {
  const { install, now, feed } = attended
  let memory = await remembered(attended)
  let known = await knownNow(attended, memory)
  let { decided, asks } = await whatNow(install, known, now())
  if (decided.do === 'ask') {
    // Write first: a service that restarts in a loop must not ask more often than another.
    const failures = memory.asked.failures + 1
    const asking = { ...memory.asked, next: askAgainAt(memory.id, failures, now()), failures }
    await writeMemory(install.disk, install.stateDirectory, { ...memory, asked: asking })
    const { policy } = known.rules
    const { bad, history } = known.journal
    const asked = { running: install.current, policy, bad, readyMs: install.readyMs, left: leftIn(history) }
    memory = await askFeed(feed, memory, asked, now())
    await feed.close().catch(() => {})
    await writeMemory(install.disk, install.stateDirectory, memory)
    known = await knownNow(attended, memory)
    ;({ decided, asks } = await whatNow(install, known, now()))
  }
  memory = await told(attended, { ...known, memory }, asks)
  if (decided.do === 'update') {
    // telling may have taken minutes: the hours may have ended, and the operator may have said otherwise
    known = await knownNow(attended, memory)
    ;({ decided } = await whatNow(install, known, now()))
  }
  if (decided.do === 'update' && memory.offer !== null) return await go(attended, known, memory, memory.offer)
  return soonest(decided, memory)
}

function soonest(decided: Next, { letters }: Remembered): number | null {
  const all = [...(decided.at === null ? [] : [decided.at]), ...letters.map(({ at }) => at)]
  return all.length === 0 ? null : Math.min(...all)
}

/** The memory, brought up to date with the clock, this machine and the journal. */
async function remembered({ install, now }: Attended): Promise<Remembered> {
  const { stateDirectory, disk, current, journal } = install
  const [read, marks, state] = await Promise.all([readMemory(stateDirectory), marksOf(), journal.read()])
  const before = read ?? newMemory(marks, now())
  const own = isOfAnother(before, marks) ? { ...before, id: newMemory(marks, now()).id, marks } : before
  const memory = settled(corrected(own, now()), state, current)
  // after an attempt, ask the feed again at once: it may have a newer release
  if (memory.attempt?.isOpen !== own.attempt?.isOpen) memory.asked = { ...memory.asked, next: now() }
  if (JSON.stringify(memory) !== JSON.stringify(read)) await writeMemory(disk, stateDirectory, memory)
  return memory
}

async function knownNow({ install, settings }: Attended, memory: Remembered): Promise<ScheduleKnown> {
  const [rules, journal, trust] = await Promise.all([rulesOf(install), journalNow(install), install.feed.trust()])
  return { rules, memory, journal, trust, next: { order: settings.order, maxPauseMs: settings.update.maxPauseMs } }
}

/** The journal, without an operation that nobody carries out: a killed process has left it, or its end could not be written. */
async function journalNow({ journal, disk, stateDirectory }: ManagedInstall): Promise<JournalState> {
  const state = await journal.read()
  if (state.operation === null || state.operation.outcome !== null) return state
  const lock = await takeLock(disk, stateDirectory, 'an automatic check').catch(() => null)
  await lock?.release()
  return lock === null ? state : { ...state, operation: null } // the next one closes it
}

/** Reports what is new to the operator's program, if there is one. */
async function told(
  { install, now, leaving, settings }: Attended,
  known: ScheduleKnown,
  asks: Wait | null,
): Promise<Remembered> {
  const { disk, stateDirectory, current } = install
  const { onOutcome } = known.rules
  const { memory, journal } = known
  if (onOutcome === null) return { ...memory, told: null, toldWaits: [], letters: [], hookProblem: null }
  const waiting = waitingFor({ ...known, memory: { ...memory, hookProblem: null } }, current, asks)
  const news = withNews(memory, journal, { service: settings.service, running: current, waiting }, now())
  const kept = (now: Remembered) => writeMemory(disk, stateDirectory, now)
  if (JSON.stringify(news) !== JSON.stringify(memory)) await kept(news)
  return await sendLetters(news, onOutcome, { now, leaving, kept })
}

/** Begins the operation. The process that gets its lock notes the attempt under the lock. */
async function go(attended: Attended, { rules }: ScheduleKnown, memory: Remembered, offer: Offered): Promise<number> {
  const { install, start, now } = attended
  const { disk, stateDirectory } = install
  const { tag, sha256 } = offer
  const attempt: Attempt = { id: randomUUID(), tag, sha256, at: now(), isOpen: true }
  const prepare = async () => {
    const there = await readMemory(stateDirectory)
    if (there?.attempt?.id !== memory.attempt?.id)
      throw new BatonError('update_in_flight', 'another process of this service has already started this update')
    await writeMemory(disk, stateDirectory, { ...memory, attempt })
  }
  try {
    await start({ kind: 'update', tag, alone: { ...aloneUnder(rules.policy.allow), id: attempt.id, sha256 }, prepare })
  } catch (cause) {
    if (cause instanceof BatonError && (cause.code === 'update_in_flight' || cause.code === 'locked'))
      return now() + BUSY_MS
    install.log({
      event: 'warning',
      message: `automatic updates: could not start the update to ${tag}: ${reasonOf(cause)}`,
    })
    await writeMemory(disk, stateDirectory, { ...memory, attempt }) // it counts as a failed attempt: do not begin it again at once
  }
  return now() + BUSY_MS
}
