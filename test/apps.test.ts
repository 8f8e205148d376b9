// @deadlineMs 900000
// Applications of strangers, with nothing of this repository but the packed package. All six: `npm run apps`.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { adopt, faultsOf } from './apps/adopt.ts'
import { equal, ok } from './assert.ts'
import { packInto } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('apps', { timeoutMs: 600_000 })

test('an Express application with native addons is adopted, updated and rolled back under load, and nobody notices', async () => {
  const work = await mkdtemp(join(tmpdir(), 'baton-apps-'))
  try {
    const adopted = await adopt('express', await packInto(work))
    equal(faultsOf(adopted), [])
    ok(adopted.requests > 100, `${adopted.requests} requests`)
  } finally {
    await rm(work, { recursive: true, force: true })
  }
})

test.run()
