// Finds and ends the processes of a service without systemd, by what the kernel says of them.
// Must hold: the caller is the service's user. So the kernel refuses to signal another user's process, whatever a pid file or a
// command line says.

import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type DescriptorStore,
  INHERITANCE,
  openDescriptorStore,
  PARENT,
  type Receipt,
  startTimeOf,
  STOP_MAX_MS,
  USUAL_STOP_MS,
} from '../../../agent/install.ts'
import { codeOf } from '../../../agent/words.ts'
import { run } from '../../lib/shell.ts'
import { readPidFile, runFilesOf } from './run-files.ts'

const LOOK_MS = 50
/** a look goes through all processes of the host: after RARELY_AFTER_MS it comes less often */
const [RARELY_MS, RARELY_AFTER_MS] = [500, 20_000]

/**
 * Ids of this service's living processes: same executable and same configuration, or noted by its supervision; same user, and the
 * same namespaces as this process, since a container on this host may run another service at the same path. Oldest first. A process
 * that holds the sockets in a stop-first switch is one of them: it runs from the backup executable, and for moments it is the
 * only one.
 */
export async function servicePids(receipt: Receipt): Promise<number[]> {
  const wanted = [receipt.executable, `${receipt.executable}.backup`].map((file) =>
    [file, 'serve', '--config', receipt.configPath].join('\0'),
  )
  if (process.platform !== 'linux') return await pidsFromPs(wanted.map((words) => words.replaceAll('\0', ' ')))
  const uid = process.getuid?.() ?? 0
  const own = await namespacesOf('self')
  const noted = (await readPidFile(runFilesOf(receipt).pidFile))?.service ?? null
  const found: { pid: number; startTime: number }[] = []
  for (const name of await readdir('/proc')) {
    if (!/^[0-9]+$/.test(name)) continue
    const pid = Number(name)
    const isNoted = noted?.pid === pid && noted.startTime === startTimeOf(pid)
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    const isNamed = wanted.some((words) => ownWords(command).startsWith(`${words}\0`))
    if (!isNoted && !isNamed && !(await isRetitled(name, command, receipt.executable))) continue
    const owner = await stat(`/proc/${pid}`).catch(() => null)
    const startTime = startTimeOf(pid) // null for a zombie
    if (owner?.uid !== uid || startTime === null || (await namespacesOf(name)) !== own) continue
    found.push({ pid, startTime: Number(startTime) })
  }
  return found.toSorted((a, b) => a.startTime - b.startTime).map(({ pid }) => pid)
}

export interface EndOptions {
  /** what hears the service; null: nothing does */
  ear: Pick<DescriptorStore, 'longerMs'> | null
  /** called when the service says that its end may take `ms` in all, which is longer than usual */
  takes(ms: number): Promise<void>
  /** how long a service may take that says nothing */
  usualMs?: number
}

/**
 * Sends SIGTERM to the processes, the newest one first, as `KillMode=mixed` would; kills what is left after the usual time, or the one for
 * which a process has asked since.
 */
export async function endService(receipt: Receipt, { ear, takes, usualMs = USUAL_STOP_MS }: EndOptions): Promise<void> {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const pids = await servicePids(receipt)
    if (pids.length === 0) return
    ear?.longerMs() // what it has asked for its start
    const began = performance.now()
    let mostMs = usualMs
    for (const pid of pids.toReversed()) endOne(pid, signal)
    const hasEnded = async () => {
      const asked = ear?.longerMs() ?? 0
      const ms = Math.min(performance.now() - began + asked, STOP_MAX_MS)
      if (asked > 0 && ms > mostMs) await takes((mostMs = ms))
      return (await servicePids(receipt)).length === 0
    }
    await until(hasEnded, () => mostMs)
  }
}

/** The same for a service that may have lost its supervision: hears it in that one's place. */
export async function endUnsupervised(receipt: Receipt, usualMs = USUAL_STOP_MS): Promise<void> {
  if ((await servicePids(receipt)).length === 0) return
  using ear = earAt(runFilesOf(receipt).notify)
  await endService(receipt, { ear, takes: async () => {}, usualMs })
}

function earAt(path: string): DescriptorStore | null {
  try {
    return openDescriptorStore(path)
  } catch {
    return null // it was never supervised, or this host cannot pass messages
  }
}

/** Sends the signal; does nothing if the process has ended. */
export function endOne(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error
  }
}

/** Whether `done` has become true in time. `mostMs`: asked after each look. */
export async function until(
  done: () => boolean | Promise<boolean>,
  mostMs: () => number | Promise<number>,
): Promise<boolean> {
  const began = performance.now()
  while (!(await done())) {
    const ms = performance.now() - began
    if (ms >= (await mostMs())) return false
    await sleep(ms > RARELY_AFTER_MS ? RARELY_MS : LOOK_MS)
  }
  return true
}

/** A command line without the Node that runs a script, and Node's flags. A script's first line adds `--` after them. */
function ownWords(command: string): string {
  const end = command.startsWith('/') ? command.indexOf('\0--\0/') : -1
  return end < 0 ? command : command.slice(end + 4)
}

/**
 * Setting `process.title` (Next.js does) overwrites a service's command line. Then its executable and its first environment identify
 * it. A child of the application has the variable PARENT there. So has a successor, but with INHERITANCE: it is the service.
 */
async function isRetitled(pid: string, command: string, executable: string): Promise<boolean> {
  const [first = ''] = command.split('\0')
  const names = [executable, `${executable}.backup`].map((path) => basename(path))
  if (first === '' || names.includes(basename(first))) return false
  const link = await readlink(`/proc/${pid}/exe`).catch(() => '')
  if (![executable, `${executable}.backup`].includes(link.replace(/ \(deleted\)$/, ''))) return false
  const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => `${PARENT}=`)
  const has = (variable: string) => environment.split('\0').some((line) => line.startsWith(`${variable}=`))
  return has(INHERITANCE) || !has(PARENT)
}

/** Process ids and paths have a meaning only within these namespaces. */
async function namespacesOf(pid: string): Promise<string> {
  const links = ['pid', 'mnt'].map((kind) => readlink(`/proc/${pid}/ns/${kind}`).catch(() => 'hidden'))
  return (await Promise.all(links)).join(' ')
}

async function pidsFromPs(wanted: readonly string[]): Promise<number[]> {
  const { stdout } = await run(['ps', '-axo', 'pid=,uid=,command='], { allowFailure: true })
  const uid = String(process.getuid?.() ?? 0)
  return stdout
    .split('\n')
    .map((line) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line))
    .filter((match) => match?.[2] === uid && wanted.some((words) => `${match[3]} `.startsWith(`${words} `)))
    .map((match) => Number(match?.[1]))
    .toSorted((a, b) => a - b)
}
