// @long @deadlineMs 900000
// Applications of strangers, with nothing of this repository but the packed package. In CI a service that nobody here wrote, under a load
// of its own clients: aedes, an MQTT broker. All ten of its kind: `npm run apps -- --real`. Six of our own: `npm run apps`.

import { adopt, faultsOf } from './apps/adopt.ts'
import { adoptReal, faultsOfReal } from './apps/real/adopt.ts'
import { equal, is, ok } from './assert.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('apps', { timeoutMs: 600_000 })

test.long(
  'an Express application with native addons is adopted, updated and rolled back under load, and nobody notices',
  async () => {
    const adopted = await adopt('express', await packedKit())
    equal(faultsOf(adopted), [])
    ok(adopted.requests > 100, `${adopted.requests} requests`)
  },
)

test.long(
  'an MQTT broker is adopted by one line, updated, rolled back and given a broken release, and no acknowledged message is lost',
  async () => {
    const adopted = await adoptReal('aedes', await packedKit())
    equal(faultsOfReal(adopted), [])
    is(adopted.changed, 1)
    ok(adopted.seen.done > 100, `${adopted.seen.done} messages`)
  },
)

test.run()
