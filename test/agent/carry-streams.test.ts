// Responses in every shape that an application gives them, across a switch: each arrives whole, or it stays where it is and is
// counted where it ends short. Nothing is called carried that broke.

import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { equal, is, match, ok } from '../assert.ts'
import { bodyOf, compressing, fetched, inBatches, raw } from '../fixtures/streams.ts'
import { type Side, twoSides, until } from '../fixtures/two-sides.ts'
import { suite } from '../suite.ts'

const test = suite('carry streams', { timeoutMs: 60_000 })
const LONG = { drainMs: 20_000, drainMaxMs: 20_000 }
const SHORT = { drainMs: 300, drainMaxMs: 600 }
const LINES = 60

interface State {
  next: number
}

/** How a handler writes its lines. `name`: of the process that it runs in. */
interface Shape {
  head(response: ServerResponse, name: string): void
  /** between the handler and Node */
  around?(response: ServerResponse, name: string): void
  line?(number: number): string
  /** never ends */
  isEndless?: boolean
  httpVersion?: string
}

const lineOf = (number: number) => `data: ${String(number).padStart(3, '0')} é\n\n`
const WHOLE = Array.from({ length: LINES }, (_, number) => lineOf(number)).join('')
const LENGTH = Buffer.byteLength(WHOLE)
const PLAIN = { 'Content-Type': 'text/plain' }
const EVENTS = { 'Content-Type': 'text/event-stream' }

for (const [title, shape] of Object.entries<Shape>({
  'whose Content-Length came in writeHead()': {
    head: (response) => response.writeHead(200, { ...PLAIN, 'Content-Length': LENGTH }),
  },
  'whose Content-Length came in writeHead() as a list': {
    head: (response) => response.writeHead(200, 'Fine', ['content-length', String(LENGTH)]),
  },
  'whose Content-Length was set before': { head: (response) => response.setHeader('Content-Length', LENGTH) },
  'of HTTP/1.0, which ends with its connection': {
    head: (response) => response.writeHead(200, PLAIN),
    httpVersion: '1.0',
  },
  'that ends with its connection because its author wants it': {
    head: (response) => {
      response.removeHeader('transfer-encoding')
      response.writeHead(200, { ...PLAIN, Connection: 'close' })
    },
  },
  'whose chunks were asked for by name': {
    head: (response) => response.writeHead(206, { ...PLAIN, 'Transfer-Encoding': 'chunked' }),
  },
  'with middleware that compresses others': {
    head: (response) => response.writeHead(200, { ...EVENTS, 'Cache-Control': 'no-transform' }),
    around: (response) => compressing(response),
  },
  'with middleware that looks at what is written': {
    head: (response) => response.writeHead(200, EVENTS),
    around: (response) => {
      const write = response.write.bind(response) as (...args: unknown[]) => boolean
      response.write = (...args: unknown[]) => write(...args)
    },
  },
})) {
  test(`a response ${title} is carried and arrives whole`, async () => {
    const sides = await twoSides((side, name) => lines(side, name, shape))
    const client = raw(sides.port, shape.httpVersion)
    await until(() => client.text().includes(lineOf(5)))
    const { carried, cut, warnings } = await sides.drain(LONG)
    equal([carried, cut, warnings], [1, 0, []])
    await until(() => bodyOf(client.text()).length >= WHOLE.length)
    is(bodyOf(client.text()), WHOLE)
    is(client.text().match(/HTTP\/1\.1/g)?.length, 1)
    client.socket.destroy()
    await sides.close()
  })
}

for (const [title, why, shape] of [
  [
    'that middleware compresses (gzip)',
    /its body is encoded \(gzip\)/,
    { head: (response) => response.writeHead(200, PLAIN), around: (response) => compressing(response) },
  ],
  [
    'with trailers',
    /its body is followed by trailers/,
    { head: (response) => response.writeHead(200, { ...PLAIN, Trailer: 'X-Sum' }) },
  ],
  [
    'whose transfer is compressed',
    /its body uses the transfer encoding x-own, chunked/,
    { head: (response) => response.writeHead(200, { ...PLAIN, 'Transfer-Encoding': 'x-own, chunked' }) },
  ],
  [
    'that middleware keeps for a while',
    /middleware in the application buffers the response/,
    { head: (response) => response.writeHead(200, PLAIN), around: (response) => inBatches(response) },
  ],
] as [string, RegExp, Shape][]) {
  test(`a response ${title} stays, arrives whole, and is not called carried; cut at the deadline it is counted and said`, async () => {
    const sides = await twoSides((side, name) => lines(side, name, shape))
    const client = fetched(sides.port)
    await until(() => client.text().includes(lineOf(5)))
    const { carried, cut, warnings } = await sides.drain(LONG)
    equal([carried, cut, warnings], [0, 0, []])
    equal(await client.ended, { text: WHOLE, isComplete: true })
    await sides.close()

    const others = await twoSides((side, name) => lines(side, name, { ...shape, isEndless: true }))
    const endless = fetched(others.port)
    await until(() => endless.text().includes(lineOf(5)))
    const report = await others.drain(SHORT)
    equal([report.carried, report.cut], [0, 1])
    match(report.warnings.join(), why)
    const { text, isComplete } = await endless.ended
    is(isComplete, false)
    is(text, Array.from({ length: text.length / lineOf(0).length }, (_, number) => lineOf(number)).join(''))
    await others.close()
  })
}

test('server-sent events that are compressed end at once: said when they are registered, counted, and never corrupted', async () => {
  const sides = await twoSides((side, name) =>
    lines(side, name, {
      head: (response) => response.writeHead(200, EVENTS),
      around: (response) => compressing(response),
      isEndless: true,
    }),
  )
  const clients = [fetched(sides.port), fetched(sides.port)]
  await until(() => clients.every(({ text }) => text().includes(lineOf(5))))
  match(
    sides.warnings.join('\n'),
    /^a response cannot be kept open across a switch: its body is encoded \(gzip\).*closed$/,
  )
  const { carried, cut, warnings } = await sides.drain(LONG)
  equal([carried, cut, warnings.length, sides.report.reasons?.length], [0, 2, 1, 1])
  for (const { ended } of clients) is((await ended).isComplete, false)
  await sides.close()
})

test('a successor that compresses what its predecessor did not: refused, counted and said', async () => {
  const sides = await twoSides((side, name) =>
    lines(side, name, {
      head: (response) => response.writeHead(200, EVENTS),
      ...(name === 'old' ? {} : { around: (response: ServerResponse) => compressing(response) }),
    }),
  )
  const client = fetched(sides.port)
  await until(() => client.text().includes(lineOf(5)))
  const { carried, cut, warnings } = await sides.drain(LONG)
  equal([carried, cut], [0, 1])
  match(warnings.join(), /its body is encoded \(gzip\)/)
  is((await client.ended).isComplete, false)
  await sides.close()
})

test('a refused body that only the end of its connection ends is broken off: its client does not take it for the whole', async () => {
  const sides = await twoSides((side, name) =>
    lines(side, name, { head: (response) => response.writeHead(name === 'old' ? 200 : 206, PLAIN) }),
  )
  const client = raw(sides.port, '1.0')
  await until(() => client.text().includes(lineOf(5)))
  const { cut, warnings } = await sides.drain(LONG)
  is(cut, 1)
  match(warnings.join(), /its handler responded with 206/)
  is(await client.closed, 'ECONNRESET')
  await sides.close()
})

test('a head that writeHead() has made and nobody has sent yet arrives once, before the body', async () => {
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      response.writeHead(200, EVENTS)
      carries.carry(request, { response })
      if (name === 'new') response.end(WHOLE)
    })
  })
  const client = raw(sides.port)
  await until(() => sides.before.carries.entries().size === 1)
  const { carried, cut } = await sides.drain(LONG)
  equal([carried, cut], [1, 0])
  await until(() => client.text().endsWith('0\r\n\r\n'))
  equal([bodyOf(client.text()), client.text().startsWith('HTTP/1.1 200 OK\r\n')], [WHOLE, true])
  client.socket.destroy()
  await sides.close()
})

test('what is still piped into a response: carried where `state()` stops it, left to its end where it does not', async () => {
  for (const isStopped of [true, false]) {
    const sides = await twoSides(({ server, carries }) => {
      server.on('request', (request, response) => {
        const state = (carries.carried(request) as State | undefined) ?? { next: 0 }
        response.writeHead(200, PLAIN)
        response.flushHeaders()
        const source = Readable.from(slowly(state))
        carries.carry(request, {
          response,
          state: () => {
            if (isStopped) source.unpipe(response).destroy()
            return state
          },
        })
        source.pipe(response)
      })
    })
    const client = fetched(sides.port)
    await until(() => client.text().includes(lineOf(5)))
    const { carried, cut } = await sides.drain(LONG)
    equal([carried, cut], [isStopped ? 1 : 0, 0])
    equal(await client.ended, { text: WHOLE, isComplete: true })
    await sides.close()
  }
})

test('what `state()` itself writes arrives before the successor’s', async () => {
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      response.writeHead(200, PLAIN)
      response.flushHeaders()
      carries.carry(request, { response, state: () => response.write('last of the old, ') })
      if (name === 'new') response.end('first of the new')
    })
  })
  const client = fetched(sides.port)
  await until(() => sides.before.carries.entries().size === 1)
  const { carried, cut } = await sides.drain(LONG)
  equal([carried, cut], [1, 0])
  equal(await client.ended, { text: 'last of the old, first of the new', isComplete: true })
  await sides.close()
})

test('what is written late arrives as it was written: in its encoding, and through a `write` that was held since before', async () => {
  let late: (() => void) | null = null
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      response.writeHead(200, PLAIN)
      response.flushHeaders()
      carries.carry(request, { response })
      const [write, end] = [response.write.bind(response), response.end.bind(response)]
      if (name === 'new') return
      late = () => {
        response.write('w6kg', 'base64')
        response.write(new Uint8Array([0xc3, 0xa9]))
        write(' held ')
        response.write('')
        response.write('è', 'latin1', () => end('c3a8', 'hex'))
      }
    })
  })
  const client = fetched(sides.port, 'latin1')
  await until(() => sides.before.carries.entries().size === 1)
  const { carried, cut } = await sides.drain(LONG)
  equal([carried, cut], [1, 0])
  ;(late as (() => void) | null)?.()
  equal(await client.ended, { text: 'Ã© Ã© held èÃ¨', isComplete: true })
  await sides.close()
})

test('what is written late arrives whole, however much it is', async () => {
  let late: ServerResponse | null = null
  const [piece, size] = ['0123456789é\u0001', 30 * 1024 * 1024]
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      response.writeHead(200, PLAIN)
      response.flushHeaders()
      carries.carry(request, { response })
      if (name === 'old') late = response
    })
  })
  const client = fetched(sides.port)
  await until(() => late !== null)
  is((await sides.drain(LONG)).carried, 1)
  const text = piece.repeat(size / piece.length)
  ;(late as ServerResponse | null)?.end(text)
  const ended = await client.ended
  ok(ended.isComplete && ended.text === text)
  await sides.close()
})

test('what is written late to a response that has ended in the successor harms nobody', async () => {
  const held: ServerResponse[] = []
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request, response) => {
      response.writeHead(200, PLAIN)
      response.flushHeaders()
      carries.carry(request, { response })
      if (name === 'old') held.push(response)
      else response.write('x'.repeat(32 * 1024 * 1024), () => {}) // its client does not read: it ends, and does not finish
      if (name === 'new') response.end()
    })
  })
  const client = raw(sides.port)
  await until(() => client.text().includes('\r\n\r\n'))
  client.socket.pause()
  const { carried } = await sides.drain(LONG)
  is(carried, 1)
  for (const response of held) response.write('too late')
  client.socket.resume()
  await until(() => client.text().endsWith('0\r\n\r\n'))
  ok(!client.text().includes('too late'))
  client.socket.destroy()
  await sides.close()
})

test('one keep-alive connection with many carried responses holds on to none of them', async () => {
  const sides = await twoSides(({ server, carries }) => {
    server.on('request', (request, response) => {
      carries.carry(request, { response })
      carries.carry(request, { response }) // again: the last one counts
      response.end('.')
    })
  })
  const socket = connect(sides.port, '127.0.0.1')
  let answers = 0
  socket.setEncoding('utf8').on('data', (text: string) => (answers += text.match(/HTTP\/1\.1/g)?.length ?? 0))
  const listeners: number[] = []
  for (let asked = 1; asked <= 50; asked++) {
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    await until(() => answers === asked && sides.before.carries.entries().size === 0)
    for (const one of sides.before.sockets) listeners.push(one.listenerCount('close'))
  }
  equal(
    listeners,
    listeners.map(() => listeners[0]),
  )
  socket.destroy()
  await sides.close()
})

test('of two that are pipelined the first is not taken for the second: both arrive whole', async () => {
  const sides = await twoSides(({ server, carries }) => {
    server.on('request', (request, response) => {
      const state = (carries.carried(request) as State | undefined) ?? { next: 0 }
      response.writeHead(200, PLAIN)
      response.flushHeaders()
      const leave = () => clearInterval(timer)
      carries.carry(request, { response, state: () => (leave(), state) })
      const timer = setInterval(() => {
        response.write(lineOf(state.next++))
        if (state.next < LINES) return
        response.end()
        leave()
      }, 3)
    })
  })
  const client = raw(sides.port, '1.1', '/first')
  client.socket.write('GET /second HTTP/1.1\r\nHost: x\r\n\r\n')
  await until(() => client.text().includes(lineOf(2)))
  const { cut } = await sides.drain(LONG)
  is(cut, 0)
  await until(() => client.text().match(/\r\n0\r\n\r\n/g)?.length === 2)
  const [, first = '', second = ''] = client.text().split('HTTP/1.1 ')
  equal([bodyOf(first), bodyOf(second)], [WHOLE, WHOLE])
  client.socket.destroy()
  await sides.close()
})

test('a router that has taken its own part off the address does not hide what was asked for', async () => {
  const sides = await twoSides(({ server, carries }, name) => {
    server.on('request', (request: IncomingMessage & { originalUrl?: string }, response) => {
      if (request.url !== '/mounted/events') return void response.writeHead(404).end()
      request.originalUrl = request.url // as Express and Connect do
      request.url = '/events'
      response.writeHead(200, EVENTS)
      carries.carry(request, { response })
      if (name === 'new') response.end(WHOLE)
    })
  })
  const client = raw(sides.port, '1.1', '/mounted/events')
  await until(() => sides.before.carries.entries().size === 1)
  const { carried, cut, warnings } = await sides.drain(LONG)
  equal([carried, cut, warnings], [1, 0, []])
  await until(() => client.text().endsWith('0\r\n\r\n'))
  is(bodyOf(client.text()), WHOLE)
  client.socket.destroy()
  await sides.close()
})

test.run()

/** A handler as an author writes it: numbered lines, its state the next of them. */
function lines({ server, carries }: Side, name: string, shape: Shape): void {
  const heard: RequestListener = (request, response) => {
    const state = (carries.carried(request) as State | undefined) ?? { next: 0 }
    shape.around?.(response, name)
    shape.head(response, name)
    const leave = () => clearInterval(timer)
    const timer = setInterval(() => {
      response.write(lineOf(state.next++))
      if (shape.isEndless === true || state.next < LINES) return
      leave()
      response.end()
    }, 3)
    carries.carry(request, { response, state: () => (leave(), state) })
    response.on('close', leave)
  }
  server.on('request', heard)
}

async function* slowly(state: State): AsyncGenerator<string> {
  while (state.next < LINES) {
    await new Promise((resolve) => setTimeout(resolve, 3))
    yield lineOf(state.next++)
  }
}
