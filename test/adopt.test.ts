// What an author's service may look like, and still be kept up to date: several servers, a base path behind a TLS proxy, a body parser in
// front of the agent, several processes; and `baton dev`. Real installs of the kind script, as `baton dev` makes them.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, cp, mkdir, readdir, rename, symlink, writeFile, readFile } from 'node:fs/promises'
import { Agent, type IncomingMessage, request as plainRequest } from 'node:http'
import { createServer as createSecure, request as secureRequest } from 'node:https'
import { type AddressInfo, createServer } from 'node:net'
import { delimiter, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { OPERATOR_FLAGS, OPERATOR_WORDS } from '../deploy/make/first/command.ts'
import { examineProject } from '../deploy/make/examine.ts'
import { patched } from '../deploy/make/init.ts'
import { COMMANDS } from '../deploy/host/tree.ts'
import { releaseFromSource } from '../deploy/make/from-source.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { run } from '../deploy/lib/shell.ts'
import type { Operation, Status } from '../agent/index.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { adopted, processesNaming } from './fixtures/adopted.ts'
import { ask, freePort } from './fixtures/install.ts'
import { makeCertificate } from './lab/certificate.ts'
import { spawnLoad } from './lab/load.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('adopt', { timeoutMs: 120_000 })
const AUTO = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'\n`
const HELLO = `response.end(request.url === '/healthz' ? 'ok' : 'hello')`

test('every word of the command tree is an operator’s in every release, those that root says too', () => {
  equal(
    COMMANDS.filter(({ name }) => !OPERATOR_WORDS.includes(name)),
    [],
  )
})

test('every flag of the command tree is known to the first code of a release, which then knows it before its word', () => {
  const flags = COMMANDS.flatMap(({ args }) => Object.entries(args))
  for (const [name, flag] of flags.filter(([, { type }]) => type !== 'positional')) {
    is(OPERATOR_FLAGS[`--${name}`], flag.type === 'string', name)
    if ('negativeDescription' in flag) is(OPERATOR_FLAGS[`--no-${name}`], false, name)
    if ('alias' in flag) for (const one of [flag.alias ?? []].flat()) is(OPERATOR_FLAGS[`-${one}`], false, one)
  }
})

test('init puts its line behind what must stay first, once, and also where only `/release` is imported', () => {
  const patch = { path: 'server.js', line: `import 'baton-kit/auto'` }
  const source = `#!/usr/bin/env node\n// ours\n'use strict'\nimport { release } from 'baton-kit/release'\n`
  const once = patched(source, patch)
  is(once, source.replace(`import {`, `import 'baton-kit/auto'\nimport {`))
  is(patched(once ?? '', patch), null)
  is(patched(`import { listen } from 'baton-kit/express'\n`, patch), null)
})

test('init keeps the line ends of a file, and its mark of a byte order', () => {
  const patch = { path: 'server.js', line: `import 'baton-kit/auto'` }
  for (const head of ['', '#!/usr/bin/env node\r\n// ours\r\n', '\uFEFF', `'use strict'\r\n`])
    is(patched(`${head}serve()\r\n`, patch), `${head}import 'baton-kit/auto'\r\nserve()\r\n`)
})

test('the arguments of the configuration take {stateDirectory} and the like, as the environment does', async () => {
  const text = `${AUTO}import { createServer } from 'node:http'
    const told = JSON.stringify(process.argv.slice(2))
    createServer((request, response) => response.end(told)).listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(text, { args: ['--data={stateDirectory}/rows', '{port}', '{other} {toString}'] })
  const home = dirname(dirname(dirname(it.configPath)))
  const { body } = await ask(it.port, 'GET', '/healthz', null)
  const state = join(home, '.local', 'state', 'shop')
  equal(JSON.parse(String(body)), [`--data=${state}/rows`, String(it.port), '{other} {toString}'])
})

test('a word of the application works on the data of the install, wherever it is typed', async () => {
  const text = `if (process.argv.length > 2) {
      const { ADMIN, STATE_DIRECTORY, BATON_WORD } = process.env
      console.log(JSON.stringify({ words: process.argv.slice(2), ADMIN, STATE_DIRECTORY, BATON_WORD, cwd: process.cwd() }))
      process.exit(4)
    }
    await import('${join(PROJECT, 'agent/adapters/auto.ts')}')
    const { createServer } = await import('node:http')
    createServer((request, response) => response.end()).listen(Number(process.env.PORT), process.env.HOST)`
  const environment = { PORT: '{port}', HOST: '{host}', ADMIN: '{password}' }
  await using it = await adopted(text, { environment })
  const state = it.stateDirectory
  const own = { ADMIN: it.password, STATE_DIRECTORY: state, cwd: state }
  for (const typed of [['create-admin', '--name', 'a b'], ['--', 'status'], ['--migrate']]) {
    const { stdout, exitCode } = await it.typed(...typed)
    is(exitCode, 4)
    equal(JSON.parse(stdout), { words: typed.filter((word) => word !== '--'), ...own })
  }
})

test('from another mount namespace the service is not seen: its data are not removed under it', async () => {
  if (process.getuid?.() !== 0) return
  const listens = 'listen(Number(process.env.PORT), process.env.HOST)'
  await using it = await adopted(`${AUTO}import { createServer } from 'node:http'
    createServer((request, response) => response.end('hello')).${listens}`)
  const words = 'uninstall --user --purge --confirm shop -y'
  const { exitCode, stderr } = await run(['unshare', '--mount', '/bin/sh', '-c', `${it.shell} ${words}`], {
    allowFailure: true,
  })
  match(stderr, /v1\.0\.0 answers at its address, but this command cannot see its process/)
  is(exitCode, 7)
  is((await ask(it.port, 'GET', '/admin/update/status', it.password)).status, 200)
  ok((await readdir(it.stateDirectory)).length > 0)
})

test('doctor says that a release does not hold the package where it is for development only', async () => {
  await using made = await temporary('doctor')
  const folder = made.path
  await writeFile(join(folder, 'server.js'), `import 'baton-kit/auto'\n`)
  await writeFile(join(folder, 'baton.config.json'), JSON.stringify({ service: 'shop', entry: 'server.js' }))
  const agentOf = async (manifest: object) => {
    await writeFile(join(folder, 'package.json'), JSON.stringify({ main: 'server.js', ...manifest }))
    return (await examineProject(folder)).find(({ check }) => check === 'agent')
  }
  is((await agentOf({ dependencies: { 'baton-kit': '0.1.0' } }))?.level, 'ok')
  const dev = await agentOf({ devDependencies: { 'baton-kit': '0.1.0' } })
  is(dev?.level, 'problem')
  match(dev?.hint ?? '', /--save-prod/)
})

test.long(
  'a service that listens on every address, though it was told one: the doctor says so; a release that heeds it can follow, and be left',
  async () => {
    const at = (host: string) =>
      `${AUTO}import { createServer } from 'node:http'
    createServer((request, response) => ${HELLO}).listen(Number(process.env.PORT)${host})`
    await using it = await adopted(at(''))
    const said = async () => (await it.word('doctor', '--user')).stdout
    match(
      await said(),
      /warning +port +the configuration specifies 127\.0\.0\.1, but port \d+ is open on every address/,
    )
    match(await said(), 'such as `-- --host {host}`')
    await it.release('v1.1.0', at(', process.env.HOST'))
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    await it.word('stop', '--user')
    is((await it.word('start', '--user')).exitCode, 0)
    ok(!/ port /.test(await said()), 'a start gives it the address that it asks for')
    const log = join(it.stateDirectory, 'run', 'shop.log')
    match(
      await readFile(log, 'utf8'),
      /^\d{4}-\d\d-\d\dT[\d:.]+Z baton: serving v1\.1\.0 on 127\.0\.0\.1:\d+ \(can update itself\)$/m,
    )
  },
)

test.long('two servers move together, and no client of either notices', async () => {
  const second = await freePort()
  const listen = `createServer((request, response) => ${HELLO}).listen`
  const text = `${AUTO}import { createServer } from 'node:http'
    ${listen}(Number(process.env.PORT), process.env.HOST)
    ${listen}(${second}, '127.0.0.1')`
  await using it = await adopted(text, { servers: 2 })
  const loads = await Promise.all(
    [it.port, second].map((port) => spawnLoad({ port, mode: 'keepalive', clients: 4, path: '/', thinkMs: [5, 20] })),
  )
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  for (const { lost, closed, requests } of await Promise.all(loads.map((load) => load.stop()))) {
    equal([lost, closed], [0, 0])
    ok(requests > 20, `${requests} requests`)
  }
})

test.long(
  'what an application has changed in its environment, and where it has gone, is not the next release’s',
  async () => {
    const text = `${AUTO}import { createServer } from 'node:http'
    const found = { set: process.env.SHOP_SET ?? null, home: process.env.HOME ?? null, port: process.env.PORT, cwd: process.cwd() }
    process.chdir('/')
    process.env.SHOP_SET = 'by the first'
    delete process.env.HOME
    createServer((request, response) => response.end(JSON.stringify(found))).listen(Number(found.port), process.env.HOST)`
    await using it = await adopted(text)
    const found = async (): Promise<unknown> => JSON.parse(String((await ask(it.port, 'GET', '/healthz', null)).body))
    const first = await found()
    const home = dirname(dirname(dirname(it.configPath)))
    equal(first, { set: null, home, port: String(it.port), cwd: join(home, '.local', 'state', 'shop') })
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    equal(await found(), first)
  },
)

test.long('an application that sets its title is one process through a switch, and a stop ends it', async () => {
  const text = `${AUTO}import { createServer } from 'node:http'
    process.title = 'shop'
    createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)`
  for (const kind of ['stop-first', 'start-first']) {
    await using it = await adopted(text, { order: kind })
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    const pids = new Set<unknown>()
    // longer than a supervisor takes to start a service that it believes dead
    for (const until = performance.now() + 3000; performance.now() < until; await sleep(100))
      pids.add((await ask(it.port, 'GET', '/healthz', null)).body)
    is(pids.size, 1, kind)
    is((await it.word('status', '--user')).exitCode, 0)
    is((await it.word('stop', '--user', '-q')).exitCode, 0)
    equal(await ask(it.port, 'GET', '/healthz', null).then(String, () => 'nobody'), 'nobody')
  }
})

test('an operation needs no file of its own release any more once it has begun: an update goes through without them, a revert too', async () => {
  await using made = await temporary('gone')
  const folder = made.path
  const copy = async (name: string) => {
    await cp(join(PROJECT, 'agent'), join(folder, name, 'agent'), { recursive: true })
    await symlink(join(PROJECT, 'node_modules'), join(folder, name, 'node_modules'))
    return join(folder, name, 'agent/adapters/auto.ts')
  }
  const [first, second] = [await copy('first'), await copy('second')]
  const text = `import { existsSync } from 'node:fs'
    import { createServer } from 'node:http'
    const file = ['${first}', '${second}'].find((path) => existsSync(path))
    await import(file)
    createServer((request, response) => ${HELLO}).listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(text, { order: 'start-first' }) // the old one serves through the whole of it
  const gone = async (name: string) => await rename(join(folder, name), join(folder, `${name}-gone`))
  is((await it.operate('/admin/update', { tag: 'v1.1.0' }, () => gone('first'))).outcome, 'updated')
  const reverted = await it.operate('/admin/update/rollback', null, () => gone('second'))
  equal([reverted.outcome, reverted.error?.code], ['reverted', 'restart_failed'])
  is((await ask(it.port, 'GET', '/healthz', null)).status, 200)
})

test('on a base path behind a TLS proxy: the panel, the endpoints and their addresses are below it', async () => {
  const text = `${AUTO}import { createServer } from 'node:http'
    createServer((request, response) => ${HELLO}).listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(text, {}, { basePath: '/shop' })
  await using proxy = await tlsProxy(it.port)
  const page = await proxy.fetch('/shop/web/settings.html')
  is(page.status, 200)
  is((await proxy.fetch('/web/settings.html')).body, 'hello', 'what is not below it is the application’s')
  const begun = await proxy.fetch('/shop/admin/update', it.password, { tag: 'v1.1.0' })
  is(begun.status, 202, begun.body)
  is(begun.headers['location'], '/shop/admin/update/status')
  const { id } = JSON.parse(begun.body) as Operation
  const done = await eventually(
    'the update',
    async () => {
      const { body, status } = await proxy.fetch('/shop/admin/update/status', it.password)
      is(status, 200)
      const { operation } = JSON.parse(body) as Status
      return operation?.id === id && operation.outcome !== null ? operation : null
    },
    60_000,
  )
  is(done.outcome, 'updated')
  is((await proxy.fetch('/healthz')).body, 'ok')
})

test('behind a body parser: what it has read is used, what nobody kept is refused with what to do', async () => {
  const text = `import { embed } from '${join(PROJECT, 'agent/index.ts')}'
    import { createServer } from 'node:http'
    const agent = await embed()
    const server = createServer(async (request, response) => {
      let text = ''
      for await (const chunk of request) text += chunk
      if (request.headers['x-parse'] !== 'no') request.body = text === '' ? {} : JSON.parse(text)
      if (!agent.handle(request, response)) ${HELLO}
    })
    await agent.serve([{ server, host: process.env.HOST, port: Number(process.env.PORT) }])`
  await using it = await adopted(text, { database: 'shop.db' }, { colours: ['red'] })
  const url = `http://127.0.0.1:${it.port}/admin/update`
  const headers = { authorization: `Bearer ${it.password}`, 'content-type': 'application/json', 'x-parse': 'no' }
  const refused = await fetch(url, { method: 'POST', headers, body: '{"tag":"v1.1.0"}' })
  is(refused.status, 400)
  match(await refused.text(), 'let the agent handle the request before any body parser')
  is((await ask(it.port, 'POST', '/admin/update', it.password, { tag: 'latest' })).status, 400)
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')

  // started by hand beside itself
  const second = await it.word('serve', '--config', it.configPath)
  is(second.exitCode, 1)
  match(second.stderr, /cannot listen on .*: EADDRINUSE, another process is already listening on this address/)
  is((await ask(it.port, 'GET', '/healthz', null)).status, 200)

  // the operator's words read the same file, in which the author's own settings may stand, and there may be no database yet
  is((await it.word('healthcheck', '--config', it.configPath)).stdout, 'shop v1.1.0\n')
  match((await it.word('help')).stdout, /rollback +go back to the previous release/)
  const copied = await it.word('snapshot', '-') // where root asks for a user's install too
  is(copied.exitCode, 7)
  match(copied.stderr, /^error: there is no database at \/.*\/shop\.db yet/)
})

test('several processes of one service are served, and not updated: 501 says why', async () => {
  const text = `${AUTO}import cluster from 'node:cluster'
    import { createServer } from 'node:http'
    let heard = 0
    const answer = (request, response) => request.url === '/heard' ? response.end(String(heard)) : ${HELLO}
    if (cluster.isPrimary) for (let i = 0; i < 2; i++) cluster.fork()
    else createServer(answer).listen(Number(process.env.PORT), process.env.HOST, () => heard++)`
  await using it = await adopted(text, {}, {}, false)
  is((await ask(it.port, 'GET', '/heard', null)).body, '1', 'each calls what it was given to call once')
  const answer = await ask(it.port, 'POST', '/admin/update', it.password, { tag: 'v1.1.0' })
  is(answer.status, 501)
  match(JSON.stringify(answer.body), 'node:cluster')
  is((await ask(it.port, 'GET', '/healthz', null)).status, 200)
})

test('kind script: where the host has no Node 26, install.sh ends with 3, says what it found, and nothing is installed', async () => {
  const old = await olderNode()
  if (old === null) {
    not(process.env['BATON_TEST_NO_SKIP'] === '1', 'expected a Node before 26 in PATH, found none')
    return
  }
  await using made = await temporary('adopt')
  const home = made.path
  const folder = join(home, 'app')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
  await writeFile(join(folder, 'server.js'), AUTO)
  const project = parseProject({ service: 'shop', entry: 'server.js' }, folder)
  const [feed, copies] = [join(home, 'feed'), join(folder, '.baton')]
  await releaseFromSource({ project, tag: 'v1.0.0', feed, copies, progress: createProgress({ quiet: true }) })
  const env = { HOME: home, BATON_NODE: old.path, XDG_CONFIG_HOME: undefined, XDG_STATE_HOME: undefined }
  const command = ['sh', join(feed, 'v1.0.0', 'install.sh'), 'install', '--user', '--no-service', '-y']
  const { exitCode, stderr } = await run(command, { env, allowFailure: true })
  is(exitCode, 3, stderr)
  match(stderr, `found ${old.version} at ${old.path}`)
  equal((await readdir(home)).toSorted(), ['app', 'feed'])
})

test('`baton dev`: what is saved serves, what cannot start is taken back, and Ctrl-C leaves nothing', async () => {
  await using made = await temporary('dev')
  const folder = made.path
  const port = await freePort()
  const text = (answer: string) => `${AUTO}import { createServer } from 'node:http'
    import { fork } from 'node:child_process'
    import { once } from 'node:events'
    import { parseArgs } from 'node:util'
    import './node_modules/brought/index.js' // as baton init writes it for a service from npm
    import { Worker } from 'node:worker_threads'
    parseArgs() // refuses what it takes for a word
    const file = new URL('./who.js', import.meta.url)
    createServer(async (request, response) => {
      if (request.url !== '/who') return response.end('${answer}')
      const said = [new Worker(file), fork(file)].map((one) => once(one, 'message'))
      response.end((await Promise.all(said)).map(([one]) => one).join(' '))
    }).listen(Number(process.env.PORT), process.env.HOST)\n`
  await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
  await writeFile(join(folder, 'baton.config.json'), JSON.stringify({ service: 'shop', entry: 'server.js' }))
  await mkdir(join(folder, 'node_modules/brought'), { recursive: true })
  await writeFile(join(folder, 'node_modules/brought/index.js'), '')
  await writeFile(join(folder, 'server.js'), text('one'))
  const who = `import { release } from '${join(PROJECT, 'agent/adapters/release.ts')}'
    import { parentPort } from 'node:worker_threads'
    const { service, tag } = release
    if (parentPort === null) process.send(service + '@' + tag, () => process.disconnect())
    else parentPort.postMessage(service + '@' + tag)\n`
  await writeFile(join(folder, 'who.js'), who)
  const tsx = ['--import', import.meta.resolve('tsx')]
  const command = [
    process.execPath,
    ...tsx,
    join(PROJECT, 'deploy/baton.ts'),
    'dev',
    '--dir',
    folder,
    '--port',
    String(port),
  ]
  const taken = createServer().listen(port, '127.0.0.1')
  await once(taken, 'listening')
  const busy = await run(command.slice(0, -2), { allowFailure: true, env: { PORT: String(port) } })
  is(busy.exitCode, 7)
  match(busy.stderr, new RegExp(`^error: cannot listen on 127\\.0\\.0\\.1:${port}: .*EADDRINUSE`))
  match(busy.stderr, /^hint: .*--port/m)
  await new Promise((closed) => taken.close(closed))

  const child = spawn(command[0] ?? '', command.slice(1, -2), { env: { ...process.env, PORT: String(port) } })
  const gone = once(child, 'exit')
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (more: string) => (said += more))
  const heard = (what: string) => eventually(`${what} in ${said}`, async () => said.includes(what), 60_000)
  const answer = async (path = '/') => await (await fetch(`http://127.0.0.1:${port}${path}`)).text()
  try {
    await heard('watching')
    is(await answer(), 'one')
    const second = await run(command, { allowFailure: true })
    is(second.exitCode, 6)
    match(second.stderr, /`baton dev` is already running for shop in .* \(pid \d+\)/)
    is(await answer(), 'one')
    await writeFile(join(folder, 'server.js'), text('two'))
    await heard('v0.0.2 is serving')
    is(await answer(), 'two')
    is(await answer('/who'), 'shop@v0.0.2 shop@v0.0.2', 'in a worker and in a child')
    await appendFile(join(folder, 'server.js'), 'this is no program')
    await heard('v0.0.3: reverted')
    match(said, /v0\.0\.3: reverted.*it exited with code 1 after printing: .*SyntaxError: Unexpected identifier/)
    is(await answer(), 'two')
  } finally {
    child.kill('SIGINT')
    await gone
  }
  equal(await processesNaming(folder), [])
})

test.run()

// ---- parts

/** As nginx in front of it: TLS ends there, and the connections behind are kept. */
async function tlsProxy(port: number) {
  const agent = new Agent({ keepAlive: true })
  const { key, cert } = makeCertificate()
  const server = createSecure({ key, cert }, (request, response) => {
    const headers = { ...request.headers, 'x-forwarded-for': '192.0.2.7', 'x-forwarded-proto': 'https' }
    const options = { host: '127.0.0.1', port, path: request.url, method: request.method, headers, agent }
    const onward = plainRequest(options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    onward.on('error', () => response.writeHead(502).end())
    request.pipe(onward)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const own = (server.address() as AddressInfo).port
  return {
    async fetch(path: string, token: string | null = null, body: unknown = null) {
      const headers = {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === null ? {} : { 'content-type': 'application/json' }),
      }
      const options = { host: '127.0.0.1', port: own, path, method: body === null ? 'GET' : 'POST', headers, ca: cert }
      const asked = secureRequest(options)
      asked.end(body === null ? undefined : JSON.stringify(body))
      const [answer] = (await once(asked, 'response')) as [IncomingMessage]
      let text = ''
      for await (const chunk of answer) text += String(chunk)
      return { status: answer.statusCode ?? 0, headers: answer.headers, body: text }
    },
    async [Symbol.asyncDispose]() {
      agent.destroy()
      server.closeAllConnections()
      await new Promise((closed) => server.close(closed))
    },
  }
}

/** A Node of this machine that is too old for a script; CI's own is. */
async function olderNode(): Promise<{ path: string; version: string } | null> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(folder, 'node')
    const { exitCode, stdout } = await run([path, '--version'], { allowFailure: true })
    if (exitCode === 0 && Number(/^v(\d+)/.exec(stdout)?.[1]) < 26) return { path, version: stdout.trim() }
  }
  return null
}
