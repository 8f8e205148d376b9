// Everything that a process listens on goes to the next one: more servers of HTTP, servers of another protocol, servers that listen
// late. And a release that cannot have one of its ports fails, whatever it does about the error.

import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeDisk } from '../agent/disk/disk.ts'
import { takeLock } from '../agent/disk/lock.ts'
import type { Status } from '../agent/index.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { run } from '../deploy/lib/shell.ts'
import { equal, is, match, ok } from './assert.ts'
import { askingOn } from './fixtures/evidence.ts'
import { adopted } from './fixtures/adopted.ts'
import { ask, freePort } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('ports', { timeoutMs: 120_000 })
const AUTO = `import { onDrain } from '${join(PROJECT, 'agent/adapters/auto.ts')}'\n`

/** An application with a server of lines beside its page, on a port of its own: it greets, and answers each line with its pid. */
function withLines(port: number, { late = 0, handler = '' } = {}): string {
  return `${AUTO}import { createServer } from 'node:http'
    import { createServer as createPlain } from 'node:net'
    createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)
    const open = new Set()
    const lines = createPlain((socket) => {
      open.add(socket.on('error', () => {}).once('close', () => open.delete(socket)))
      socket.on('data', () => socket.write(process.pid + '\\n'))
    })
    ${handler}
    setTimeout(() => lines.listen(${port}, '127.0.0.1'), ${late})
    onDrain(() => { for (const socket of open) socket.end('bye\\n') })`
}

interface Line {
  socket: Socket
  said(): string
}

async function openLine(port: number): Promise<Line> {
  const socket = connect({ port, host: '127.0.0.1' })
  let said = ''
  socket.setEncoding('utf8').on('data', (text: string) => (said += text))
  await once(socket, 'connect')
  return { socket, said: () => said }
}

/** Of a connection that is opened for it. */
async function answerOnNew(port: number): Promise<void> {
  const asked = request({ port, host: '127.0.0.1', agent: false, timeout: 5000 }).end()
  asked.once('timeout', () => asked.destroy(new Error('no answer in 5 s')))
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  response.resume()
  await once(response, 'end')
}

/** The code of the error; null if it is accepted, perhaps by a queue. */
async function codeOfConnect(port: number): Promise<string | null> {
  const socket = connect({ port, host: '127.0.0.1' })
  const code = await once(socket, 'connect').then(
    () => null,
    (error: NodeJS.ErrnoException) => error.code ?? '',
  )
  socket.destroy()
  return code
}

async function pidOn(port: number): Promise<string> {
  const { socket, said } = await openLine(port)
  socket.write('who\n')
  while (!said().endsWith('\n')) await once(socket, 'data')
  socket.destroy()
  return said().trim()
}

for (const kind of ['stop-first', 'start-first'] as const) {
  // start-first, a port that nobody has at half the probation is shut, and that is a quarter of a second here
  for (const late of [0, kind === 'start-first' ? 600 : 1500]) {
    const register = late > 0 && kind === 'stop-first' ? test : test.long
    register(
      `${kind}: a server that is not HTTP and listens ${late} ms late is handed over, there and back`,
      async () => {
        const port = await freePort()
        await using it = await adopted(withLines(port, { late }), { order: kind })
        while ((await pidOn(port).catch(() => '')) === '') await sleep(20)
        const first = await pidOn(port)
        is(first, String((await ask(it.port, 'GET', '/', null)).body))
        const client = askingOn(() => pidOn(port))
        const held = await openLine(port)
        const ended = once(held.socket, 'close')
        const { outcome, handover } = await it.operate('/admin/update', { tag: 'v1.1.0' })
        is(outcome, 'updated')
        await ended
        is(held.said(), 'bye\n')
        ok((handover?.cut ?? 0) <= 2, JSON.stringify(handover)) // the silent one, and one that the client has just opened
        const { answered, refused } = await client.stop()
        ok(answered > 20, `${answered} answered`)
        equal(refused, [])
        const second = await pidOn(port)
        is(second === first, false)
        is(second, String((await ask(it.port, 'GET', '/', null)).body))
        is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
        is(await pidOn(port), String((await ask(it.port, 'GET', '/', null)).body))
      },
    )
  }

  const inCi = kind === 'stop-first' ? test : test.long
  inCi(`${kind}: a release that cannot have a port fails, though it swallows the error`, async () => {
    const port = await freePort()
    const other = await freePort()
    await using it = await adopted(withLines(port), { order: kind })
    await using taken = createServer().listen(other, '127.0.0.1')
    await once(taken, 'listening')
    await it.release('v1.1.0', withLines(other, { late: 1500, handler: `lines.on('error', () => {})` }))
    const before = await pidOn(port)
    const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
    is(outcome, 'reverted')
    match(error?.message ?? '', new RegExp(`cannot listen on 127.0.0.1:${other}: .*EADDRINUSE`))
    if (kind === 'start-first') is(await pidOn(port), before)
    else is(await pidOn(port), String((await ask(it.port, 'GET', '/', null)).body))
  })
}

for (const kind of ['stop-first', 'start-first'] as const) {
  const register = kind === 'stop-first' ? test : test.long
  register(`${kind}: a UDP socket is handed over, and every datagram is answered once`, async () => {
    const port = await freePort()
    const text = `${AUTO}import { createServer } from 'node:http'
      import { createSocket } from 'node:dgram'
      createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)
      const socket = createSocket('udp4').bind(${port}, '127.0.0.1')
      socket.on('message', (text, { port, address }) => socket.send(text + ' ' + process.pid, port, address))`
    await using it = await adopted(text, { order: kind })
    const client = createSocket('udp4')
    const heard = new Map<number, string[]>()
    client.on('message', (text) => {
      const [number = '', pid = ''] = String(text).split(' ')
      heard.set(Number(number), [...(heard.get(Number(number)) ?? []), pid])
    })
    let sent = 0
    const timer = setInterval(() => client.send(String(sent++), port, '127.0.0.1'), 5)
    while (heard.size < 20) await sleep(5)
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    const second = String((await ask(it.port, 'GET', '/', null)).body)
    is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
    clearInterval(timer)
    while (heard.size < sent) await sleep(5)
    const answers = [...heard.values()]
    equal(
      answers.filter(({ length }) => length !== 1),
      [],
    )
    is(new Set(answers.flat()).size, 3)
    ok(answers.some(([pid]) => pid === second))
    is(heard.get(sent - 1)?.[0], String((await ask(it.port, 'GET', '/', null)).body))
    client.close()
  })
}

test('a server that is not HTTP and finds its port taken hears of it itself, with Node’s code, and the others serve', async () => {
  const port = await freePort()
  await using taken = createServer().listen(port, '127.0.0.1')
  await once(taken, 'listening')
  const next = await freePort()
  const handler = `lines.on('error', ({ code }) => code === 'EADDRINUSE' && lines.listen(${next}, '127.0.0.1'))`
  await using it = await adopted(withLines(port, { handler }))
  const pid = String((await ask(it.port, 'GET', '/', null)).body)
  while ((await pidOn(next).catch(() => '')) === '') await sleep(20)
  is(await pidOn(next), pid)
})

test.long('when the first server finds its port taken and the application goes on, the others are served', async () => {
  await using made = await temporary('ports')
  const folder = made.path
  await using taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  const port = (taken.address() as AddressInfo).port
  const [lines, late, beside, page] = [await freePort(), await freePort(), await freePort(), await freePort()]
  const file = join(folder, 'server.mjs')
  const text = `${AUTO}import { createServer } from 'node:http'
    import { createServer as createPlain } from 'node:net'
    const answer = (socket) => socket.on('error', () => {}).on('data', () => socket.write(process.pid + '\\n'))
    const make = () => createServer((request, response) => response.end(String(process.pid)))
    make().on('error', ({ code }) => process.stdout.write(code)).listen(${port}, '127.0.0.1')
    make().listen(${beside}, '127.0.0.1')
    createPlain(answer).listen(${lines}, '127.0.0.1')
    setTimeout(() => {
      createPlain(answer).listen(${late}, '127.0.0.1', () => process.stdout.write(' listening'))
      make().listen(${page}, '127.0.0.1')
    }, 300)`
  await writeFile(file, text)
  const env = { ...process.env, HOME: folder, XDG_STATE_HOME: '' }
  const child = spawn(process.execPath, [file], { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (more: string) => (said += more))
  try {
    const soon = async (who: () => Promise<string>) =>
      await eventually('an answer', async () => await who().catch(() => null), 10_000)
    for (const at of [lines, late]) is(await soon(() => pidOn(at)), String(child.pid))
    for (const at of [beside, page])
      is(await soon(async () => String((await ask(at, 'GET', '/', null)).body)), String(child.pid))
    is(said.replace(/baton: .*\n/g, ''), 'EADDRINUSE listening')
  } finally {
    child.kill('SIGKILL')
    await ended
  }
})

test.long(
  'a port of the service is not its own, and the application goes on: its page is served, and again after a crash, behind held sockets',
  async () => {
    await using taken = createServer().listen(0, '127.0.0.1')
    await once(taken, 'listening')
    const { port } = taken.address() as AddressInfo
    const other = `createServer().on('error', () => {}).listen(${port}, '127.0.0.1')`
    const page = `createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)`
    for (const servers of [
      [page, other],
      [other, page],
    ]) {
      await using it = await adopted([AUTO, `import { createServer } from 'node:http'`, ...servers].join('\n'))
      is((await it.word('install', '--user', '--start', '-y', '-q')).exitCode, 0)
      const pid = String((await ask(it.port, 'GET', '/', null)).body)
      const answers = async () => {
        const { body } = await ask(it.port, 'GET', '/', null).catch(() => ({ body: pid }))
        return String(body) === pid ? null : String(body)
      }
      const client = askingOn(async () => {
        const socket = connect(it.port, '127.0.0.1').on('error', () => {})
        await once(socket, 'connect')
        socket.destroy()
      })
      process.kill(Number(pid), 'SIGKILL')
      const next = await eventually('the next one', answers, 20_000)
      equal((await client.stop()).refused, [], 'connections wait meanwhile')
      const { instance } = (await ask(it.port, 'GET', '/admin/update/status', it.password)).body as Status
      is(String(instance.pid), next)
    }
  },
)

test('a port in use is the end with a reason, though the application hears rejections and goes on: a first server and a late one', async () => {
  await using made = await temporary('ports')
  const folder = made.path
  await using taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  const { port } = taken.address() as AddressInfo
  const file = join(folder, 'server.mjs')
  for (const first of [port, 0]) {
    const text = `${AUTO}import { createServer } from 'node:http'
      process.on('unhandledRejection', () => console.log('rejected'))
      process.on('uncaughtException', ({ code }) => {
        console.log('thrown ' + code)
        setTimeout(() => process.exit(), 100) // it goes on for a while
      })
      createServer().listen(${first}, '127.0.0.1', () => createServer().listen(${port}, '127.0.0.1'))`
    await writeFile(file, text)
    const env = { ...process.env, HOME: folder, XDG_STATE_HOME: '' }
    const ended = await run([process.execPath, file], { cwd: folder, env, allowFailure: true })
    is(ended.exitCode, 1)
    match(ended.stdout, /^thrown EADDRINUSE$/m)
    match(ended.stderr, new RegExp(`^baton: cannot listen on 127\\.0\\.0\\.1:${port}: .*EADDRINUSE`, 'm'))
  }
})

test.long(
  'an application that closes a server and listens again, with another one, has all of its clients, before and after an update',
  async () => {
    const port = await freePort()
    const text = `${AUTO}import { createServer } from 'node:http'
    import { createServer as createPlain } from 'node:net'
    const answer = (socket) => socket.on('error', () => {}).on('data', () => socket.write(process.pid + '\\n'))
    let lines = createPlain(answer).listen(${port}, '127.0.0.1')
    createServer((request, response) => {
      if (request.url !== '/cycle' && request.url !== '/again') return response.end(String(process.pid))
      const next = request.url === '/cycle' ? createPlain(answer) : lines
      lines.close(() => (lines = next.listen(${port}, '127.0.0.1', () => response.end('done'))))
    }).listen(Number(process.env.PORT), process.env.HOST)`
    await using it = await adopted(text)
    const allAnswered = async () => {
      const pids = await Promise.all(Array.from({ length: 20 }, async () => await pidOn(port)))
      equal([...new Set(pids)], [String((await ask(it.port, 'GET', '/', null)).body)])
    }
    await allAnswered()
    for (const how of ['/cycle', '/again']) {
      is((await ask(it.port, 'GET', how, null)).body, 'done')
      await allAnswered()
      is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
      await allAnswered()
      is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
      await allAnswered()
    }
  },
)

test('an application that hears that it listens accepts, whoever has the lock: behind a held socket too', async () => {
  const text = `${AUTO}import { createServer } from 'node:http'
    let heard = Infinity
    const says = () => JSON.stringify({ pid: process.pid, afterMs: performance.now() - heard })
    createServer((request, response) => response.setHeader('content-type', 'application/json').end(says())).listen(Number(process.env.PORT), process.env.HOST, () => (heard = performance.now()))`
  await using it = await adopted(text)
  const { stateDirectory } = JSON.parse(await readFile(it.configPath, 'utf8')) as { stateDirectory: string }
  await using _lock = await takeLock(makeDisk(), stateDirectory, 'a command')
  const startAgain = async (): Promise<number> => {
    const { pid } = (await ask(it.port, 'GET', '/', null)).body as { pid: number }
    await rm(join(stateDirectory, 'update', 'reserve'), { force: true }) // so that there is something to clear up
    process.kill(pid, 'SIGKILL')
    return await eventually('an answer', async () => {
      const answer = await ask(it.port, 'GET', '/', null).catch(() => null)
      const body = answer?.body as { pid: number; afterMs: number } | undefined
      return body === undefined || body.pid === pid ? null : body.afterMs
    })
  }
  // a start that waits for the lock first takes 500 ms each time; one that does not, that long on a busy machine only
  let soonestMs = Infinity
  for (let tries = 0; tries < 5 && soonestMs >= 350; tries++) soonestMs = Math.min(soonestMs, await startAgain())
  ok(soonestMs < 350, `it accepted ${Math.round(soonestMs)} ms after it had heard that it listens`)
})

for (const order of ['start-first', 'stop-first'] as const) {
  const register = order === 'start-first' ? test : test.long
  register(
    `${order}: a release that has a port no more does not wait for it, and its clients are refused in the end`,
    async () => {
      const port = await freePort()
      await using it = await adopted(withLines(port), { order })
      await it.release('v1.1.0', withLines(port).replace(/setTimeout\(\(\) => lines.*/, ''))
      is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
      const isRefused = async () => (await codeOfConnect(port)) === 'ECONNREFUSED'
      await eventually('a refusal', isRefused, order === 'start-first' ? 500 : 15_000)
      const status = (await ask(it.port, 'GET', '/admin/update/status', it.password)).body as Status
      is(status.operation?.outcome ?? status.history[0]?.outcome, 'updated')
    },
  )

  test.long(
    `${order}: a release that says its address by another name has every client, there and back, and after a restart`,
    async () => {
      const source = withLines(await freePort())
      await using it = await adopted(source, { order })
      await it.release('v1.1.0', source.replace('process.env.HOST', "'localhost'"))
      const client = askingOn(() => answerOnNew(it.port))
      for (const act of [
        async () => void (await it.operate('/admin/update', { tag: 'v1.1.0' })),
        async () => void (await it.word('restart', '--user')),
        async () => void (await it.operate('/admin/update/rollback')),
      ]) {
        await act()
        await sleep(1000)
      }
      equal((await client.stop()).refused, [])
    },
  )
}

test.run()
