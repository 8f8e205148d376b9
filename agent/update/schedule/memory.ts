// What the schedule remembers over a restart, in `<state directory>/update/schedule.json`: this host's id, when the feed was asked and
// what it offered, the last attempt, what is never tried again, and what has to be told. Replaced whole: a power cut leaves the memory
// of before or after. Only the process whose turn it is writes.
// Must hold: an attempt is in here before it begins, so that no cut makes two of one; a damaged file lets nothing go twice, since the
// journal knows what failed here.

import { createHash, randomBytes } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { type Disk, exists, readSmall } from '../../disk/disk.ts'
import type { JournalState } from '../../disk/journal.ts'
import { updateDirectory } from '../../disk/places.ts'
import { isTag, type Tag } from '../../words/release.ts'
import { rolloutFrom } from '../../words/schedule.ts'
import { isCount, isObject, isSha256, parsedJson } from '../../words/untrusted.ts'
import type { Offered } from './next.ts'
import { rankOf } from './rank.ts'

export interface Attempt {
  /** of its operation */
  id: string
  tag: Tag
  sha256: string
  /** epoch milliseconds */
  at: number
  /** how it ended is not in here yet */
  isOpen: boolean
}

/** A release that this host does not try again by itself as long as it runs `from`. */
export interface Never {
  tag: Tag
  sha256: string
  /** null: whatever runs */
  from: Tag | null
  /** one sentence */
  why: string
}

/** A report for the operator's program that has not arrived yet. */
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
  /** of the machine that made the id, hashed */
  marks: string[]
  /** epoch milliseconds; `at` null: it never was; `problem`: what the feed said instead of an answer */
  asked: { at: number | null; next: number; problem: string | null; failures: number }
  offer: Offered | null
  /** newer releases that do not go alone, and why each waits for a person, one sentence; newest first */
  passed: { tag: Tag; why: string }[]
  attempt: Attempt | null
  /** attempts in a row that did not succeed, and whether the last one was put back */
  failures: number
  wasReverted: boolean
  never: Never[]
  /** id of the newest operation that was told; null: none yet */
  told: string | null
  /** which things that wait for a person were told */
  toldWaits: string[]
  letters: Letter[]
  /** why the operator's program did not take the last report; null: it did */
  hookProblem: string | null
}

const MAX_BYTES = 1024 * 1024
const [NEVER_MAX, LETTERS_MAX] = [50, 20]
/** characters of a letter: a longer one would make the whole memory one that is not read */
export const LETTER_MAX = 32 * 1024
/** how often the feed is asked, on average; and when first on a new host, at the earliest and at the latest */
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

/** The memory of a host that has none. It asks the feed within the first hour, since others were installed at the same minute. */
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

/** When the feed is asked after a question at `now`. Hosts that were asked to begin together do not stay together. */
export function askAgainAt(id: string, failures: number, now: number): number {
  if (failures > 0) return now + Math.min(ASK_MS, ASK_AGAIN_MS * 2 ** Math.min(10, failures - 1))
  return now + Math.floor(ASK_MS * (0.75 + 0.5 * rankOf(id, String(now))))
}

/** Corrects what a clock that was set back has left in the future: it would be waited for. */
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

/** Adds how the open attempt has ended, if it has. Pure. */
export function settled(memory: Remembered, { operation, history }: JournalState, running: Tag): Remembered {
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
  const isFinal = outcome === 'reverted' || (error !== null && FINAL.includes(error.code))
  if (!isFinal || error === null) return failed
  const isAboutFrom = error.code === 'one_way'
  const what = outcome === 'reverted' ? 'it was put back here' : 'it was not installed'
  const said = isAboutFrom ? error.message.replace(`${tag} `, 'it ') : `${what}: ${error.message}`
  const why = error.message.startsWith(`${tag} waits for you`) ? error.message : `${tag} waits for you: ${said}`
  const never = { tag, sha256, from: isAboutFrom ? running : null, why }
  return { ...failed, never: [never, ...memory.never.filter((one) => one.sha256 !== sha256)] }
}

/** what a second attempt on the same host would only repeat */
const FINAL: readonly string[] = ['one_way', 'verify_failed']

/**
 * Marks of this machine: of its id and of its network cards. A disk that was cloned into another machine shares no card. A host without
 * a card, such as a container with an init, has its name instead: its machine id is cloned with it.
 */
export async function marksOf(): Promise<string[]> {
  const id = await readFile('/etc/machine-id', 'utf8').catch(() => '')
  const cards = await readdir('/sys/class/net').catch(() => [])
  const found: string[] = []
  for (const card of cards.slice(0, 64)) {
    const folder = join('/sys/class/net', card)
    if (!(await exists(join(folder, 'device')))) continue // a bridge or a tunnel, which gets another address at each start
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

/** Null if one member is not as it should be: half a memory is none. */
export function parseMemory(text: string): Remembered | null {
  const value = parsedJson(text)
  if (!isObject(value) || value['format'] !== 1) return null
  const { id, marks, asked, attempt, told, toldWaits, hookProblem } = value
  const offer = value['offer'] === null ? null : offerFrom(value['offer'])
  const isWhole =
    typeof id === 'string' &&
    /^[0-9a-f]{32}$/.test(id) &&
    isTexts(marks) &&
    isObject(asked) &&
    (asked['at'] === null || isMs(asked['at'])) &&
    isMs(asked['next']) &&
    isTextOrNull(asked['problem']) &&
    isCount(asked['failures']) &&
    offer !== undefined &&
    Array.isArray(value['passed']) &&
    value['passed'].every((one) => isObject(one) && isTag(one['tag']) && typeof one['why'] === 'string') &&
    (attempt === null || isAttempt(attempt)) &&
    isCount(value['failures']) &&
    typeof value['wasReverted'] === 'boolean' &&
    Array.isArray(value['never']) &&
    value['never'].every(isNever) &&
    isTextOrNull(told) &&
    isTexts(toldWaits) &&
    Array.isArray(value['letters']) &&
    value['letters'].every(isLetter) &&
    isTextOrNull(hookProblem)
  return isWhole ? (value as unknown as Remembered) : null
}

function offerFrom(value: unknown): Offered | undefined {
  if (!isObject(value)) return undefined
  const { tag, sha256, publishedAt, seenAt, rollout, bytes } = value
  if (!isTag(tag) || !isSha256(sha256) || !isMs(seenAt) || !(publishedAt === null || isMs(publishedAt)))
    return undefined
  if (!isCount(bytes)) return undefined
  if (rollout !== null && rolloutFrom(rollout) === null) return undefined
  return value as unknown as Offered
}

function isAttempt(value: unknown): boolean {
  if (!isObject(value)) return false
  const { id, tag, sha256, at, isOpen } = value
  return typeof id === 'string' && isTag(tag) && isSha256(sha256) && isMs(at) && typeof isOpen === 'boolean'
}

function isNever(value: unknown): boolean {
  return (
    isObject(value) &&
    isTag(value['tag']) &&
    isSha256(value['sha256']) &&
    (value['from'] === null || isTag(value['from'])) &&
    typeof value['why'] === 'string'
  )
}

function isLetter(value: unknown): boolean {
  if (!isObject(value)) return false
  const { text, tries, at } = value
  return typeof text === 'string' && text.length <= LETTER_MAX && isCount(tries) && isMs(at)
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.length <= 64 && value.every((one) => typeof one === 'string')
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || typeof value === 'string'
}

function isMs(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}
