// Takes connections from the predecessor: those between two requests, and those in the middle of something. The counterpart of
// `giving.ts`. Must hold: this process answers for every connection and reports the end of each, because the predecessor keeps its
// own descriptor of it.

import { Socket } from 'node:net'
import type { Carries } from '../carry/carry.ts'
import { adopt } from '../../sockets/internals-moving.ts'
import type { Listener } from '../../sockets/listeners.ts'
import { NOT_ARRIVED, type ToPredecessor, type ToSuccessor } from '../../words/wire.ts'
import { closeDescriptor } from '../../sockets/libc.ts'
import { type Replay, replay } from '../carry/replay.ts'
import { took } from '../moments.ts'

export interface Taking {
  connections(message: Extract<ToSuccessor, { type: 'connections' }>, descriptors: number[] | null): void
  carry(message: Extract<ToSuccessor, { type: 'carry' }>, descriptors: number[] | null): void
  late(message: Extract<ToSuccessor, { type: 'late' }>): void
  spoilt(id: number): void
}

export function makeTaking(
  listeners: readonly Listener[],
  carries: Carries,
  tell: (message: ToPredecessor) => unknown,
): Taking {
  const named = (key: string) => listeners.find((listener) => listener.key === key)
  const replays = new Map<number, Replay>()
  let ended: number[] = []
  const end = (id: number) => {
    if (ended.length === 0) {
      setImmediate(() => {
        tell({ type: 'ended', ids: ended })
        ended = []
      })
    }
    ended.push(id)
  }

  return {
    connections: ({ listener: key, connections }, descriptors) => {
      const ids = connections.map(({ id }) => id)
      const listener = named(key)
      if (descriptors === null || listener === undefined) {
        for (const fd of descriptors ?? []) closeDescriptor(fd)
        return void tell({ type: 'missing', ids })
      }
      for (const [at, { id, idleMs }] of connections.entries()) {
        const socket = new Socket({ fd: descriptors[at] ?? -1, readable: true, writable: true })
        socket.once('close', () => end(id))
        adopt(listener.server, socket, idleMs)
      }
      tell({ type: 'adopted', ids })
      took('adopted')
    },
    carry: (message, descriptors) => {
      const { id } = message
      const [fd] = descriptors ?? []
      const listener = named(message.listener)
      if (fd === undefined || listener === undefined) {
        if (fd !== undefined) closeDescriptor(fd)
        return void tell({ type: 'carried', id, refused: NOT_ARRIVED })
      }
      const replayed = replay(listener.server, fd, message, carries)
      replays.set(id, replayed)
      void replayed.answer.then((refused) => tell({ type: 'carried', id, refused }))
      void replayed.closed.then(() => {
        replays.delete(id)
        end(id)
      })
    },
    spoilt: (id) => replays.get(id)?.cut(),
    late: ({ id, text, base64 }) => {
      replays.get(id)?.late(base64 === undefined ? (text ?? null) : Buffer.from(base64, 'base64'))
    },
  }
}
