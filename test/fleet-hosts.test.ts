// @alone @deadlineMs 1800000 @later eight hosts and every scenario take more minutes than CI has
// A fleet of eight real systemd hosts with sshd and without Python, moved by the real deploy-fleet.sh: what happens to it, one
// after another. The same on twenty hosts, with real probations, is `npm run soak -- --fleet`.

import { is } from './assert.ts'
import { netnsProblem } from './lab/netns.ts'
import { bootFleet, type Fleet } from './lab/fleet.ts'
import { noAnsible } from './lab/stub-fleet.ts'
import { noHosts } from './lab/systemd.ts'
import * as scenarios from './fleet/scenarios.ts'
import { suite } from './suite.ts'

const test = suite('fleet: hosts', { skip: noHosts ?? netnsProblem() ?? noAnsible, timeoutMs: 600_000 })

const HOSTS = 8
const WAY: scenarios.Way = {
  waves: '1,3,100%',
  soak: '1',
  dies: 'dies-after-1s',
  sickens: 'unhealthy-after-6s',
  longSoak: '8',
}

let fleet: Fleet

test.before(async () => {
  fleet = await bootFleet(HOSTS, scenarios.RELEASES)
})
test.after(async () => await fleet?.[Symbol.asyncDispose]())

test('the hosts have no Python', async () => {
  for (const host of fleet.hosts) {
    const { stdout } = await host.run(['sh', '-c', 'command -v python3 || command -v python'])
    is(stdout, '')
  }
})
test('what is wrong with a host is in the table before anything is changed', async () => {
  await scenarios.lookFindsThem(fleet)
})
test('a release that dies in probation: the canary reverts, nobody else is asked', async () => {
  await scenarios.canaryReverts(fleet, WAY)
})
test('in waves with load on four hosts: lost 0', async () => {
  process.stdout.write(`  ${await scenarios.movesUnderLoad(fleet, WAY)}\n`)
})
test('all go back from their own backup, with no feed to be had', async () => {
  await scenarios.goesBack(fleet)
})
test('a release that is good on three hosts and bad from the fourth on: its wave is taken back', async () => {
  await scenarios.badFromTheFourth(fleet, WAY)
})
test('a host that loses its network in the middle is found again, and taken back', async () => {
  await scenarios.vanishesInTheMiddle(fleet, WAY)
})
test('a release that is not well after its probation: Prometheus stops it in the second wave, all are back', async () => {
  await scenarios.prometheusSaysNo(fleet, WAY)
})
test('behind HAProxy nothing is lost, with hooks that drain and without', async () => {
  await scenarios.behindHaproxy(fleet, true)
  await scenarios.behindHaproxy(fleet, false)
})
test('the controller is killed in the second wave, and goes on: no host is updated twice', async () => {
  await scenarios.killedAndResumed(fleet, WAY, 3)
})
test.run()
