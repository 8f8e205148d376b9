// Applications that were written for one process, and know nothing of a switch: a mailer with a clock, a service that registers itself
// elsewhere, sessions in memory. Stop-first, as `init` sets them up. (A database that only one may open: fixtures/only.ts.)

import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { suite } from './suite.ts'

const test = suite('one apps', { timeoutMs: 120_000 })
const AUTO = `from '${join(PROJECT, 'agent/adapters/auto.ts')}'`
const LISTEN = `.listen(Number(process.env.PORT), process.env.HOST)`
const BEAT_MS = 250
/** a timer may fire this early, by the clock in the slot before */
const EARLY_MS = 20

test.long('a mailer: no mail is sent twice, whatever the clock says when the processes change', async () => {
  await using it = await adopted(`import { release } ${AUTO.replace('auto.ts', 'release.ts')}
    import ${AUTO.slice(5)}
    import { appendFileSync } from 'node:fs'
    import { createServer } from 'node:http'
    let last = 0
    const mail = () => {
      const slot = Math.floor((Date.now() + ${EARLY_MS}) / ${BEAT_MS})
      if (slot !== last) appendFileSync('mails', slot + ' ' + release.tag + '\\n')
      last = slot
    }
    setTimeout(() => setInterval(mail, ${BEAT_MS}), ${BEAT_MS} - (Date.now() % ${BEAT_MS}))
    createServer((request, response) => response.end('ok'))${LISTEN}`)
  await thereAndBack(it)
  await sleep(1000)
  const sent = (await readFile(join(it.stateDirectory, 'mails'), 'utf8')).trim().split('\n')
  const slots = sent.map((line) => line.split(' ')[0])
  equal(
    slots.filter((slot, at) => slots.indexOf(slot) !== at),
    [],
  )
  equal([...new Set(sent.map((line) => line.split(' ')[1]))], ['v1.0.0', 'v1.1.0'])
  ok(sent.length > 8, `${sent.length} mails`)
})

test('a debounced save: what a package writes on SIGTERM is written by an update too, if its author says so', async () => {
  const shop = `import ${AUTO.slice(5)}
    import { existsSync, readFileSync, writeFileSync } from 'node:fs'
    import { createServer } from 'node:http'
    let count = existsSync('count') ? Number(readFileSync('count', 'utf8')) : 0
    process.once('SIGTERM', async () => {
      await new Promise((resolve) => setTimeout(resolve, 100))
      writeFileSync('count', String(count))
      process.exit()
    })
    createServer((request, response) => response.end(String(request.method === 'POST' ? ++count : count)))${LISTEN}`
  for (const [config, kept] of [
    [{ onStop: 'SIGTERM' }, '2'],
    [{}, '0'],
  ] as const) {
    await using it = await adopted(shop, config)
    for (let posted = 0; posted < 2; posted++) await ask(it.port, 'POST', '/', null)
    await thereAndBack(it)
    is(String((await ask(it.port, 'GET', '/', null)).body), kept)
    is((await it.word('stop', '--user')).exitCode, 0)
    if (kept === '2') is(await readFile(join(it.stateDirectory, 'count'), 'utf8'), '2')
  }
})

test.long(
  'a service that registers itself elsewhere: what stops never takes away what has just been registered',
  async () => {
    const calls: string[] = []
    const registry = createServer((request, response) => {
      calls.push(`${request.method} ${request.url}`)
      response.end()
    })
    await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(registry.address() as AddressInfo).port}`
    try {
      await using it = await adopted(`import { onStop } ${AUTO}
      import { createServer } from 'node:http'
      await fetch('${url}/shop', { method: 'PUT' })
      onStop(() => fetch('${url}/shop', { method: 'DELETE' }))
      createServer((request, response) => response.end('ok'))${LISTEN}`)
      await thereAndBack(it)
      const turn = ['DELETE /shop', 'PUT /shop']
      equal(calls, ['PUT /shop', ...turn, ...turn])
    } finally {
      registry.close()
      registry.closeAllConnections()
    }
  },
)

test("the sessions of express-session in its own memory store: nobody's is lost", async () => {
  const session = join(PROJECT, 'node_modules/express-session/index.js')
  await using it = await adopted(`import { handOver, inherited } ${AUTO}
    import session from '${session}'
    import { createServer } from 'node:http'
    const store = new session.MemoryStore()
    store.sessions = (await inherited('sessions')) ?? store.sessions
    handOver('sessions', () => ({ ...store.sessions }))
    const use = session({ secret: 'not one', resave: false, saveUninitialized: true, store })
    createServer((request, response) => use(request, response, () => {
      request.session.count = (request.session.count ?? 0) + 1
      response.end(String(request.session.count))
    }))${LISTEN}`)
  const url = `http://127.0.0.1:${it.port}/`
  const first = await fetch(url)
  is(await first.text(), '1')
  const cookie = (first.headers.get('set-cookie') ?? '').split(';')[0] ?? ''
  const count = async () => Number(await (await fetch(url, { headers: { cookie } })).text())
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  is(await count(), 2)
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
  is(await count(), 3)
})

test.run()

async function thereAndBack(it: Adopted): Promise<void> {
  await sleep(1000)
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  await sleep(500)
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
}
