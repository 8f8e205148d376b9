// Processes of the bench: started here, ended here by their process id, and only these. Ports are free ones of loopback.

import { spawn } from 'node:child_process'
import type { ChildProcess, SpawnOptions } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface Started {
  child: ChildProcess
  pid: number
  exited: Promise<void>
  /** the last of what it wrote to stderr (and stdout, unless that is piped elsewhere) */
  output(): string
}

const running = new Set<ChildProcess>()
const tracked = new Set<number>()
const LAST_WAIT_MS = 300

// whichever way the bench ends: first the polite way, so that masters end their workers, then the other one
process.on('exit', () => {
  const left = [...[...running].map(({ pid }) => pid ?? 0), ...tracked].filter((pid) => pid > 1 && alive(pid))
  if (left.length === 0) return
  for (const pid of left) send(pid, 'SIGTERM')
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LAST_WAIT_MS)
  for (const pid of left) if (alive(pid)) send(pid, 'SIGKILL')
})

/** A process that a process of ours has started: it too must not outlive the bench. */
export function track(pid: number): void {
  if (pid > 1) tracked.add(pid)
}

export function start(command: string, args: string[], options: SpawnOptions = {}): Started {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (bytes: Buffer) => (output = (output + bytes.toString()).slice(-8192)))
    stream?.on('error', () => undefined)
  }
  running.add(child)
  const exited = new Promise<void>((resolve) => {
    const done = (): void => {
      running.delete(child)
      resolve()
    }
    child.on('exit', done)
    child.on('error', (error) => {
      output += String(error)
      done()
    })
  })
  return { child, pid: child.pid ?? 0, exited, output: () => output }
}

/** Signals the process and waits until it is gone; SIGKILL when it is still there after `patienceMs`. */
export async function end(pid: number, signal: NodeJS.Signals = 'SIGTERM', patienceMs = 5000): Promise<void> {
  if (!alive(pid)) return
  send(pid, signal)
  if (await gone(pid, patienceMs)) return
  send(pid, 'SIGKILL')
  await gone(pid, 5000)
}

export function send(pid: number, signal: NodeJS.Signals): void {
  if (pid <= 1) throw new RangeError(`expected a process id, got ${pid}`)
  try {
    process.kill(pid, signal)
  } catch {
    // it has ended by itself
  }
}

/** Whether it runs; a zombie does not. */
export function alive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !/^\d+ \(.*\) [ZX] /s.test(stat)
  } catch {
    return false
  }
}

export async function gone(pid: number, withinMs: number): Promise<boolean> {
  const deadline = performance.now() + withinMs
  while (alive(pid)) {
    if (performance.now() > deadline) return false
    await sleep(5)
  }
  tracked.delete(pid)
  return true
}

/** Asks once, on a connection of its own; null when there is no answer. */
export function askTag(port: number, patienceMs = 1000): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    let text = ''
    const done = (tag: string | null): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(tag)
    }
    const timer = setTimeout(() => done(null), patienceMs)
    socket.on('error', () => done(null))
    socket.on('end', () => done(null))
    socket.on('data', (bytes) => {
      text += bytes.toString()
      const match = /"tag":\s*"([^"]+)"/.exec(text)
      if (match !== null) done(match[1] ?? null)
    })
    socket.write('GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  })
}

const POLL_MS = 2
const POLLS_MAX = 4 // one that hangs (node:cluster does that) must not hide the answer to the next

/** Milliseconds, from `since`, until `tag` (null: any) answers on the port. Throws when it does not in time. */
export async function untilAnswers(
  port: number,
  tag: string | null,
  since: number,
  patienceMs = 30_000,
): Promise<number> {
  let answeredMs: number | null = null
  let polls = 0
  const poll = async (): Promise<void> => {
    polls++
    const got = await askTag(port)
    polls--
    if (got !== null && (tag === null || got === tag)) answeredMs ??= performance.now() - since
  }
  while (answeredMs === null) {
    if (performance.now() - since > patienceMs) {
      throw new Error(`no answer from ${tag ?? 'any version'} on port ${port} within ${patienceMs} ms`)
    }
    const asked = polls < POLLS_MAX ? poll() : null
    await Promise.race([asked ?? sleep(POLL_MS), sleep(5 * POLL_MS)])
    if (answeredMs === null) await sleep(POLL_MS)
  }
  return answeredMs
}

/** Memory of a process in kB: resident now, and the most it ever was. */
export function memoryOf(pid: number): { rssKb: number; peakKb: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const number = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0)
  return { rssKb: number('VmRSS'), peakKb: number('VmHWM') }
}

/** Watches the memory of a process until it ends; the function gives the most that was seen, in kB. */
export function peakOf({ pid, exited }: Started): () => number {
  let peak = 0
  const look = (): void => {
    try {
      peak = Math.max(peak, memoryOf(pid).peakKb)
    } catch {
      // it has ended
    }
  }
  look()
  const timer = setInterval(look, 5)
  void exited.then(() => clearInterval(timer))
  return () => peak
}

export async function untilListens(port: number, patienceMs = 10_000): Promise<void> {
  const deadline = performance.now() + patienceMs
  const listens = (): Promise<boolean> =>
    new Promise((resolve) => {
      const socket = connect({ port, host: '127.0.0.1' })
      socket.on('connect', () => resolve(socket.destroy() !== null))
      socket.on('error', () => resolve(false))
    })
  while (!(await listens())) {
    if (performance.now() > deadline) throw new Error(`nothing listens on port ${port} after ${patienceMs} ms`)
    await sleep(5)
  }
}

/** Processor time that a process has used, in milliseconds: user and system. */
export function processorMsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) * 10 // in ticks of 1/100 s
}
