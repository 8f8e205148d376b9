// @deadlineMs 1800000
// The controller goes in the middle: Ctrl-C, or `kill -9` of deploy-fleet.sh, of Ansible, of both, at each step of a run. Then
// `--resume` ends as if nothing had been, and no host was updated twice. Real Ansible, hosts of which only the answers are there.
// Each of them at each step is BATON_TEST_LONG=1, of `npm run soak -- --fleet`; else they take turns, at every fourth step.

import { readFileSync } from 'node:fs'
import { chmod, readFile, stat } from 'node:fs/promises'
import type { FleetEvent } from '../deploy/fleet/events.ts'
import { equal, is, match } from './assert.ts'
import { eventually } from './lab/systemd.ts'
import { makeStubFleet, noAnsible, type StubFleet } from './lab/stub-fleet.ts'
import { isLong, suite } from './suite.ts'

const test = suite('fleet: resume', { skip: noAnsible, timeoutMs: 180_000 })

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
}
const wave = (number: number, step: string) => (event: FleetEvent) =>
  event.event === 'wave' && event.wave === number && event.step === step
const FORWARD: Step[] = [
  { at: 'the first host seen', is: (event) => event.event === 'seen' },
  { at: 'the plan', is: (event) => event.event === 'plan' },
  { at: 'the canary being moved', is: (event) => event.event === 'start' },
  { at: 'the canary moved', is: (event) => event.event === 'host' },
  { at: 'the soak', is: wave(1, 'soak') },
  { at: 'the first wave good', is: wave(1, 'good') },
  { at: 'the second wave in the middle', is: (event) => event.event === 'host' && event.wave === 2 },
  { at: 'the last wave good', is: wave(2, 'good') },
]
const BACK: Step[] = [
  { at: 'the stop', is: (event) => event.event === 'stop' },
  { at: 'the first host that is back', is: (event) => event.event === 'back' },
]
const ways = Object.entries(WAYS)
const turns = (steps: Step[], first = 0) =>
  isLong
    ? steps.flatMap((step) => ways.map((way) => ({ step, way })))
    : steps.filter((_, i) => i % 4 === 0).map((step, i) => ({ step, way: ways[(first + i) % ways.length] ?? ways[0] }))

for (const { step, way } of turns(FORWARD)) {
  const [name = '', end = WAYS['Ctrl-C']] = way ?? []
  test(`goes on after ${name} at ${step.at}`, async () => {
    await using fleet = await makeStubFleet(4)
    for (const host of fleet.names) await fleet.set(host, 'delay', '0.5')
    const args = ['--release', 'latest', '--waves', '1,100%', '--soak', '1s']
    await interrupted(fleet, step, end, args)
    const { code, result, stderr } = await fleet.move('--resume')
    is(code, 0, stderr)
    equal(new Set(await fleet.running()), new Set(['v1.1.0']))
    for (const host of fleet.names) equal(await fleet.done(host), ['upgrade v1.1.0'], host)
    equal(
      result?.hosts.map((row) => [row.from, row.now, ['updated', 'up_to_date'].includes(row.outcome)]),
      fleet.names.map(() => ['v1.0.0', 'v1.1.0', true]),
    )
    const again = await fleet.move('--resume')
    is(again.code, 7)
    match(again.stderr, 'that run has ended')
  })
}

for (const { step, way } of turns(BACK, 1)) {
  const [name = '', end = WAYS['Ctrl-C']] = way ?? []
  test(`goes back to the end after ${name} at ${step.at}`, async () => {
    await using fleet = await makeStubFleet(4)
    for (const host of fleet.names) await fleet.set(host, 'delay', '0.5')
    const gate = ['--gate', 'test $BATON_WAVE = 1', '--on-failure', 'fleet']
    await interrupted(fleet, step, end, ['--release', 'v1.1.0', '--waves', '1,2,100%', '--soak', '0', ...gate])
    const { code, rows, stderr } = await fleet.move('--resume')
    is(code, 8, stderr)
    equal(new Set(await fleet.running()), new Set(['v1.0.0']))
    for (const host of ['h1', 'h2', 'h3']) {
      is(rows[host]?.outcome, 'taken_back', host)
      equal(await fleet.done(host), ['upgrade v1.1.0', 'rollback v1.0.0'], host)
    }
    equal(await fleet.done('h4'), [])
  })
}

test('a check in between, clean or refused, leaves what a resume goes on from; a second operator goes on with it', async () => {
  await using fleet = await makeStubFleet(4)
  // where operators share a folder, its group may go on with what one of them has begun
  await chmod(fleet.folder, 0o775)
  for (const host of fleet.names) await fleet.set(host, 'delay', '0.5')
  const step = { at: 'the canary moved', is: (event: FleetEvent) => event.event === 'host' }
  await interrupted(fleet, step, WAYS['Ctrl-C'], ['--release', 'v1.1.0', '--waves', '1,100%', '--soak', '1s'])
  is((await stat(fleet.report)).mode & 0o777, 0o660)
  const before = await readFile(fleet.report, 'utf8')
  const clean = await fleet.move('--release', 'v1.1.0', '--check')
  equal([clean.code, clean.result?.outcome], [0, 'planned'], clean.stderr)
  await fleet.set('h4', 'down', '9')
  const refused = await fleet.move('--release', 'v1.1.0', '--', '--check')
  equal([refused.code, refused.result?.outcome], [9, 'refused'], refused.stderr)
  is(await readFile(fleet.report, 'utf8'), before)
  await fleet.set('h4', 'down', '')
  const { code, stderr } = await fleet.move('--resume')
  is(code, 0, stderr)
  equal(new Set(await fleet.running()), new Set(['v1.1.0']))
  for (const host of fleet.names) equal(await fleet.done(host), ['upgrade v1.1.0'], host)
  const ofCheck = fleet.report.replace('.jsonl', '.check.jsonl')
  const none = await fleet.move('--resume', '--report', ofCheck)
  equal([none.code, none.result], [7, null])
  match(none.stderr, 'that run was a check: there is nothing to go on with')
})

test.long('goes on with what the last run was about, whatever older runs the same report holds', async () => {
  await using fleet = await makeStubFleet(2)
  const older = await fleet.move('--release', 'v1.1.0', '--waves', '100%', '--soak', '0')
  is(older.code, 0, older.stderr)
  for (const host of fleet.names) await fleet.set(host, 'latest', '"v1.2.0"')
  // the run ends after the look at one host, before a plan names the release
  await fleet.set('h2', 'answers-after', '8')
  const step = { at: 'the first host seen', is: (event: FleetEvent) => event.event === 'seen' && event.to === null }
  await interrupted(fleet, step, WAYS['kill -9 of both'], ['--release', 'latest', '--waves', '100%', '--soak', '0'])
  await fleet.set('h2', 'answers-after', '')
  const { code, result, stderr } = await fleet.move('--resume')
  equal([code, result?.release], [0, 'v1.2.0'], stderr)
  equal(await fleet.running(), ['v1.2.0', 'v1.2.0'])
})

test('a report has one writer: a second run on it ends with 6', async () => {
  await using fleet = await makeStubFleet(1)
  await fleet.set('h1', 'delay', '25')
  const first = fleet.start('--release', 'v1.1.0', '--soak', '0')
  await eventually(
    'the first one at it',
    async () => (await fleet.events()).some(({ event }) => event === 'start'),
    60_000,
  )
  const second = await fleet.move('--release', 'v1.1.0', '--soak', '0')
  is(second.code, 6)
  match(second.stderr, 'another run is writing to')
  is((await first.done).code, 0)
  equal(await fleet.done('h1'), ['upgrade v1.1.0'])
})

async function interrupted(fleet: StubFleet, step: Step, end: Way | undefined, args: readonly string[]): Promise<void> {
  const { child, done } = fleet.start(...args)
  await eventually(step.at, async () => (await fleet.events()).some(step.is), 90_000)
  end?.(child.pid ?? 0)
  const { result, code, stderr } = await done
  is(result, null, 'it was too late to interrupt it')
  if (code !== 255) match(stderr, 'finish by themselves')
}

function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number)
}

test.run()
