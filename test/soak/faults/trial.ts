// One fault in one switch: the service is told to switch, a process of it is hit, and when all is quiet again everything must
// agree. Must hold: nothing is judged before the service has settled, and whatever is broken is said in words.

import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Inheritance, INHERITANCE } from '../../../agent/words/wire.ts'
import { startTimeOf } from '../../../agent/sockets/process.ts'
import type { HandoverStep } from '../../../agent/handover/moments.ts'
import { compareTags } from '../../../agent/words/release.ts'
import type { Operation, Status } from '../../../agent/words/state.ts'
import type { StepFault } from '../../fixtures/at-steps.ts'
import { until } from '../../fixtures/evidence.ts'
import { type Evidence, type Ground, HANG_MS, TAGS } from './ground.ts'

export type Side = 'predecessor' | 'successor' | 'both'

/** What is done to whom, and when: at steps, or at an instant as a share (0 to 1) of the time that a switch takes. */
export interface Plan {
  side: Side
  signal: StepFault['signal']
  at: HandoverStep[] | number
}

export interface Trial {
  plan: Plan
  outcome: Operation['outcome']
  /** milliseconds from the fault to the end of the first request that began after it; null where nobody was left to answer */
  backMs: number | null
  /** every process was hit: a person or a supervisor had to start it again */
  isNobodyLeft: boolean
  /** all that lived were hit at once */
  isSole: boolean
  /** broken promises, in words */
  faults: string[]
}

const ASK_EVERY_MS = 10
/** of a successor whose predecessor may have left, or has: the operation is its own */
const LAST_STEPS: HandoverStep[] = ['said committed', 'alone']
const BACK_WITHIN_MS = 60_000
/** what leaks stays, what is being cleared away goes */
const QUIET_MS = 10_000
const SETTLED_WITHIN_MS = 60_000
const LOOK_EVERY_MS = 50
/** what is stopped is let go on after so long */
const STOPPED_MS = 3 * HANG_MS

/** Switches to the other tag, with this fault. `spanMs`: how long a switch takes. Null where the fault came too late. */
export async function conduct(ground: Ground, plan: Plan, spanMs: number, descriptors: number): Promise<Trial | null> {
  const before = await settledStatus(ground)
  const [predecessor = 0] = ground.pids()
  const born = startTimeOf(predecessor)
  const from = before.instance.version
  const to = TAGS.find((tag) => tag !== from) ?? ''
  await ground.arm(typeof plan.at === 'number' ? [] : plan.at.map((step) => ({ step, signal: plan.signal })))
  const told = performance.now()
  const answer = await ground.api('POST', '/admin/update', { tag: to })
  if (answer.status !== 202) throw new Error(`expected 202, got ${answer.status}: ${JSON.stringify(answer.body)}`)
  const { id } = answer.body as Operation
  const hit =
    typeof plan.at === 'number'
      ? await hitAt(ground, plan, predecessor, { told, spanMs, share: plan.at, born })
      : await hitAtSteps(ground, plan.at, plan.signal)
  if (hit === null) {
    await settledStatus(ground)
    return null
  }
  const back = firstAnswer(ground)
  back.catch(() => {}) // heard below
  const over = new AbortController()
  if (plan.signal === 'SIGSTOP') void letGoOn(ground, over.signal)
  const wasHit = (pid: number) => plan.side === 'both' || (pid === predecessor) === (plan.side === 'predecessor')
  // as the service calls itself: a host counts pids anew
  const isHit = (id: string) => plan.side === 'both' || (id === before.instance.id) === (plan.side === 'predecessor')
  const isNobodyLeft = await isEmptied(ground, plan.signal, isHit)
  const othersLeft = ground.pids().every(wasHit)
  if (isNobodyLeft) await ground.revive()
  const backMs = Math.round((await back) - hit.at)
  const status = await settledStatus(ground)
  const evidence = await quietEvidence(ground, descriptors)
  over.abort() // else it would let go on what the next trial has stopped
  await ground.arm([])
  const faults = judge({ from, to, id, status, evidence, descriptors })
  // after its last look at its successor a predecessor ends: whoever kills that one then needs a supervisor
  const wasLeaving = plan.side === 'successor' && (await ground.took(born, 'closed'))
  // until its successor is said to be the main process of the unit, systemd ends the whole unit with it, and starts it again
  const wasUnit = ground.name === 'systemd' && plan.side === 'predecessor' && !(await ground.took(born, 'claimed'))
  if (isNobodyLeft && !hit.mayEndAll && !wasLeaving && !wasUnit)
    faults.push('one process was hit, and the other one left')
  const isStarted = isNobodyLeft && !ground.isSupervised
  return {
    plan,
    outcome: status.operation?.outcome ?? null,
    backMs: isStarted ? null : backMs,
    isNobodyLeft,
    isSole: hit.isSole || (othersLeft && wasLeaving),
    faults,
  }
}

interface Hit {
  at: number
  /** nobody who was not hit, or who was not told to stop, need be there afterwards */
  mayEndAll: boolean
  /** all that lived were hit */
  isSole: boolean
}

interface Instant {
  told: number
  spanMs: number
  share: number
  /** start time of the predecessor, which may be gone before its successor is seen */
  born: string | null
}

async function hitAt(
  ground: Ground,
  { side, signal }: Plan,
  predecessor: number,
  { told, spanMs, share, born }: Instant,
): Promise<Hit | null> {
  if (side !== 'predecessor') {
    const isBorn = () => ground.pids().some((pid) => isSuccessorOf(born, pid))
    await until('the successor', isBorn).catch(async (cause: unknown) => {
      const { operation } = await settledStatus(ground)
      throw new Error(`no successor: ${JSON.stringify(operation)}`, { cause })
    })
  }
  const leftMs = Math.max(0, spanMs - (performance.now() - told))
  await sleep(leftMs * share)
  const living = ground.pids()
  const hit = living.filter((pid) => side === 'both' || (pid === predecessor) === (side === 'predecessor'))
  if (hit.length === 0) return null
  const others = living.filter((pid) => !hit.includes(pid))
  const isSole = others.every((pid) => pid !== predecessor && !isSuccessorOf(born, pid))
  const at = performance.now()
  for (const pid of hit) ground.hit(pid, signal)
  return { at, isSole, mayEndAll: isSole || signal === 'SIGTERM' }
}

/** A child between its fork and its exec has the command line of its parent, and is none. By the start time: a host counts pids anew. */
function isSuccessorOf(born: string | null, pid: number): boolean {
  try {
    const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
    const given = variables.find((text) => text.startsWith(`${INHERITANCE}=`))?.slice(INHERITANCE.length + 1)
    return given !== undefined && (JSON.parse(given) as Inheritance).predecessor.startTime === born
  } catch {
    return false // it is gone
  }
}

/** The processes hit themselves; this waits until it has happened. */
async function hitAtSteps(ground: Ground, steps: HandoverStep[], signal: Plan['signal']): Promise<Hit> {
  await until('the steps', async () => (await ground.armed()) === 0, 30_000)
  const isSole = steps.length > 1 || steps.includes('alone')
  return {
    at: performance.now(),
    isSole,
    mayEndAll: signal === 'SIGTERM' || steps.length > 1 || steps.some((step) => LAST_STEPS.includes(step)),
  }
}

/**
 * Whether no process is left, or will be: where one is told to stop the other may end with it. What was told to stop still
 * answers for a while; only who was not, and has nothing left to do, says that somebody stays.
 */
async function isEmptied(ground: Ground, signal: Plan['signal'], isHit: (id: string) => boolean): Promise<boolean> {
  const graceMs = { SIGKILL: 300, SIGSTOP: 300, SIGTERM: 10_000 }[signal]
  for (const over = performance.now() + graceMs; performance.now() < over; await sleep(LOOK_EVERY_MS)) {
    if (ground.pids().length === 0) return true
    if (signal !== 'SIGTERM') continue
    const answer = await ground.api('GET', '/admin/update/status').catch(() => null)
    if (answer?.status !== 200) continue
    const { state, instance } = answer.body as Status
    if (state === 'idle' && !isHit(instance.id)) return false
  }
  return false
}

async function letGoOn(ground: Ground, over: AbortSignal): Promise<void> {
  await sleep(STOPPED_MS, undefined, { signal: over }).catch(() => {})
  if (!over.aborted) for (const pid of ground.pids()) ground.hit(pid, 'SIGCONT')
}

/** When the first request that began from now on was answered; many at once, since one may wait in a process that is stopped. */
async function firstAnswer(ground: Ground): Promise<number> {
  const first = Promise.withResolvers<number>()
  const over = performance.now() + BACK_WITHIN_MS
  let isOver = false
  void first.promise.then(() => (isOver = true))
  while (!isOver) {
    if (performance.now() > over) throw new Error(`expected an answer within ${BACK_WITHIN_MS} ms`)
    ground.answers().then(
      () => first.resolve(performance.now()),
      () => {},
    )
    await Promise.race([sleep(ASK_EVERY_MS), first.promise])
  }
  return await first.promise
}

export async function settledStatus(ground: Ground): Promise<Status> {
  let said: unknown = null
  try {
    return await until(
      'the operation to end',
      async () => {
        const answer = await ground
          .api('GET', '/admin/update/status')
          .catch((cause: unknown) => ({ status: 0, body: String(cause) }))
        said = answer.body
        if (answer.status !== 200) return null
        const status = answer.body as Status
        return status.state === 'idle' && ground.pids().length === 1 && status
      },
      SETTLED_WITHIN_MS,
      LOOK_EVERY_MS,
    )
  } catch (cause) {
    const processes = ground.pids().map((pid) => `${pid} ${stateOf(pid)}`)
    const output = (await ground.output()).split('\n').slice(-40).join('\n')
    throw new Error(`processes ${processes.join(', ')}; status ${JSON.stringify(said)}\n${output}`, { cause })
  }
}

/** As the kernel tells it: `S (sleeping)`, `T (stopped)`. */
function stateOf(pid: number): string {
  try {
    return /^State:\s*(.+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? ''
  } catch {
    return 'gone'
  }
}

/** The journal is written before the last file is removed: what is there when nothing changes any more. */
async function quietEvidence(ground: Ground, descriptors: number): Promise<Evidence> {
  const look = async () => await ground.evidence(ground.pids()[0] ?? 0, descriptors)
  const isQuiet = (seen: Evidence) =>
    seen.leftovers.length === 0 && seen.processes === 1 && seen.descriptors <= descriptors
  let evidence = await look()
  for (const over = Date.now() + QUIET_MS; Date.now() < over && !isQuiet(evidence);) {
    await sleep(100)
    evidence = await look()
  }
  return evidence
}

interface Case {
  from: string
  to: string
  id: string
  status: Status
  evidence: Evidence
  /** of the serving process in a quiet moment before all faults */
  descriptors: number
}

function judge({ from, to, id, status, evidence, descriptors }: Case): string[] {
  const faults: string[] = []
  const is = (what: string, got: unknown, expected: unknown) => {
    if (JSON.stringify(got) !== JSON.stringify(expected))
      faults.push(`${what}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(got)}`)
  }
  const { operation, instance } = status
  const outcome = operation?.outcome ?? null
  is('operation id', operation?.id, id)
  const isDone = outcome === (compareTags(to, from) > 0 ? 'updated' : 'rolled_back')
  const expected = isDone ? to : from
  if (!isDone && !['reverted', 'failed'].includes(String(outcome))) faults.push(`outcome: got ${outcome}`)
  is(`running after ${outcome}`, instance.version, expected)
  is('executable', evidence.executable, expected)
  is('backup', evidence.backup, expected === to ? from : to)
  is('what is left over', evidence.leftovers, [])
  is('probation', evidence.journal.probation, null)
  is('newest in the history', evidence.journal.history[0]?.id, id)
  is('processes', evidence.processes, 1)
  is('integrity_check', evidence.integrity, 'ok')
  if (evidence.descriptors > descriptors)
    faults.push(`descriptors: expected at most ${descriptors}, got ${evidence.descriptors}`)
  return faults
}
