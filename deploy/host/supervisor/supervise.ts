// Supervision for a host without systemd: a detached process that starts the service, writes down who runs, keeps its log
// small, and starts it again (with the backup executable's rescue in between) when it has died.
// Must never break: the supervisor is not needed by what it supervises. It may die at any time; the service writes its log
// by itself and goes on, and `stop`, `status` and `upgrade` find the service by its command line.

import { spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { copyFile, mkdir, readFile, readdir, rename, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isAlive, type Receipt, startTimeOf } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { idOf } from '../place/identity.ts'
import { run } from '../../lib/shell.ts'
import type { Supervisor } from './supervisor.ts'

export interface Process {
  pid: number
  /** clock ticks since boot; null on hosts without /proc */
  startTime: string | null
}

/** The pid file, as JSON. */
interface PidFile {
  supervisor: Process
  service: Process | null
  restarts: number
}

const LOG_MAX_BYTES = 10 * 1024 * 1024
const LOGS_KEPT = 3
const LOOK_MS = 200
const STOP_MS = 60_000
/** as in the unit: given up after so many deaths within so long */
const BURST = 6
const BURST_MS = 120_000
const START_MS = 90_000

export function detachedSupervisor(receipt: Receipt): Supervisor {
  const paths = pathsOf(receipt)
  const state = async () => {
    const [file, pids] = [await readPidFile(paths.pidFile), await servicePids(receipt)]
    const supervised = file !== null && isAlive(file.supervisor.pid, file.supervisor.startTime)
    const active = pids.length > 0
    return {
      active,
      word: active ? 'active' : supervised ? 'activating' : 'inactive',
      mainPid: pids.at(-1) ?? null,
      restarts: supervised ? file.restarts : null,
    }
  }
  return {
    description: `a detached process (pid file ${paths.pidFile})`,
    logCommand: `tail -n 50 ${paths.log}`,
    state,
    async start() {
      if ((await state()).active) return
      await stopSupervisor(paths.pidFile)
      const identity = process.getuid?.() === 0 ? await idOf(receipt.user) : null
      const child = spawn(receipt.executable, ['start', '--supervise'], {
        cwd: '/',
        detached: true,
        stdio: 'ignore',
        ...(identity === null ? {} : { uid: identity.uid, gid: identity.gid }),
      })
      const failed = new Promise<never>((_resolve, reject) => {
        child.once('error', reject)
        child.once('exit', (code) => reject(new Error(`it ended with ${code}`)))
      })
      failed.catch(() => {})
      child.unref()
      const deadline = Date.now() + START_MS
      const running = async () => {
        while (!(await state()).active) {
          if (Date.now() > deadline) throw new Error('no process of it appeared')
          await sleep(50)
        }
      }
      try {
        await Promise.race([running(), failed])
      } catch (cause) {
        throw new BatonError('service_down', `starting ${receipt.service}`, {
          cause,
          hint: `\`tail ${paths.log}\` says why`,
        })
      }
    },
    async stop() {
      await stopSupervisor(paths.pidFile)
      await stopAll(receipt)
    },
    async tail(lines) {
      const text = await readFile(paths.log, 'utf8').catch(() => '')
      return text
        .split('\n')
        .slice(-lines - 1)
        .join('\n')
    },
  }
}

/** Runs as the supervisor, as the service's user, until it is told to stop or gives up. Returns its exit code. */
export async function supervise(receipt: Receipt): Promise<number> {
  const paths = pathsOf(receipt)
  await mkdir(paths.directory, { recursive: true, mode: 0o700 })
  const own = { pid: process.pid, startTime: startTimeOf(process.pid) }
  let restarts = 0
  const stop = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop.abort())
  process.on('SIGHUP', () => {})
  const deaths: number[] = []
  const note = (line: string) => writeFile(paths.log, `baton: ${line}\n`, { flag: 'a', mode: 0o600 })
  try {
    while (!stop.signal.aborted) {
      let known = [await startService(receipt, paths.log)]
      await writePidFile(paths.pidFile, { supervisor: own, service: known[0] ?? null, restarts })
      for (;;) {
        await sleep(LOOK_MS)
        await rotate(paths.log)
        if (stop.signal.aborted) break
        if (known.some(({ pid, startTime }) => isAlive(pid, startTime))) continue
        known = (await servicePids(receipt)).map((pid) => ({ pid, startTime: startTimeOf(pid) })) // a handover
        if (known.length === 0) break
        await writePidFile(paths.pidFile, { supervisor: own, service: known[0] ?? null, restarts })
      }
      if (stop.signal.aborted) break
      await note('the service has ended')
      await rescueWithBackup(receipt, paths.log)
      const now = Date.now()
      deaths.push(now)
      if (deaths.filter((at) => now - at < BURST_MS).length >= BURST) {
        await note(`it has ended ${BURST} times in ${BURST_MS / 1000} seconds: giving up`)
        return 9
      }
      restarts++
      await sleep(500)
    }
    await stopAll(receipt)
    return 0
  } finally {
    await rm(paths.pidFile, { force: true })
  }
}

/** Ids of the living processes of this very service: same executable, same configuration, same user. Oldest first. */
export async function servicePids(receipt: Receipt): Promise<number[]> {
  const wanted = [receipt.executable, 'serve', '--config', receipt.configPath].join('\0')
  if (process.platform !== 'linux') return await pidsFromPs(wanted.replaceAll('\0', ' '))
  const { uid } = await idOf(receipt.user)
  const found: { pid: number; startTime: number }[] = []
  for (const name of await readdir('/proc')) {
    if (!/^[0-9]+$/.test(name)) continue
    const pid = Number(name)
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    if (command !== `${wanted}\0` && !command.startsWith(`${wanted}\0`)) continue
    const owner = await stat(`/proc/${pid}`).catch(() => null)
    const startTime = startTimeOf(pid) // null for a zombie
    if (owner?.uid === uid && startTime !== null) found.push({ pid, startTime: Number(startTime) })
  }
  return found.toSorted((a, b) => a.startTime - b.startTime).map(({ pid }) => pid)
}

export function pathsOf({ service, stateDirectory }: Pick<Receipt, 'service' | 'stateDirectory'>) {
  const directory = join(stateDirectory, 'run')
  return { directory, pidFile: join(directory, `${service}.pid`), log: join(directory, `${service}.log`) }
}

/** Keeps the log and three older ones. The service appends, so it goes on in the emptied file. */
export async function rotate(log: string, maxBytes = LOG_MAX_BYTES, kept = LOGS_KEPT): Promise<boolean> {
  const size = await stat(log).then(
    (found) => found.size,
    () => 0,
  )
  if (size < maxBytes) return false
  for (let n = kept - 1; n >= 1; n--) await rename(`${log}.${n}`, `${log}.${n + 1}`).catch(() => {})
  await copyFile(log, `${log}.1`)
  await truncate(log)
  return true
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

async function stopSupervisor(pidFile: string): Promise<void> {
  const file = await readPidFile(pidFile)
  if (file === null || !isAlive(file.supervisor.pid, file.supervisor.startTime)) return
  process.kill(file.supervisor.pid, 'SIGTERM')
  await until(() => !isAlive(file.supervisor.pid, file.supervisor.startTime), STOP_MS + 10_000)
}

/** Asks the processes to end, the newest one first, as `KillMode=mixed` would; then ends what is left. */
async function stopAll(receipt: Receipt): Promise<void> {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const pids = await servicePids(receipt)
    if (pids.length === 0) return
    for (const pid of pids.toReversed()) {
      try {
        process.kill(pid, signal)
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
      }
    }
    await until(async () => (await servicePids(receipt)).length === 0, STOP_MS)
  }
}

async function readPidFile(path: string): Promise<PidFile | null> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as PidFile
  } catch {
    return null
  }
}

async function writePidFile(path: string, file: PidFile): Promise<void> {
  await writeFile(`${path}.new`, `${JSON.stringify(file)}\n`, { mode: 0o600 })
  await rename(`${path}.new`, path)
}

async function pidsFromPs(wanted: string): Promise<number[]> {
  const { stdout } = await run(['ps', '-axo', 'pid=,command='], { allowFailure: true })
  const lines = stdout.split('\n').map((line) => line.trim())
  return lines
    .filter((line) =>
      line
        .slice(line.indexOf(' ') + 1)
        .trim()
        .startsWith(wanted),
    )
    .map((line) => Number.parseInt(line, 10))
    .toSorted((a, b) => a - b)
}

async function until(done: () => boolean | Promise<boolean>, timeoutMs: number): Promise<void> {
  const deadline = Date.now() + timeoutMs
  while (!(await done()) && Date.now() < deadline) await sleep(50)
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
