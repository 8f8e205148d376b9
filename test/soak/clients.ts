// Switches under clients of every kind: starts one soak in a process of its own, and where the host allows it in a network
// namespace of its own, and judges what it says.

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Counted } from '../lab/clients.ts'
import type { FollowersReport } from '../lab/followers.ts'
import { type Counters, inNetns, netnsProblem } from '../lab/netns.ts'

export interface ClientsSoak {
  switches: number
  probationMs: number
  /** of a response that takes long */
  slowMs: number
  /** connections that are silent from the first switch to the last */
  idle: number
  followers: { websockets: number; streams: number }
  /** how long what cannot move may take to end */
  drainMs: number
  /** stop-first: a response may then take as long as `quietTimeout`, which is 2s */
  isAlone: boolean
  isIsolated: boolean
}

export interface ClientsSoakReport {
  switches: number
  seconds: number
  kinds: Record<string, Counted>
  followed: FollowersReport
  rowsAcknowledged: number
  rowsMissing: number
  rowsDoubled: number
  moved: number
  carried: number
  cut: number
  /** null where this host has no network namespaces */
  kernel: Counters | null
}

export const LONG: Omit<ClientsSoak, 'isIsolated'> = {
  switches: 34,
  probationMs: 600,
  slowMs: 5000,
  idle: 1000,
  followers: { websockets: 50, streams: 50 },
  drainMs: 30_000,
  isAlone: false,
}

/** TLS and HTTP/2 cannot wait: under a load a stop-first switch takes as long as `drainTimeout` allows. */
export const LONG_ALONE: typeof LONG = { ...LONG, slowMs: 500, drainMs: 3000, isAlone: true }

const PROGRAM = fileURLToPath(new URL('clients-run.ts', import.meta.url))
const TIMEOUT_MS = 900_000

export async function soakClients(options: Omit<ClientsSoak, 'isIsolated'>, echo = false): Promise<ClientsSoakReport> {
  const isIsolated = netnsProblem() === null
  const soak: ClientsSoak = { ...options, isIsolated }
  const command = [process.execPath, ...process.execArgv, PROGRAM, JSON.stringify(soak)]
  if (!isIsolated) {
    const [file = '', ...args] = command
    const { stdout } = await promisify(execFile)(file, args, { timeout: TIMEOUT_MS, maxBuffer: 16 * 1024 * 1024 })
    return parse(stdout)
  }
  const { code, signal, stdout, stderr } = await inNetns(command, { timeoutMs: TIMEOUT_MS, echo })
  if (code !== 0) throw new Error(`the soak ended with ${signal ?? code}: ${stderr.slice(-4000)}`)
  return parse(stdout)
}

function parse(stdout: string): ClientsSoakReport {
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as ClientsSoakReport
}

/** Every broken promise, in words; none where all is well. */
export function brokenIn(report: ClientsSoakReport): string[] {
  const broken: string[] = []
  for (const [kind, { requests, lost, closed, doubled, errors }] of Object.entries(report.kinds)) {
    if (requests === 0) broken.push(`${kind}: expected requests, got none`)
    if (lost > 0) broken.push(`${kind}: ${lost} of ${requests} lost: ${JSON.stringify(errors)}`)
    if (closed > 0) broken.push(`${kind}: ${closed} connections closed`)
    if (doubled > 0) broken.push(`${kind}: ${doubled} answers that nobody asked for`)
  }
  for (const [kind, { messages, lost, doubled, reordered, closed }] of Object.entries(report.followed)) {
    if (messages === 0) broken.push(`${kind}: expected messages, got none`)
    if (lost + doubled + reordered + closed > 0)
      broken.push(`${kind}: ${JSON.stringify({ lost, doubled, reordered, closed })}`)
  }
  if (report.rowsAcknowledged === 0) broken.push('expected acknowledged rows, got none')
  if (report.rowsMissing > 0) broken.push(`${report.rowsMissing} acknowledged rows are missing`)
  if (report.rowsDoubled > 0) broken.push(`${report.rowsDoubled} rows are there twice`)
  if (report.cut > 0) broken.push(`${report.cut} connections cut`)
  for (const [counter, by] of Object.entries(report.kernel ?? {})) {
    if (by !== 0) broken.push(`expected the kernel's ${counter} not to move, it moved by ${by}`)
  }
  return broken
}

export function markdownOf(report: ClientsSoakReport): string {
  const { switches, seconds, kinds, followed, kernel } = report
  const sum = (of: (one: Pick<Counted, 'lost' | 'closed' | 'doubled'>) => number) =>
    [...Object.values(kinds), ...Object.values(followed)].reduce((total, one) => total + of(one), 0)
  const told = Object.entries(kinds).map(
    ([kind, { requests, told: toGo, refused }]) =>
      `${kind} (${requests}${toGo + refused === 0 ? '' : `, ${toGo} told to go, ${refused} refused`})`,
  )
  const more = Object.entries(followed).map(
    ([kind, { clients, messages }]) => `${clients} ${kind}, carried (${messages} messages)`,
  )
  return [
    `${switches} switches in ${seconds} s: ${report.moved} connections moved, ${report.carried} of them carried, ${report.cut} cut; ${report.rowsAcknowledged} rows acknowledged, ${report.rowsMissing} missing, ${report.rowsDoubled} doubled; kernel: ${kernel === null ? 'not isolated' : JSON.stringify(kernel)}.`,
    '',
    `Lost ${sum(({ lost }) => lost)}, closed ${sum(({ closed }) => closed)}, doubled ${sum(({ doubled }) => doubled)}, of the requests of: ${[...told, ...more].join('; ')}.`,
  ].join('\n')
}
