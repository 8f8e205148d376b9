// The holder of a container's sockets as a process: what it hands out, to whom, and what a client can do to it.

import { spawn } from 'node:child_process'
import { access, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { connect, createServer, Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { equal, is, match, ok } from './assert.ts'
import { type HolderGround, holderGround, noHolder, watched } from './fixtures/container-holder.ts'
import { until } from './fixtures/evidence.ts'
import { freePort } from './fixtures/install.ts'
import { noPython } from './lab/python.ts'
import { suite } from './suite.ts'

const test = suite('holder', {
  timeoutMs: 60_000,
  skip: noHolder ?? noPython,
})
let ground: HolderGround
let port = 0

test.before(async () => {
  ground = await holderGround()
})

test('says its version, and what is wrong with its arguments', async () => {
  const free = String(await freePort())
  const cases: [string[], number, RegExp][] = [
    [['--version'], 0, /^baton-holder \d+\.\d+\.\d+\n$/],
    [['--help'], 0, /^usage: baton-holder /],
    [[], 2, /^error: expected a port to hold\nusage: /],
    [
      ['eighty'],
      2,
      /expected a port, HOST:PORT or \[HOST\]:PORT with a numeric host, or one of these with \/udp, got `eighty`/,
    ],
    [['0'], 2, /got `0`/],
    [['65536'], 2, /got `65536`/],
    [['localhost:80'], 2, /got `localhost:80`/],
    [['80/sctp'], 2, /or one of these with \/udp, got `80\/sctp`/],
    [['0/udp'], 2, /got `0\/udp`/],
    [['/udp'], 2, /got `\/udp`/],
    [[`${free}/udp`, free, `${free}/udp`], 2, new RegExp(`expected each address once, got \`${free}/udp\` twice`)],
    [['1:2:80'], 2, /got `1:2:80`/],
    [['-1'], 2, /expected --socket=, .*, got `-1`/],
    [['x'.repeat(5000)], 2, /got `x{80}`\n$/],
    [[free, free], 2, new RegExp(`expected each address once, got \`${free}\` twice`)],
    [Array.from({ length: 33 }, (_, i) => `127.9.9.${i + 1}:23999`), 2, /expected at most 32 addresses/],
    [['--backlog=none', '80'], 2, /expected a number from 1 to 65535 for --backlog, got `none`/],
    [['--uid=-1', '80'], 2, /expected the number of a user for --uid, got `-1`/],
    [['--socket=here', '80'], 2, /expected an absolute path of at most 100 bytes for --socket, got `here`/],
    [[`--socket=/${'x'.repeat(100)}`, '80'], 2, /expected an absolute path of at most 100 bytes/],
    [['--socket=/nowhere/socket', String(await freePort())], 1, /making \/nowhere\/socket: No such file/],
  ]
  for (const [args, code, said] of cases) {
    const one = ground.run(...args)
    is(await one.ended, code, args.join(' ').slice(0, 80))
    match(one.said(), said)
  }
})

test('a port that is in use, and a second holder at the same place, are errors that name them', async () => {
  port = await freePort()
  const first = await ground.start(String(port))
  const taken = ground.run(String(port))
  is(await taken.ended, 1)
  match(taken.said(), new RegExp(`listening on ${port}: Address`))
  const second = ground.run(String(await freePort()))
  is(await second.ended, 1)
  match(second.said(), /another holder answers at .*\nhint: one volume for each holder/)
  first.child.kill('SIGTERM')
  is(await first.ended, 0, 'SIGTERM ends it at once')
})

test('a port of UDP is held beside the same one of TCP, and nobody else can have it', async () => {
  await using own = await holderGround()
  const [udp, only] = [`${port}/udp`, `127.0.0.1:${await freePort()}/udp`]
  await own.start(String(port), udp, only)
  equal((await client(own.path)).text().trimEnd().split('\n').slice(1), [String(port), udp, only])
  await using second = await holderGround()
  const taken = second.run(udp)
  is(await taken.ended, 1)
  match(taken.said(), new RegExp(`listening on ${udp}: Address`))
})

test('gives everybody who connects the names and the sockets, of several ports and both kinds of IP', async () => {
  const [other, third] = [await freePort(), await freePort()]
  await using own = await holderGround()
  const holder = await own.start(String(port), `127.0.0.1:${other}`, `[::1]:${third}`)
  is((await stat(own.path)).mode & 0o777, 0o660)
  const first = await client(own.path)
  const [head = '', ...names] = first.text().trimEnd().split('\n')
  match(head, /^baton-holder 1 [0-9a-f]{32}$/)
  equal(names, [String(port), `127.0.0.1:${other}`, `::1:${third}`])
  is((await client(own.path)).text(), first.text())
  // they queue: nobody accepts
  for (const [host, to] of [
    ['127.0.0.1', port],
    ['::1', port],
    ['127.0.0.1', other],
    ['::1', third],
  ] as const)
    await connected(to, host)
  holder.child.kill('SIGKILL')
  await until('the end of the connection', () => first.isClosed())
})

test('whoever says something is cut off, a thousand who come and go cost nothing, and the next is served', async () => {
  await using own = await holderGround()
  const holder = await own.start(String(port))
  const { pid } = holder.child
  const patient = await client(own.path)
  for (const words of ['GET / HTTP/1.1\r\n\r\n', '\0\0\0', 'x'.repeat(1 << 20)]) {
    const rude = await client(own.path)
    rude.socket.write(words)
    await until('the end', () => rude.isClosed())
  }
  const before = (await readdir(`/proc/${pid}/fd`)).length
  for (let i = 0; i < 20; i++) {
    const some = await Promise.all(Array.from({ length: 50 }, () => come(own.path)))
    for (const socket of some) socket.destroy()
  }
  await until('no descriptor more', async () => (await readdir(`/proc/${pid}/fd`)).length === before)
  match((await client(own.path)).text(), /^baton-holder 1 /)
  is(patient.isClosed(), false)
  ok(holder.said().split('\n').length < 100, 'nor does the log grow')
  // one that stays has its bound: the others of its user are turned away, and get a place when it goes
  const staying = await Promise.all(Array.from({ length: 30 }, () => come(own.path)))
  await until('the bound', async () => (await readdir(`/proc/${pid}/fd`)).length <= before + 16)
  for (const socket of staying) socket.destroy()
  await until('a place', async () => (await client(own.path)).text() !== '')
})

test('another user is refused: by the mode of the socket, and by --uid', async () => {
  if (process.getuid?.() !== 0) return
  await using own = await holderGround()
  await own.start('--uid=0', '--uid=4242', String(port))
  equal(await ask(own.path, 4242), 'EACCES', 'it is not in the group')
  equal(await ask(own.path, 4242, 0), 'baton-holder')
  equal(await ask(own.path, 4343, 0), 'closed')
  match((await client(own.path)).text(), /^baton-holder 1 /)
})

test('a name that is gone or leads to another is made anew; those who are connected stay so', async () => {
  await using own = await holderGround()
  const holder = await own.start(String(port))
  const first = await client(own.path)
  await rm(own.path)
  await until('the name', async () => (await client(own.path).catch(() => null)) !== null)
  const other = createServer((socket) => void socket.end('nothing\n'))
  await new Promise<void>((resolve) => other.listen(`${own.path}.other`, resolve))
  await rename(`${own.path}.other`, own.path)
  await until('its own', async () => (await client(own.path)).text().startsWith('baton-holder'))
  await rm(own.path)
  await writeFile(own.path, 'a file')
  await until(
    'its own',
    async () => (await client(own.path).catch(() => null))?.text().startsWith('baton-holder') ?? false,
  )
  is(first.isClosed(), false)
  match(holder.said(), /was gone or another's: made anew/)
  other.close()
})

test('with few descriptors it neither ends nor spins, and goes on when there are some again', async () => {
  await using own = await holderGround()
  const holder = shell(`ulimit -n 10; exec "$0" "$@"`, own.program, `--socket=${own.path}`, String(port))
  try {
    await until('it', () => /^lending /m.test(holder.said()))
    const all = await Promise.all(Array.from({ length: 12 }, () => come(own.path)))
    const before = await cpuOf(holder.child.pid ?? 0)
    await sleep(1000)
    ok((await cpuOf(holder.child.pid ?? 0)) - before < 20, 'below a fifth of a second in one')
    for (const socket of all) socket.destroy()
    await until('a place', async () => (await client(own.path)).text() !== '')
  } finally {
    holder.child.kill('SIGKILL')
  }
})

test('what one client shuts or connects, the next one has afresh, also while the first one stays', async () => {
  await using own = await holderGround()
  const [tcp, udp, other] = [await freePort(), await freePort(), await freePort()]
  const holder = await own.start(String(tcp), `${udp}/udp`, `127.0.0.1:${other}/udp`)
  const rude = python(`${borrow(own.path)}
a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
a.shutdown(socket.SHUT_RDWR)
b.connect(('::1', 9))
try: c.shutdown(socket.SHUT_RDWR)
except OSError: pass # it is not connected, and shut all the same
time.sleep(3600)`)
  try {
    for (const name of [tcp, `${udp}/udp`, `127.0.0.1:${other}/udp`])
      await until(name.toString(), () =>
        holder.said().includes(`\n${name} was shut or connected by a client: bound afresh\n`),
      )
    await connected(tcp, '127.0.0.1')
    const next = python(`${borrow(own.path)}
print('accepted from', a.accept()[1][0])
for at, port in (b, ${udp}), (c, ${other}):
  socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'a datagram', ('127.0.0.1', port))
  print(at.recv(99))
thief = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try: thief.bind(('127.0.0.1', ${other}))
except OSError: print('in use')`)
    is(await next.ended, 0)
    is(next.said(), `accepted from ::ffff:127.0.0.1\nb'a datagram'\nb'a datagram'\nin use\n`)
  } finally {
    rude.child.kill('SIGKILL')
  }
})

test('whoever does not receive the sockets is cut off, and has its place until it lets go of them', async () => {
  await using own = await holderGround()
  const holder = await own.start(String(port))
  const patient = await client(own.path)
  const says = await deaf(own.path) // what it says ends the connection, but the sockets are in flight still
  says.write('a word')
  const silent = await deaf(own.path)
  await until('the first', () => holder.said().includes('did not receive the sockets: cut off'))
  equal(holder.said().match(/did not receive|is gone/g), ['did not receive'])
  for (const [i, socket] of [says, silent].entries()) {
    let isEnded = false
    socket.on('end', () => void (isEnded = true)).resume()
    await until('its end', () => isEnded)
    socket.destroy()
    await until('its place', () => (holder.said().match(/is gone/g) ?? []).length === i + 1)
  }
  is(patient.isClosed(), false)
})

test('it raises its limit of descriptors, as far as it may', async () => {
  await using own = await holderGround()
  const holder = shell(`ulimit -Sn 64; exec "$0" "$@"`, own.program, `--socket=${own.path}`, String(port))
  try {
    await until('it', () => /^lending /m.test(holder.said()))
    const limits = await readFile(`/proc/${holder.child.pid}/limits`, 'utf8')
    const [, soft, hard] = /^Max open files +(\d+) +(\d+)/m.exec(limits) ?? []
    is(Number(soft), Math.min(4096, Number(hard)))
  } finally {
    holder.child.kill('SIGKILL')
  }
})

test('what a kill leaves in the volume is no hindrance', async () => {
  await using own = await holderGround()
  const first = await own.start(String(port))
  await writeFile(`${own.path}~`, 'left by a kill before the rename')
  first.child.kill('SIGKILL')
  await first.ended
  await access(own.path)
  await own.start(String(port))
  match((await client(own.path)).text(), /^baton-holder/)
  await access(`${own.path}~`).then(
    () => ok(false, 'the other name is still there'),
    () => {},
  )
})

test.after(async () => {
  await ground[Symbol.asyncDispose]()
})

test.run()

interface Client {
  socket: Socket
  text(): string
  isClosed(): boolean
}

const open = new Set<Socket>()
test.after(() => {
  for (const socket of open) socket.destroy()
})

/** One that has had its answer, or its end. */
async function client(path: string): Promise<Client> {
  const socket = await come(path)
  let [text, isClosed] = ['', false]
  socket.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk))
  socket.on('close', () => void (isClosed = true))
  await until('an answer or an end', () => isClosed || text !== '')
  return { socket, text: () => text, isClosed: () => isClosed }
}

async function come(path: string): Promise<Socket> {
  const socket = connect(path)
  open.add(socket)
  socket.once('close', () => open.delete(socket))
  const failed = await new Promise<Error | null>((resolve) => {
    socket.once('connect', () => resolve(null))
    socket.once('error', resolve)
  })
  socket.on('error', () => {})
  if (failed === null) return socket
  if ('code' in failed && failed.code !== 'EAGAIN') throw failed // its queue is full
  await sleep(5)
  return await come(path)
}

/** One that never receives, so what it was given stays on its way. */
async function deaf(path: string): Promise<Socket> {
  const socket = new Socket().pause()
  open.add(socket)
  await new Promise<void>((resolve, reject) => socket.once('error', reject).connect(path, resolve))
  return socket
}

/** Python that has the three sockets of the holder as `a`, `b` and `c`. */
const borrow = (path: string) => `import array, socket, time
link = socket.socket(socket.AF_UNIX)
link.connect(${JSON.stringify(path)})
fds = array.array('i', link.recvmsg(4096, socket.CMSG_SPACE(12))[1][0][2])
a, b, c = [socket.socket(fileno=fd) for fd in fds]
for one in a, b, c: one.settimeout(5)`

const shell = (...words: string[]) => watched(spawn('/bin/sh', ['-c', ...words], { stdio: ['ignore', 'pipe', 'pipe'] }))

const python = (program: string) => watched(spawn('python3', ['-c', program], { stdio: ['ignore', 'pipe', 'pipe'] }))

async function connected(to: number, host: string): Promise<void> {
  const socket = connect({ port: to, host })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  socket.on('error', () => {})
  socket.destroy()
}

/** What another user gets: the first word of the answer, `closed`, or the error's code. */
async function ask(path: string, uid: number, gid = uid): Promise<string> {
  const program = `const s = process.getBuiltinModule('net').connect(${JSON.stringify(path)}); let t = ''
    s.on('data', (d) => { t += d; s.destroy() }); s.on('error', (e) => { t ||= e.code }); s.on('close', () => console.log(t.split(' ')[0] || 'closed'))`
  const started = watched(spawn(process.execPath, ['-e', program], { uid, gid, cwd: '/', env: {} }))
  await started.ended
  return started.said().trim()
}

/** Hundredths of a second that a process has had. */
async function cpuOf(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /, '').split(' ')
  return Number(fields[11]) + Number(fields[12])
}
