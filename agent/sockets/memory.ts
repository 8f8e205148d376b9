// Whom the kernel ends first when memory runs out.

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
