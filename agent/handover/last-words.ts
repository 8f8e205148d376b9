// What a new release has said last, for its predecessor to tell where it dies: its log is elsewhere, and not everybody's to read.
// Kept from the first code on, before the application's first line; told as this process exits; over once it has taken over.
// Must hold: what the application writes is written as if we were not here.

import { stripVTControlCharacters } from 'node:util'
import { type Inheritance, INHERITANCE, type ToPredecessor } from './messages.ts'

/** of what is kept, and of what is told of it: lines, and characters of one and of all */
const [LINES_MAX, LINE_MAX, TOLD_MAX] = [10, 200, 1000]
/** what is looked at of one write: an error with all its frames */
const WRITE_MAX = 64 * 1024

interface Kept {
  /** who is to hear of it; null: nobody any more */
  descriptor: () => number | null
  over(): void
}

/** one for a process: the first code and the application each have a copy of this file */
const KEPT = Symbol.for('baton.last-words')
const shared = globalThis as { [KEPT]?: Kept }

/** `text`: what a successor finds in its environment. Nothing happens in any other process, a child of a successor neither. */
export function keepLastWords(text = process.env[INHERITANCE]): void {
  if (text === undefined || shared[KEPT] !== undefined) return
  const { channel, predecessor } = JSON.parse(text) as Inheritance
  if (predecessor.pid !== process.ppid) return
  const lines: string[] = []
  let begun = '' // a line that is not over yet
  const keep = (said: unknown): void => {
    const whole = `${begun}${textOf(said)}`.split('\n')
    begun = (whole.pop() ?? '').slice(0, LINE_MAX)
    lines.push(
      ...whole
        .filter(tells)
        .slice(-LINES_MAX)
        .map((line) => line.slice(0, LINE_MAX)),
    )
    lines.splice(0, lines.length - LINES_MAX)
  }
  const isOutput = (fd: unknown) => fd === 1 || fd === 2
  const fs = process.getBuiltinModule('node:fs')
  const back = [
    overhear(process.stdout, 'write', keep),
    overhear(process.stderr, 'write', keep),
    // as the loggers do that are fast
    overhear(fs, 'write', (fd, said) => isOutput(fd) && keep(said)),
    overhear(fs, 'writeSync', (fd, said) => isOutput(fd) && keep(said)),
  ]
  // Node itself says it, below all of these
  const threw = (error: unknown): void => keep(`\n${String((error as Error | null)?.stack ?? error)}\n`)
  const tell = (): void => {
    const fd = kept.descriptor()
    const body: ToPredecessor = { type: 'last words', lines: [...lines, begun] }
    try {
      if (fd !== null) fs.writeSync(fd, `${JSON.stringify({ body })}\n`)
    } catch {
      return // it is gone
    }
  }
  process.on('uncaughtExceptionMonitor', threw)
  process.on('exit', tell)
  const kept: Kept = {
    descriptor: () => channel.messages,
    over() {
      kept.descriptor = () => null
      for (const undo of back) undo()
      process.off('uncaughtExceptionMonitor', threw)
      process.off('exit', tell)
    },
  }
  shared[KEPT] = kept
}

/** Who has taken the descriptor over knows whether it may be written to: null where it may not. */
export function tellThrough(descriptor: () => number | null): void {
  const kept = shared[KEPT]
  if (kept !== undefined) kept.descriptor = descriptor
}

/** This process has taken over, or nobody is there to be told. */
export function forgetLastWords(): void {
  shared[KEPT]?.over()
}

/** One line for a message, or null where nothing is worth it. What is told was written by an application: it is bounded and made plain. */
export function lineOf(lines: readonly unknown[]): string | null {
  const said: string[] = []
  let length = 0
  for (const line of lines
    .filter((one) => tells(String(one)))
    .slice(-LINES_MAX)
    .toReversed()) {
    const plain = plainOf(String(line)).slice(0, LINE_MAX)
    length += plain.length
    if (length > TOLD_MAX) break
    said.unshift(plain)
  }
  return said.length === 0 ? null : said.join(' | ')
}

/** Not so the frames of a stack, which would leave no room for the error, and the brackets of an object. */
function tells(line: string): boolean {
  return !/^\s*at /.test(line) && /[\p{L}\p{N}]/u.test(line)
}

export function plainOf(text: string): string {
  return stripVTControlCharacters(text)
    .replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim()
}

/** one write is made of another, and heard once */
let isWithin = false

/** `heard` gets the arguments of every call. Returns how to take that back. */
function overhear(target: object, name: string, heard: (...args: unknown[]) => void): () => void {
  const own = Object.getOwnPropertyDescriptor(target, name)
  const original = Reflect.get(target, name) as (...args: unknown[]) => unknown
  const overheard = function (this: unknown, ...args: unknown[]): unknown {
    if (isWithin) return Reflect.apply(original, this, args)
    isWithin = true
    try {
      heard(...args)
      return Reflect.apply(original, this, args)
    } finally {
      isWithin = false
    }
  }
  Object.defineProperties(overheard, Object.getOwnPropertyDescriptors(original)) // node:util reads some
  Object.assign(target, { [name]: overheard })
  return () => {
    if (Reflect.get(target, name) !== overheard) return // somebody else overhears too
    if (own === undefined) Reflect.deleteProperty(target, name)
    else Object.defineProperty(target, name, own)
  }
}

/** The end of it. */
function textOf(said: unknown): string {
  if (typeof said === 'string') return said.slice(-WRITE_MAX)
  if (!ArrayBuffer.isView(said)) return ''
  return Buffer.from(said.buffer, said.byteOffset, said.byteLength).subarray(-WRITE_MAX).toString()
}
