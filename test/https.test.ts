// An application that serves HTTPS or HTTP/2 itself, with a certificate that nobody vouches for, as many do in a local network: it is
// set up, built, installed, asked and updated like any other. And what its clients, a browser among them, see of a switch.

import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { Agent, request } from 'node:https'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { detect } from '../deploy/make/detect.ts'
import { planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { CONFIG, ENVIRONMENT, parseProject } from '../deploy/make/project.ts'
import { startFromSource } from '../deploy/make/source-start.ts'
import { aboutScheme, tryOut } from '../deploy/make/trial-start.ts'
import { equal, is, match, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { makeCertificate } from './lab/certificate.ts'
import { eventually } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { makeStubFleet, noAnsible } from './lab/stub-fleet.ts'
import { comesTrue, launch, NO_BROWSER, openPage } from './panel/browser.ts'
import { suite } from './suite.ts'

const test = suite('https', { timeoutMs: 120_000 })

const AUTO = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'\n`
/** Asks its server again and again, and keeps account. */
const PAGE = `<!doctype html><title>page</title><script>
  globalThis.seen = { pids: [], failed: 0, well: 0, versions: [], events: 0, broken: 0 }
  const note = (list, one) => list.includes(one) || list.push(one)
  const ask = async () => {
    try {
      const response = await fetch('/pid')
      note(seen.pids, await response.text())
      note(seen.versions, response.headers.get('version'))
      seen.well++
    } catch { seen.failed++ }
    setTimeout(ask, 20)
  }
  const events = new EventSource('/events')
  events.onmessage = () => seen.events++
  ask()
</script>`
const HANDLER = `(request, response) => {
  const { url } = request
  if (url === '/healthz') return response.end('well')
  if (url === '/never') return // its answer never comes
  if (url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const timer = setInterval(() => response.write('data: x\\n\\n'), 50)
    return response.once('close', () => clearInterval(timer))
  }
  response.setHeader('version', request.httpVersion)
  response.setHeader('content-type', url === '/' ? 'text/html' : 'text/plain')
  response.end(url === '/' ? ${JSON.stringify(PAGE)} : String(process.pid))
}`

/** `make`: text that makes `server`. */
function appOf(make: string): string {
  return `import http2 from 'node:http2'
import https from 'node:https'
const pair = ${JSON.stringify(makeCertificate(['localhost']))}
${make}
server.listen(Number(process.env.PORT), process.env.HOST)
`
}
const HTTPS = appOf(`const server = https.createServer(pair, ${HANDLER})`)
const HTTP2 = appOf(`const server = http2.createSecureServer({ ...pair, allowHTTP1: true }, ${HANDLER})`)
/** as the first example in Node's documentation */
const STREAMS = appOf(`const server = http2.createSecureServer(pair)
server.on('stream', (stream, headers) => {
  stream.respond({ ':status': headers[':path'] === '/healthz' ? 200 : 404 })
  stream.end('a stream')
})`)

test('init sees what is served, and the configuration says it', async () => {
  await using folder = await temporary('https')
  await writeFile(join(folder.path, 'package.json'), '{ "name": "shop", "type": "module", "main": "server.js" }')
  await writeFile(join(folder.path, 'server.js'), HTTPS)
  const found = detect(folder.path)
  const shown = await startFromSource(folder.path, found, {
    environment: ENVIRONMENT,
    args: [],
    try: { environment: {} },
    called: CONFIG,
  })
  is(shown.scheme, 'https', shown.notes.join('\n'))
  is(shown.healthPath, '/healthz')
  match(shown.notes[0] ?? '', /and answered `\/healthz` over https with 200 \(4 bytes\)/)
  const { files } = planInit(found, { configured: null, shown })
  match(files.find(({ path }) => path === 'baton.config.json')?.content ?? '', '"scheme": "https"')
})

test('the build says what it serves, and what the configuration says otherwise', () => {
  equal(aboutScheme(null, 'http'), [])
  equal(aboutScheme('https', 'https'), [])
  match(aboutScheme(null, 'https').join(), '`scheme` is not set')
  match(
    aboutScheme('https', 'http').join(),
    '`scheme` is "https", so an install would show an https:// address for its panel',
  )
})

test('HTTPS, stop-first: built, asked and updated; clients lose no request and resume their sessions', async () => {
  await using home = await adopted(AUTO + HTTPS, { scheme: 'https' })
  const project = parseProject({ service: 'shop', entry: 'server.js', healthPath: '/healthz' }, PROJECT)
  const { line, warnings } = await tryOut(project, executableOf(home))
  match(line, /^answers \/healthz over https with 200 after /)
  match(warnings.join(), 'it serves https, but `scheme` is not set')

  await using clients = keepAsking(home.port)
  await eventually('clients', async () => clients.counts.answers > 50, 10_000)
  const resumedBefore = clients.counts.resumed
  is((await updated(home)).cut, 0)
  const after = clients.counts.answers
  await eventually('answers of the new process', async () => clients.counts.answers > after + 50, 10_000)
  const { counts } = clients
  equal(counts.failures, [])
  is(counts.pids.size, 2)
  ok(counts.resumed > resumedBefore, JSON.stringify({ ...counts, pids: [...counts.pids] }))
  is(counts.anew, 4, 'each client made one session, at its first connection')
})

for (const [name, text] of [
  ['HTTPS', HTTPS],
  ['HTTP/2 only', STREAMS],
] as const) {
  test.long(`${name}: doctor asks it, and a fleet looks at it, moves it and takes it back`, async () => {
    await using home = await adopted(AUTO + text, { scheme: 'https' })
    const doctor = await home.word('doctor', '--json')
    const { findings } = JSON.parse(doctor.stdout) as { findings: { check: string; level: string; message: string }[] }
    equal(
      findings.filter(({ level }) => level === 'problem'),
      [],
    )
    match(findings.find(({ check }) => check === 'switch')?.message ?? '', /^stop-first; how long clients wait/)
    if (noAnsible !== null) return
    await using fleet = await makeStubFleet(1)
    await fleet.set('h1', 'beacon', `#!/bin/sh\nexec ${home.shell} "$@"\n`)
    const moved = async (...args: string[]) => {
      const { code, rows, stderr } = await fleet.move(...args, '--soak', '1s', '--waves', '100%')
      return [code, rows['h1']?.outcome, rows['h1']?.from, rows['h1']?.to, code === 0 ? '' : stderr]
    }
    equal(await moved('--release', 'v1.1.0', '--check'), [0, 'untouched', 'v1.0.0', 'v1.1.0', ''])
    equal(await moved('--release', 'v1.1.0'), [0, 'updated', 'v1.0.0', 'v1.1.0', ''])
    equal(await moved('--rollback'), [0, 'rolled_back', 'v1.1.0', 'v1.0.0', ''])
  })
}

test.long(
  'HTTPS, stop-first: a client that is between its connection and its first request when the switch begins is answered',
  async () => {
    await using home = await adopted(AUTO + HTTPS, { scheme: 'https' })
    const ends: Promise<string>[] = []
    const timer = setInterval(() => ends.push(slowAnswer(home.port)), 50)
    try {
      is((await updated(home)).cut, 0)
    } finally {
      clearInterval(timer)
    }
    const all = await Promise.all(ends)
    equal(all.filter((end) => end !== '200').slice(0, 3), [])
    ok(all.length > 30, `${all.length} clients`)
  },
)

test('an application that takes HTTP/2 as streams, without requests, is updated and goes back', async () => {
  await using home = await adopted(AUTO + STREAMS)
  is((await updated(home)).cut, 0)
  const back = await home.word('rollback', '--json')
  is(back.exitCode, 0, back.stdout + back.stderr)
})

test.run()

// ---- in a browser

const page = suite('https: a page', { timeoutMs: 120_000, skip: NO_BROWSER })

for (const [name, text, kind, end] of [
  ['HTTPS', HTTPS, 'stop-first', ''],
  ['HTTP/2', HTTP2, 'start-first', '; a request that never ends is cut, and counted'],
] as const) {
  page.long(`a page that is open over ${name} in a browser sees an answer to each request, ${kind}${end}`, async () => {
    await using home = await adopted(AUTO + text, { order: kind }, { update: { drainTimeout: '1s' } })
    await using browser = await launch()
    await using watched = await openPage(browser, { ignoreHTTPSErrors: true })
    await watched.page.goto(`https://localhost:${home.port}/`)
    await comesTrue(watched.page, 'seen.well > 20 && seen.events > 2')
    const never = end === '' ? null : answerOf(home.port, '/never')
    const { cut } = await updated(home)
    if (never !== null) {
      match(await never, /ECONNRESET|socket hang up/)
      ok(cut >= 1, `${cut} cut`)
    }
    await comesTrue(watched.page, 'seen.pids.length === 2')
    const [well, events] = await watched.page.evaluate<[number, number]>('[seen.well, seen.events]')
    await comesTrue(watched.page, `seen.well > ${well} + 20 && seen.events > ${events} + 2`)
    const seen = await watched.page.evaluate<{ failed: number; versions: string[] }>('seen')
    is(seen.failed, 0, JSON.stringify(seen))
    equal(seen.versions, [name === 'HTTPS' ? '1.1' : '2.0'])
    is(watched.loads(), 1)
  })
}

page.run()

// ---- parts

function executableOf({ configPath }: Adopted): string {
  return join(configPath, '..', '..', '..', '.local', 'share', 'shop', 'shop')
}

/** The operation, as its report says it. */
async function updated(home: Adopted): Promise<{ outcome: string; cut: number }> {
  const { exitCode, stdout, stderr } = await home.word('upgrade', '--json')
  is(exitCode, 0, stdout + stderr)
  const end = stdout.split('\n').find((line) => line.includes('"event":"result"')) ?? '{}'
  const { operation } = JSON.parse(end) as { operation: { outcome: string; cut: number } }
  is(operation.outcome, 'updated', end)
  return operation
}

/** Resolves to how a request ended. */
function answerOf(port: number, path: string): Promise<string> {
  return new Promise((resolve) => {
    const asked = request({ host: '127.0.0.1', port, path, rejectUnauthorized: false, agent: false }, (response) => {
      response.resume()
      response.once('end', () => resolve(`${response.statusCode}`))
    })
    asked.on('error', (cause: NodeJS.ErrnoException) => resolve(`${cause.code} ${cause.message}`))
    asked.end()
  })
}

/** Of a client that is far away: it takes 300 ms from its connection to its first byte. */
async function slowAnswer(port: number): Promise<string> {
  const below = connectTcp(port, '127.0.0.1')
  const failed = new Promise<string>((resolve) => below.once('error', (cause) => resolve(cause.message)))
  await Promise.race([once(below, 'connect'), failed])
  await sleep(300)
  const answered = new Promise<string>((resolve) => {
    const over = connectTls({ socket: below, rejectUnauthorized: false })
    over.on('error', (cause) => resolve(cause.message))
    const asked = request({ createConnection: () => over, path: '/pid' }, (response) => {
      response.resume().once('end', () => resolve(`${response.statusCode}`))
    })
    asked.on('error', (cause) => resolve(cause.message))
    asked.end()
  })
  return await Promise.race([answered, failed])
}

/** Four clients, each with one connection that it keeps and a session that it resumes, asking all the time. */
function keepAsking(port: number) {
  const counts = { answers: 0, resumed: 0, anew: 0, failures: [] as string[], pids: new Set<string>() }
  let isOn = true
  const known = new WeakSet<object>()
  const client = async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false })
    const askOnce = () =>
      new Promise<void>((resolve) => {
        const asked = request({ host: '127.0.0.1', port, path: '/pid', agent }, (response) => {
          let text = ''
          response.on('data', (part: Buffer) => (text += part.toString()))
          response.once('end', () => {
            counts.answers++
            counts.pids.add(text)
            resolve()
          })
          response.once('error', (cause) => fail(cause))
        })
        const fail = (cause: Error) => {
          counts.failures.push(`${cause.message}, ${asked.reusedSocket ? 'reused' : 'new'}`)
          resolve()
        }
        asked.once('socket', (socket) => {
          if (known.has(socket)) return
          known.add(socket)
          socket.once('secureConnect', () =>
            (socket as TLSSocket).isSessionReused() ? counts.resumed++ : counts.anew++,
          )
        })
        asked.on('error', fail)
        asked.end()
      })
    while (isOn) await askOnce()
    agent.destroy()
  }
  const all = Promise.all(Array.from({ length: 4 }, client))
  return {
    counts,
    async [Symbol.asyncDispose]() {
      isOn = false
      await all
    },
  }
}
