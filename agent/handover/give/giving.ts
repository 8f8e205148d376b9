// Gives connections to the successor, and records the fate of each: moved between two requests, carried in the middle of something,
// lost on the way, or taken back from a dead successor.
// Must hold: a connection is given whole, in one tick, or stays; each is counted once.

import { Socket } from 'node:net'
import type { HandoverReport } from '../../words/state.ts'
import { type Entry, handOn } from '../carry/hand-on.ts'
import { adopt, descriptorOf, idleTimeLeft, readOn, stopReading } from '../../sockets/internals-moving.ts'
import { type About, type Kept, makeKept } from './kept.ts'
import type { Listener } from '../../sockets/listeners.ts'
import { type Given, NOT_ARRIVED, type ToPredecessor } from '../../words/wire.ts'
import { took } from '../moments.ts'

export interface Giving {
  /** whether the successor has the listener of this key */
  has(key: string): boolean
  /** whether the successor keeps up, so that more can be given */
  hasRoom(): boolean
  /** whether the successor has answered for every connection that was given */
  isEmpty(): boolean
  /** resolves when an answer has come, or when none can come any more */
  changed(): Promise<void>
  /** Moves connections that are between two requests, in this tick, at most DESCRIPTORS_MAX. False: not now. */
  move(listener: Listener, sockets: readonly Socket[]): boolean
  /** Carries a connection that is calm in this tick. False: not now. Throws if it can never be carried. */
  carry(listener: Listener, entry: Entry): boolean
  hear(message: ToPredecessor): void
  /** why the successor did not go on with connections that it was given; those since the last call */
  refusals(): string[]
  /** Call it when the successor is dead. Serves the connections that it never touched here again; closes and counts the rest. */
  takeBack(): void
}

export interface GivingOptions {
  has(key: string): boolean
  /** `give` and `tell` of the channel */
  give(message: Given | (() => Given), descriptors: readonly number[]): boolean
  tell(message: Given): unknown
  /** resolves when the successor is gone */
  gone: Promise<unknown>
  listeners: readonly Listener[]
  /** this module updates its counts */
  report: HandoverReport
}

/** how many unanswered messages with descriptors are allowed: full ones, and ones with a single carried connection */
const [AT_ONCE, CARRIED_AT_ONCE] = [4, 32]

/** bounds of one message that the author sends after the connection has left: it must fit into a line; a body is sent in parts */
const [LATE_MAX_BYTES, LATE_PART_BYTES] = [16 * 1024 * 1024, 1024 * 1024]

/** The connections that were given and that a later message may name. */
interface Books {
  kept: Kept
  /** for each unanswered message, by its first id: the share of the room that it takes */
  underWay: Map<number, number>
  /** connections in the middle of something that now belong to the successor, and what they are */
  carried: Map<number, Entry['kind']>
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
    carried: new Map(),
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
          socket.destroy() // closes only this process's descriptor; the successor has its own
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
      carried.set(id, entry.kind)
      return true
    },
    hear: (message) => hear(message, books, options),
    refusals: () => books.refused.splice(0),
    takeBack: () => {
      const { untouched, touched } = kept.takeBack()
      report.cut += touched + carried.size
      report.returned += untouched.length
      for (const one of untouched) serveAgain(one, options)
    },
  }
}

/** Forwards what the author still sends on a carried connection. If that fails, the connection has a gap: the successor ends it. */
function passOn(
  id: number,
  kind: Entry['kind'],
  { carried, underWay, refused }: Books,
  { tell, report }: GivingOptions,
): (data: string | Buffer | null) => void {
  const spoil = () => {
    if (!carried.delete(id)) return
    refused.push(`a message of more than ${LATE_MAX_BYTES} bytes was sent on the connection after it had moved`)
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

/** Handles the messages about connections; others are handled elsewhere. */
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
      // The successor has run out of descriptors. The connections are still here: they try again, or end at the deadline.
      for (const id of message.ids) {
        const one = kept.take(id)
        if (one === null) report.cut++ // this process had none left either
        else serveAgain(one, options)
      }
      return answered(message.ids)
    case 'carried':
      if (!carried.has(message.id)) return answered([message.id]) // spoilt since, and already counted
      if (message.refused === null) {
        report.moved++
        report.carried++
      } else {
        countRefused(report, carried.get(message.id), message.refused)
        carried.delete(message.id)
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
    case 'alone':
    case 'committed':
    case 'failed':
    case 'hello':
    case 'last words':
    case 'proved':
    case 'ready':
    case 'stopping':
    case 'waiting':
      return
    default:
      return message satisfies never
  }
}

/** Counts a WebSocket as `ended` if the successor has received it: the successor then closes it with a close frame. Else as `cut`. */
export function countRefused(
  report: Pick<HandoverReport, 'ended' | 'cut'>,
  kind: Entry['kind'] | undefined,
  why: string,
): void {
  if (kind === 'websocket' && why !== NOT_ARRIVED) report.ended++
  else report.cut++
}

function whatOf(data: string | Buffer | null): { text?: string; base64?: string } {
  if (data === null) return {}
  return typeof data === 'string' ? { text: data } : { base64: data.toString('base64') }
}

/** The size on the channel: JSON may need six bytes for one character of a text. */
function bytesIn(data: string | Buffer): number {
  if (typeof data !== 'string') return data.length
  return data.length * 6 <= LATE_MAX_BYTES ? data.length : Buffer.byteLength(JSON.stringify(data))
}

/** Splits what is written to a body: a body may be written in parts. */
function inParts(data: string | Buffer | null): (string | Buffer | null)[] {
  if (data === null || data.length <= LATE_PART_BYTES) return [data]
  const bytes = Buffer.from(data)
  const count = Math.ceil(bytes.length / LATE_PART_BYTES)
  return Array.from({ length: count }, (_, at) => bytes.subarray(at * LATE_PART_BYTES, (at + 1) * LATE_PART_BYTES))
}

function serveAgain(one: About & { fd: number }, { listeners }: GivingOptions): void {
  const listener = listeners.find(({ key }) => key === one.listener)
  const socket = new Socket({ fd: one.fd, readable: true, writable: true })
  if (listener === undefined) socket.destroy()
  else adopt(listener.server, socket, one.idleMs)
}
