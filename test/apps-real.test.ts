// @deadlineMs 900000
// A service that nobody here wrote, under a load of its own clients: aedes, an MQTT broker. All of them: `npm run apps -- --real`.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { adoptReal, faultsOfReal } from './apps/real/adopt.ts'
import { equal, is, ok } from './assert.ts'
import { packInto } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('apps-real', { timeoutMs: 600_000 })

test('an MQTT broker is adopted by one line, updated, rolled back and given a broken release, and no acknowledged message is lost', async () => {
  const work = await mkdtemp(join(tmpdir(), 'baton-apps-'))
  try {
    const adopted = await adoptReal('aedes', await packInto(work))
    equal(faultsOfReal(adopted), [])
    is(adopted.changed, 1)
    ok(adopted.seen.done > 100, `${adopted.seen.done} messages`)
  } finally {
    await rm(work, { recursive: true, force: true })
  }
})

test.run()
