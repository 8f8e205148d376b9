// The channel between two processes: messages, descriptors, and what is kept of those that were given. Both ends live here.

import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { open, readdir } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { connect, createServer, Socket, type AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Channel, channelOver } from '../../agent/handover/channel.ts'
import { closeDescriptor } from '../../agent/sockets/libc.ts'
import { socketPair } from '../../agent/sockets/libc-later.ts'
import { makeGiving } from '../../agent/handover/give/giving.ts'
import { makeKept } from '../../agent/handover/give/kept.ts'
import { DESCRIPTORS_MAX, markOf, packetPair, packetsOn, TEXT_MAX_BYTES } from '../../agent/sockets/packets.ts'
import { makeListener } from '../../agent/sockets/listeners.ts'
import { NO_HANDOVER } from '../../agent/words/report.ts'
import { equal, is, match, not, ok, throws } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('channel')

function twoEnds() {
  const [near, far] = socketPair()
  const [packets, farPackets] = packetPair()
  const here = channelOver<object, object>(near, packets)
  const there = channelOver<object, object>(far, packetsOn(farPackets))
  const close = async () => {
    here.hangUp()
    await Promise.all([here.closed, there.closed])
  }
  return { here, there, far, close }
}

/** Until it is disposed, this process can have no other descriptor. */
function noDescriptors(): Disposable {
  const limit = (soft: string) => void execFileSync('prlimit', [`--pid=${process.pid}`, `--nofile=${soft}:`])
  const most = Math.max(...readdirSync('/proc/self/fd').map(Number)) + 100 // starting prlimit needs some
  const before = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? ''
  limit(String(most))
  const taken: number[] = []
  try {
    for (;;) taken.push(openSync('/dev/null', 'r'))
  } catch (cause) {
    match(String(cause), /EMFILE/)
  }
  return {
    [Symbol.dispose]: () => {
      for (const fd of taken) closeSync(fd)
      limit(before)
    },
  }
}

function heardBy(
  channel: Channel<object, object>,
  count: number,
): Promise<{ message: unknown; descriptors: number[] | null }[]> {
  const heard: { message: unknown; descriptors: number[] | null }[] = []
  return new Promise((resolve) => {
    channel.hear((message, descriptors) => {
      heard.push({ message, descriptors })
      if (heard.length === count) resolve(heard)
    })
  })
}

test('messages arrive whole and in order, each with its own descriptors', async () => {
  const { here, there, close } = twoEnds()
  await using file = await open(import.meta.filename)
  const heard = heardBy(there, 4)
  const large = 'é\u2028\n'.repeat(300_000)
  ok(here.give({ at: 1 }, [file.fd]))
  ok(await here.tell({ at: 2, large }))
  ok(
    here.give(
      { at: 3 },
      Array.from({ length: DESCRIPTORS_MAX }, () => file.fd),
    ),
  )
  ok(await here.tell({ at: 4 }))
  const all = await heard
  equal(
    all.map(({ descriptors }) => descriptors?.length),
    [1, 0, DESCRIPTORS_MAX, 0],
  )
  equal(all[1]?.message, { at: 2, large })
  const fds = all.flatMap(({ descriptors }) => descriptors ?? [])
  is(new Set([...fds, file.fd]).size, DESCRIPTORS_MAX + 2)
  const links = await readdir('/proc/self/fd')
  for (const fd of fds) ok(links.includes(String(fd)))
  for (const fd of fds) closeDescriptor(fd)
  throws(
    () =>
      here.give(
        {},
        Array.from({ length: DESCRIPTORS_MAX + 1 }, () => file.fd),
      ),
    'expected at most',
  )
  await close()
})

test('a packet with more text than fits is refused, not cut', () => {
  const [near, farFd] = packetPair()
  const far = packetsOn(farFd)
  const whole = 'é'.repeat(TEXT_MAX_BYTES / 2)
  throws(() => near.send({ text: `${whole}.`, descriptors: [] }), 'expected 1 to')
  is(near.send({ text: whole, descriptors: [] }), true)
  is(far.receive()?.text, whole)
  for (const end of [near, far]) end.close()
})

test('the other end hears of a death, and the dead can be told and given nothing', async () => {
  const { here, there, close } = twoEnds()
  here.hangUp()
  await there.closed
  equal(await there.tell({ at: 1 }), false)
  equal(there.give({ at: 1 }, [0]), false)
  await close()
})

test('what is no message of ours ends the channel, and takes nothing with it', async () => {
  const { here, far, close } = twoEnds()
  far.write('no JSON\n')
  await here.closed
  await close()
})

test('a queue that is full takes no descriptor, and says so', async () => {
  const { here, close } = twoEnds()
  let given = 0
  while (given < 10_000 && here.give({ at: given }, [0, 1, 2])) given++
  ok(given > 10 && given < 10_000, String(given))
  await close()
})

test('who makes a message is asked when its descriptors are on their way; where that fails they are closed over there', async () => {
  const { here, there, close } = twoEnds()
  await using file = await open(import.meta.filename)
  const heard = heardBy(there, 1)
  const before = (await readdir('/proc/self/fd')).length
  throws(() => {
    here.give(() => {
      throw new Error('no state')
    }, [file.fd, file.fd])
  }, 'no state')
  ok(here.give(() => ({ at: 1 }), [file.fd]))
  const [one] = await heard
  equal(one?.message, { at: 1 })
  is((await readdir('/proc/self/fd')).length, before + 1)
  for (const fd of one?.descriptors ?? []) closeDescriptor(fd)
  await close()
  let isAsked = false
  is(
    here.give(() => ((isAsked = true), {}), [file.fd]),
    false,
  )
  is(isAsked, false)
})

test('another user at the other end is refused', () => {
  if (process.getuid?.() !== 0) return // nobody else can be had
  const [packets, far] = packetPair()
  process.seteuid?.(65534)
  try {
    throws(() => packetsOn(far), 'expected the process at the other end to run as user 65534')
  } finally {
    process.seteuid?.(0)
  }
  packets.close()
  closeDescriptor(far)
})

test('a kept connection is served again where nobody touched it, and closed where somebody did', async () => {
  const accepted: Socket[] = []
  const server = createServer((socket) => void accepted.push(socket))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const clients = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
      await new Promise((resolve) => client.once('connect', resolve))
      return client
    }),
  )
  while (accepted.length < 3) await sleep(1)
  const kept = makeKept()
  for (const [id, socket] of accepted.entries()) kept.keep(id, fdOf(socket), { listener: 'key', idleMs: 0 })
  clients[0]?.write('waits to be read')
  await new Promise((resolve) => accepted[1]?.write('touched', resolve))
  kept.release(2)
  is(kept.size, 2)
  const { untouched, touched } = kept.takeBack()
  is(touched, 1)
  is(untouched.length, 1)
  for (const socket of accepted) socket.destroy()
  const back = new Socket({ fd: untouched[0]?.fd ?? -1, readable: true, writable: true })
  const first = await new Promise((resolve) => back.once('data', (data: Buffer) => resolve(data.toString())))
  equal(first, 'waits to be read')
  back.destroy()
  for (const client of clients) client.destroy()
  server.close()
})

test('a connection that is given when no descriptor is left is counted, whatever becomes of it', async () => {
  const accepted: Socket[] = []
  const server = createServer((socket) => void accepted.push(socket))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const clients = Array.from({ length: 3 }, () => connect((server.address() as AddressInfo).port, '127.0.0.1'))
  while (accepted.length < 3) await sleep(1)
  const report = { ...NO_HANDOVER }
  const listener = { ...makeListener({ server: createHttpServer() }), key: 'x' }
  const giving = makeGiving({
    has: () => true,
    give: () => true,
    tell: () => {},
    gone: new Promise(() => {}),
    listeners: [listener],
    report,
  })
  {
    using _none = noDescriptors()
    ok(giving.move(listener, accepted))
  }
  giving.hear({ type: 'missing', ids: [1] })
  is(report.cut, 1, 'it has not arrived, and is not here')
  giving.hear({ type: 'adopted', ids: [2, 3] })
  giving.hear({ type: 'ended', ids: [2] })
  giving.takeBack()
  equal([report.cut, report.returned], [2, 0], 'the one that had not ended')
  for (const client of clients) client.destroy()
  server.close()
})

test('a mark moves with each byte that is read or written, and not with one that waits', async () => {
  const server = createServer({ pauseOnConnect: true })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const socket = await new Promise<Socket>((resolve) => server.once('connection', resolve))
  const fd = fdOf(socket)
  const before = markOf(fd)
  await new Promise((resolve) => client.write('x', resolve))
  is(markOf(fd), before)
  socket.resume()
  await new Promise((resolve) => socket.once('data', resolve))
  not.equal(markOf(fd), before)
  const then = markOf(fd)
  await new Promise((resolve) => socket.write('y', resolve))
  not.equal(markOf(fd), then)
  await using file = await open(import.meta.filename)
  is(markOf(file.fd), null)
  client.destroy()
  socket.destroy()
  server.close()
})

test.run()

function fdOf(socket: Socket): number {
  return (socket as unknown as { _handle: { fd: number } })._handle.fd
}
