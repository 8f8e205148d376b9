// Tells processes apart, and ends those that this one has started. A pid alone is not enough: the kernel reuses it.

import type { ChildProcess } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ProcessName } from '../words/wire.ts'

const [LOOK_EVERY_MS, KILL_ROUNDS] = [5, 100]

/** Clock ticks since boot at which the process started, as a string to compare; null if it is gone or the host has no /proc. */
export function startTimeOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // proc(5): field 22; the name in field 2 may contain spaces and parentheses
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' ? null : (fields[19] ?? null)
  } catch {
    return null
  }
}

/**
 * Whether the kernel has released everything that the process held: its locks, ports and files. A process that is about to end
 * closes its descriptors first and releases the files afterwards, so neither the end of a pipe nor a missing descriptor is proof.
 * Every thread releases before it leaves; a zombie with no other thread has nothing left (proc(5), fields 3 and 20).
 */
export function isGone({ pid, startTime }: ProcessName): boolean {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return !isAlive(pid, startTime)
  }
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  if (startTime !== null && fields[19] !== startTime) return true // another process has the pid now
  return fields[0] === 'X' || (fields[0] === 'Z' && Number(fields[17]) <= 1)
}

/** Every living process that `pid` has started, and what those have started, as far as each still has its parent. */
export function descendantsOf(pid: number): ProcessName[] {
  const children = new Map<number, number[]>()
  for (const name of readdirSync('/proc')) {
    if (!/^[0-9]+$/.test(name)) continue
    const parent = parentOf(Number(name))
    if (parent !== null) children.set(parent, [...(children.get(parent) ?? []), Number(name)])
  }
  const found: number[] = []
  for (const open = [pid]; open.length > 0;) {
    for (const child of children.get(open.pop() ?? 0) ?? []) {
      found.push(child)
      open.push(child)
    }
  }
  return found.map((one) => ({ pid: one, startTime: startTimeOf(one) })).filter(({ startTime }) => startTime !== null)
}

/** Every living process that was started with `text` in its environment. None on a host without /proc. */
export function startedWith(text: string): ProcessName[] {
  if (!existsSync('/proc/self/environ')) return []
  const pids = readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))
  return pids
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(text)
      } catch {
        return false // another user's, or it is gone
      }
    })
    .map((pid) => ({ pid: Number(pid), startTime: startTimeOf(Number(pid)) }))
    .filter(({ startTime }) => startTime !== null)
}

/**
 * Ends everything below `pid` but `spared` and what those have started: SIGTERM, and SIGKILL after `patienceMs`. Looks again until
 * nothing is left, since a process may start another meanwhile. Resolves to what still lives after some rounds.
 */
export async function endAll(pid: number, spared: readonly number[], patienceMs: number): Promise<ProcessName[]> {
  const kill = performance.now() + patienceMs
  for (let rounds = 0; ;) {
    const keep = new Set(spared.flatMap((one) => [one, ...descendantsOf(one).map((below) => below.pid)]))
    const left = descendantsOf(pid).filter((one) => !keep.has(one.pid))
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

function parentOf(pid: number): number | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  } catch {
    return null // it has ended
  }
}

/** Whether the process with this pid and start time still lives. Without /proc the pid alone decides. */
export function isAlive(pid: number, startTime: string | null): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EPERM')) return false
  }
  const now = startTimeOf(pid)
  return startTime === null || now === startTime || (now === null && process.platform !== 'linux')
}

/** Kills a child that leads a group with its whole group. Closes its streams too: a process that has left the group may hold them. */
export function endGroup(child: ChildProcess): void {
  if (child.pid === undefined) return // it never started
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL') // the group is gone
  }
  for (const stream of child.stdio) stream?.destroy()
}
