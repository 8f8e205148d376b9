// @alone
// The main promise, with real executables: switches there and back under load lose nothing and close nothing. And the oracle
// that says so is itself tested, on a handover that is wrong on purpose.

import * as assert from './assert.ts'
import { netnsProblem } from './lab/netns.ts'
import { faultsOf } from './soak/judge.ts'
import { soak } from './soak/start.ts'
import { isLong, suite } from './suite.ts'

const test = suite('switches', { timeoutMs: 180_000 })

/** `npm run soak -- --switches 200` makes as many as are asked for */
const [SWITCHES, clients] = isLong ? [10, 32] : [2, 16]

test(`${SWITCHES} switches there and back lose no request, close no connection, forget no row, leak no descriptor`, async () => {
  const report = await soak({ subject: 'baton', switches: SWITCHES, clients, probationMs: 300 })
  assert.equal(faultsOf(report), [], JSON.stringify(report))
  if (netnsProblem() === null) assert.ok(report.kernel !== null, 'the kernel was not asked')
})

test('the same judgement condemns separate SO_REUSEPORT sockets and http.Server.close()', async () => {
  const report = await soak({ subject: 'naive', switches: isLong ? 4 : 2, clients, probationMs: 0 })
  const faults = faultsOf(report).join('\n')
  assert.match(faults, /expected no connection closed by the server/)
  assert.ok(report.lost > 0 || (report.kernel?.TcpOutRsts ?? 0) > 0, `expected losses, got ${JSON.stringify(report)}`)
})

test.run()
