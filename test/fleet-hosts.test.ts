// @deadlineMs 900000
// A fleet of real systemd hosts with sshd and without Python, moved by the real deploy-fleet.sh: what happens to it, one after another,
// and in the long form two at a time on hosts of their own. The same on twenty, with real probations, is `npm run soak -- --fleet`.

import { is } from './assert.ts'
import { netnsProblem } from './lab/netns.ts'
import { bootFleet, type Fleet } from './lab/fleet.ts'
import { noAnsible } from './lab/stub-fleet.ts'
import { noHosts } from './lab/systemd.ts'
import * as scenarios from './fleet/scenarios.ts'
import { isLong, suite } from './suite.ts'

const test = suite('fleet: hosts', { skip: noHosts ?? netnsProblem() ?? noAnsible, timeoutMs: 600_000 })

const HOSTS = isLong ? 8 : 3
const WAY: scenarios.Way = {
  waves: isLong ? '1,3,100%' : '1,100%',
  soak: '1s',
  dies: 'dies-after-1s',
  longSoak: '8s',
  // as many as the two processors have room for beside the hosts
  load: { clients: 4, thinkMs: [20, 60] },
}

let fleet: Fleet
/** what goes on beside another scenario, on other hosts */
let beside: Promise<void> = Promise.resolve()
const startBeside = (work: Promise<void>) => {
  beside = work
  beside.catch(() => {}) // the test that it belongs to will say so
}

test.before(async () => {
  // the others are of what the long form alone tries, and dear to build
  fleet = await bootFleet(HOSTS, isLong ? scenarios.RELEASES : scenarios.RELEASES.slice(0, 2))
})
test.after(async () => await fleet?.[Symbol.asyncDispose]())

test('the hosts have no Python', async () => {
  for (const host of fleet.hosts) {
    const { stdout } = await host.run(['sh', '-c', 'command -v python3 || command -v python'])
    is(stdout, '')
  }
})
// the same with hosts of which only the answers are there: fleet.test.ts, fleet-answers.test.ts, fleet-killed.test.ts
test.long('what is wrong with a host is in the table before anything is changed', async () => {
  await scenarios.lookFindsThem(fleet)
})
test.long('a release that dies in probation: the canary reverts, nobody else is asked', async () => {
  await scenarios.canaryReverts(fleet, WAY)
})
test('in waves, with load on hosts and on HAProxy before all: lost 0', async () => {
  process.stdout.write(`  ${await scenarios.movesUnderLoad(fleet, WAY)}\n`)
})
test.long('all go back from their own backup, with no feed to be had, drained by hooks: lost 0', async () => {
  process.stdout.write(`  ${await scenarios.goesBack(fleet, WAY)}\n`)
})
// in CI channels.test.ts has what a host is offered, and fleet.test.ts that it goes by its tag
test.long(
  'one host on the channel beta goes to a prerelease by its tag, and back; the others are not offered it',
  async () => {
    await scenarios.goesToBeta(fleet, WAY)
  },
)
test.long('a host that loses its network in the middle is found again, and taken back', async () => {
  startBeside(scenarios.prometheusSaysNo(fleet, WAY, scenarios.part(fleet, 5, 3)))
  await scenarios.vanishesInTheMiddle(fleet, WAY, scenarios.part(fleet, 0, 3))
})
test.long(
  'a release that is not well after its probation: Prometheus stops it in the second wave, all are back',
  async () => {
    await beside
  },
)
test.long('a release that is good on three hosts and bad from the fourth on: its wave is taken back', async () => {
  startBeside(scenarios.killedAndAgain(fleet, WAY, scenarios.part(fleet, 5, 3)))
  await scenarios.badFromTheFourth(fleet, WAY, scenarios.part(fleet, 0, 5))
})
test.long('the controller is killed in the second wave, and goes on: no host is updated twice', async () => {
  await beside
})
test.run()
