// An application in a container that speaks TLS itself, with a certificate that nobody vouches for: its health check, the deployment's
// questions and its clients, plain and behind a holder. And what a shutdown of its host does while a stream of events is open.

import { mkdir, writeFile } from 'node:fs/promises'
import { Agent, get } from 'node:https'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseProject } from '../../deploy/make/project.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { equal, is, match, ok } from '../assert.ts'
import { buildTags } from '../fixtures/quiet-build.ts'
import { makeCertificate } from '../lab/certificate.ts'
import { labFolder, openLab } from '../lab/docker.ts'
import { suite } from '../suite.ts'
import { BORROWS, RARE_CHECK } from './held-service.ts'
import { scriptImages } from './images.ts'
import { type Deployed, deployIn, healthy, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container tls', { timeoutMs: 300_000, skip })
const [NAME, DOOR, PORT] = ['secure', 'secure-door', 8270]
const PUBLISHED = ['-p', `127.0.0.1:${PORT}:8080`]
/** `docker stop` waits for this long before it kills, if nobody says otherwise */
const STOP_MS = 10_000
/** what a stop of the engine gives its containers here; Docker's own is 15 s */
const SHUTDOWN_MS = 3000
let repository = ''

/** v1.2.0 answers its health path with an error. */
const APPLICATION = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
import { release } from '${join(PROJECT, 'agent/adapters/release.ts')}'
import { createServer } from 'node:https'
const pair = ${JSON.stringify(makeCertificate(['localhost', '127.0.0.1']))}
createServer(pair, (request, response) => {
  if (request.url === '/healthz' && release.tag === 'v1.2.0') response.statusCode = 500
  if (request.url !== '/events') return response.end(release.tag)
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  let id = 0
  const timer = setInterval(() => response.write(\`id: \${++id}\\ndata: \${id}\\n\\n\`), 20)
  response.on('close', () => clearInterval(timer))
}).listen(Number(process.env.PORT), process.env.HOST)
`

test.before(async () => {
  repository = `${registry.host}/secure`
  const [folder, dist] = [join(labFolder(), 'application'), join(labFolder(), 'dist')]
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "secure", "type": "module" }')
  await writeFile(join(folder, 'server.js'), APPLICATION)
  const about = { service: 'secure', kind: 'script', entry: 'server.js', healthPath: '/healthz', scheme: 'https' }
  const tags = ['v1.0.0', 'v1.1.0', 'v1.2.0']
  await buildTags({ project: parseProject(about, folder), out: dist }, tags)
  await scriptImages(engine, registry, { dist, repository, tags, holder: true })
})
test.after(close)

const KINDS: Record<string, (restart: string) => Promise<unknown>> = {
  plain: (restart) =>
    engine.docker(
      'run',
      '-d',
      '--name',
      NAME,
      '--restart',
      restart,
      ...RARE_CHECK,
      ...PUBLISHED,
      `${repository}:v1.0.0`,
    ),
  async 'behind a holder'(restart) {
    await engine.docker('pull', '-q', `${repository}:holder`)
    const rights = ['--restart', restart, ...RARE_CHECK]
    const volume = ['-v', 'secure-hold:/run/hold']
    await engine.docker('run', '-d', '--name', DOOR, ...rights, ...volume, ...PUBLISHED, `${repository}:holder`, '8080')
    const held = ['-v', 'secure-hold:/run/hold:ro', ...BORROWS]
    return await engine.docker('run', '-d', '--name', NAME, ...rights, ...held, `${repository}:v1.0.0`)
  },
}

for (const [kind, start] of Object.entries(KINDS)) {
  const isHeld = kind !== 'plain'

  test(`${kind}: is asked by HTTPS, updated, and put back if the new one is ill`, async () => {
    await start('always')
    await healthy(engine, NAME)
    is(await answer('/'), 'v1.0.0')
    await engine.docker('pull', '-q', `${repository}:v1.1.0`)
    const clients = keepAsking()
    await until('clients', () => clients.seen.well > 20)

    const updated = await deployIn(engine, { container: NAME, release: 'v1.1.0' })
    equal([updated.outcome, updated.healthy, updated.error?.message], ['updated', true, undefined])
    isMeasured(updated)
    const after = clients.seen.well
    await until('answers of the new one', () => clients.seen.well > after + 20)
    const seen = await clients.stop()
    equal(seen.tags.toSorted(), ['v1.0.0', 'v1.1.0'])
    if (isHeld) equal(seen.failed, [])

    const ill = await deployIn(engine, { container: NAME, release: 'v1.2.0', healthTimeoutMs: 6000 })
    equal([ill.outcome, ill.healthy], ['reverted', true])
    match(ill.error?.message ?? '', /not healthy after 6s: expected .*got 500/)
    isMeasured(ill)
    is(await answer('/'), 'v1.1.0')
    await removeAll()
  })

  // the kit ends its streams in the same way in both
  const register = isHeld ? test : test.long
  register(
    `${kind}: a stop, and a shutdown of its host, end an open stream between two events, long before anything is killed`,
    async () => {
      await start('no')
      await healthy(engine, NAME)
      const ways: [string, number, () => Promise<void>, () => Promise<void>][] = [
        ['docker stop', STOP_MS, async () => void (await engine.docker('stop', NAME)), async () => {}],
        ['shutdown', SHUTDOWN_MS, () => engine.stop(), () => engine.start()],
      ]
      for (const [what, limitMs, stop, back] of ways) {
        await engine.docker('start', ...(isHeld ? [DOOR] : []), NAME)
        await healthy(engine, NAME)
        const streams = await Promise.all([stream(), stream(), stream()])
        const began = performance.now()
        await stop()
        const stoppedMs = Math.round(performance.now() - began)
        for (const { heard } of streams) match(await heard, /^(id: \d+\ndata: \d+\n\n)+$/, what)
        await back()
        const { State } = await engine.inspect(NAME)
        equal([State.Running, State.ExitCode], [false, 0], `${what}: ${JSON.stringify(State)}`)
        process.stdout.write(`  ${kind}, ${what}: ${stoppedMs} ms of ${limitMs}\n`)
        ok(stoppedMs < limitMs, `${what}: ${stoppedMs} ms`)
      }
      await removeAll()
    },
  )
}

test.run()

/** The health path was asked, and not only the port: nobody was away while it was answered, and it was never ill by a wrong question. */
function isMeasured({ downMs, downMeasured, illMs }: Deployed): void {
  match(downMeasured ?? '', /^GET \/healthz on port 8080 /)
  ok(downMs !== null && downMs < 30_000, `${downMs} ms`)
  ok(illMs !== null)
}

async function removeAll(): Promise<void> {
  await engine.docker('rm', '-f', ...(await engine.names()).filter((name) => name.startsWith(NAME)))
  await engine.docker('volume', 'rm', '-f', 'secure-hold')
}

/** What is answered at this path. */
function answer(path: string, agent: Agent | false = false): Promise<string> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(30_000)
    const options = { host: '127.0.0.1', port: PORT, path, agent, signal, rejectUnauthorized: false }
    const asked = get(options, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => (text += part))
      response.once('end', () => resolve(text))
      response.once('error', reject)
    })
    asked.once('error', reject)
  })
}

/** Two clients, of which one keeps its connection. */
function keepAsking() {
  const seen = { well: 0, failed: [] as string[], tags: [] as string[] }
  let isOver = false
  const client = async (agent: Agent | false) => {
    for (; !isOver; await sleep(20))
      await answer('/', agent).then(
        (tag) => {
          seen.well++
          if (!seen.tags.includes(tag)) seen.tags.push(tag)
        },
        (cause: Error) => void seen.failed.push(`${agent === false ? 'new' : 'kept'}: ${cause.message}`),
      )
  }
  const kept = new Agent({ keepAlive: true, maxSockets: 1 })
  const all = Promise.all([client(false), client(kept)])
  return {
    seen,
    async stop() {
      isOver = true
      await all
      kept.destroy()
      return seen
    },
  }
}

/** An open stream of events; `heard` is all of it, once the server has ended it. */
function stream(): Promise<{ heard: Promise<string> }> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port: PORT, path: '/events', agent: false, rejectUnauthorized: false } as const
    const asked = get(options, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part: string) => (text += part))
      const heard = new Promise<string>((all) => {
        response.on('error', () => {}).once('close', () => all(text)) // it ends short
      })
      response.once('data', () => resolve({ heard }))
    })
    asked.once('error', reject)
  })
}
