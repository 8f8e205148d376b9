// Supervision for a host without systemd: a detached process that starts the service, writes down who runs, keeps its log
// small, and starts it again (with the backup executable's rescue in between) when it has died.
// Must never break: the supervision is not needed by what it supervises. It may die at any time; the service writes its log
// by itself and goes on, and `stop`, `status` and `upgrade` find the service by its command line.

import { spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { isAlive, type Receipt, startTimeOf } from '../../../agent/install.ts'
import { endService, servicePids } from './processes.ts'
import { type Process, rotate, runFilesOf, writePidFile } from './run-files.ts'

const LOOK_MS = 200
/** as in the unit: given up after so many deaths within so long */
const BURST = 6
const BURST_MS = 120_000
const AGAIN_MS = 500

/** Runs as the service's user until it is told to stop or gives up. Returns its exit code. */
export async function supervise(receipt: Receipt): Promise<number> {
  const files = runFilesOf(receipt)
  await mkdir(files.directory, { recursive: true, mode: 0o700 })
  const stop = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop.abort())
  process.on('SIGHUP', () => {})
  const deaths: number[] = []
  const note = (line: string) => writeFile(files.log, `baton: ${line}\n`, { flag: 'a', mode: 0o600 })
  try {
    for (let restarts = 0; ; restarts++) {
      await live(receipt, restarts, stop.signal)
      if (stop.signal.aborted) break
      await note('the service has ended')
      await rescueWithBackup(receipt, files.log)
      const now = Date.now()
      deaths.push(now)
      if (deaths.filter((at) => now - at < BURST_MS).length >= BURST) {
        await note(`it has ended ${BURST} times in ${BURST_MS / 1000} seconds: giving up`)
        return 9
      }
      await sleep(AGAIN_MS)
    }
    await endService(receipt)
    return 0
  } finally {
    await rm(files.pidFile, { force: true })
  }
}

/** Starts the service and resolves when no process of it is left, over all its handovers, or when it is to stop. */
async function live(receipt: Receipt, restarts: number, stop: AbortSignal): Promise<void> {
  const files = runFilesOf(receipt)
  const supervisor = { pid: process.pid, startTime: startTimeOf(process.pid) }
  let known = [await startService(receipt, files.log)]
  await writePidFile(files.pidFile, { supervisor, service: known[0] ?? null, restarts })
  for (;;) {
    await sleep(LOOK_MS)
    await rotate(files.log)
    if (stop.aborted) return
    if (known.some(({ pid, startTime }) => isAlive(pid, startTime))) continue
    known = (await servicePids(receipt)).map((pid) => ({ pid, startTime: startTimeOf(pid) })) // a handover
    if (known.length === 0) return
    await writePidFile(files.pidFile, { supervisor, service: known[0] ?? null, restarts })
  }
}

async function startService(receipt: Receipt, log: string): Promise<Process> {
  const fd = openSync(log, 'a', 0o600)
  try {
    const child = spawn(receipt.executable, ['serve', '--config', receipt.configPath], {
      cwd: receipt.stateDirectory,
      detached: true,
      stdio: ['ignore', fd, fd],
    })
    await new Promise<void>((resolve) => {
      child.once('spawn', resolve)
      child.once('error', () => resolve()) // counts as a death
    })
    child.unref()
    const pid = child.pid ?? 0
    return { pid, startTime: pid === 0 ? '' : startTimeOf(pid) }
  } finally {
    closeSync(fd)
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
      child.once('error', () => resolve()) // there is no backup
    })
  } finally {
    closeSync(fd)
  }
}
