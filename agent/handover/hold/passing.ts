// The connections that a holder keeps between two processes of the application. The holder neither reads nor writes them: bytes from
// clients wait in the kernel. It gives them to the new process, and keeps its own descriptor of each until that process has proved
// itself. Must hold: a connection that the new process never touched can still be given to another process.

import { setTimeout as sleep } from 'node:timers/promises'
import type { HandoverReport } from '../../words/state.ts'
import { closeDescriptor } from '../../sockets/libc.ts'
import { DESCRIPTORS_MAX, markOf } from '../../sockets/packets.ts'
import { countRefused } from '../give/giving.ts'
import { type FromHolder, type Given, NOT_ARRIVED, type ToPredecessor } from '../../words/wire.ts'

interface Between {
  id: number
  fd: number
  listener: string
  idleMs: number | null
  /** what any process had read and written when the holder gave it (`markOf`); null: not given yet, or not known */
  mark: string | null
  isGiven: boolean
}

interface Carried {
  id: number
  /** -1: it belongs to the receiver now, and cannot be given to another process */
  fd: number
  message: Extract<Given, { type: 'carry' }>
  /** what the old application has sent on it since */
  late: Extract<Given, { type: 'late' | 'spoilt' }>[]
  isGiven: boolean
}

/** The receiving process, as far as this file needs it. */
export interface Taker {
  has(key: string): boolean
  give(message: Given, descriptors: readonly number[]): boolean
  tell(message: Given): unknown
  /** resolves when it is gone */
  gone: Promise<unknown>
}

export interface Passing {
  /** handles a message of the old process; `descriptors` null: they did not arrive */
  take(message: Given, descriptors: number[] | null): void
  /** closes the descriptors of all connections: the old process serves them again */
  forget(): void
  /** Gives everything to a process that serves. Resolves when it has answered for each, or after ANSWER_MS. Rejects if it is gone. */
  passTo(receiver: Taker): Promise<void>
  hear(message: ToPredecessor): void
  /** call it when the receiver is dead: keeps what it never touched, closes and counts the rest */
  takeBack(): void
  /** how many are kept for the next process, as the report counts them */
  kept(): Pick<HandoverReport, 'moved' | 'carried'>
}

const AGAIN_EVERY_MS = 5
/** how long a receiver may take to answer for what it was given */
const ANSWER_MS = 15_000

interface Books {
  between: Map<number, Between>
  carried: Map<number, Carried>
  /** given, and not answered for */
  unanswered: Set<number>
  report: HandoverReport
}

/** `answer` sends to the old process. This module updates the counts of `report`. */
export function makePassing(report: HandoverReport, answer: (message: FromHolder) => unknown): Passing {
  const books: Books = { between: new Map(), carried: new Map(), unanswered: new Set(), report }
  const { between, carried } = books
  return {
    take: (message, descriptors) => {
      switch (message.type) {
        case 'connections':
          return takeConnections(books, message, descriptors, answer)
        case 'carry':
          return takeCarried(books, message, descriptors, answer)
        case 'late':
        case 'spoilt':
          return void carried.get(message.id)?.late.push(message)
        default:
          return message satisfies never
      }
    },
    forget: () => {
      for (const id of [...between.keys(), ...carried.keys()]) drop(books, id)
    },
    passTo: (receiver) => passTo(books, receiver),
    hear: (message) => hear(books, message),
    takeBack: () => takeBack(books),
    kept: () => ({ moved: between.size + carried.size, carried: carried.size }),
  }
}

function drop({ between, carried, unanswered }: Books, id: number): void {
  const one = between.get(id) ?? carried.get(id)
  if (one !== undefined && one.fd >= 0) closeDescriptor(one.fd)
  between.delete(id)
  carried.delete(id)
  unanswered.delete(id)
}

function takeConnections(
  { between }: Books,
  { listener, connections }: Extract<Given, { type: 'connections' }>,
  fds: number[] | null,
  answer: (message: FromHolder) => unknown,
): void {
  const ids = connections.map(({ id }) => id)
  if (fds === null) return void answer({ type: 'missing', ids })
  for (const [at, { id, idleMs }] of connections.entries()) {
    between.set(id, { id, fd: fds[at] ?? -1, listener, idleMs, mark: null, isGiven: false })
  }
  answer({ type: 'adopted', ids })
}

function takeCarried(
  { carried }: Books,
  message: Carried['message'],
  fds: number[] | null,
  answer: (message: FromHolder) => unknown,
): void {
  const [fd] = fds ?? []
  const { id } = message
  if (fd === undefined) return void answer({ type: 'carried', id, refused: NOT_ARRIVED })
  carried.set(id, { id, fd, message, late: [], isGiven: false })
  answer({ type: 'carried', id, refused: null })
}

async function passTo(books: Books, receiver: Taker): Promise<void> {
  const { unanswered } = books
  const gone = receiver.gone.then(() => Promise.reject(new Error('it is gone')))
  gone.catch(() => {})
  closeStrangers(books, receiver)
  for (const until = performance.now() + ANSWER_MS; performance.now() < until;) {
    while (giveNext(books, receiver));
    if (unanswered.size === 0 && !hasMore(books)) return
    await Promise.race([sleep(AGAIN_EVERY_MS), gone])
  }
}

function hasMore({ between, carried }: Books): boolean {
  return [...between.values(), ...carried.values()].some(({ isGiven }) => !isGiven)
}

/** Gives the next ones. False if there are none, or if the receiver takes no more now. */
function giveNext({ between, carried, unanswered }: Books, receiver: Taker): boolean {
  const waiting = [...between.values()].filter(({ isGiven }) => !isGiven)
  const listener = waiting[0]?.listener
  if (listener !== undefined) {
    const some = waiting.filter((one) => one.listener === listener).slice(0, DESCRIPTORS_MAX)
    for (const one of some) one.mark = markOf(one.fd)
    const connections = some.map(({ id, idleMs }) => ({ id, idleMs }))
    const descriptors = some.map(({ fd }) => fd)
    if (!receiver.give({ type: 'connections', listener, connections }, descriptors)) return false
    for (const one of some) {
      one.isGiven = true
      unanswered.add(one.id)
    }
    return true
  }
  const next = [...carried.values()].find(({ isGiven }) => !isGiven)
  if (next === undefined || !receiver.give(next.message, [next.fd])) return false
  next.isGiven = true
  unanswered.add(next.id)
  for (const message of next.late.splice(0)) receiver.tell(message)
  return true
}

/** Closes the connections of listeners that the receiver does not have. */
function closeStrangers(books: Books, receiver: Taker): void {
  const all = [...books.between.values(), ...[...books.carried.values()].map(({ message }) => message)]
  for (const { id, listener } of all) {
    if (receiver.has(listener)) continue
    books.report.cut++
    drop(books, id)
  }
}

function hear(books: Books, message: ToPredecessor): void {
  const { between, unanswered, report } = books
  if (message.type === 'adopted') for (const id of message.ids) unanswered.delete(id)
  if (message.type === 'ended') for (const id of message.ids) drop(books, id)
  if (message.type === 'missing') {
    for (const id of message.ids) {
      const one = between.get(id)
      unanswered.delete(id)
      if (one !== undefined) one.isGiven = false // the receiver has no descriptor left: give the connection again
    }
  }
  if (message.type !== 'carried') return
  const { id, refused } = message
  const one = books.carried.get(id)
  if (one === undefined) return
  if (refused === null) {
    closeDescriptor(one.fd)
    one.fd = -1
    unanswered.delete(id)
    return
  }
  countRefused(report, one.message.kind, refused)
  report.moved--
  report.carried--
  drop(books, id)
}

function takeBack(books: Books): void {
  const { between, carried, unanswered, report } = books
  for (const one of between.values()) {
    const isUntouched = !one.isGiven || (one.mark !== null && one.mark === markOf(one.fd))
    unanswered.delete(one.id)
    if (!isUntouched) {
      report.cut++
      drop(books, one.id)
    } else if (one.isGiven) {
      report.returned++
      one.isGiven = false
    }
  }
  for (const one of carried.values()) {
    if (!one.isGiven) continue
    report.cut++
    drop(books, one.id)
  }
}
