// Tells processes apart, and ends those that this one has started. A pid alone is not enough: the kernel reuses it.

import type { ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'

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
