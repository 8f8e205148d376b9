// Tells processes apart, ends those that this one has started, and knows the container around it. A pid alone is not enough: the kernel
// reuses it.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ProcessName } from '../words/wire.ts'

const [LOOK_EVERY_MS, KILL_ROUNDS] = [5, 100]

/** The fields of /proc/<pid>/stat from the third on (proc(5)); null if the process is gone or the host has no /proc. */
function statOf(pid: number): string[] | null {
  try {
    return fieldsIn(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return null
  }
}

function fieldsIn(stat: string): string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ') // the name in field 2 may contain spaces and parentheses
}

/** positions in what `fieldsIn` gives */
const [STATE, PARENT_PID, SESSION, THREADS, START_TIME] = [0, 1, 3, 17, 19]

/** The session of a process, which it shares with what it has started; null if it is gone. */
export function sessionOf(pid: number): string | null {
  return statOf(pid)?.[SESSION] ?? null
}

/** Clock ticks since boot at which the process started, as a string to compare; null if it is gone or the host has no /proc. */
export function startTimeOf(pid: number): string | null {
  const fields = statOf(pid)
  return fields === null || fields[STATE] === 'Z' ? null : (fields[START_TIME] ?? null)
}

/**
 * Whether the kernel has released everything that the process held: its locks, ports and files. A process that is about to end
 * closes its descriptors first and releases the files afterwards, so neither the end of a pipe nor a missing descriptor is proof.
 * Every thread releases before it leaves; a zombie with no other thread has nothing left.
 */
export function isGone({ pid, startTime }: ProcessName): boolean {
  const fields = statOf(pid)
  if (fields === null) return !isAlive(pid, startTime)
  if (startTime !== null && fields[START_TIME] !== startTime) return true // another process has the pid now
  return isReleased(fields)
}

/** As `isGone`, of the text of its `stat`: for who reads it elsewhere than in this host's /proc. */
export function isGoneIn(stat: string): boolean {
  return isReleased(fieldsIn(stat))
}

function isReleased(fields: readonly string[]): boolean {
  return fields[STATE] === 'X' || (fields[STATE] === 'Z' && Number(fields[THREADS]) <= 1)
}

/**
 * Every living process below `pid`: its children, their children and so on, without those whose parent has ended. Leaves out
 * `spared`, and everything below them.
 */
export function descendantsOf(pid: number, spared: readonly number[] = []): ProcessName[] {
  const children = new Map<number, number[]>()
  for (const one of allPids()) {
    const parent = Number(statOf(one)?.[PARENT_PID] ?? Number.NaN)
    children.set(parent, [...(children.get(parent) ?? []), one])
  }
  const found: number[] = []
  for (const open = [pid]; open.length > 0;) {
    const started = (children.get(open.pop() ?? 0) ?? []).filter((child) => !spared.includes(child))
    found.push(...started)
    open.push(...started)
  }
  return living(found)
}

/** Every living process that was started with `text` in its environment. */
export function startedWith(text: string): ProcessName[] {
  const has = (pid: number) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(text)
    } catch {
      return false // another user's, or it is gone
    }
  }
  return living(allPids().filter(has))
}

/** None on a host without /proc. */
function allPids(): number[] {
  if (!existsSync('/proc/self')) return []
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number)
}

function living(pids: readonly number[]): ProcessName[] {
  return pids.map((pid) => ({ pid, startTime: startTimeOf(pid) })).filter(({ startTime }) => startTime !== null)
}

/**
 * Ends everything below `pid`, except `spared` and everything below them: SIGTERM, then SIGKILL after `patienceMs`. Looks again until
 * nothing is left, since a process may start another meanwhile. Resolves to what still lives after KILL_ROUNDS of SIGKILL.
 */
export async function endAll(pid: number, spared: readonly number[], patienceMs: number): Promise<ProcessName[]> {
  const kill = performance.now() + patienceMs
  for (let rounds = 0; ;) {
    const left = descendantsOf(pid, spared)
    const isOver = performance.now() >= kill
    if (left.length === 0 || (isOver && ++rounds > KILL_ROUNDS)) return left
    signalAll(left, isOver ? 'SIGKILL' : 'SIGTERM')
    await sleep(LOOK_EVERY_MS)
  }
}

/** The processes of the unit that is named after the service, if systemd runs this process in it; else none. */
export function unitProcesses(service: string): number[] {
  try {
    const path = /^0::(\/.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1] ?? ''
    if (!path.endsWith(`/${service}.service`)) return []
    return readFileSync(`/sys/fs/cgroup${path}/cgroup.procs`, 'utf8').trim().split('\n').map(Number)
  } catch {
    return []
  }
}

/** Sends the signal to those that are still the same processes. */
export function signalAll(all: readonly ProcessName[], signal: NodeJS.Signals): void {
  for (const { pid, startTime } of all) {
    try {
      if (isAlive(pid, startTime)) process.kill(pid, signal)
    } catch {
      continue // it has ended, or it belongs to another user
    }
  }
}

/**
 * Whether the process with this pid and start time still lives. Without /proc the pid alone decides; also of a process of this user that
 * /proc hides (`ProtectProc=invisible`), because it has a capability that this one has not: a service on a port below 1024, for a command.
 */
export function isAlive(pid: number, startTime: string | null): boolean {
  const found = signalled(pid)
  if (found === 'gone') return false
  const now = startTimeOf(pid)
  if (startTime === null || now === startTime) return true
  if (now !== null) return false
  if (process.platform !== 'linux') return true
  return found === 'reached' && statOf(pid) === null && signalled(pid) === 'reached'
}

function signalled(pid: number): 'reached' | 'another user' | 'gone' {
  try {
    process.kill(pid, 0)
    return 'reached'
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM' ? 'another user' : 'gone'
  }
}

/** The id of the container around this process; null outside a container, and if it cannot be found. */
export function ownContainerId(): string | null {
  try {
    return containerIdIn(readFileSync('/proc/self/mountinfo', 'utf8'), hostname())
  } catch {
    return null // this is not Linux
  }
}

/** Finds the id: the engine mounts a container's own `hostname` and `resolv.conf` from a folder that is named by the id. Pure. */
export function containerIdIn(mountinfo: string, host: string): string | null {
  const mounted = /\/(?:containers|overlay-containers)\/([0-9a-f]{64})\/\S*(?:hostname|resolv\.conf) \/etc\//.exec(
    mountinfo,
  )?.[1]
  if (mounted !== undefined) return mounted
  return mountinfo !== '' && /^[0-9a-f]{12}$/.test(host) ? host : null
}
