// What a supervisor knows of the ends of the service that nobody has asked for, and one sentence about them.

import { open, rm } from 'node:fs/promises'
import {
  isCount,
  isFlag,
  isText,
  isTime,
  lineOf,
  orNull,
  plainOf,
  readSmall,
  shape,
  textLike,
} from '../../../agent/install.ts'
import { afterPrinting, parsedJson } from '../../../agent/words.ts'

export interface Crashes {
  /** since a person, or a command, has started the service */
  count: number
  /** it is started again and again: there was one before the last one, and no process of it has lived for a minute since */
  isLooping: boolean
  /** of the last one; null: the supervisor does not know */
  at: string | null
  code: number | null
  signal: string | null
  /** the last lines that it wrote, as one; null: none, or they are elsewhere */
  said: string | null
}

/** How a process has ended; both null: not known, since another process had started it. */
export type End = Pick<Crashes, 'code' | 'signal'>

/** as the supervision without systemd keeps them beside its log */
export interface CrashFile {
  crashes: Crashes
  /** nothing starts the service again */
  isGivenUp: boolean
}

const SAID_MAX_BYTES = 64 * 1024
const FILE_MAX_BYTES = 16 * 1024
/** what the supervision and Baton's agent write there themselves */
const OWN_LINE = /^\d{4}-\d\d-\d\dT[\d:.]+Z baton: /

/** Pure: `it has exited unexpectedly 3 times since it was started, last with exit code 1 at … after printing: …`. */
export function formatCrashes({ count, at, code, signal, said }: Crashes): string {
  const end = code !== null ? ` with exit code ${code}` : signal !== null ? ` (${signal})` : ''
  const last = `${end}${at === null ? '' : ` at ${at}`}`
  const many = `has exited unexpectedly ${count} times since it was started${last === '' ? '' : `, last${last}`}`
  return `it ${count === 1 ? `exited unexpectedly${last}` : many}${afterPrinting(said)}`
}

interface Seen {
  word: string
  crashes: Crashes | null
}

/** Pure: whether the service was down before anybody began to change it, and not because somebody had stopped it. */
export function isCrashed(state: Seen): boolean {
  return state.word === 'failed' || state.word === 'auto-restart' || isLooping(state)
}

/**
 * Pure: whether what lives now, or is about to, follows such an end, and so may be the next one to end. systemd tells no time of an end once
 * the next process runs: what it calls active has said that it is ready.
 */
export function mayEndToo({ word, crashes }: Seen): boolean {
  return crashes !== null && (word !== 'active' || crashes.at !== null)
}

/** Pure: whether the supervisor starts it again and again. */
export function isLooping({ crashes }: Seen): boolean {
  return crashes?.isLooping === true
}

/** The file belongs to the service's user, and an operator's terminal shows what is in it: null if any of it is not as written here. */
export async function readCrashes(path: string): Promise<CrashFile | null> {
  const text = await readSmall(path, FILE_MAX_BYTES).catch(() => null)
  const file = text === null ? null : parsedJson(text)
  if (!isCrashFile(file)) return null
  const { crashes, isGivenUp } = file as CrashFile
  const { count, isLooping, at, code, signal, said } = crashes
  const plain = { count, isLooping, at, code, signal, said: said === null ? null : plainOf(said) }
  return { crashes: plain, isGivenUp }
}

const isCrashFile = shape({
  crashes: shape({
    count: isCount,
    isLooping: isFlag,
    at: orNull(isTime),
    code: orNull(isCount),
    signal: orNull(textLike(/^SIG[A-Z0-9]{2,8}$/)),
    said: orNull(isText),
  }),
  isGivenUp: isFlag,
})

/** The service has been started or stopped on purpose: nothing of before counts. */
export async function forgetCrashes(path: string): Promise<void> {
  await rm(path, { force: true })
}

/** What the service has written into the log since it had `from` bytes, as one line; null: nothing that tells anything. */
export async function saidSince(log: string, from: number): Promise<string | null> {
  try {
    await using file = await open(log, 'r')
    const { size } = await file.stat()
    const start = Math.max(size < from ? 0 : from, size - SAID_MAX_BYTES) // the log may have been rotated
    const { bytesRead, buffer } = await file.read(Buffer.alloc(size - start), 0, size - start, start)
    const lines = buffer.toString('utf8', 0, bytesRead).split('\n')
    return lineOf(lines.filter((line) => !OWN_LINE.test(line)))
  } catch {
    return null
  }
}
