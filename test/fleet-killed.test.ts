// @long @deadlineMs 1800000
// The controller goes in the middle: Ctrl-C, or `kill -9` of deploy-fleet.sh, of Ansible, of both, at each step of a run. Then the same
// command ends as if nothing had been, and no host was updated twice; so it does for two operators at once. Real Ansible, hosts of which
// only the answers are there. Each of them at each step is BATON_TEST_LONG=1, of `npm run soak -- --fleet`; else one each.

import { readFileSync } from 'node:fs'
import { equal, is, match } from './assert.ts'
import { eventually } from './lab/systemd.ts'
import { type FleetEvent, makeStubFleet, noAnsible, type StubFleet } from './lab/stub-fleet.ts'
import { isLong, suite } from './suite.ts'

const test = suite('fleet: killed', { skip: noAnsible, timeoutMs: 180_000 })

type Way = (pid: number) => void
const kill = (pids: readonly number[], signal: NodeJS.Signals) => {
  for (const pid of pids) {
    try {
      process.kill(pid, signal)
    } catch {
      // it has just ended
    }
  }
}
const WAYS: Record<string, Way> = {
  'Ctrl-C': (pid) => kill([pid], 'SIGINT'),
  'kill -9 of deploy-fleet.sh': (pid) => kill([pid], 'SIGKILL'),
  'kill -9 of Ansible': (pid) => kill(childrenOf(pid), 'SIGKILL'),
  'kill -9 of both': (pid) => kill([...childrenOf(pid), pid], 'SIGKILL'),
}

interface Step {
  at: string
  is: (event: FleetEvent) => boolean
  /** nothing but the result follows: the run may have ended before it is killed */
  isLast?: true
}
const wave = (number: number, step: string) => (event: FleetEvent) =>
  event.event === 'wave' && event.wave === number && event.step === step
const IN_THE_SECOND: Step = { at: 'the second wave in the middle', is: (e) => e.event === 'host' && e.wave === 2 }
const FORWARD: Step[] = [
  { at: 'the first host seen', is: (event) => event.event === 'seen' },
  { at: 'the plan', is: (event) => event.event === 'plan' },
  { at: 'the canary being moved', is: wave(1, 'begin') },
  { at: 'the soak', is: wave(1, 'soak') },
  IN_THE_SECOND,
  { at: 'the last wave good', is: wave(2, 'good'), isLast: true },
]
const BACK: Step = { at: 'the stop', is: (event) => event.event === 'stop' }
const ways = Object.keys(WAYS)
const turns = isLong
  ? FORWARD.flatMap((step) => ways.map((way) => ({ step, way })))
  : [{ step: IN_THE_SECOND, way: 'kill -9 of Ansible' }]
const ARGS = ['--release', 'latest', '--waves', '1,100%', '--soak', '1s']

for (const { step, way } of turns) {
  test(`the same command goes on after ${way} at ${step.at}`, async () => {
    await using fleet = await makeStubFleet(3)
    for (const host of fleet.names) await fleet.set(host, 'delay', '0.5')
    await interrupted(fleet, step, way, ARGS)
    const { code, stderr } = await fleet.move(...ARGS, '--lock-timeout', '60s')
    is(code, 0, stderr)
    equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])
    for (const host of fleet.names) equal(await fleet.done(host), ['upgrade v1.1.0'], host)
  })
}

test('killed while it takes a wave back: what is said to go back goes back, and no host is left in between', async () => {
  await using fleet = await makeStubFleet(3)
  for (const host of fleet.names) await fleet.set(host, 'delay', '0.5')
  const gate = ['--gate', 'test $BATON_WAVE = 1']
  await interrupted(fleet, BACK, 'kill -9 of both', [
    '--release',
    'v1.1.0',
    '--waves',
    '1,100%',
    '--soak',
    '0',
    ...gate,
  ])
  const { code, stderr } = await fleet.move('--rollback', '--release', 'v1.0.0', '--soak', '0', '--lock-timeout', '60s')
  is(code, 0, stderr)
  equal(await fleet.running(), ['v1.0.0', 'v1.0.0', 'v1.0.0'])
  for (const host of fleet.names) equal(await fleet.done(host), ['upgrade v1.1.0', 'rollback v1.0.0'], host)
})

test('Ctrl-C ends it with 1, and says what goes on', async () => {
  await using fleet = await makeStubFleet(2)
  await fleet.set('h1', 'delay', '2')
  const { child, done } = fleet.start(...ARGS)
  await eventually('the canary at it', async () => (await fleet.done('h1')).length > 0, 90_000)
  WAYS['Ctrl-C']?.(child.pid ?? 0)
  const { code, stderr } = await done
  is(code, 1)
  match(
    stderr,
    /error: interrupted: hosts already updating will finish on their own\nhint: run the same command again: /,
  )
  await eventually('the canary finishing', async () => (await fleet.running())[0] === 'v1.1.0', 30_000)
  equal(await fleet.done('h2'), [])
})

test('two operators at once: no host is updated twice, and both say how it ended', async () => {
  await using fleet = await makeStubFleet(3)
  for (const host of fleet.names) await fleet.set(host, 'delay', '1')
  const [first, second] = await Promise.all([fleet.move(...ARGS), fleet.move(...ARGS, '--report', `${fleet.report}.2`)])
  equal([first.code, second.code], [0, 0], first.stderr + second.stderr)
  equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])
  for (const host of fleet.names) equal(await fleet.done(host), ['upgrade v1.1.0'], host)
})

test.long('a report has one writer: a second run on it ends with 6', async () => {
  await using fleet = await makeStubFleet(1)
  await fleet.set('h1', 'delay', '25')
  const first = fleet.start('--release', 'v1.1.0', '--soak', '0')
  await eventually('the first one at it', async () => (await fleet.events()).some(wave(1, 'begin')), 60_000)
  const second = await fleet.move('--release', 'v1.1.0', '--soak', '0', '--lock-timeout', '2s')
  is(second.code, 6)
  match(second.stderr, 'another run is writing to')
  is((await first.done).code, 0)
  equal(await fleet.done('h1'), ['upgrade v1.1.0'])
})

async function interrupted(fleet: StubFleet, step: Step, way: string, args: readonly string[]): Promise<void> {
  const { child, done } = fleet.start(...args)
  await eventually(step.at, async () => (await fleet.events()).some(step.is), 90_000)
  WAYS[way]?.(child.pid ?? 0)
  const { result } = await done
  if (step.isLast !== true) is(result, null, 'it was too late to interrupt it')
}

function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number)
}

test.run()
