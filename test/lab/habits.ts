// Applications as people write them, each with one habit of the field, and what each must still do after an update, a rollback, a broken
// release and a kill. `TAG` in a text is the tag of its release. Nothing in a text knows of Baton.

import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { equal, is, match, ok } from '../assert.ts'
import type { Stranger, StrangerOptions } from '../fixtures/stranger.ts'
import { until } from '../fixtures/evidence.ts'
import { makeCertificate } from './certificate.ts'
import { WebSocket } from './ws.ts'

export type Kind = 'stop-first' | 'start-first'

export interface Habit extends Pick<StrangerOptions, 'update' | 'files' | 'scheme'> {
  /** the application: "an application that …" */
  name: string
  /** the source; `extra`: a free port beside that of the service */
  text: (extra: number) => string
  /** v1.2.0, which must be reverted. Default: it ends with an error before it listens */
  broken?: (text: string) => string
  /** v1.2.0 dies while it serves, so a request that it is answering may be lost with it */
  diesServing?: true
  config?: object
  /** Behind held sockets it listens on another port: that is never good, and it comes back to its own */
  misplaces?: true
  /** It cannot be updated while it runs: what the refusal says. */
  refuses?: RegExp
  /** only the long form runs it: another test holds what is special about it */
  isLong?: true
  /** CI too runs it without a supervision */
  isBare?: true
  /** default: both */
  kinds?: readonly Kind[]
  /** Throws unless this part of the application serves. `pid`: the process that answers on the port of the service */
  serves?: (host: Stranger, now: { pid: number; tag: string; extra: number }) => Promise<void>
  /** Throws if something went wrong over all of it. */
  after?: (host: Stranger) => Promise<void>
}

const ANSWER = `createServer((request, response) => response.end('TAG ' + process.pid))`
const LISTEN = `.listen(Number(process.env.PORT), process.env.HOST)`
const HTTP = `import { createServer } from 'node:http'\n`
const SERVE = `${HTTP}${ANSWER}${LISTEN}\n`
const READ_AGAIN = `server.once('listening', () => process.getBuiltinModule('fs').writeFileSync('read-again', ''))`
const ALONE = ['stop-first'] as const
/** tcp-port-used */
const ASK_BY_CONNECTING = `const isUsed = await new Promise((resolve, reject) => {
  const client = connect({ port, host: '127.0.0.1' })
  client.once('connect', () => { resolve(true); client.destroy() })
  client.once('error', (error) => (error.code === 'ECONNREFUSED' ? resolve(false) : reject(error)))
})
if (isUsed) throw new Error('port ' + port + ' is in use')
`
/** get-port */
const ASK_BY_LISTENING = `const tried = (options) => new Promise((resolve, reject) => {
  const server = createPlain()
  server.unref()
  server.on('error', reject)
  server.listen(options, () => { const { port } = server.address(); server.close(() => resolve(port)) })
})
const hosts = [undefined, '0.0.0.0', ...Object.values(networkInterfaces()).flat().map(({ address }) => address)]
for (const host of new Set(hosts)) {
  try { await tried({ port, host }) } catch (error) {
    if (!['EADDRNOTAVAIL', 'EINVAL'].includes(error.code)) { port = await tried({ port: 0 }); break }
  }
}
`
const ASK_BY_HTTP = `const [port, host] = [Number(process.env.PORT), process.env.HOST]
await new Promise((resolve, reject) => {
  const probe = createServer()
  probe.once('error', reject)
  probe.listen(port, host, () => probe.close(resolve))
})
`
/** multicast-dns: it joins when it listens, which an inherited socket does in the same turn */
const groupAt = (port: number) => `const answer = (socket) =>
  socket.on('message', (_, from) => socket.send(String(process.pid), from.port, from.address))
const mdns = answer(createSocket({ type: 'udp4', reuseAddr: true }))
mdns.on('listening', () => update())
mdns.bind(${port}, '224.0.0.251')
const update = () => mdns.addMembership('224.0.0.251', '127.0.0.1')
`
const ofGroup: NonNullable<Habit['serves']> = async (_host, { pid, extra }) =>
  void (await until('an answer to the group', () => answersBy(pid, extra, '224.0.0.251')))

/** What a host and a container make of one application is the same for each of these habits, so one has them all. */
export const MANY: Habit = {
  name: 'asks for its port in two ways, joins a group, is ready when it has asked itself, and answers 503 until it is warm',
  isLong: true,
  update: { readyTimeout: '8s' },
  text: (extra) => `import { createSocket } from 'node:dgram'
import { connect, createServer as createPlain } from 'node:net'
import { networkInterfaces } from 'node:os'
import { request as ask } from 'undici'
${HTTP}let port = Number(process.env.PORT)
${ASK_BY_CONNECTING}${ASK_BY_LISTENING}${groupAt(extra)}let [isAsked, isWarm] = [false, false]
setTimeout(() => (isWarm = true), 1000)
createServer((request, response) => {
  response.writeHead((isAsked && isWarm) || request.url === '/warm' ? 200 : 503).end('TAG ' + process.pid)
}).listen(port, async () => {
  const { statusCode } = await ask('http://127.0.0.1:' + port + '/warm')
  isAsked = statusCode === 200
})`,
  broken: (text) => text.replace('1000', '1e6'),
  serves: ofGroup,
}

export const HABITS: readonly Habit[] = [
  {
    name: 'asks by a connection whether its port is in use (tcp-port-used)',
    text: () => `import { connect } from 'node:net'
${HTTP}const port = Number(process.env.PORT)
${ASK_BY_CONNECTING}${ANSWER}.listen(port)`,
  },
  {
    name: 'takes the port that is free, or any other one (get-port)',
    text: () => `import { createServer as createPlain } from 'node:net'
import { networkInterfaces } from 'node:os'
${HTTP}let port = Number(process.env.PORT)
${ASK_BY_LISTENING}${ANSWER}.listen(port)`,
  },
  {
    name: 'tries its port at four addresses (detect-port)',
    isLong: true,
    text: () => `import { createServer as createPlain } from 'node:net'
${HTTP}const isFree = (port, host) => new Promise((resolve) => {
  const server = createPlain()
  server.once('error', (error) => resolve(error.code === 'EADDRNOTAVAIL'))
  server.listen({ port, host }, () => server.close(() => resolve(true)))
})
const port = Number(process.env.PORT)
let free = true
for (const host of [undefined, '0.0.0.0', '127.0.0.1', 'localhost']) free &&= await isFree(port, host)
${ANSWER}.listen(free ? port : port + 1)`,
  },
  {
    name: 'walks upwards from its port to the first free one (portfinder)',
    isLong: true,
    text: () => `import { createServer as createPlain } from 'node:net'
${HTTP}const probe = createPlain(() => {})
const isFree = (port) => new Promise((resolve) => {
  const failed = () => { probe.off('listening', listens); resolve(false) }
  const listens = () => { probe.off('error', failed); probe.close(() => resolve(true)) }
  probe.once('error', failed)
  probe.once('listening', listens)
  probe.listen(port)
})
let port = Number(process.env.PORT)
while (!(await isFree(port))) port++
${ANSWER}.listen(port)`,
  },
  {
    name: 'lets a child process find the first free port from its own upwards',
    isLong: true,
    misplaces: true,
    config: { servers: 1 },
    text: () => `import { execFileSync } from 'node:child_process'
${HTTP}const walk = (port, { createServer }) => createServer()
  .once('error', () => walk(port + 1, { createServer }))
  .listen(port, function () { this.close(() => console.log(port)) })
const script = 'const walk = ' + walk + '; walk(' + process.env.PORT + ', require("node:net"))'
${ANSWER}.listen(Number(execFileSync(process.execPath, ['-e', script])))`,
  },
  {
    name: 'joins a group as mDNS does, and has two sockets on one port',
    isLong: true,
    text: (extra) => `import { createSocket } from 'node:dgram'
${groupAt(extra)}for (let i = 0; i < 2; i++) answer(createSocket({ type: 'udp4', reusePort: true })).bind(${extra}, '127.0.0.1')
${SERVE}`,
    async serves(host, now) {
      const asked = Array.from({ length: 16 }, () =>
        until('an answer', () => answersBy(now.pid, now.extra, '127.0.0.1')),
      )
      await Promise.all(asked)
      await ofGroup(host, now)
    },
  },
  {
    name: 'warms up and answers 503 until then',
    text: () => `${HTTP}let isReady = false
setTimeout(() => (isReady = true), 1500)
createServer((request, response) => {
  response.writeHead(isReady ? 200 : 503).end('TAG ' + process.pid)
})${LISTEN}`,
    update: { readyTimeout: '6s' },
    isBare: true,
    broken: (text) => text.replace('1500', '1e6'),
  },
  {
    name: 'is healthy after its first job only',
    isLong: true,
    text: () => `import { writeFile } from 'node:fs/promises'
${HTTP}let jobs = 0
setInterval(async () => { await writeFile('job', 'TAG'); jobs++ }, 500)
createServer((request, response) => {
  if (request.url === '/healthz') response.statusCode = jobs > 0 ? 200 : 500
  response.end('TAG ' + process.pid)
})${LISTEN}`,
    async serves({ home }, { tag }) {
      await until(
        `a job of ${tag}`,
        async () => (await readFile(join(home.stateDirectory, 'job'), 'utf8').catch(() => '')) === tag,
      )
    },
  },
  {
    name: 'is ready when its `listen` has called back',
    isLong: true,
    text: () => `${HTTP}let isReady = false
createServer((request, response) => {
  if (request.url === '/healthz') response.statusCode = isReady ? 200 : 503
  response.end('TAG ' + process.pid)
}).listen(Number(process.env.PORT), process.env.HOST, () => (isReady = true))`,
  },
  {
    name: 'asks itself when it listens, and is ready then',
    isLong: true,
    text: () => `import { request as ask } from 'undici'
${HTTP}let isReady = false
createServer((request, response) => {
  if (request.url === '/healthz') response.statusCode = isReady ? 200 : 503
  response.end('TAG ' + process.pid)
}).listen(Number(process.env.PORT), process.env.HOST, async () => {
  const { statusCode } = await ask('http://127.0.0.1:' + process.env.PORT + '/warm')
  isReady = statusCode === 200
})`,
  },
  {
    name: 'forks a child that writes',
    kinds: ALONE,
    text: () => `import { fork } from 'node:child_process'
import { appendFileSync, readFileSync } from 'node:fs'
${HTTP}if (process.argv[2] === 'writer') {
  process.on('disconnect', () => process.exit())
  setInterval(() => {
    let last = '0'
    try { last = readFileSync('numbers', 'utf8').trim().split('\\n').at(-1) } catch {}
    appendFileSync('numbers', Number(last) + 1 + '\\n')
  }, 20)
} else {
  fork(import.meta.filename, ['writer'])
  ${ANSWER}${LISTEN}
}`,
    broken: (text) => text.replace('  fork', "  throw new Error('DATABASE_URL is not set')\n  fork"),
    async serves({ home }) {
      const path = join(home.stateDirectory, 'numbers')
      const count = async () => (await readFile(path, 'utf8').catch(() => '')).length
      const before = await count()
      await until('the child to write', async () => (await count()) > before)
    },
    async after({ home }) {
      const numbers = (await readFile(join(home.stateDirectory, 'numbers'), 'utf8')).trim().split('\n').map(Number)
      equal(numbers.filter((number, at) => number !== at + 1).slice(0, 5), [])
    },
  },
  {
    name: 'unlinks its socket before it listens',
    isLong: true,
    text: () => `import { existsSync, unlinkSync } from 'node:fs'
${HTTP}if (existsSync('shop.sock')) unlinkSync('shop.sock')
${ANSWER}.listen('shop.sock')
${ANSWER}${LISTEN}`,
    async serves({ home }, { pid, tag }) {
      await bySocket(join(home.stateDirectory, 'shop.sock'), `${tag} ${pid}`)
    },
  },
  {
    name: 'forks workers of node:cluster, and another one for each that ends',
    refuses: /node:cluster/,
    text: () => `import cluster from 'node:cluster'
${HTTP}if (cluster.isPrimary) {
  for (let i = 0; i < 2; i++) cluster.fork()
  cluster.on('exit', () => cluster.fork())
} else ${ANSWER}${LISTEN}`,
  },
  {
    name: 'makes a pool of as many workers as there are processors',
    isLong: true,
    text: () => `import { cpus } from 'node:os'
import { Worker, isMainThread, parentPort } from 'node:worker_threads'
${HTTP}if (isMainThread) {
  const pool = cpus().map(() => new Worker(new URL(import.meta.url)))
  if (pool.length === 0) throw new RangeError('expected a worker')
  createServer((request, response) => {
    pool[0].once('message', (sum) => response.end('TAG ' + process.pid + ' ' + sum))
    pool[0].postMessage(1000)
  })${LISTEN}
} else {
  parentPort.on('message', (n) => { let sum = 0; for (let i = 1; i <= n; i++) sum += i; parentPort.postMessage(sum) })
}`,
    broken: (text) => text.replace('const pool', "throw new Error('DATABASE_URL is not set')\n  const pool"),
    async serves(host) {
      match(await host.get('/'), / 500500$/)
    },
  },
  {
    name: 'migrates its database before it listens',
    isLong: true,
    kinds: ALONE,
    text: () => `import { DatabaseSync } from 'node:sqlite'
${HTTP}const db = new DatabaseSync('shop.db')
db.exec('pragma journal_mode = wal; create table if not exists rows (id text primary key)')
if ('TAG' !== 'v1.0.0' && db.prepare('pragma user_version').get().user_version === 0)
  db.exec("begin; alter table rows add column note text default ''; pragma user_version = 1; commit")
createServer((request, response) => {
  if (request.method === 'POST') db.prepare('insert or ignore into rows (id) values (?)').run(request.url)
  response.end('TAG ' + process.pid + ' ' + db.prepare('select count(*) n from rows').get().n)
})${LISTEN}`,
    broken: (text) => `${text}\nthrow new Error('DATABASE_URL is not set')`,
  },
  {
    name: 'exits on SIGHUP, so that whoever runs it starts it again',
    isLong: true,
    text: () => `process.on('SIGHUP', () => process.exit(0))\n${SERVE}`,
    after: (host) => comesAgain(host, 'SIGHUP'),
  },
  {
    name: 'writes its pid, and refuses to start beside a process of that pid',
    kinds: ALONE,
    text: () => `import { existsSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs'
${HTTP}if (existsSync('shop.pid')) {
  const pid = Number(readFileSync('shop.pid', 'utf8'))
  let lives = true
  try { process.kill(pid, 0) } catch { lives = false }
  if (lives) { console.error('already running with pid ' + pid); process.exit(1) }
}
writeFileSync('shop.pid', String(process.pid))
process.on('exit', () => unlinkSync('shop.pid'))
${ANSWER}${LISTEN}`,
    async serves({ home }, { pid }) {
      is(await readFile(join(home.stateDirectory, 'shop.pid'), 'utf8'), String(pid))
    },
  },
  {
    name: 'has a lock file that goes stale, and tries again while another has it (proper-lockfile)',
    isLong: true,
    kinds: ALONE,
    text: () => `import { mkdirSync, rmdirSync, statSync, utimesSync } from 'node:fs'
${HTTP}const [stale, lock] = [2000, 'shop.lock']
const take = () => {
  try { mkdirSync(lock) } catch {
    if (Date.now() - statSync(lock).mtimeMs < stale) return false
    rmdirSync(lock)
    mkdirSync(lock)
  }
  return true
}
for (let tries = 0; !take(); tries++) {
  if (tries === 10) throw new Error('ELOCKED')
  await new Promise((resolve) => setTimeout(resolve, 400))
}
setInterval(() => utimesSync(lock, new Date(), new Date()), stale / 2)
process.on('exit', () => rmdirSync(lock))
${ANSWER}${LISTEN}`,
  },
  {
    name: 'closes its server on SIGTERM and then exits, in an update too',
    config: { onStop: 'SIGTERM' },
    text: () => `${HTTP}const server = ${ANSWER}
server${LISTEN}
process.on('SIGTERM', () => server.close(() => process.exit(0)))`,
  },
  {
    name: 'has a server of a protocol of its own, with clients that stay',
    isLong: true,
    update: { drainTimeout: '100s' }, // longer than the test waits for an operation
    text: (extra) => `import { createServer as createPlain } from 'node:net'
createPlain((socket) => void socket.on('error', () => {}).write(String(process.pid))).listen(${extra}, '127.0.0.1')
${SERVE}`,
    async serves(_host, { pid, extra }) {
      await until('a greeting', async () => {
        const client = connect(extra, '127.0.0.1').on('error', () => {})
        client.unref() // it stays open
        const [said] = (await once(client, 'data')) as [Buffer]
        return Number(said.toString()) === pid
      })
    },
  },
  {
    name: 'serves HTTPS with a certificate of its own',
    isLong: true,
    scheme: 'https',
    config: { scheme: 'https' },
    text: () => `import { createServer } from 'node:https'
const pair = ${JSON.stringify(makeCertificate())}
createServer(pair, (request, response) => response.end('TAG ' + process.pid))${LISTEN}`,
  },
  {
    name: 'pings its WebSockets, and ends those that do not answer',
    isLong: true,
    text: () => `import { WebSocketServer } from 'ws'
${HTTP}const server = ${ANSWER}
const sockets = new WebSocketServer({ server })
sockets.on('connection', (ws) => {
  ws.isAlive = true
  ws.on('pong', () => (ws.isAlive = true))
  ws.on('message', (text) => ws.send('TAG ' + text))
})
setInterval(() => sockets.clients.forEach((ws) => {
  if (!ws.isAlive) return ws.terminate()
  ws.isAlive = false
  ws.ping()
}), 300)
server${LISTEN}`,
    async serves({ port }, { tag }) {
      const client = new WebSocket(`ws://127.0.0.1:${port}`)
      client.on('error', () => {})
      await once(client, 'open')
      client.send('hello')
      const [said] = (await once(client, 'message')) as [Buffer]
      is(said.toString(), `${tag} hello`)
    },
  },
  {
    name: 'sends events without an end',
    isLong: true,
    text: () => `${HTTP}createServer((request, response) => {
  if (request.url !== '/events') return response.end('TAG ' + process.pid)
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  const timer = setInterval(() => response.write('data: TAG\\n\\n'), 50)
  response.on('close', () => clearInterval(timer))
})${LISTEN}`,
    async serves({ port }, { tag }) {
      const response = await fetch(`http://127.0.0.1:${port}/events`)
      const reader = response.body?.getReader()
      const part = await reader?.read()
      is(new TextDecoder().decode(part?.value).slice(0, 12), `data: ${tag}`)
      void reader?.read().catch(() => {}) // it stays open
    },
  },
  {
    name: 'has a second port for its metrics',
    isLong: true,
    text: (extra) => `${SERVE}${ANSWER}.listen(${extra}, '127.0.0.1')`,
    serves: async (_host, { pid, tag, extra }) => await secondAnswers(extra, `${tag} ${pid}`),
  },
  {
    name: 'listens late, after other work',
    isLong: true,
    update: { readyTimeout: '8s' },
    text: () =>
      `await new Promise((resolve) => setTimeout(resolve, 3000))\n${SERVE}`.replace(
        /^(await .*\n)(import .*\n)/,
        '$2$1',
      ),
    broken: (text) => text.replace('3000', '1e6'),
  },
  {
    name: 'ends on an exception that nobody catches',
    isLong: true,
    text: () => `process.on('uncaughtException', (error) => { console.error(error); process.exit(1) })
${HTTP}createServer((request, response) => {
  if (request.url === '/crash') throw new Error('a bug')
  response.end('TAG ' + process.pid)
})${LISTEN}`,
    diesServing: true,
    broken: (text) => `${text}\nsetTimeout(() => { throw new Error('DATABASE_URL is not set') }, 200)`,
    after: (host) => comesAgain(host, () => host.get('/crash').catch(() => {})),
  },
  {
    name: 'finds its files by the folder that it starts in (express.static)',
    isLong: true,
    config: { cwd: 'app' },
    files: { 'public/greeting': 'hello' },
    text: () => `import { readFileSync } from 'node:fs'
${HTTP}createServer((request, response) => {
  response.end('TAG ' + process.pid + ' ' + readFileSync('public/greeting'))
})${LISTEN}`,
    async serves(host) {
      match(await host.get('/'), / hello$/)
    },
  },
  {
    name: 'does a job every 100 ms, which no two processes may do',
    isLong: true,
    kinds: ALONE,
    text: () => `import { appendFileSync } from 'node:fs'
setInterval(() => appendFileSync('jobs', process.pid + '\\n'), 100)
${SERVE}`,
    async after({ home }) {
      const by = (await readFile(join(home.stateDirectory, 'jobs'), 'utf8')).trim().split('\n')
      const turns = by.filter((pid, at) => pid !== by[at - 1])
      equal(turns, [...new Set(turns)])
      ok(turns.length >= 4)
    },
  },
  {
    name: 'reads its terminal, and clears it',
    isLong: true,
    text: () => `import { createInterface } from 'node:readline'
console.clear()
createInterface({ input: process.stdin }).on('line', (line) => line === 'q' && process.exit())
process.stdin.resume()
${SERVE}`,
  },
  MANY,
  { name: 'gives itself another title', isLong: true, text: () => `process.title = 'a shop'\n${SERVE}` },
  {
    name: 'keeps connections for ever',
    isLong: true,
    text: () => `${HTTP}const server = ${ANSWER}
server.keepAliveTimeout = 0
server.requestTimeout = 0
server${LISTEN}`,
  },
  {
    name: 'asks by an HTTP server whether its port is free, and closes it as soon as that listens',
    isLong: true,
    text: () => `${HTTP}${ASK_BY_HTTP}${ANSWER}${LISTEN}`,
  },
  {
    name: 'asks so by an HTTP server that would answer',
    isLong: true,
    config: { servers: 1 },
    text: () =>
      `${HTTP}${ASK_BY_HTTP.replace('createServer()', 'createServer((_, response) => response.writeHead(404).end())')}${ANSWER}${LISTEN}`,
  },
  {
    name: 'tries again while its port is taken, as the documentation of Node shows, when it is started first',
    text: () => `import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
${HTTP}const [port, host] = [Number(process.env.PORT), process.env.HOST]
if (!existsSync('started')) {
  writeFileSync('started', '')
  const script = 'require("node:net").createServer().listen(' + port + ', "' + host + '", () => console.log()); setTimeout(process.exit, 1000)'
  await once(spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] }).stdout, 'data')
}
const server = ${ANSWER}
server.on('error', (error) => {
  if (error.code !== 'EADDRINUSE') throw error
  setTimeout(() => { server.close(); server.listen(port, host) }, 100)
})
server.listen(port, host)`,
  },
  {
    name: 'closes its server and listens again at once, with the same one, when it reads its settings again',
    isLong: true,
    text: () => `${HTTP}const server = ${ANSWER}
server${LISTEN}
process.on('SIGUSR2', () => { server.close(); server${LISTEN}; ${READ_AGAIN} })`,
    after: reloads,
  },
  {
    name: 'does so with another one, and has one server only',
    isLong: true,
    config: { servers: 1 },
    text: () => `${HTTP}let server = ${ANSWER}${LISTEN}
process.on('SIGUSR2', () => { server.close(); server = ${ANSWER}${LISTEN}; ${READ_AGAIN} })`,
    after: reloads,
  },
  {
    name: 'opens its second port when somebody wants it',
    isLong: true,
    text: (extra) => `${HTTP}let second = null
createServer((request, response) => {
  if (request.url === '/open') second ??= ${ANSWER}.listen(${extra}, '127.0.0.1')
  response.end('TAG ' + process.pid)
})${LISTEN}`,
    async serves(host, { pid, tag, extra }) {
      await host.get('/open')
      await secondAnswers(extra, `${tag} ${pid}`)
    },
  },
  {
    name: 'makes its unix socket writable for everybody as soon as it listens there',
    isLong: true,
    text: () => `import { chmodSync, rmSync } from 'node:fs'
${HTTP}rmSync('shop.sock', { force: true })
${ANSWER}.listen('shop.sock', () => chmodSync('shop.sock', 0o666))
${ANSWER}${LISTEN}`,
    async serves({ home }, { pid, tag }) {
      const path = join(home.stateDirectory, 'shop.sock')
      is(((await stat(path)).mode & 0o777).toString(8), '666')
      await bySocket(path, `${tag} ${pid}`)
    },
  },
  {
    name: 'says who answers only once its database is there',
    isLong: true,
    text: () => `${HTTP}const server = createServer()
server${LISTEN}
setTimeout(() => server.on('request', (_, response) => response.end('TAG ' + process.pid)), 400)`,
  },
  {
    name: 'looks whether it is itself who answers on its port, and ends if not',
    isLong: true,
    kinds: ALONE,
    text: () => `import { get } from 'node:http'
${SERVE}setInterval(() => {
  get({ port: process.env.PORT, host: process.env.HOST, agent: false }, async (answer) => {
    if (String(await answer.toArray()) !== 'TAG ' + process.pid) process.exit(1)
  }).on('error', () => {})
}, 200)`,
  },
  {
    name: 'says 503 on its port by another server while it starts, and closes that',
    isLong: true,
    update: { readyTimeout: '6s' },
    text: () => `${HTTP}const starting = createServer((_, response) => response.writeHead(503).end('it starts'))
starting${LISTEN}
await new Promise((resolve) => setTimeout(resolve, 700))
await new Promise((resolve) => starting.close(resolve))
${ANSWER}${LISTEN}`,
  },
]

async function secondAnswers(port: number, expected: string): Promise<void> {
  const ask = async () => await (await fetch(`http://127.0.0.1:${port}`, { headers: { connection: 'close' } })).text()
  await until('the second port', async () => (await ask().catch(() => '')) === expected)
}

async function bySocket(path: string, expected: string): Promise<void> {
  await until('an answer by the socket', async () => {
    const client = connect(path)
    const said = new Promise<string>((resolve, reject) => {
      client.once('error', reject)
      client.once('connect', () => client.end('GET / HTTP/1.0\r\n\r\n'))
      let text = ''
      client.on('data', (part) => (text += part)).once('close', () => resolve(text))
    })
    return (await said.catch(String)).endsWith(expected)
  })
}

/** It reads its settings again, serves, and goes through another update and back. */
async function reloads(host: Stranger): Promise<void> {
  const before = await host.get('/')
  process.kill(Number(before.split(' ')[1]), 'SIGUSR2')
  await until('it to listen again', () => existsSync(join(host.home.stateDirectory, 'read-again')))
  is(await host.get('/'), before)
  const { outcome, error } = await host.operate('/admin/update', { tag: 'v1.1.0' })
  is(outcome, 'updated', JSON.stringify(error))
  match(await host.get('/'), /^v1\.1\.0 /)
  is((await host.operate('/admin/update/rollback')).outcome, 'rolled_back')
  match(await host.get('/'), /^v1\.0\.0 /)
}

/** The process that serves ends in this way, and another one of the same release serves. */
async function comesAgain(host: Stranger, how: NodeJS.Signals | (() => Promise<unknown>)): Promise<void> {
  const [tag, pid] = (await host.get('/')).split(' ')
  await host.kill(Number(pid), how)
  const now = await until(
    'another process',
    async () => {
      const said = (await host.get('/').catch(() => '')).split(' ')
      return said[1] !== undefined && said[1] !== pid && said
    },
    30_000,
  )
  is(now[0], tag)
}

/** Such a release as `text` that ends with an error before it listens, as for want of a setting. */
export function failing(text: string): string {
  const imports = /^(?:import .*\n)*/.exec(text)?.[0] ?? ''
  return `${imports}throw new Error('DATABASE_URL is not set')\n${text.slice(imports.length)}`
}

/** Whether the process answers a datagram. The kernel chooses among sockets that share a port by the client's. */
async function answersBy(pid: number, port: number, host: string): Promise<boolean> {
  const client = createSocket('udp4')
  try {
    client.bind(0, '127.0.0.1')
    await once(client, 'listening')
    client.setMulticastInterface('127.0.0.1')
    client.send('who', port, host)
    const [said] = (await once(client, 'message', { signal: AbortSignal.timeout(500) })) as [Buffer]
    return Number(said.toString()) === pid
  } catch {
    return false
  } finally {
    client.close()
  }
}
