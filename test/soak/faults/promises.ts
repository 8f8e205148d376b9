// The short form of the faults, as tests: a world each, side by side, since most of the time of one is waiting.

import { equal, ok } from '../../assert.ts'
import { onlyLists, type Suite } from '../../suite.ts'
import { openGround } from './ground.ts'
import { brokenIn, runWorld, type World } from './run.ts'
import type { Plan } from './trial.ts'

export function promise(test: Suite, title: string, ground: 'alone' | 'supervised', plans: Plan[]): void {
  const world = onlyLists ? new Promise<World>(() => {}) : run(ground, plans)
  world.catch(() => {}) // heard by its test
  test(title, async () => {
    const ended = await world
    equal(brokenIn(ended), [])
    ok(plans.length > 0, 'a promise of nothing')
  })
}

/** Every second one, from the first or from the second on. */
export function half(plans: Plan[], which: 0 | 1): Plan[] {
  return plans.filter((_, at) => at % 2 === which)
}

async function run(name: 'alone' | 'supervised', plans: Plan[]): Promise<World> {
  await using ground = await openGround(name)
  // several worlds share the processors
  return await runWorld(ground, plans, { clients: 4 })
}
