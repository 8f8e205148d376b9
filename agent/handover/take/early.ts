// What an application may believe between the moment in which the listening sockets are its own and the first connection. Many are healthy
// only when they listen: they are ready in that callback, or behind `await app.listen()`, and some first fetch a page from themselves. So
// it hears at once that it listens, and what it asks itself, it answers.
// Must hold: no client reaches it. Only its own connections come another way, and only over TCP, which any user of this host may use.

import { type AddressInfo, BoundSocket, createServer, type Server, Socket, type SocketConstructorOpts } from 'node:net'
import type { InheritedListener } from '../../words/wire.ts'
import { duplicate } from '../../sockets/libc.ts'
import { listen, type Listener } from '../../sockets/listeners.ts'
import { askedBy, endQuestion, heardOnce, overlaps, placeIn, seemToListen } from '../../sockets/questions.ts'

export interface Seeming extends Disposable {
  /** From now on its server seems to listen. */
  add(listener: Listener, inherited: InheritedListener): void
}

/**
 * Until it is disposed of, a connection of this process to a server that seems to listen reaches that. `left`: called if the application
 * closes one again: another server may have its place.
 */
export function seemToServe(left: (listener: Listener, inherited: InheritedListener) => void): Seeming {
  const listeners = new Set<Listener>()
  const own = answerOneself(listeners)
  return {
    add(listener, inherited) {
      listeners.add(listener)
      seemToListen(listener.server, addressBehind(inherited.accept), () => {
        listeners.delete(listener)
        left(listener, inherited)
      })
    },
    [Symbol.dispose]: () => own[Symbol.dispose](),
  }
}

/** The server that seemed to listen listens. */
export async function listenAtLast(listener: Listener, inherited: InheritedListener): Promise<void> {
  heardOnce(listener.server)
  endQuestion(listener.server)
  await listen(listener, inherited)
}

/** null: a unix socket */
function addressBehind(fd: number): object | null {
  const own = duplicate(fd)
  if (own === null) return null
  const socket = new Socket({ fd: own, manualStart: true } as SocketConstructorOpts) // not read from: it is no connection
  const address = socket.address()
  socket.destroy()
  return 'port' in address ? address : null
}

function answerOneself(listeners: ReadonlySet<Listener>): Disposable {
  const { connect } = Socket.prototype
  const doors = new Map<Listener, Server>()
  const coming = new Set<Socket>()
  let isOver = false
  const arrived = (one: Socket) => {
    coming.delete(one)
    if (isOver && coming.size === 0) closeAll(doors.values())
  }
  function redirected(this: Socket, ...args: unknown[]): Socket {
    const asked = askedBy(args)
    const own = asked?.port === undefined ? undefined : [...listeners].find(({ key }) => overlaps(placeIn(key), asked))
    if (own === undefined) return Reflect.apply(connect, this, args) as Socket
    const door = doors.get(own) ?? openDoor(own)
    doors.set(own, door)
    coming.add(this)
    for (const event of ['connect', 'close'] as const) this.once(event, () => arrived(this))
    const [first, ...others] = (Array.isArray(args[0]) ? args[0] : args) as unknown[]
    const given = typeof first === 'object' ? first : {}
    const { port } = door.address() as AddressInfo
    const heard = others.findLast((one) => typeof one === 'function')
    const there = { ...given, host: '127.0.0.1', port }
    return Reflect.apply(connect, this, heard === undefined ? [there] : [there, heard]) as Socket
  }
  Socket.prototype.connect = redirected
  return {
    [Symbol.dispose]() {
      if (Socket.prototype.connect === redirected) Socket.prototype.connect = connect
      isOver = true
      if (coming.size === 0) closeAll(doors.values())
    },
  }
}

function openDoor({ server }: Listener): Server {
  const bound = new BoundSocket({ host: '127.0.0.1', port: 0 })
  const door = createServer((socket) => server.emit('connection', socket)).unref()
  door.listen({ fd: duplicate(bound.fd()) ?? -1 })
  bound.close()
  return door
}

/** Once the loop has looked for connections again: one that has come would be reset. */
function closeAll(doors: Iterable<Server>): void {
  for (const door of doors) setImmediate(() => setImmediate(() => door.close()))
}
