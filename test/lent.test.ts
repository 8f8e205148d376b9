// An application on sockets that a holder lends it, as processes: it may end in any way and nobody is refused; if the holder ends it
// takes the next one's sockets. In real containers: test/container/hold.ts.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { Agent, get, type IncomingMessage } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { zstdDecompressSync } from 'node:zlib'
import { parseProject } from '../deploy/make/project.ts'
import { turnComes } from '../agent/sockets/lent.ts'
import { containerTurn } from '../agent/words/lent.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { type HolderGround, holderGround, noHolder, type Started, watched } from './fixtures/container-holder.ts'
import { until } from './fixtures/evidence.ts'
import { freePort } from './fixtures/install.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { suite } from './suite.ts'

const test = suite('lent', {
  timeoutMs: 60_000,
  skip: noHolder,
})
const PROGRAM = join(import.meta.dirname, 'fixtures/lent.ts')
const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'

test('requests wait while the application is killed and started again, on each of its ports, and none is refused', async () => {
  await using ground = await holderGround()
  const [first, second] = [await freePort(), await freePort()]
  await ground.start(String(first), String(second))
  for (const end of ['SIGKILL', 'SIGTERM'] as const) {
    const waiting = Promise.all([ask(first), ask(second)])
    using app = start(ground, first, second)
    const answers = await waiting
    equal(answers, [`${app.pid} ${first} ::ffff:127.0.0.1`, `${app.pid} ${second} ::ffff:127.0.0.1`])
    process.kill(app.pid, end)
    await app.ended
  }
  await connected(first)
})

test('a holder that is killed: what it had accepted ends at once, and the next holder is served within two seconds', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  let holder = await ground.start(String(port))
  using app = start(ground, port)
  await ask(port)
  for (let round = 0; round < 3; round++) {
    const silent = await connected(port)
    const closed = new Promise((resolve) => silent.once('close', resolve))
    holder.child.kill('SIGKILL')
    await holder.ended
    await closed
    const beganAt = performance.now()
    holder = await ground.start(String(port))
    match(await ask(port), new RegExp(`^${app.pid} `))
    ok(performance.now() - beganAt < 2000)
  }
  match(app.said(), /lost the connection to the holder at .*, and every connection through it; trying to reconnect/)
})

test('a container that is put beside an old one has its turn when the file of that is gone, and never if it is asked to stop before', async () => {
  await using ground = await holderGround()
  const id = '0123456789abcdef'
  const [path, file] = [join(ground.folder, 'socket'), join(ground.folder, containerTurn(id))]
  const leaving = new AbortController()
  is(await turnComes(path, id, leaving.signal), true)
  await writeFile(file, '')
  is(await turnComes(path, 'fedcba9876543210', leaving.signal), true)
  let hasCome = false
  const comes = turnComes(path, id, leaving.signal).then((isOurs) => (hasCome = isOurs))
  const alive = setInterval(() => {}, 10) // a process that serves has more than this to wait for
  await sleep(300)
  is(hasCome, false)
  await rm(file)
  is(await comes, true)
  await writeFile(file, '')
  const never = turnComes(path, id, leaving.signal)
  leaving.abort()
  is(await never, false)
  clearInterval(alive)
})

test('a holder that is killed while the application drains does not keep it from ending', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  const holder = await ground.start(String(port))
  using app = start(ground, port)
  const agent = new Agent({ keepAlive: true })
  await ask(port, '/', agent)
  const slow = ask(port, '/slow/15000', agent).catch(() => 'cut')
  process.kill(app.pid, 'SIGTERM')
  await until('it to drain', () => /stopping \(SIGTERM\)/.test(app.said()))
  holder.child.kill('SIGKILL')
  const beganAt = performance.now()
  is(await app.ended, 0)
  ok(performance.now() - beganAt < 8000, 'it waited for a connection that nobody is at')
  is(await slow, 'cut', 'nothing could reach its client')
  agent.destroy()
})

for (const how of ['', 'closes'])
  test(`at SIGTERM whoever has not asked is answered, a used connection once more, and nothing is reset ${how === '' ? '' : '(its author closes the servers too)'}`, async () => {
    await using ground = await holderGround()
    const port = await freePort()
    await ground.start(String(port))
    const busy = join(ground.folder, 'busy')
    using app = start(ground, port, busy, ...(how === '' ? [] : [how]))
    await ask(port)
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    await ask(port, '/', agent)
    const [late, idle, slow] = [await connected(port), await connected(port), ask(port, '/slow/600')]
    await ask(port) // so those have been accepted
    const again = await atSignal(app, busy, () => response(port, '/', agent))
    is(again.headers.connection, 'close', 'the last one')
    await sleep(400)
    const said = heard(late)
    late.write(GET)
    match(await said, /^HTTP\/1\.1 200 OK\r\n[^]*connection: close\r\n[^]*\r\n\r\n/i)
    match(await slow, new RegExp(`^${app.pid} `))
    const [first] = await Promise.all([heard(idle), app.ended])
    is(first, '', 'it never asked, and was closed in the end')
    is(await app.ended, 0)
    // who comes now waits for the next process
    const waiting = ask(port)
    using next = start(ground, port)
    match(await waiting, new RegExp(`^${next.pid} `))
    agent.destroy()
  })

test('at SIGTERM it goes on accepting while a kept connection may still ask: new clients do not wait for that one', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  await ground.start(String(port))
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  let isServed = false
  for (let round = 0; round < 5 && !isServed; round++) {
    using app = start(ground, port)
    await ask(port, '/', agent)
    process.kill(app.pid, 'SIGTERM')
    await until('it to drain', () => /stopping \(SIGTERM\)/.test(app.said()))
    const [answer] = [ask(port), await app.ended]
    using next = start(ground, port)
    const said = await answer // on a busy machine it may have come too late for the first
    isServed = said.startsWith(`${app.pid} `)
    ok(isServed || said.startsWith(`${next.pid} `), said)
  }
  ok(isServed)
  agent.destroy()
})

test('at SIGTERM a client that thinks for a while is answered once more on its connection, and the process does not wait any longer', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  await ground.start(String(port))
  using app = start(ground, port)
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  await ask(port, '/', agent)
  process.kill(app.pid, 'SIGTERM')
  await sleep(1200)
  const { text, headers } = await response(port, '/', agent)
  match(text, new RegExp(`^${app.pid} `))
  is(headers.connection, 'close')
  is(await app.ended, 0)
  agent.destroy()
})

test('a client that pipelines at SIGTERM has all its answers, and the last says that it was the last', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  await ground.start(String(port))
  const busy = join(ground.folder, 'busy')
  using app = start(ground, port, busy)
  const socket = await connected(port)
  socket.write(GET)
  await once(socket, 'data')
  const said = await atSignal(app, busy, () => {
    socket.write(GET.repeat(3))
    return heard(socket)
  })
  const answers = said.split(/(?=HTTP)/)
  equal(
    answers.map((text) => /^connection: (.*)\r$/im.exec(text)?.[1]),
    [undefined, undefined, 'close'],
  )
  is(await app.ended, 0)
})

test('at SIGTERM a connection that was opened long ago and has never asked does not keep the others', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  await ground.start(String(port))
  using app = start(ground, port)
  const silent = await connected(port)
  await ask(port)
  await sleep(2100) // its request is not on its way
  const slow = ask(port, '/slow/3000')
  const order: string[] = []
  const ends = [heard(silent).then(() => order.push('silent')), slow.then(() => order.push('slow'))]
  await ask(port) // so that one has been accepted
  process.kill(app.pid, 'SIGTERM')
  await Promise.all(ends)
  equal(order, ['silent', 'slow'])
  is(await app.ended, 0)
})

test('a request that came while the application got no processor is answered before its connection is closed', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  await ground.start(String(port))
  const busy = join(ground.folder, 'busy')
  using app = start(ground, port, busy)
  const agents = Array.from({ length: 8 }, () => new Agent({ keepAlive: true, maxSockets: 1 }))
  await Promise.all(agents.map((agent) => ask(port, '/', agent)))
  const late = atSignal(app, busy, async () => await Promise.all(agents.map((agent) => ask(port, '/', agent))), 500)
  for (const said of await late) match(said, new RegExp(`^${app.pid} `))
  is(await app.ended, 0)
  for (const agent of agents) agent.destroy()
})

test('a release that `baton build` made of an application does the same, without a line of it changed, and though it exits at SIGTERM', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  const folder = join(ground.folder, 'app')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
  const listens = `process.on('SIGTERM', () => { process.exitCode = 3; process.exit() })
    const answer = (response) => response.end(String(process.pid))
    createServer((request, response) => void setTimeout(answer, request.url === '/slow' ? 600 : 0, response)).listen(${port})`
  const auto = join(import.meta.dirname, '../agent/adapters/auto.ts')
  await writeFile(
    join(folder, 'app.js'),
    `import ${JSON.stringify(auto)}\nimport { createServer } from 'node:http'\n${listens}\n`,
  )
  const project = parseProject({ service: 'shop', entry: 'app.js' }, folder)
  const { directory } = await buildQuietly({ project, out: join(ground.folder, 'out') })
  const asset = (await readdir(directory)).find((name) => name.endsWith('.zst')) ?? ''
  const executable = join(ground.folder, 'shop')
  await writeFile(executable, zstdDecompressSync(await readFile(join(directory, asset))), { mode: 0o755 })
  await ground.start(String(port))
  for (const end of ['SIGKILL', 'SIGTERM'] as const) {
    const waiting = ask(port)
    const env = { PATH: process.env['PATH'], HOME: ground.folder, BATON_HOLDER: ground.path }
    const app = watched(spawn(executable, [], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] }))
    try {
      is(await waiting, String(app.child.pid))
      if (end === 'SIGKILL') continue
      const slow = ask(port, '/slow')
      await ask(port) // so that one has been accepted
      app.child.kill(end)
      is(await slow, String(app.child.pid))
      is(await app.ended, 3)
    } finally {
      app.child.kill('SIGKILL')
      await app.ended
    }
  }
})

test('what is no holder is asked again until one answers; a port that it does not hold is listened on all the same', async () => {
  await using ground = await holderGround()
  const [port, own] = [await freePort(), await freePort()]
  const texts = [
    'nonsense\n',
    `baton-holder 1 ${'0'.repeat(32)}\n${port}\n`,
    `baton-holder 2 ${'0'.repeat(32)}\n`,
    'x'.repeat(200_000),
  ]
  let n = 0
  const fake = createServer((socket) => void socket.on('error', () => {}).end(texts[n++ % texts.length] ?? ''))
  await new Promise<void>((resolve) => fake.listen(ground.path, resolve))
  using app = start(ground, port, own)
  await until('it to have tried them all', () => n > texts.length)
  match(app.said(), /waiting for the holder at .*: expected a list of socket names/)
  await new Promise((resolve) => fake.close(resolve))
  await rm(ground.path, { force: true })
  await ground.start(String(port))
  match(await ask(port), new RegExp(`^${app.pid} `))
  match(await ask(own), new RegExp(`^${app.pid} ${own} `))
  match(
    app.said(),
    new RegExp(
      `the holder at .* has no free socket for :::${own} \\(free: .*\\), so this container binds that address itself`,
    ),
  )
})

test('a server that is closed again leaves its port to the next one: one that only asked, and one of which the application has another', async () => {
  await using ground = await holderGround()
  const ports = [await freePort(), await freePort()]
  const holder = await ground.start(...ports.map(String))
  using app = start(ground, ...ports, 'asks')
  const served = async () => {
    for (const port of ports) match(await ask(port), new RegExp(`^${app.pid} ${port} `))
  }
  await served()
  for (let round = 1; round <= 2; round++) {
    process.kill(app.pid, 'SIGUSR2')
    await until('it to listen again', () => app.said().split('again\n').length > round)
    await served()
  }
  not.match(app.said(), /this container's own/)
  holder.child.kill('SIGKILL')
  await holder.ended
  await ground.start(...ports.map(String))
  await served()
})

test('an application that waits for its holder ends at SIGTERM', async () => {
  await using ground = await holderGround()
  using app = start(ground, await freePort())
  await until('its word', () => /waiting for the holder/.test(app.said()))
  process.kill(app.pid, 'SIGTERM')
  is(await app.ended, 0)
})

test('two applications at once share the queue, and either may end', async () => {
  await using ground = await holderGround()
  const port = await freePort()
  await ground.start(String(port))
  const all = [start(ground, port), start(ground, port)]
  const by = new Set<string>()
  await until('an answer of each', async () => by.add((await ask(port)).split(' ')[0] ?? '').size === 2)
  for (const app of all) {
    process.kill(app.pid, 'SIGTERM')
    await Promise.all([app.ended, ...(app === all[1] ? [] : Array.from({ length: 20 }, () => ask(port)))])
  }
})

test.run()

interface App extends Started, Disposable {
  pid: number
}

function start({ path }: HolderGround, ...words: (number | string)[]): App {
  const args = [...process.execArgv, PROGRAM, ...words.map(String)]
  const env = { ...process.env, BATON_HOLDER: path }
  const started = watched(spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] }))
  return { ...started, pid: started.child.pid ?? 0, [Symbol.dispose]: () => void started.child.kill('SIGKILL') }
}

/** Sends SIGTERM, and what `act` writes reaches the application while it gets nothing done after it: for `ms` at least. */
async function atSignal<T>(app: App, busy: string, act: () => Promise<T>, ms = 50): Promise<T> {
  process.kill(app.pid, 'SIGTERM')
  await until('it to be busy', () => existsSync(busy))
  const acted = act()
  acted.catch(() => {}) // its caller hears of it
  await sleep(ms)
  await rm(busy)
  return await acted
}

function response(
  port: number,
  path: string,
  agent: Agent | false = false,
): Promise<IncomingMessage & { text: string }> {
  return new Promise((resolve, reject) => {
    const request = get({ host: '127.0.0.1', port, path, agent, timeout: 20_000 }, (answer) => {
      let text = ''
      answer.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk))
      answer.on('end', () => resolve(Object.assign(answer, { text })))
      answer.on('error', reject)
    })
    request.on('timeout', () => request.destroy(new Error('no answer after 20 s')))
    request.on('error', reject)
  })
}

async function ask(port: number, path = '/', agent: Agent | false = false): Promise<string> {
  return (await response(port, path, agent)).text
}

async function connected(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  return socket.on('error', () => {})
}

/** All that comes until the end; rejects if the connection is reset. */
function heard(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    socket.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk))
    socket.once('end', () => resolve(text))
    socket.once('error', reject)
  })
}
