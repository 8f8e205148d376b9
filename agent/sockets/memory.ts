// Whom the kernel ends first when memory runs out, and whether it has ended somebody.

import { readFileSync, writeFileSync } from 'node:fs'
import { descendantsOf } from './process.ts'

/** proc(5): of two processes the kernel ends the one with the higher value, which also tells how much memory it has */
const riskOf = (pid: number | 'self') => `/proc/${pid}/oom_score_adj`
/** so high that the kernel ends this process before any with a usual value, however much memory that one has */
const RISK_MOST = 1000

/** How readily the kernel ends this process when memory runs out; null on a host that does not say. */
export function memoryRisk(): number | null {
  const text = read(riskOf('self'))
  return text === null ? null : Number(text)
}

/**
 * Has the kernel end this process before its predecessor, and before any other, when memory runs out. It needs no privilege, nor does the
 * way back: the kernel bars only what is lower than a privileged process has set.
 */
export function riskMost(): void {
  setRisk('self', RISK_MOST)
}

/** Goes back to `risk` if there is one, with every process that this one has started meanwhile: they have begun with its value. */
export function riskAgain(risk: number | undefined): void {
  if (risk === undefined) return
  for (const pid of [process.pid, ...descendantsOf(process.pid).map(({ pid }) => pid)]) {
    if (read(riskOf(pid))?.trim() === String(RISK_MOST)) setRisk(pid, risk)
  }
}

/**
 * How often the kernel has ended a process for want of memory: of this process's own control group if the kernel counts there, else of
 * this host. To compare with a later number; 0 if nothing says it.
 */
export function memoryKills(): number {
  for (const path of [...memoryEventsOf(read('/proc/self/cgroup') ?? ''), '/proc/vmstat']) {
    const kills = killsIn(read(path) ?? '')
    if (kills !== null) return kills
  }
  return 0
}

/**
 * The files that may count them for a process with this /proc/self/cgroup, the best first. A container may show only its own group, as the
 * root of a hierarchy. Pure.
 */
export function memoryEventsOf(cgroup: string): string[] {
  const [, own] = /^\d+:memory:(\/.*)$/m.exec(cgroup) ?? [] // version 1
  const [root, file] = own === undefined ? ['', 'memory.events'] : ['/memory', 'memory.oom_control']
  const path = own ?? /^0::(\/.*)$/m.exec(cgroup)?.[1]
  if (path === undefined) return []
  return [...new Set([path.replace(/\/$/, ''), ''])].map((group) => `/sys/fs/cgroup${root}${group}/${file}`)
}

/** From the text of memory.events, memory.oom_control or /proc/vmstat; null: it does not say. Pure. */
export function killsIn(text: string): number | null {
  const [, kills] = /^oom_kill (\d+)$/m.exec(text) ?? []
  return kills === undefined ? null : Number(kills)
}

function setRisk(pid: number | 'self', risk: number): void {
  try {
    writeFileSync(riskOf(pid), String(risk))
  } catch {
    return // not on this host: a switch goes on as if both processes were alike
  }
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
