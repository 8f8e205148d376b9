// Starts one soak in a process, and where the host allows it in a network namespace, of its own.

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { releases } from '../fixtures/releases.ts'
import { inNetns, netnsProblem } from '../lab/netns.ts'
import type { SoakReport } from './judge.ts'

export interface SoakOptions {
  subject: 'baton' | 'naive'
  switches: number
  probationMs: number
  /** each on a connection of its own; four times as many keep theirs. Default 32 */
  clients?: number
  /** show what it says as it goes on */
  echo?: boolean
}

const PROGRAM = fileURLToPath(new URL('run.ts', import.meta.url))
const START_MS = 60_000
const SWITCH_MS = 15_000

export async function soak({
  subject,
  switches,
  probationMs,
  clients = 32,
  echo = false,
}: SoakOptions): Promise<SoakReport> {
  if (subject === 'baton') await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }]) // built out here, where it is not timed
  const isolated = netnsProblem() === null
  const command = [
    process.execPath,
    ...process.execArgv,
    PROGRAM,
    subject,
    String(switches),
    String(probationMs),
    isolated ? 'isolated' : 'shared',
    String(clients),
  ]
  const timeoutMs = START_MS + switches * (SWITCH_MS + probationMs)
  if (!isolated) {
    const [file = '', ...args] = command
    return parse((await promisify(execFile)(file, args, { timeout: timeoutMs, maxBuffer: 16 * 1024 * 1024 })).stdout)
  }
  const { code, signal, stdout, stderr } = await inNetns(command, { timeoutMs, echo })
  if (code !== 0)
    throw new Error(`the soak ended with ${signal ?? code}: ${stdout.slice(-2000)} ${stderr.slice(-4000)}`)
  return parse(stdout)
}

function parse(stdout: string): SoakReport {
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as SoakReport
}
