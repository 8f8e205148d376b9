// @alone @deadlineMs 420000
// Either process of a handover, and both, are killed: at each of its steps, and at ten instants. The service answers again, and
// executable, backup, journal and running version agree; no acknowledged row is missing, none is there twice, nothing is left
// over. The long form, which stops them and tells them to stop as well, is `npm run soak -- --faults 100`.

import { equal, is, ok } from './assert.ts'
import { openGround } from './soak/faults/ground.ts'
import { atEachStep, atRandom, brokenIn, runWorld, type World } from './soak/faults/run.ts'
import { SIDES } from './soak/faults/soak.ts'
import type { Plan } from './soak/faults/trial.ts'
import { suite } from './suite.ts'

const INSTANTS = 10
const steps = atEachStep('SIGKILL')
const kills = SIDES.flatMap((side) => atRandom('SIGKILL', side, INSTANTS))
const half = <T>(list: T[], which: 0 | 1) => list.filter((_, at) => at % 2 === which)

const test = suite('faults', { timeoutMs: 400_000 })

/** side by side: most of the time of one is waiting */
const worlds = {
  'kill -9 of either process at each step of a handover leaves one that goes on': run('alone', half(steps, 0)),
  'the same at the other steps': run('alone', half(steps, 1)),
  'kill -9 of either and of both at any instant, and the next start finds all that it needs': run(
    'alone',
    half(kills, 0),
  ),
  'the same under a supervision: nobody is refused': run('supervised', half(kills, 1)),
}

for (const [title, [plans, world]] of Object.entries(worlds)) {
  test(title, async () => {
    const ended = await world
    equal(brokenIn(ended), [])
    is(ended.trials.length, plans.length)
    ok(ended.trials.every(({ outcome }) => outcome !== null))
  })
}

test.run()

function run(name: 'alone' | 'supervised', plans: Plan[]): [Plan[], Promise<World>] {
  const world = (async () => {
    await using ground = await openGround(name)
    return await runWorld(ground, plans)
  })()
  world.catch(() => {}) // heard by its test
  return [plans, world]
}
