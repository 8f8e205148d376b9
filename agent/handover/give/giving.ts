// Gives connections to the successor, and knows what became of each: moved between two requests, carried in the middle of
// something, lost on the way, or taken back from a successor that is dead.
// Must hold: a connection is given in one tick, whole, or stays; each is counted once.

import { Socket } from 'node:net'
import type { HandoverReport } from '../../words/state.ts'
import type { Entry } from '../carry/carry.ts'
import { handOn } from '../carry/hand-on.ts'
import { adopt, descriptorOf, idleTimeLeft, readOn, stopReading } from '../../sockets/internals.ts'
import { type About, type Kept, makeKept } from './kept.ts'
import type { Listener } from '../../sockets/listeners.ts'
import type { ToPredecessor, ToSuccessor } from '../../words/wire.ts'
import { took } from '../steps.ts'

export interface Giving {
  /** whether the successor has the listener of this key */
  has(key: string): boolean
  /** whether the successor keeps up */
  hasRoom(): boolean
  /** whether every connection that was given has been answered for */
  isEmpty(): boolean
  /** resolves when an answer has come, or never will */
  changed(): Promise<void>
  /** Moves connections that wait between two requests in this very tick, at most DESCRIPTORS_MAX. False: not now. */
  move(listener: Listener, sockets: readonly Socket[]): boolean
  /** Carries one that is calm in this very tick. False: not now. Throws where it can never be. */
  carry(listener: Listener, entry: Entry): boolean
  hear(message: ToPredecessor): void
  /** why the successor did not go on with what it was given, since this was asked last */
  refusals(): string[]
  /** The successor is dead. What it never touched is served here again; the rest is closed, and counted. */
  takeBack(): void
}

export interface GivingOptions {
  has(key: string): boolean
  /** of a channel */
  give(message: ToSuccessor | (() => ToSuccessor), descriptors: readonly number[]): boolean
  tell(message: ToSuccessor): unknown
  /** resolves when the successor is gone */
  gone: Promise<unknown>
  listeners: readonly Listener[]
  /** counted here */
  report: HandoverReport
}

/** messages with descriptors that may be under way: one is adopted while the next is read; of those with only one, more */
const [AT_ONCE, CARRIED_AT_ONCE] = [4, 32]

/** of what the author still sends: a message must fit into a line of the channel, a body goes in parts */
const [LATE_MAX_BYTES, LATE_PART_BYTES] = [16 * 1024 * 1024, 1024 * 1024]

/** What was given, and has not been heard of for the last time. */
interface Books {
  kept: Kept
  /** by the first id of each message that has not been answered: what part of the room it takes */
  underWay: Map<number, number>
  /** in the middle of something, and the successor's */
  carried: Set<number>
  refused: string[]
  changed(): void
}

export function makeGiving(options: GivingOptions): Giving {
  const { has, give, gone, report } = options
  let lastId = 0
  let waiting = Promise.withResolvers<void>()
  const books: Books = {
    kept: makeKept(),
    underWay: new Map(),
    carried: new Set(),
    refused: [],
    changed: () => {
      waiting.resolve()
      waiting = Promise.withResolvers<void>()
    },
  }
  const { kept, underWay, carried } = books
  void gone.then(() => {
    underWay.clear()
    books.changed()
  })

  return {
    has,
    hasRoom: () => underWay.values().reduce((sum, part) => sum + part, 0) < 1,
    isEmpty: () => underWay.size === 0,
    changed: () => (underWay.size === 0 ? Promise.resolve() : waiting.promise),
    move: ({ key, sockets: all }, sockets) => {
      const given = sockets.flatMap((socket) => {
        const fd = descriptorOf(socket)
        return fd === null ? [] : [{ socket, fd, id: ++lastId, idleMs: idleTimeLeft(socket) }]
      })
      const [first] = given
      if (first === undefined) return false
      for (const { socket, id, fd, idleMs } of given) {
        stopReading(socket)
        kept.keep(id, fd, { listener: key, idleMs })
      }
      const connections = given.map(({ id, idleMs }) => ({ id, idleMs }))
      const fds = given.map(({ fd }) => fd)
      const isGiven = give({ type: 'connections', listener: key, connections }, fds)
      if (isGiven) {
        underWay.set(first.id, 1 / AT_ONCE)
        took('gave')
      }
      for (const { socket, id } of given) {
        if (isGiven) {
          all.delete(socket)
          socket.destroy() // this process's hold on it; the successor has its own
        } else {
          kept.release(id)
          readOn(socket)
        }
      }
      return isGiven
    },
    carry: ({ key, sockets }, entry) => {
      const id = ++lastId
      const forward = passOn(id, entry.kind, books, options)
      if (!handOn(entry, give, { id, listener: key }, forward)) return false
      sockets.delete(entry.socket)
      underWay.set(id, 1 / CARRIED_AT_ONCE)
      carried.add(id)
      return true
    },
    hear: (message) => hear(message, books, options),
    refusals: () => books.refused.splice(0),
    takeBack: () => {
      const { untouched, touched } = kept.takeBack()
      report.cut += touched + carried.size
      report.takenBack += untouched.length
      for (const one of untouched) serveAgain(one, options)
    },
  }
}

/** What the author still sends on a connection that was carried. Where it cannot be passed on, the connection is not whole any more. */
function passOn(
  id: number,
  kind: Entry['kind'],
  { carried, underWay, refused }: Books,
  { tell, report }: GivingOptions,
): (data: string | Buffer | null) => void {
  const spoil = () => {
    if (!carried.delete(id)) return
    refused.push(`a message of more than ${LATE_MAX_BYTES} bytes was sent on it when it had left`)
    report.cut++
    if (!underWay.has(id)) {
      report.moved--
      report.carried--
    }
    tell({ type: 'spoilt', id })
  }
  return (data) => {
    for (const part of kind === 'stream' ? inParts(data) : [data]) {
      if (part !== null && bytesIn(part) > LATE_MAX_BYTES) return spoil()
      tell({ type: 'late', id, ...whatOf(part) })
    }
  }
}

/** What is not about connections is heard elsewhere. */
function hear(
  message: ToPredecessor,
  { kept, underWay, carried, refused, changed }: Books,
  options: GivingOptions,
): void {
  const { report } = options
  const answered = (ids: readonly number[]) => {
    underWay.delete(ids[0] ?? 0)
    changed()
  }
  switch (message.type) {
    case 'adopted':
      report.moved += message.ids.length
      return answered(message.ids)
    case 'missing':
      // it has no descriptors left: they are still here, and try again or end at the deadline
      for (const id of message.ids) serveAgain(kept.take(id), options)
      return answered(message.ids)
    case 'carried':
      if (!carried.has(message.id)) return answered([message.id]) // spoilt since, and counted
      if (message.refused === null) {
        report.moved++
        report.carried++
      } else {
        carried.delete(message.id)
        report.cut++
        refused.push(message.refused)
      }
      return answered([message.id])
    case 'ended':
      for (const id of message.ids) {
        kept.release(id)
        carried.delete(id)
      }
      return
    case 'alive':
    case 'committed':
    case 'failed':
    case 'hello':
    case 'last words':
    case 'proved':
    case 'ready':
    case 'stopping':
      return
    default:
      return message satisfies never
  }
}

function whatOf(data: string | Buffer | null): { text?: string; base64?: string } {
  if (data === null) return {}
  return typeof data === 'string' ? { text: data } : { base64: data.toString('base64') }
}

/** On the channel: JSON may need six bytes for one of a text. */
function bytesIn(data: string | Buffer): number {
  if (typeof data !== 'string') return data.length
  return data.length * 6 <= LATE_MAX_BYTES ? data.length : Buffer.byteLength(JSON.stringify(data))
}

/** What is written to a body may be written in parts. */
function inParts(data: string | Buffer | null): (string | Buffer | null)[] {
  if (data === null || data.length <= LATE_PART_BYTES) return [data]
  const bytes = Buffer.from(data)
  const count = Math.ceil(bytes.length / LATE_PART_BYTES)
  return Array.from({ length: count }, (_, at) => bytes.subarray(at * LATE_PART_BYTES, (at + 1) * LATE_PART_BYTES))
}

function serveAgain(one: (About & { fd: number }) | null, { listeners }: GivingOptions): void {
  if (one === null) return
  const listener = listeners.find(({ key }) => key === one.listener)
  const socket = new Socket({ fd: one.fd, readable: true, writable: true })
  if (listener === undefined) socket.destroy()
  else adopt(listener.server, socket, one.idleMs)
}
