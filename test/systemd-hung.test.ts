// @long
// A predecessor that hangs in a handover under systemd: its successor ends it, and goes on as the main process of the unit, which is
// not started again.

import { noHosts } from './lab/systemd.ts'
import { equal, is } from './assert.ts'
import { runWorld } from './soak/faults/run.ts'
import { openSystemdGround } from './soak/faults/systemd.ts'
import type { Plan } from './soak/faults/trial.ts'
import { suite } from './suite.ts'

const test = suite('systemd: a predecessor that hangs', { skip: noHosts, timeoutMs: 280_000 })
const STEPS = ['spawned', 'greeted', 'probed'] as const

test('is ended by its successor, and the unit goes on', async () => {
  await using ground = await openSystemdGround()
  const plans = STEPS.map((step): Plan => ({ side: 'predecessor', signal: 'SIGSTOP', at: [step] }))
  const { trials, rowsMissing, refused } = await runWorld(ground, plans)
  equal(
    trials.map(({ outcome, faults }) => [outcome, faults]),
    STEPS.map((_, at) => [at % 2 === 0 ? 'rolled_back' : 'updated', []]), // to the older release and forward again, in turns
  )
  equal([rowsMissing, refused], [0, 0])
  const said = await ground.output()
  is((said.match(/killing the previous process \(pid \d+\)/g) ?? []).length, STEPS.length)
  equal(
    said.split('\n').filter((line) => line.includes('Scheduled restart')),
    [],
  )
})

test.run()
