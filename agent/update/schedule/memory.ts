// The schedule's memory, in `<state directory>/update/schedule.json`: this host's id, when it asked the feed and what the feed offered,
// the last attempt, releases that it never tries again, and letters to send. Replaced whole: a power cut leaves the memory of before or
// after. Only the process that serves alone writes.
// Must hold: an attempt is in here before it begins, so that a power cut does not repeat it; after damage to the file no release is
// tried again that failed here, since the journal has the bad releases.

import { createHash, randomBytes } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { type Disk, exists, readSmall } from '../../disk/disk.ts'
import type { JournalState } from '../../disk/journal.ts'
import { updateDirectory } from '../../disk/places.ts'
import { isTag, type Tag } from '../../words/release.ts'
import { badEntry } from '../../words/state.ts'
import { rolloutFrom } from '../../words/schedule.ts'
import { isFlag, isMs, isText, listOf, orNull, shape, textLike } from '../../words/shapes.ts'
import { isCount, isSha256, parsedJson } from '../../words/untrusted.ts'
import { forPerson, type Wait, WAIT_CODES } from '../../words/waits.ts'
import type { Offered } from './next.ts'
import { rankOf } from './rank.ts'

export interface Attempt {
  /** of its operation */
  id: string
  tag: Tag
  sha256: string
  /** epoch milliseconds */
  at: number
  /** true until the memory has how it ended */
  isOpen: boolean
}

/** A release that this host does not try again by itself as long as it runs `from`. */
export interface Never {
  tag: Tag
  sha256: string
  /** null: any release */
  from: Tag | null
  why: Wait
}

/** A report that the operator's program has not taken yet. */
export interface Letter {
  /** as JSON */
  text: string
  tries: number
  /** epoch milliseconds */
  at: number
}

export interface Remembered {
  format: 1
  /** 32 hex digits, random */
  id: string
  /** hashes that identify the machine that made the id, see `marksOf` */
  marks: string[]
  /** questions to the feed, epoch milliseconds; `at` null: never answered; `problem`: why there was no usable answer */
  asked: { at: number | null; next: number; problem: string | null; failures: number }
  offer: Offered | null
  /** newer releases that wait for a person, and why; newest first */
  passed: { tag: Tag; why: Wait }[]
  attempt: Attempt | null
  /** attempts in a row that did not succeed, and whether the last one was put back */
  failures: number
  wasReverted: boolean
  never: Never[]
  /** id of the newest operation that has its letter; null: no program was configured yet */
  told: string | null
  /** keys of what waits for a person and has had its letter */
  toldWaits: string[]
  letters: Letter[]
  /** why the operator's program did not take the last report; null: it did */
  hookProblem: string | null
}

const MAX_BYTES = 1024 * 1024
const [NEVER_MAX, LETTERS_MAX] = [50, 20]
/** characters of a letter: with a longer one, `parseMemory` would refuse the whole memory */
export const LETTER_MAX = 32 * 1024
/** how often to ask the feed, on average; and when a new host asks first, at the earliest and at the latest */
export const [ASK_MS, ASK_FIRST_MS, ASK_FIRST_MAX_MS] = [6 * 3_600_000, 600_000, 3_600_000]
const ASK_AGAIN_MS = 900_000

/** Null: there is none, or it is damaged. */
export async function readMemory(stateDirectory: string): Promise<Remembered | null> {
  const text = await readSmall(pathOf(stateDirectory), MAX_BYTES).catch(() => null)
  return text === null ? null : parseMemory(text)
}

export async function writeMemory(disk: Disk, stateDirectory: string, memory: Remembered): Promise<void> {
  memory.never.splice(NEVER_MAX)
  memory.letters.splice(0, Math.max(0, memory.letters.length - LETTERS_MAX))
  await disk.makeDirectory(updateDirectory(stateDirectory), 0o700)
  await disk.writeWhole(pathOf(stateDirectory), `${JSON.stringify(memory)}\n`, 0o600)
}

/** The memory of a new host. Its first question is spread over an hour, since many hosts may be installed in the same minute. */
export function newMemory(marks: string[], now: number): Remembered {
  const id = randomBytes(16).toString('hex')
  return {
    format: 1,
    id,
    marks,
    asked: { at: null, next: firstAskAt(id, now), problem: null, failures: 0 },
    offer: null,
    passed: [],
    attempt: null,
    failures: 0,
    wasReverted: false,
    never: [],
    told: null,
    toldWaits: [],
    letters: [],
    hookProblem: null,
  }
}

function firstAskAt(id: string, now: number): number {
  return now + ASK_FIRST_MS + Math.floor(rankOf(id, 'first') * (ASK_FIRST_MAX_MS - ASK_FIRST_MS))
}

/** When to ask the feed again after a question at `now`. Spread, so that hosts which began together do not ask together. */
export function askAgainAt(id: string, failures: number, now: number): number {
  if (failures > 0) return now + Math.min(ASK_MS, ASK_AGAIN_MS * 2 ** Math.min(10, failures - 1))
  return now + Math.floor(ASK_MS * (0.75 + 0.5 * rankOf(id, String(now))))
}

/** Corrects times that lie in the future because the clock was set back: the schedule would wait for them. */
export function corrected(memory: Remembered, now: number): Remembered {
  const { attempt, asked, offer } = memory
  return {
    ...memory,
    asked: { ...asked, next: Math.min(asked.next, now + ASK_MS * 1.25) },
    offer: offer === null ? null : { ...offer, seenAt: Math.min(offer.seenAt, now) },
    attempt: attempt === null ? null : { ...attempt, at: Math.min(attempt.at, now) },
    letters: memory.letters.map((one) => ({ ...one, at: Math.min(one.at, now + ASK_MS * 4) })),
  }
}

/** Closes the open attempt if its operation has ended, and notes how. Pure. */
export function settled(memory: Remembered, { operation, history, bad }: JournalState, running: Tag): Remembered {
  const { attempt } = memory
  if (attempt?.isOpen !== true) return memory
  if (operation?.id === attempt.id && operation.outcome === null) return memory
  const { id, tag, sha256 } = attempt
  const closed = { ...memory, attempt: { ...attempt, isOpen: false } }
  const end = history.find((one) => one.id === id)
  const outcome = end?.outcome ?? null
  if (outcome === 'updated' || outcome === 'up_to_date') return { ...closed, failures: 0, wasReverted: false }
  const error = end?.error ?? null
  const failed = { ...closed, failures: memory.failures + 1, wasReverted: outcome === 'reverted' }
  const isAboutFrom = error?.code === 'irreversible'
  // what says nothing about the release, and what was only late, is tried again
  const entry = badEntry(bad, tag, sha256)
  const isBlamed = entry !== null && entry.hadMs === undefined
  if (error === null || !(isAboutFrom || isBlamed)) return failed
  const what = outcome === 'reverted' ? 'it failed here and was reverted' : 'it was not installed'
  const { message } = error
  const why = isAboutFrom
    ? forPerson('irreversible', tag, message.replace(`${tag} `, 'it '), { why: message })
    : forPerson('failed', tag, `${what}: ${message}`, { why: message })
  const never = { tag, sha256, from: isAboutFrom ? running : null, why }
  return { ...failed, never: [never, ...memory.never.filter((one) => one.sha256 !== sha256)] }
}

/**
 * Hashes that identify this machine, from its machine id and its network cards. A machine with a cloned disk shares the id but no card.
 * A host without a card, such as a container with an init, uses its name instead.
 */
export async function marksOf(): Promise<string[]> {
  const id = await readFile('/etc/machine-id', 'utf8').catch(() => '')
  const cards = await readdir('/sys/class/net').catch(() => [])
  const found: string[] = []
  for (const card of cards.slice(0, 64)) {
    const folder = join('/sys/class/net', card)
    if (!(await exists(join(folder, 'device')))) continue // a bridge or a tunnel: its address changes at each start
    const address = await readFile(join(folder, 'address'), 'utf8').catch(() => '')
    if (address.trim() !== '') found.push(hashed(`${id} ${address.trim()}`))
  }
  return found.length === 0 ? [hashed(`${id} ${hostname()}`)] : found.toSorted().slice(0, 16)
}

/** Whether another machine made this memory. */
export function isOfAnother(memory: Pick<Remembered, 'marks'>, marks: readonly string[]): boolean {
  return memory.marks.length > 0 && marks.length > 0 && !memory.marks.some((mark) => marks.includes(mark))
}

function hashed(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}

function pathOf(stateDirectory: string): string {
  return join(updateDirectory(stateDirectory), 'schedule.json')
}

/** Null if any member is not valid. */
export function parseMemory(text: string): Remembered | null {
  const value = parsedJson(text)
  return isMemory(value) ? (value as Remembered) : null
}

const isTexts = listOf(isText, 64)

const isWait = shape({ code: (value) => WAIT_CODES.some((code) => code === value), says: isText })

const isMemory = shape({
  format: (value) => value === 1,
  id: textLike(/^[0-9a-f]{32}$/),
  marks: isTexts,
  asked: shape({ at: orNull(isMs), next: isMs, problem: orNull(isText), failures: isCount }),
  offer: orNull(
    shape({
      tag: isTag,
      sha256: isSha256,
      publishedAt: orNull(isMs),
      seenAt: isMs,
      rollout: orNull((value) => rolloutFrom(value) !== null),
      bytes: isCount,
      again: (value) => value === undefined || isText(value),
      security: (value) => value === undefined || value === true,
    }),
  ),
  passed: listOf(shape({ tag: isTag, why: isWait })),
  attempt: orNull(shape({ id: isText, tag: isTag, sha256: isSha256, at: isMs, isOpen: isFlag })),
  failures: isCount,
  wasReverted: isFlag,
  never: listOf(shape({ tag: isTag, sha256: isSha256, from: orNull(isTag), why: isWait })),
  told: orNull(isText),
  toldWaits: isTexts,
  letters: listOf(shape({ text: (value) => isText(value) && value.length <= LETTER_MAX, tries: isCount, at: isMs })),
  hookProblem: orNull(isText),
})
