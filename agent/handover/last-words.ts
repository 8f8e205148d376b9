// Keeps the last lines that a new release writes. If it dies, its predecessor shows them in the error: an operator may not be able
// to read the log. A release on probation that nobody watches leaves them in a file, for the rescue. Keeping starts with the first
// code, before the application's first line, and ends once this process has taken over or has proved itself. The lines are sent as
// this process exits; one that says how far a migration is counts at once. Must hold: the application's own output is unchanged.

import type { JournalState } from '../disk/journal.ts'
import { journalPath, lastWordsPath } from '../disk/places.ts'
import { type KeptWords, keptWords, noteKept } from '../disk/kept-words.ts'
import { isOwnLock } from '../disk/own-lock.ts'
import { LOCKED } from '../words/locked.ts'
import { LINE_MAX, LINES_MAX, tells } from '../words/said.ts'
import { type Inheritance, INHERITANCE, type ToPredecessor } from '../words/wire.ts'

/** how much of one write is examined: enough for an error with all its frames */
const WRITE_MAX = 64 * 1024

/** What else is done with whole lines, as they are written. */
export type Hear = (lines: readonly string[]) => void

/** `text`: the value of INHERITANCE. Does nothing in a process that is not a successor, such as a successor's child. */
export function keepLastWords(text = process.env[INHERITANCE], also: Hear = () => {}): void {
  if (text === undefined || keptWords() !== undefined) return
  const { channel, predecessor } = JSON.parse(text) as Inheritance
  if (predecessor.pid === process.ppid) keep(() => channel.messages, also)
}

/** For a process without a predecessor: the rescue finds the lines if this release, `tag`, is on probation. */
export function leaveLastWords(stateDirectory: string, tag: string, also: Hear = () => {}): void {
  const { openSync, readFileSync } = process.getBuiltinModule('node:fs')
  try {
    const journal = readFileSync(journalPath(stateDirectory), 'utf8')
    if (!journal.includes('"probation": {')) return // parse it only if it tells something
    if ((JSON.parse(journal) as Pick<JournalState, 'probation'>).probation?.to !== tag) return
    keep(() => openSync(lastWordsPath(stateDirectory), 'w', 0o600), also)
  } catch {
    return // there is no journal yet, or it is damaged
  }
}

function keep(descriptor: KeptWords['descriptor'], also: Hear): void {
  const lines: string[] = []
  let begun = '' // a line without its end yet
  const heard = (said: unknown): void => {
    const whole = `${begun}${textOf(said)}`.split('\n')
    begun = (whole.pop() ?? '').slice(0, LINE_MAX)
    also(whole)
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
    overhear(process.stdout, 'write', heard),
    overhear(process.stderr, 'write', heard),
    // fast loggers write to the descriptor
    overhear(fs, 'write', (fd, said) => isOutput(fd) && heard(said)),
    overhear(fs, 'writeSync', (fd, said) => isOutput(fd) && heard(said)),
  ]
  // Node prints an uncaught error without any of these functions
  const threw = (error: unknown): void => heard(`\n${String((error as Error | null)?.stack ?? error)}\n`)
  const tell = (): void => {
    const said = [...lines, begun]
    const body: ToPredecessor = { type: 'last words', lines: said, isOwnLock: said.some(isLocked) && isOwnLock() }
    try {
      const fd = kept.descriptor()
      if (fd !== null) fs.writeSync(fd, `${JSON.stringify({ body })}\n`)
    } catch {
      return // the predecessor is gone, or the disk is full
    }
  }
  process.on('uncaughtExceptionMonitor', threw)
  process.on('exit', tell)
  const kept: KeptWords = {
    descriptor,
    over() {
      kept.descriptor = () => null
      for (const undo of back) undo()
      process.off('uncaughtExceptionMonitor', threw)
      process.off('exit', tell)
    },
  }
  noteKept(kept)
}

/** Call it after opening the channel on the descriptor. `descriptor` returns null if nothing may be written to it now. */
export function tellThrough(descriptor: () => number | null): void {
  const kept = keptWords()
  if (kept !== undefined) kept.descriptor = descriptor
}

function isLocked(line: string): boolean {
  return LOCKED.test(line)
}

/** true during a write: one write calls another, and only the outer one counts */
let isWithin = false

/** From now on `heard` gets the arguments of every call. Returns a function that undoes this. */
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
  Object.defineProperties(overheard, Object.getOwnPropertyDescriptors(original)) // node:util reads some of them
  Object.assign(target, { [name]: overheard })
  return () => {
    if (Reflect.get(target, name) !== overheard) return // other code has wrapped the function since
    if (own === undefined) Reflect.deleteProperty(target, name)
    else Object.defineProperty(target, name, own)
  }
}

/** The end of what was written, at most WRITE_MAX. */
function textOf(said: unknown): string {
  if (typeof said === 'string') return said.slice(-WRITE_MAX)
  if (!ArrayBuffer.isView(said)) return ''
  return Buffer.from(said.buffer, said.byteOffset, said.byteLength).subarray(-WRITE_MAX).toString()
}
