// Starts one of the runs in a process, and where the host allows it in a network namespace, of its own.

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { inNetns, netnsProblem } from '../../lab/netns.ts'
import { builds, type IdleRunReport, type KillsReport, type Order, type SwitchesReport } from './runs.ts'

export type ReportOf<O extends Order> = O['what'] extends 'switches'
  ? SwitchesReport
  : O['what'] extends 'idle'
    ? IdleRunReport
    : KillsReport

const PROGRAM = fileURLToPath(new URL('runs.ts', import.meta.url))
const [START_MS, EACH_MS] = [60_000, 40_000]

export async function runCarry<O extends Order>(order: O, { echo = false } = {}): Promise<ReportOf<O>> {
  await builds() // out here, where it is not timed
  const isolated = netnsProblem() === null && order.what !== 'kills'
  const program = [process.execPath, '--disable-warning=ExperimentalWarning', ...process.execArgv, PROGRAM]
  const command = [...program, '--order', JSON.stringify(order), isolated ? 'isolated' : 'shared']
  const timeoutMs = START_MS + order.times * EACH_MS
  if (isolated) {
    const { code, signal, stdout, stderr } = await inNetns(command, { timeoutMs, echo })
    if (code !== 0) throw new Error(`the run ended with ${signal ?? code}: ${stderr.slice(-4000)}`)
    return parsed(stdout)
  }
  const [file = '', ...args] = command
  const running = promisify(execFile)(file, args, { timeout: timeoutMs, maxBuffer: 16 * 1024 * 1024 })
  if (echo) running.child.stderr?.pipe(process.stderr)
  return parsed((await running).stdout)
}

function parsed<T>(stdout: string): T {
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as T
}
