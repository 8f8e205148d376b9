// A process with very many idle connections, and another one that they are given to: as Baton does it, or over the IPC channel
// that Node has between a process and its child, four at once. Both take the parser off in the same way, and neither lets go of
// a connection before the other side has said that it has it.

import { spawn } from 'node:child_process'
import { createServer } from 'node:http'
import { type AddressInfo, Socket } from 'node:net'
import { makeCarries } from '../../agent/handover/carry/carry.ts'
import { channelOver } from '../../agent/handover/channel.ts'
import { drain } from '../../agent/handover/give/connections.ts'
import { makeGiving } from '../../agent/handover/give/giving.ts'
import { adopt, idleConnections, stopReading } from '../../agent/sockets/internals-moving.ts'
import { isQuiet } from '../../agent/sockets/internals.ts'
import { bind, makeListener } from '../../agent/sockets/listeners.ts'
import type { ToPredecessor, ToSuccessor } from '../../agent/words/wire.ts'
import { packetPair, packetsOn } from '../../agent/sockets/packets.ts'
import { closeDescriptor } from '../../agent/sockets/libc.ts'
import { makeTaking } from '../../agent/handover/take/taking.ts'
import { NO_HANDOVER } from '../../agent/words/report.ts'
import { answer } from '../lab/remote.ts'
import { processorMsOf } from './processes.ts'

export type Route = 'baton' | 'ipc'

export interface Bulk {
  where(): { port: number }
  /** Gives all away. */
  move(): Promise<{ ms: number; processorMs: number; moved: number }>
}

const NEW = '--new'
const [IPC_AT_ONCE, LIMIT_MS] = [4, 60_000]

const makeServer = (name: string) =>
  createServer({ keepAliveTimeout: 600_000 }, (_request, response) => response.end(name))

export async function startBulk({ route }: { route: Route }): Promise<Bulk> {
  const server = makeServer('old')
  const listener = makeListener({ server, port: 0 })
  await bind(listener, { server, port: 0 })
  listener.key = 'x'
  const [packets, far] = packetPair()
  const child = spawn(process.execPath, [...process.execArgv, import.meta.filename, NEW], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe', far, 'ipc'],
  })
  process.once('disconnect', () => child.kill('SIGKILL'))
  closeDescriptor(far)
  const down = channelOver<ToSuccessor, ToPredecessor>(child.stdio[3] as Socket, packets)
  const report = { ...NO_HANDOVER }
  const giving = makeGiving({
    has: () => true,
    give: down.give,
    tell: down.tell,
    gone: new Promise(() => {}),
    listeners: [listener],
    report,
  })
  await new Promise<void>((ready) => {
    down.hear((message) => (message.type === 'ready' ? ready() : giving.hear(message)))
  })
  const byBaton = async () => {
    const limits = { drainMs: LIMIT_MS, drainMaxMs: LIMIT_MS }
    const { signal } = new AbortController()
    await drain({
      listeners: [listener],
      giving,
      carries: makeCarries(() => {}),
      limits,
      report,
      signal,
      warn: () => {},
    })
    return report.moved
  }
  const byIpc = async () => {
    const acknowledged = new Map<number, () => void>()
    child.on('message', (id: number) => acknowledged.get(id)?.())
    let id = 0
    const send = async (socket: Socket): Promise<boolean> => {
      if (!isQuiet(socket)) return false
      const own = ++id
      const taken = new Promise<void>((resolve) => acknowledged.set(own, resolve))
      stopReading(socket)
      child.send(own, socket)
      await taken
      return true
    }
    let moved = 0
    while (listener.sockets.size > 0) {
      const idle = idleConnections(server, listener.sockets)
      const worker = async () => {
        for (let socket = idle.pop(); socket !== undefined; socket = idle.pop()) {
          if (!(await send(socket))) continue
          listener.sockets.delete(socket)
          moved++
        }
      }
      await Promise.all(Array.from({ length: IPC_AT_ONCE }, worker))
      await new Promise(setImmediate)
    }
    return moved
  }
  return {
    where: () => ({ port: (server.address() as AddressInfo).port }),
    move: async () => {
      const processor = () => processorMsOf(process.pid) + processorMsOf(child.pid ?? 0)
      const [since, before] = [performance.now(), processor()]
      const moved = await (route === 'baton' ? byBaton() : byIpc())
      return { ms: Math.round(performance.now() - since), processorMs: processor() - before, moved }
    },
  }
}

function takeAll(): void {
  const server = makeServer('new')
  const listener = { ...makeListener({ server }), key: 'x' }
  const up = channelOver<ToPredecessor, ToSuccessor>(new Socket({ fd: 3 }), packetsOn(4))
  const taking = makeTaking(
    [listener],
    makeCarries(() => {}),
    up.tell,
  )
  up.hear((message, descriptors) => {
    if (message.type === 'connections') taking.connections(message, descriptors)
  })
  process.on('message', (id: number, socket: Socket) => {
    adopt(server, socket, 0)
    process.send?.(id)
  })
  process.on('disconnect', () => process.exit(0))
  server.emit('listening') // its list of connections
  void up.tell({ type: 'ready' })
}

if (process.argv[2] === NEW) takeAll()
answer(import.meta.url, startBulk)
