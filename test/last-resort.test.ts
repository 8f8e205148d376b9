// @deadlineMs 600000
// An application that ends if its port is in use, and asks in ways that nobody can answer for it: the kernel's own table, and another
// process. Behind sockets that a manager or a predecessor holds, it would never start again. So the sockets are let go before anybody
// gives up.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import type { Status } from '../agent/index.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { stranger } from './fixtures/stranger.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('last resort', { timeoutMs: 240_000 })
const ADAPTER = join(PROJECT, 'agent/adapters/auto.ts')

const asks = {
  'the table of the kernel': `import { readFileSync } from 'node:fs'
    const hex = ':' + Number(process.env.PORT).toString(16).toUpperCase().padStart(4, '0')
    const isTaken = readFileSync('/proc/net/tcp', 'utf8').split('\\n').some((line) => line.split(/\\s+/)[2]?.endsWith(hex) && / 0A /.test(line))`,
  'another process': `import { spawnSync } from 'node:child_process'
    const text = 'require("node:net").connect(' + process.env.PORT + ', "127.0.0.1", () => process.exit(7)).on("error", () => process.exit(0))'
    const isTaken = spawnSync(process.execPath, ['-e', text], { env: { PATH: process.env.PATH } }).status === 7`,
}

const application = (look: string) => `import '${ADAPTER}'
  import { createServer } from 'node:http'
  ${look}
  if (isTaken) { console.error('the port is in use'); process.exit(1) }
  createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)`

for (const kind of ['stop-first', 'start-first'] as const)
  for (const [where, look] of Object.entries(asks)) {
    const register = kind === 'stop-first' && where !== 'another process' ? test : test.long // the others have no step that it lacks
    register(
      `${kind}: an application that asks ${where} whether its port is free serves again after an update, which fails, and after a kill`,
      async () => {
        await using it = await adopted(application(look), { order: kind })
        const well = answeringAnew(it)
        const first = await well()
        process.kill(first, 'SIGKILL')
        const second = await well(first)
        match(await log(it), /baton: it ended before it served on 127\.0\.0\.1:\d+: what was held there is let go/)
        const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
        is(outcome, 'reverted')
        match(error?.message ?? '', /the port is in use/)
        const third = await well()
        ok(kind === 'start-first' ? third === second : third !== second)
        if (kind === 'stop-first')
          match(await log(it), /the sockets are let go, and v1\.0\.0 is started as on its first day/)
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
  match(shown.error?.message ?? '', /not held against v1\.1\.0: the next switch lets them go for it too/)
  const again = await well(first)
  const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([updated.outcome, updated.handover?.letGo], ['updated', true], JSON.stringify(updated.error))
  const second = await well(again)
  match(await log(it), /the sockets are let go, and v1\.1\.0 is started as on its first day: clients are refused/)
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

test('a broken release of such an application is held against it, and the old one serves again on its port', async () => {
  await using it = await adopted(application(asks['another process']), { order: 'stop-first' })
  const well = answeringAnew(it)
  const first = await well()
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'reverted')
  const again = await well(first)
  await it.release('v1.2.0', `throw new Error('DATABASE_URL is not set')`)
  const broken = await it.operate('/admin/update', { tag: 'v1.2.0' })
  is(broken.outcome, 'reverted')
  match(broken.error?.message ?? '', /DATABASE_URL is not set/)
  not.match(broken.error?.message ?? '', /not held against/)
  const back = await well(again)
  const { body } = await ask(it.port, 'GET', '/admin/update/status', it.password)
  is((body as Status).operation?.to, 'v1.2.0')
  const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
  is(updated.outcome, 'updated', JSON.stringify(updated.error))
  await well(back)
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

async function log(it: Adopted): Promise<string> {
  return await readFile(join(it.configPath, '../../../.local/state/shop/run/shop.log'), 'utf8')
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
