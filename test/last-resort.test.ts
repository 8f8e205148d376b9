// An application that ends if its port is in use, and asks in ways that nobody can answer for it: the kernel's own table, and another
// process. Behind sockets that a manager or a predecessor holds, it would never start again. So the sockets are let go before anybody
// gives up.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { is, match, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('last resort', { timeoutMs: 120_000 })
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

for (const kind of ['one-at-a-time', 'together'] as const)
  for (const [where, look] of Object.entries(asks)) {
    const register = kind === 'one-at-a-time' && where !== 'another process' ? test : test.long // the others have no step that it lacks
    register(
      `${kind}: an application that asks ${where} whether its port is free serves again after an update, which fails, and after a kill`,
      async () => {
        await using it = await adopted(application(look), { switch: kind })
        const well = async (before = 0) =>
          await eventually(
            'an answer',
            async () => ((await pidOf(it)) ?? before) !== before && (await pidOf(it)),
            30_000,
          )
        const first = await well()
        process.kill(first, 'SIGKILL')
        const second = await well(first)
        match(await log(it), /baton: it ended before it served on 127\.0\.0\.1:\d+: what was held there is let go/)
        const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
        is(outcome, 'reverted')
        match(error?.message ?? '', /the port is in use/)
        const third = await well()
        ok(kind === 'together' ? third === second : third !== second)
        if (kind === 'one-at-a-time')
          match(await log(it), /the sockets are let go, and v1\.0\.0 is started as on its first day/)
        process.kill(third, 'SIGKILL')
        await well(third)
      },
    )
  }

test.run()

async function log(it: Adopted): Promise<string> {
  return await readFile(join(it.configPath, '../../../.local/state/shop/run/shop.log'), 'utf8')
}

async function pidOf({ port }: Adopted): Promise<number | null> {
  const answer = await ask(port, 'GET', '/', null).catch(() => null)
  return answer?.status === 200 ? Number(answer.body) : null
}
