// Supervision for a host without systemd: a detached process that starts the service, records its process id and keeps its log
// small. When the service dies, it runs the backup executable's rescue and starts the service again. Meanwhile it holds the
// listening sockets, so that clients wait for the next process instead of being refused: for at most WAITING_MAX_MS, also in a
// restart that is asked for (RESTART), and not after a stop on purpose.
// Must never break: the service does not need its supervision, which may die at any time. The service then goes on and writes its
// log itself, and `stop`, `status` and `upgrade` find it by its command line.

import { spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  isAlive,
  type DescriptorStore,
  openDescriptorStore,
  type Receipt,
  restartMark,
  startTimeOf,
  startWith,
  WAITING_MAX_MS,
} from '../../../agent/install.ts'
import { environmentFileFor, environmentFrom } from '../place/environment-file.ts'
import { type Crashes, type End, forgetCrashes, saidSince } from './crashes.ts'
import { endOne, endService, servicePids } from './processes.ts'
import { type Process, readPidFile, rotateLog, runFilesOf, sizeOf, writeRunFile } from './run-files.ts'

/** what it is sent to end the service and start it again */
export const RESTART = 'SIGUSR2'
const LOOK_MS = 200
/** as in the unit: gives up after this many deaths within this time */
const BURST = 6
const BURST_MS = 120_000
const AGAIN_MS = 500
/** how often to read the service's messages: its socket can queue a few */
const READ_MS = 50
/** a process that lives for so long is no part of a crash loop */
const LOOP_MS = 60_000
/** how long after the end of a process the kernel may take to say how it ended */
const SAYS_MS = 1000

/** Runs as the service's user until SIGTERM or SIGINT (returns 0) or the `burst`th death within 120 seconds (gives up, returns 9). */
export async function supervise(receipt: Receipt, burst = BURST): Promise<number> {
  const files = runFilesOf(receipt)
  await mkdir(files.directory, { recursive: true, mode: 0o700 })
  const stop = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop.abort())
  process.on('SIGHUP', () => {})
  const asked = { restart: false }
  process.on(RESTART, () => (asked.restart = true))
  await Promise.all([forgetCrashes(files.crashes), rm(restartMark(files.notify), { force: true })])
  const deaths: number[] = []
  let crashes: Crashes | null = null
  const write = async (change: Partial<Crashes>, isGivenUp = false) => {
    if (crashes === null) return
    Object.assign(crashes, change)
    await writeRunFile(files.crashes, { crashes, isGivenUp }).catch(() => {}) // a full disk
  }
  const note = async (line: string) => await writeNote(files.log, line)
  using keeper = await keeperAt(files.notify, note)
  try {
    for (let restarts = 0; ; restarts++) {
      const from = await sizeOf(files.log)
      asked.restart = false
      const isAsked = () => stop.signal.aborted || asked.restart
      const end = await live(receipt, restarts, keeper, isAsked, () => write({ isLooping: false }))
      const isRestart = asked.restart && !stop.signal.aborted
      if (isRestart) await endForNext(receipt, keeper)
      if (stop.signal.aborted) break
      if (isRestart) {
        await forgetCrashes(files.crashes)
        ;[crashes, restarts, deaths.length] = [null, -1, 0]
        continue
      }
      const now = performance.now()
      const isLooping = now - (deaths.at(-1) ?? -Infinity) < LOOP_MS
      deaths.push(now)
      const isGivenUp = deaths.filter((at) => now - at < BURST_MS).length >= burst
      const said = await saidSince(files.log, from)
      crashes = { count: restarts + 1, isLooping, at: new Date().toISOString(), ...end, said }
      await write({})
      await note('the service exited')
      await rescueWithBackup(receipt, files.log)
      if (isGivenUp) {
        await write({ isLooping: false }, true)
        await note(`it has exited ${burst} times in ${BURST_MS / 1000} seconds: giving up`)
        return 9
      }
      await sleep(AGAIN_MS)
    }
    keeper?.letGo() // after a stop on purpose, refuse clients at once
    await endHeard(receipt, keeper)
    await forgetCrashes(files.crashes)
    return 0
  } finally {
    await rm(files.pidFile, { force: true })
  }
}

async function writeNote(log: string, line: string): Promise<void> {
  await writeFile(log, `${new Date().toISOString()} baton: ${line}\n`, { flag: 'a', mode: 0o600 })
}

/** Ends the service on purpose; clients wait for the next process, in the queues of the sockets. */
async function endForNext(receipt: Receipt, keeper: DescriptorStore | null): Promise<void> {
  const mark = restartMark(runFilesOf(receipt).notify)
  await writeFile(mark, '', { mode: 0o600 }).catch(() => {}) // a full disk: then clients are refused meanwhile
  await endHeard(receipt, keeper)
  await rm(mark, { force: true })
}

/** Ends the service in the time for which it asks, and says it to whoever waits for that. */
async function endHeard(receipt: Receipt, ear: DescriptorStore | null): Promise<void> {
  const { pidFile } = runFilesOf(receipt)
  const takes = async (stopMs: number) => {
    const file = await readPidFile(pidFile)
    if (file !== null) await writeRunFile(pidFile, { ...file, stopMs: Math.ceil(stopMs) }).catch(() => {}) // a full disk
  }
  await endService(receipt, { ear, takes })
}

async function keeperAt(path: string, note: (line: string) => Promise<void>): Promise<DescriptorStore | null> {
  try {
    return openDescriptorStore(path)
  } catch (cause) {
    await note(
      `the listening sockets will not be kept after a crash: ${cause instanceof Error ? cause.message : 'unknown reason'}`,
    )
    return null
  }
}

/**
 * Starts the service and follows its handovers. Resolves to how it has ended when no process of it is left, or when `isAsked` says
 * that it is to end. `settles`: called once it has lived for a minute.
 */
async function live(
  receipt: Receipt,
  restarts: number,
  keeper: DescriptorStore | null,
  isAsked: () => boolean,
  settles: () => Promise<void>,
): Promise<End> {
  const files = runFilesOf(receipt)
  const supervisor = { pid: process.pid, startTime: startTimeOf(process.pid) }
  keeper?.isReady() // clears the flag of the previous process
  const { end, ...first } = await startService(receipt, files.log, keeper)
  let known: Process[] = [first]
  await writeRunFile(files.pidFile, { supervisor, service: known[0] ?? null, restarts })
  const began = performance.now()
  const late = began + WAITING_MAX_MS
  let isSettled = false
  let isWaiting = (keeper?.held().length ?? 0) > 0
  for (;;) {
    for (let waited = 0; waited < LOOK_MS; waited += READ_MS) {
      await sleep(READ_MS)
      if (keeper?.isReady() === true) isWaiting = false
    }
    // A handover moves the main process. Its title says nothing: an application may set that.
    const main = keeper?.main() ?? null
    if (main !== null && !known.some(({ pid, startTime }) => pid === main.pid && startTime === main.startTime)) {
      known = [main, ...known.filter(({ pid, startTime }) => isAlive(pid, startTime))]
      await writeRunFile(files.pidFile, { supervisor, service: main, restarts })
    }
    await rotateLog(files.log)
    if (!isSettled && performance.now() - began > LOOP_MS) {
      isSettled = true
      await settles()
    }
    if (isAsked()) return NOT_KNOWN
    if (isWaiting && performance.now() > late) {
      isWaiting = false
      keeper?.letGo()
      // these processes hold the sockets too, and what has begun after a crash may hang
      for (const { pid } of restarts > 0 ? known : []) if (pid > 0) endOne(pid, 'SIGKILL')
    }
    if (known.some(({ pid, startTime }) => isAlive(pid, startTime))) continue
    const last = known[0]
    known = (await servicePids(receipt)).map((pid) => ({ pid, startTime: startTimeOf(pid) })) // a handover
    // another process has started a successor, and only that one is told how it ends
    if (known.length === 0)
      return last?.pid === first.pid ? await Promise.race([end, sleep(SAYS_MS, NOT_KNOWN)]) : NOT_KNOWN
    await writeRunFile(files.pidFile, { supervisor, service: known[0] ?? null, restarts })
  }
}

const NOT_KNOWN: End = { code: null, signal: null }

/** `end` resolves once it has ended. */
async function startService(
  receipt: Receipt,
  log: string,
  keeper: DescriptorStore | null,
): Promise<Process & { end: Promise<End> }> {
  const { promise, resolve } = Promise.withResolvers<End>()
  const output = openSync(log, 'a', 0o600)
  try {
    const command = { file: receipt.executable, args: ['serve', '--config', receipt.configPath] }
    const set = await environmentFrom(environmentFileFor(receipt), (line) => writeNote(log, line))
    const pid = await startWith({ ...command, cwd: receipt.stateDirectory }, keeper?.held() ?? [], {
      output,
      env: { ...set, ...(keeper === null ? {} : { NOTIFY_SOCKET: keeper.path }) },
      ended: (code, signal) => resolve({ code, signal }),
    })
    return { pid, startTime: startTimeOf(pid), end: promise }
  } catch {
    return { pid: 0, startTime: '', end: Promise.resolve(NOT_KNOWN) } // counts as a death
  } finally {
    closeSync(output)
  }
}

async function rescueWithBackup(receipt: Receipt, log: string): Promise<void> {
  const fd = openSync(log, 'a', 0o600)
  try {
    const child = spawn(`${receipt.executable}.backup`, ['rescue'], {
      stdio: ['ignore', fd, fd],
      env: { ...process.env, SERVICE_RESULT: 'exit-code' },
    })
    await new Promise<void>((resolve) => {
      child.once('exit', () => resolve())
      child.once('error', () => resolve()) // no backup
    })
  } finally {
    closeSync(fd)
  }
}
