// @alone
// Switches under clients of every kind. The long form, with 34 switches, responses of 5 s and a pool of 1,000 idle connections,
// is `npm run soak -- --clients`.

import { equal } from './assert.ts'
import { brokenIn, soakClients } from './soak/clients.ts'
import { isLong, suite } from './suite.ts'

const test = suite('clients', { timeoutMs: 240_000 })

test(`${isLong ? 'four' : 'two'} switches lose no request, close no connection and double nothing, whatever way a client has to ask`, async () => {
  const report = await soakClients({
    switches: isLong ? 4 : 2,
    probationMs: 400,
    slowMs: 1500,
    idle: 100,
    followers: { websockets: 10, streams: 10 },
    drainMs: 30_000,
    isAlone: false,
  })
  equal(brokenIn(report), [], JSON.stringify(report))
})

test.run()
