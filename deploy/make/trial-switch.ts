// One real switch of what was built, to itself: the trial start is a managed install, and is asked to roll back to a copy of its own
// executable. So what runs here is what an update runs on a host, and an application that cannot be switched fails its build.
// Must hold: a request that is lost in the meantime fails the build, too. The caller ends whatever lives at the end.

import { setTimeout as sleep } from 'node:timers/promises'
import { type Protocol, schemeOf } from '../../agent/first.ts'
import { descendantsOf, lineOf, makeDisk, makeJournal, startedWith, UPDATE_BOUNDS } from '../../agent/install.ts'
import { BatonError, durationText, type Operation, reasonOf, type Status, untilWell } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'
import { callHttp, type Here, statusHere } from '../lib/http.ts'
import { readProc } from '../lib/proc.ts'
import { formatDuration } from '../lib/progress.ts'
import { lookAt } from './seen.ts'
import { answerOf, LOOK_AGAIN_MS } from './trial.ts'

export interface SwitchTrial {
  port: number
  /** asked throughout */
  path: string
  /** only a 2xx will do */
  mustBeWell: boolean
  protocol: Protocol
  password: string
  /** its state directory, which the environment of each of its processes names, and of no other */
  state: string
  /** TCP ports on which it listens; of those that the kernel has chosen, each process has others */
  ports: readonly number[]
  /** milliseconds from its start to its first good answer */
  startMs: number
  onStop: 'SIGTERM' | null
  /** the end of its output */
  said(): string
}

export interface Switched {
  /** for a line */
  words: string
  /** a sentence each */
  warnings: string[]
}

const [ASK_EVERY_MS, LOOK_EVERY_MS] = [10, 50]
const CLIENTS = 2
/** what a switch may take beside the start of the application: its hooks have their own limits */
const SWITCH_MS = 30_000
/** what is left of the former process may take to end, and the new one to open its other ports, as much as it had before it was looked at */
const SETTLE_MS = LOOK_AGAIN_MS
const NAMED_MAX = 5
const [, , MAX_PAUSE_MS] = UPDATE_BOUNDS.maxPauseMs
/** from here on the kernel chooses: net.ipv4.ip_local_port_range, as it is unless somebody has changed it */
const CHOSEN_FROM = 32_768

/** Throws BatonError verify_failed, with what was seen, if it does not come back, or if a request was lost. */
export async function trySwitch(trial: SwitchTrial): Promise<Switched> {
  const place = { tls: schemeOf(trial.protocol) === 'https', host: '127.0.0.1', port: trial.port }
  const ask = async (target: string, method: 'GET' | 'POST' = 'GET') =>
    await callHttp(place, target, { method, token: trial.password })
  const begun = await ask('/admin/update/rollback', 'POST')
  const { id = '', detail } = recordOf(begun.body)
  if (begun.status === 501) return { words: `the switch was not tried: ${String(detail)}`, warnings: [] }
  if (begun.status !== 202)
    throw failed(trial, `its agent responded with ${begun.status}: ${JSON.stringify(begun.body)}`)
  using clients = startClients(trial)
  const operation = await endOf(trial, String(id), async () => (await ask('/admin/update/status')).body as Status)
  const { outcome, error } = operation
  const why = error?.message ?? `the outcome ${outcome}`
  if (outcome !== 'rolled_back') throw failed(trial, outcome === 'reverted' ? `it was reverted: ${why}` : why)
  const { pid } = ((await ask('/admin/update/status')).body as Status).instance
  const answer = await answerOf(trial, trial.mustBeWell, { ended: () => null })
  if (typeof answer === 'string') throw failed(trial, answer)
  const missing = await missingPorts(pid, trial.ports)
  const left = await leftBeside(pid, trial.state)
  const { longestMs, lost } = await clients.end()
  const [first] = lost
  // over TLS a connection cannot wait, and is closed
  if (first !== undefined && schemeOf(trial.protocol) === 'http')
    throw failed(trial, `it came back, but lost ${lost.length} of the requests made in the meantime: ${first}`)
  const { pauseMs } = operation.handover ?? {}
  const waited =
    pauseMs === undefined
      ? `its slowest answer took ${formatDuration(longestMs)}`
      : `clients waited ${formatDuration(pauseMs)}`
  return {
    words: `switched to itself once: ${waited}`,
    warnings: [
      ...hungIn(trial),
      ...(pauseMs === undefined || pauseMs <= MAX_PAUSE_MS
        ? []
        : [
            `a switch makes clients wait ${formatDuration(pauseMs)}, but an update is refused if they would wait longer than \`update.maxPause\` (${durationText(MAX_PAUSE_MS)} unless an operator raises it): shorten the application's startup or its \`onStop\``,
          ]),
      ...missing.map((port) => `after a switch it no longer listened on port ${port}`),
      ...left.map(
        (name) =>
          `after a switch the earlier process ${name} was left running: make \`onStop\` stop it, or each update will leave another one behind`,
      ),
    ],
  }
}

/** What the agent has logged of an `onStop` that did not end in time. */
function hungIn({ onStop, said }: SwitchTrial): string[] {
  const [, ms] = /the application's onStop failed: it did not settle within (\d+) ms/.exec(said()) ?? []
  if (ms === undefined) return []
  const [what, so] =
    onStop === null
      ? ['`onStop` did not finish', 'make sure that `onStop` always finishes']
      : ['SIGTERM handler did not end the process', 'end it with `process.exit()`, return a promise, or use `onStop()`']
  return [`its ${what} within ${durationText(Number(ms))}, and each update waits that long: ${so}`]
}

function failed(trial: SwitchTrial, what: string): BatonError {
  return new BatonError('verify_failed', `a test update from this build to itself failed: ${what}`, {
    hint: hintFor(`${what}\n${trial.said()}`),
  })
}

/** Pure. What is known of an application that says this. */
export function hintFor(said: string): string {
  const leave = 'an update on a host would fail in the same way'
  if (/EADDRINUSE|address already in use|\bport\b.*\b(in use|taken|busy|occupied|not (free|available))/i.test(said))
    return `during startup the application's port is kept open, so that clients wait instead of being refused; if another process checks whether the port is free, remove that check, since \`listen\` itself fails if the port is taken; ${leave}`
  if (/pid[ -]?file|\.pid\b|already running|another (instance|process)|\block(ed|file)?\b/i.test(said))
    return `something that the previous process left behind, or still holds in a start-first switch, seems to keep the new process from starting: have \`onStop\` remove it, or have the application take it over at startup if no process owns it any more; ${leave}`
  return leave
}

function mostMsOf(startMs: number): number {
  return Math.round(SWITCH_MS + 3 * startMs)
}

/** Resolves to the operation with its outcome. Throws if no process of the trial is left, or none comes to an end in time. */
async function endOf(trial: SwitchTrial, id: string, status: () => Promise<Status>): Promise<Operation> {
  const mostMs = mostMsOf(trial.startMs)
  let found: Operation | null = null
  const late = await untilWell(
    async () => {
      const now = await status().catch(() => null) // stop-first, nobody answers for a moment
      found = now?.operation ?? null
      if (found?.id === id && found.outcome !== null) return null
      if (now === null && startedWith(trial.state).length === 0) throw failed(trial, await lastReason(trial))
      return 'the update did not finish'
    },
    mostMs,
    LOOK_EVERY_MS,
  )
  if (found !== null && late === null) return found
  throw failed(trial, `the update did not finish within ${formatDuration(mostMs)}: ${await lastReason(trial)}`)
}

/** What the process that held the sockets has noted or said, else the last words of the application. */
async function lastReason(trial: SwitchTrial): Promise<string> {
  const journal = makeJournal(makeDisk(), trial.state, () => {})
  const { probation, operation } = await journal.read().catch(() => ({ probation: null, operation: null }))
  const own = lineOf(
    trial
      .said()
      .split('\n')
      .filter((line) => !line.includes('baton: ')),
  )
  return probation?.failed?.message ?? operation?.error?.message ?? own ?? 'it printed nothing'
}

/** Clients that open a connection for each request, until the end of the scope. */
function startClients({ port, path, protocol, startMs }: SwitchTrial) {
  const over = new AbortController()
  const here: Here = { place: { host: '127.0.0.1', port }, path, tls: schemeOf(protocol) === 'https' }
  const lost: string[] = []
  let longestMs = 0
  const client = async () => {
    for (; !over.signal.aborted; await sleep(ASK_EVERY_MS)) {
      const began = performance.now()
      try {
        await statusHere(here, mostMsOf(startMs))
      } catch (cause) {
        lost.push(reasonOf(cause))
      }
      longestMs = Math.max(longestMs, performance.now() - began)
    }
  }
  const all = Array.from({ length: CLIENTS }, client)
  return {
    async end() {
      over.abort()
      await Promise.all(all)
      return { longestMs, lost }
    },
    [Symbol.dispose]: () => over.abort(),
  }
}

/** Those ports, of an author's choice, on which the process does not listen in time. */
async function missingPorts(pid: number, all: readonly number[]): Promise<number[]> {
  const ports = all.filter((port) => port < CHOSEN_FROM)
  let missing: number[] = []
  await untilWell(async () => {
    const now = (await lookAt(pid))?.ports ?? ports
    missing = ports.filter((port) => !now.includes(port))
    return missing.length === 0 ? null : 'not yet'
  }, SETTLE_MS)
  return missing
}

/** Names of the processes of the trial that are neither the one that serves nor started by it. */
async function leftBeside(pid: number, state: string): Promise<string[]> {
  let left: number[] = []
  await untilWell(async () => {
    const own = new Set([pid, ...descendantsOf(pid).map((one) => one.pid)])
    left = startedWith(state).flatMap((one) => (own.has(one.pid) ? [] : [one.pid]))
    return left.length === 0 ? null : 'not yet'
  }, SETTLE_MS)
  const names = await Promise.all(left.map(async (one) => (await readProc(`/proc/${one}/comm`)).trim()))
  return [...new Set(names.filter((name) => name !== ''))].slice(0, NAMED_MAX)
}
