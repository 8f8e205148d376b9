// Asks the running service through its endpoints, with the token from its configuration.
// Must never break: an answer counts as success only if it comes from another process with the requested version.

import { setTimeout as sleep } from 'node:timers/promises'
import { lateBy, ownCommand } from '../../../agent/install.ts'
import {
  type Allowed,
  type AllowedBack,
  BatonError,
  durationText,
  type ErrorCode,
  formatProgress,
  isResting,
  MEANINGS,
  type Operation,
  type PolicyFile,
  type PolicyReport,
  reasonOf,
  type Stage,
  STAGES,
  type Status,
  type VersionReport,
  untilWell,
} from '../../../agent/words.ts'
import { isFromAgent, recordOf } from '../../lib/agent-answer.ts'
import { callHttp, type HttpAnswer } from '../../lib/http.ts'
import type { Access } from './configuration.ts'
import { refuseStranger } from './listener.ts'

/** `wait`: nothing goes on before the application's work has ended */
type Shown = Stage | 'wait'

export interface Watcher {
  /** `tookMs`: what the service says that the stage before has taken; absent: it does not say */
  stage(stage: Shown, tookMs?: number): void
  bytes(done: number, total: number): void
  note?(message: string): void
  /** called with each answer, of the predecessor or the successor */
  status?(status: Status): void
  /** what the new release says while nobody answers, one line; null: nothing */
  starting?(operation: Operation): Promise<string | null>
  /** asked ever more rarely while nobody answers: why nobody ever will; null: somebody may */
  whyNever?(): Promise<string | null>
}

const POLL_MS = 200
/** how long a question may take before what the new release says is told */
const TOLD_MS = 1000
const always = () => true
const NO_RESPONSE = 'no response'
/** how long the service may stay silent before it counts as down; a stop-first switch is silent while the new release starts */
const SILENCE_MS = 90_000
/** what a switch takes beside the starts of two releases */
const AROUND_MS = 30_000
/** a person is told first after this time that nobody answers yet, and each time after as long again */
const TELL_MS = 10_000
/** how long a wait for the same work is not told again */
const AGAIN_MS = 60_000
/** how long the new process may take to answer after the end of an operation */
const SETTLE_MS = 15_000
/** when to ask the supervisor first, and how much longer to wait each time */
const [LOOK_MS, LOOK_GROWTH] = [1000, 1.1]

interface Expecting {
  tag: string
  notInstance?: string | null
  timeoutMs?: number
  /** called now and then with how long nobody has answered */
  note?: ((message: string) => void) | undefined
  /** why nobody can answer any more; null: somebody may */
  whyNever?: () => Promise<string | null>
}

export type Client = ReturnType<typeof connect>

export function connect({ address, basePath, token }: Access) {
  const ask = (target: string, method: 'GET' | 'POST', body?: unknown, timeoutMs = 10_000) =>
    callHttp(address, `${basePath}/admin/update${target}`, {
      method,
      token,
      timeoutMs,
      vet: (socket) => refuseStranger(socket, 'path' in address ? address.path : undefined),
      ...(body === undefined ? {} : { body }),
    })
  return {
    /** null if the service does not answer */
    async status(): Promise<Status | null> {
      let answer: HttpAnswer
      try {
        answer = await ask('/status', 'GET', undefined, 5000)
      } catch (error) {
        if (error instanceof BatonError) throw error
        return null
      }
      if (!isFromAgent(answer)) throw noAgent(answer.status)
      return expected(answer, 200) as Status
    },
    check: async () => expected(await ask('/check', 'POST', undefined, 60_000), 200) as VersionReport,
    update: async (tag: string | null, { allowIrreversible, restoreState, now }: Allowed) => {
      // an older service refuses a field that it does not know
      const body = {
        ...(tag === null ? {} : { tag }),
        ...(allowIrreversible ? { allowIrreversible } : {}),
        ...(restoreState ? { restoreState } : {}),
        ...(now ? { now } : {}),
      }
      return operationIn(expected(await ask('', 'POST', body), 202))
    },
    rollback: async ({ restoreState, now, bad }: AllowedBack) => {
      const body = { ...(restoreState ? { restoreState } : {}), ...(now ? { now } : {}) }
      const answer = await ask('/rollback', 'POST', { ...body, ...(bad ? { bad } : {}) })
      // an older service does not know `bad`, and going back matters more than what is remembered of it
      const last = bad && answer.status === 400 ? await ask('/rollback', 'POST', body) : answer
      return operationIn(expected(last, 202))
    },
    /** Cancels the operation in flight and returns it; follow it to its end. Throws too_late after the swap. */
    cancel: async () => operationIn(expected(await ask('/cancel', 'POST'), 200)),
    /** What may go by itself. `own`: what the panel wants of it from now on. */
    policy: async (own?: PolicyFile) => {
      const answer = own === undefined ? ask('/policy', 'GET') : ask('/policy', 'POST', { policy: own })
      return expected(await answer, 200) as PolicyReport
    },
  }
}

/** How long nobody may answer in a switch: the new release may take `readyMs` until it serves, and then the old one as long. Pure. */
export function silenceFor(readyMs: number): number {
  return Math.max(SILENCE_MS, 2 * readyMs + AROUND_MS)
}

/** Follows an operation to its end, across the switch of processes. Throws service_down after `silenceMs` without an answer. */
export async function follow(client: Client, id: string, watcher: Watcher, silenceMs = SILENCE_MS): Promise<Operation> {
  const tell = tellsOfSilence(silenceMs, watcher.note)
  let stage: Shown | null = null
  let last: Operation | null = null
  let lastAnswer = performance.now()
  const askNever = asksRarely(watcher.whyNever)
  const tellStarting = tellsOnce(watcher.note)
  for (;;) {
    const asked = client.status()
    // while clients wait for the new release, so does this question
    while (last !== null && !(await Promise.race([asked.then(always, always), sleep(TOLD_MS).then(() => false)])))
      tellStarting(await watcher.starting?.(last))
    const status = await asked
    const operation = status === null ? null : operationWith(status, id)
    if (status !== null) lastAnswer = performance.now()
    if (status !== null && operation === null) {
      throw new BatonError('interrupted', `the service no longer has a record of operation ${id}`)
    }
    if (operation !== null) {
      const { progress, durations } = operation
      const tellBytes = () => {
        if (progress !== null) watcher.bytes(progress.bytes, progress.totalBytes)
      }
      const next = isResting(operation.waits) ? 'wait' : operation.stage
      // what stands before a wait is over
      if (next !== stage && !(stage === 'wait' && next === 'verify')) {
        if (stage === 'download') tellBytes() // its end comes between two looks
        // a wait stands in a stage, and a stage may have begun since the last look, or also ended
        for (const one of shownFrom(stage, next, operation)) {
          const tookMs = stage === null || stage === 'wait' || stage === 'download' ? undefined : durations[stage]
          watcher.stage((stage = one), tookMs)
        }
      }
      if (stage === 'download' || stage === 'swap') tellBytes()
      last = operation
    }
    // behind the stage that it may end
    if (status !== null) watcher.status?.(status)
    if (operation !== null && operation.outcome !== null) return operation
    const starting = operation?.starting === undefined ? null : formatProgress(operation.starting)
    const told = operation === null && last !== null ? await watcher.starting?.(last) : starting
    tellStarting(told ?? operation?.waits?.at(-1)?.says)
    tell(performance.now() - lastAnswer)
    const never = await askNever(performance.now() - lastAnswer)
    if (never !== null) throw new BatonError('service_down', never)
    if (performance.now() - lastAnswer > silenceMs) {
      throw new BatonError('service_down', `the service has not responded for ${durationText(silenceMs)}`)
    }
    await sleep(POLL_MS)
  }
}

/**
 * Waits until a process of `tag` answers, other than `notInstance`. Throws service_down after `timeoutMs`, or as soon as `whyNever`
 * resolves to a reason, which it is asked for ever more rarely: a worker may ask root only so often.
 */
export async function waitForInstance(
  client: Client,
  { tag, notInstance = null, timeoutMs = SETTLE_MS, note, whyNever }: Expecting,
): Promise<Status> {
  const began = performance.now()
  const tell = tellsOfSilence(timeoutMs, note)
  const askNever = asksRarely(whyNever)
  let found: Status | null = null
  let hint: string | null = null
  const look = async () => {
    const status = await client.status().catch((error: unknown) => {
      hint = error instanceof BatonError ? error.hint : null
      return reasonOf(error)
    })
    const instance = status === null || typeof status === 'string' ? null : status.instance
    if (instance?.version === tag && instance.id !== notInstance) {
      found = status as Status
      return null
    }
    if (instance === null) tell(performance.now() - began)
    const never = await askNever(performance.now() - began)
    if (never !== null) throw new BatonError('service_down', `${tag} is down, and ${never}`)
    if (instance === null) return typeof status === 'string' ? status : NO_RESPONSE
    return instance.version === tag ? 'the old process is still answering' : `${instance.version} answered`
  }
  const why = await untilWell(look, timeoutMs, POLL_MS)
  if (why === null && found !== null) return found
  const reason = why === NO_RESPONSE ? '' : `: ${why}`
  const message = `${tag} did not answer within ${Math.round(timeoutMs / 1000)} seconds${reason}`
  throw lateBy('service_down', message, timeoutMs, hint === null ? {} : { hint })
}

/** Asks `why` ever more rarely while one waits, and anew from the next wait on: a worker may ask root only so often. */
function asksRarely(
  why: () => Promise<string | null> = async () => null,
): (waitedMs: number) => Promise<string | null> {
  let askAtMs = LOOK_MS
  return async (waitedMs) => {
    if (waitedMs < LOOK_MS) askAtMs = LOOK_MS
    if (waitedMs <= askAtMs) return null
    askAtMs = waitedMs * LOOK_GROWTH + LOOK_MS
    return await why().catch(() => null)
  }
}

/** Tells what is new. That the same work is under way for longer is told once a minute. */
export function tellsOnce(
  note?: (message: string) => void,
  now: () => number = () => performance.now(),
): (said: string | null | undefined) => void {
  let told = ''
  let againAt = 0
  const withoutTime = (said: string) => said.replace(/, under way for \w+/, '')
  return (said) => {
    if (!said || said === told) return
    if (withoutTime(said) === withoutTime(told) && now() < againAt) return
    ;[told, againAt] = [said, now() + AGAIN_MS]
    note?.(said)
  }
}

/** Shows that something is still waited for: each time after twice as long. */
function tellsOfSilence(mostMs: number, note?: (message: string) => void): (silentMs: number) => void {
  let nextMs = TELL_MS
  return (silentMs) => {
    if (silentMs < TELL_MS) nextMs = TELL_MS
    if (silentMs < nextMs) return
    nextMs = silentMs * 2
    const [now, most] = [silentMs, mostMs].map((ms) => Math.round(ms / 1000))
    note?.(`the service has not responded for ${now} s: it may be starting (waiting at most ${most} s)`)
  }
}

/** What comes after `stage` up to `next`, those included that the service has timed since the last look. */
function shownFrom(stage: Shown | null, next: Shown, { stage: at, durations }: Operation): Shown[] {
  const from = stage === null ? -1 : STAGES.indexOf(stage === 'wait' ? at : stage)
  const missed = STAGES.slice(from + 1, STAGES.indexOf(at)).filter((one) => durations[one] !== undefined)
  return [...missed, ...(next === 'wait' && stage !== at ? [at] : []), next]
}

function operationWith(status: Status, id: string): Operation | null {
  if (status.operation?.id === id) return status.operation
  return status.history.find((operation) => operation.id === id) ?? null
}

/** The body of a 202 is the operation, or holds it as `operation`. */
function operationIn(value: unknown): Operation {
  const record = recordOf(value)
  return (record['operation'] ?? record) as Operation
}

function expected(answer: HttpAnswer, status: number): unknown {
  if (answer.status === status && answer.body !== null) return answer.body
  const { code, detail, title, hint } = recordOf(answer.body)
  const message = [detail, title].find((text) => typeof text === 'string')
  if (typeof code !== 'string' || message === undefined) throw noAgent(answer.status)
  // it read its own at its start
  if (code === 'unauthorized' || code === 'no_password')
    throw new BatonError('unauthorized', 'the running service does not accept the password in its configuration', {
      hint: `if \`dashboard.password\` has changed since the service started, run \`${ownCommand('restart')}\``,
    })
  const known = Object.hasOwn(MEANINGS, code) ? (code as ErrorCode) : 'unexpected'
  throw new BatonError(known, message, typeof hint === 'string' ? { hint } : {})
}

function noAgent(status: number): BatonError {
  return new BatonError('unexpected', `something other than Baton's agent answered, with status ${status}`, {
    hint: 'check that the application’s entry loads Baton (`baton build` shows the line) and that no other program listens on this address',
  })
}
