// @deadlineMs 900000
// Applications of strangers, with nothing of this repository but the packed package. All six: `npm run apps`.

import { adopt, faultsOf } from './apps/adopt.ts'
import { equal, ok } from './assert.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('apps', { timeoutMs: 600_000 })

test('an Express application with native addons is adopted, updated and rolled back under load, and nobody notices', async () => {
  const adopted = await adopt('express', await packedKit())
  equal(faultsOf(adopted), [])
  ok(adopted.requests > 100, `${adopted.requests} requests`)
})

test.run()
