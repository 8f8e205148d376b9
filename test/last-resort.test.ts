// @deadlineMs 600000
// An application that ends if its port is in use, and asks in ways that nobody can answer for it: the kernel's own table, and another
// process. Behind sockets that a manager or a predecessor holds, it would never start again. So the sockets are let go before anybody
// gives up.

import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import type { Status } from '../agent/index.ts'
import { equal, is, match, not } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { bringFrameworks } from './fixtures/frameworks.ts'
import { ask } from './fixtures/install.ts'
import { stranger } from './fixtures/stranger.ts'
import { eventually } from './lab/systemd.ts'
import { isLong, suite } from './suite.ts'

const test = suite('last resort', { timeoutMs: 240_000 })
const [ADAPTER, AGENT] = [join(PROJECT, 'agent/adapters/auto.ts'), join(PROJECT, 'agent/index.ts')]

const asks = {
  'the table of the kernel': `import { readFileSync } from 'node:fs'
    const hex = ':' + Number(process.env.PORT).toString(16).toUpperCase().padStart(4, '0')
    const isTaken = readFileSync('/proc/net/tcp', 'utf8').split('\\n').some((line) => line.split(/\\s+/)[2]?.endsWith(hex) && / 0A /.test(line))`,
  'another process': `import { spawnSync } from 'node:child_process'
    const text = 'require("node:net").connect(' + process.env.PORT + ', "127.0.0.1", () => process.exit(7)).on("error", () => process.exit(0))'
    const isTaken = spawnSync(process.execPath, ['-e', text], { env: { PATH: process.env.PATH } }).status === 7`,
}

const ENDS = `if (isTaken) { console.error('the port is in use'); process.exit(1) }`

/** Other ways to start the same application. `packages`: a folder that has Express, Fastify and Hono */
const DOORS: Record<string, (look: string, packages: string) => string> = {
  'embed() and serve()': (look) => `import { createServer } from 'node:http'
    import { embed } from '${AGENT}'
    ${look}
    ${ENDS}
    const agent = await embed()
    const server = createServer((request, response) => agent.handle(request, response) || response.end(String(process.pid)))
    await agent.serve([{ server, host: process.env.HOST, port: Number(process.env.PORT) }])`,
  Express: (look, packages) => `${ofFramework('express', packages)}
    ${look}
    ${ENDS}
    const app = bring('express')()
    app.use((request, response) => void response.send(String(process.pid)))
    await listen(app)`,
  Fastify: (look, packages) => `${ofFramework('fastify', packages)}
    ${look}
    ${ENDS}
    const app = bring('fastify')()
    app.get('/*', async () => String(process.pid))
    await listen(app)`,
  Hono: (look, packages) => `${ofFramework('hono', packages)}
    ${look}
    ${ENDS}
    const { Hono } = bring('hono')
    const app = new Hono()
    app.get('*', (c) => c.text(String(process.pid)))
    await listen(app, bring('@hono/node-server').getRequestListener)`,
}

const ofFramework = (name: string, packages: string) => `import { createRequire } from 'node:module'
  import { listen } from '${join(PROJECT, 'agent/adapters', `${name}.ts`)}'
  const bring = createRequire('${packages}/')`

const application = (look: string) => `import '${ADAPTER}'
  import { createServer } from 'node:http'
  ${look}
  ${ENDS}
  createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)`

for (const kind of ['stop-first', 'start-first'] as const)
  for (const [where, look] of Object.entries(asks)) {
    test.long(
      `${kind}: an application that asks ${where} whether its port is free serves again after an update, which fails, and after a kill`,
      async () => {
        await using it = await adopted(application(look), { order: kind })
        const well = answeringAnew(it)
        const first = await well()
        process.kill(first, 'SIGKILL')
        const second = await well(first)
        match(
          await log(it),
          /baton: this process exited before serving on 127\.0\.0\.1:\d+: the sockets held for it are released/,
        )
        const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
        is(outcome, 'reverted')
        match(error?.message ?? '', /the port is in use/)
        const third = await well()
        is(third === second, kind === 'start-first')
        if (kind === 'stop-first') match(await log(it), /releasing the sockets to start v1\.0\.0/)
        process.kill(third, 'SIGKILL')
        await well(third)
      },
    )
  }

test('a switch that has shown it lets the sockets go in the next ones: such an application is updated and rolled back while it runs, on its own port', async () => {
  await using it = await adopted(application(asks['another process']), { order: 'stop-first' })
  const well = answeringAnew(it)
  const first = await well()
  const shown = await it.operate('/admin/update', { tag: 'v1.1.0' })
  is(shown.outcome, 'reverted')
  match(
    shown.error?.message ?? '',
    /so v1\.1\.0 is not marked as failed: the next switch releases them before v1\.1\.0 starts/,
  )
  const again = await well(first)
  const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([updated.outcome, updated.handover?.letGo], ['updated', true], JSON.stringify(updated.error))
  const second = await well(again)
  match(await log(it), /releasing the sockets to start v1\.1\.0: connections are refused/)
  process.kill(second, 'SIGKILL') // what it listens on anew is held for it
  const third = await well(second)
  const back = await it.operate('/admin/update/rollback')
  equal([back.outcome, back.handover?.letGo], ['rolled_back', true], JSON.stringify(back.error))
  const fourth = await well(third)

  // a release that looks no more is served from the first connection on
  const plain = application('const isTaken = false')
  await it.release('v1.2.0', plain)
  const mended = await it.operate('/admin/update', { tag: 'v1.2.0' })
  equal([mended.outcome, mended.handover?.letGo], ['updated', undefined], JSON.stringify(mended.error))
  await well(fourth)
})

test.long(
  'a broken release of such an application is held against it, and the old one serves again on its port',
  async () => {
    await using it = await adopted(application(asks['another process']), { order: 'stop-first' })
    const well = answeringAnew(it)
    const first = await well()
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'reverted')
    const again = await well(first)
    await it.release('v1.2.0', `throw new Error('DATABASE_URL is not set')`)
    const broken = await it.operate('/admin/update', { tag: 'v1.2.0' })
    is(broken.outcome, 'reverted')
    match(broken.error?.message ?? '', /DATABASE_URL is not set/)
    not.match(broken.error?.message ?? '', /not marked as failed/)
    const back = await well(again)
    is((await statusOf(it)).operation?.to, 'v1.2.0')
    const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
    is(updated.outcome, 'updated', JSON.stringify(updated.error))
    await well(back)
  },
)

let packages = ''
test.before(async () => {
  if (!isLong) return
  packages = await mkdtemp(join(tmpdir(), 'baton-last-resort-'))
  await bringFrameworks(packages)
})
test.after(async () => {
  if (isLong) await rm(packages, { recursive: true, force: true })
})

for (const [door, text] of [...Object.entries(DOORS), ['auto, with `servers`', application] as const])
  for (const order of ['stop-first', 'start-first'] as const) {
    const config = { order, ...(door.startsWith('auto') ? { servers: 1 } : {}) }
    test.long(
      `${order}, by ${door}: an application that asks another process whether its port is free is updated, rolled back, reverted, and there again after a kill of each process`,
      async () => {
        const own = text(asks['another process'], packages)
        await using it = await adopted(own, config)
        const well = answeringAnew(it)
        const first = await well()
        process.kill(first, 'SIGKILL')
        let now = await well(first)
        match(
          await log(it),
          /baton: this process exited before serving on 127\.0\.0\.1:\d+: the sockets held for it are released/,
        )
        const shown = await it.operate('/admin/update', { tag: 'v1.1.0' })
        is(shown.outcome, 'reverted')
        match(shown.error?.message ?? '', /the port is in use/)
        if (order === 'start-first') is(await well(), now)
        else {
          now = await well(now)
          const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
          equal([updated.outcome, updated.handover?.letGo], ['updated', true], JSON.stringify(updated.error))
          now = await well(now)
          const back = await it.operate('/admin/update/rollback')
          equal([back.outcome, back.handover?.letGo], ['rolled_back', true], JSON.stringify(back.error))
          now = await well(now)
          // the holder dies when it has let the sockets go: whatever becomes of the switch, the service is there again
          const cut = await it.operate('/admin/update', { tag: 'v1.1.0' }, () => killsHolder(it))
          now = await well(now)
          is((await statusOf(it)).instance.version, cut.outcome === 'updated' ? 'v1.1.0' : 'v1.0.0', cut.outcome ?? '')
        }
        await it.release('v1.2.0', `throw new Error('DATABASE_URL is not set')`)
        const broken = await it.operate('/admin/update', { tag: 'v1.2.0' })
        is(broken.outcome, 'reverted')
        match(broken.error?.message ?? '', /DATABASE_URL is not set/)
        now = await well(order === 'start-first' ? 0 : now)
        // without its supervision it serves on; its operator starts it again
        process.kill((await supervisionOf(it)).supervisor.pid, 'SIGKILL')
        is(await well(), now)
        process.kill(now, 'SIGKILL')
        is((await it.word('start', '--user', '-q')).exitCode, 0)
        await well(now)
      },
    )
  }

test.long('an application of which a command that runs before it asks serves again after a kill', async () => {
  const text = `${asks['another process']}
    if (process.argv[2] === 'look') process.exit(isTaken ? 1 : 0)
    await import('${ADAPTER}')
    const { createServer } = await import('node:http')
    createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(text, { before: [['server.js', 'look']] })
  const well = answeringAnew(it)
  const first = await well()
  process.kill(first, 'SIGKILL')
  await well(first)
  match(await log(it), /`server\.js look`, which runs before the application, failed with exit code 1/)
})

test.long(
  'whom nobody supervises: after an update that fails such an application serves on its own port, and again when it is started',
  async () => {
    const text = `import { createServer } from 'node:http'
${asks['another process']}
if (isTaken) { console.error('the port is in use'); process.exit(1) }
createServer((request, response) => response.end('TAG ' + process.pid)).listen(Number(process.env.PORT), process.env.HOST)`
    await using it = await stranger({ text, config: { order: 'stop-first' }, isSupervised: false })
    await it.release('v1.1.0', text)
    const who = async () => (await it.get('/')).split(' ') as [string, string]
    const [, first] = await who()
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'reverted')
    const [tag, second] = await who()
    equal([tag, second === first], ['v1.0.0', false])
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    const [after, third] = await who()
    is(after, 'v1.1.0')
    await it.kill(Number(third))
    equal((await who())[0], 'v1.1.0')
    is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
    equal((await who())[0], 'v1.0.0')
  },
)

test.run()

/** Kills the holder of the switch that has just begun, once it has let the sockets go. */
async function killsHolder(it: Adopted): Promise<void> {
  const from = (await log(it)).length
  const said = async () => (await log(it)).slice(from)
  await eventually('the sockets to be let go', async () => /releasing the sockets/.test(await said()), 30_000)
  const [, pid] = /a helper process \(pid (\d+)\)/.exec(await said()) ?? []
  process.kill(Number(pid), 'SIGKILL')
}

async function statusOf(it: Adopted): Promise<Status> {
  return (await ask(it.port, 'GET', '/admin/update/status', it.password)).body as Status
}

async function supervisionOf(it: Adopted): Promise<{ supervisor: { pid: number } }> {
  return JSON.parse(await readFile(join(runOf(it), 'shop.pid'), 'utf8')) as { supervisor: { pid: number } }
}

function runOf(it: Adopted): string {
  return join(it.configPath, '../../../.local/state/shop/run')
}

async function log(it: Adopted): Promise<string> {
  return await readFile(join(runOf(it), 'shop.log'), 'utf8')
}

/** Resolves to the process that answers once it is another one than `before`. */
function answeringAnew(it: Adopted): (before?: number) => Promise<number> {
  return async (before = 0) =>
    await eventually('an answer', async () => ((await pidOf(it)) ?? before) !== before && (await pidOf(it)), 30_000)
}

async function pidOf({ port }: Adopted): Promise<number | null> {
  const answer = await ask(port, 'GET', '/', null).catch(() => null)
  return answer?.status === 200 ? Number(answer.body) : null
}
