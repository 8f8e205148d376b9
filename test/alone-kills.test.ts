// @deadlineMs 600000
// A stop-first switch in which one of its three processes is killed or stopped, at each step that it takes: in CI at
// some of them, in `npm run soak -- --long` at all.

import { setTimeout as sleep } from 'node:timers/promises'
import { ALONE_STEPS, HOLDER_STEPS, SUCCESSOR_STEPS } from '../agent/handover/moments.ts'
import { equal, is, ok } from './assert.ts'
import { ask } from './fixtures/install.ts'
import { openWorld } from './fixtures/only-world.ts'
import { isLong, suite } from './suite.ts'

const test = suite('alone: kills', { timeoutMs: 300_000 })
const WORLDS = 3

/** the new process answers for itself alone */
const AFTER = new Set<string>(['said committed', 'alone'])

const LAST = HOLDER_STEPS.indexOf('reverting')
for (const [signal, role, steps] of [
  ['SIGKILL', 'old', ALONE_STEPS],
  ['SIGKILL', 'holder', HOLDER_STEPS.slice(0, LAST)],
  ['SIGKILL', 'new', SUCCESSOR_STEPS],
  // before it comes to rest, an old process that is stopped is a service that is stopped
  ['SIGSTOP', 'old', ALONE_STEPS.slice(ALONE_STEPS.indexOf('quiet'))],
  ['SIGSTOP', 'holder', HOLDER_STEPS.slice(0, LAST)],
  ['SIGSTOP', 'new', SUCCESSOR_STEPS.filter((step) => !AFTER.has(step))],
] as const) {
  // what a kill does not do at a step, a stop seldom does
  const register = signal === 'SIGKILL' ? test : test.long
  register(
    `${signal} for the ${role} process at ${isLong ? 'each' : 'some'} of its steps: the service is there again, and never twice`,
    async () => {
      const every = isLong ? 1 : 4
      const some = steps.filter((_, at) => at % every === 0)
      await atOnce(some, async (step) => {
        await using world = await openWorld({ readyTimeout: '10s' })
        await world.faultAt(role, [{ step, signal }])
        const load = world.load()
        await sleep(100)
        await world.begin(null)
        // a release that dies after its commit has crashed: whoever supervises the service starts it again
        if (role === 'new' && AFTER.has(step)) await world.startAgain()
        const done = await world.home.settled(40_000)
        const totals = await load.stop()
        const where = `${signal} for ${role} at \`${step}\`: ${done.outcome}, ${done.error?.message}`
        is((await world.left(role)).length, 0, `${where}: it did not happen`)
        equal(await world.wrong(), [], where)
        if (!AFTER.has(step)) is(totals.lostBy.connect, 0, `${where}: ${JSON.stringify(totals.errors)}`)
        ok(done.outcome === 'updated' || done.outcome === 'reverted', where)
        const serves = (await ask(world.port, 'GET', '/', null)).body
        is(serves, done.outcome === 'updated' ? 'v1.1.0' : 'v1.0.0', where)
        is(world.home.pids().length, 1, `${where}: ${world.home.pids().join(', ')}`)
        is((await world.update(null)).outcome, done.outcome === 'updated' ? 'up_to_date' : 'updated', where)
        equal(await world.wrong(), [], `${where}, and after the next update`)
      })
    },
  )
}

test.run()

/** Some at a time: most of each is waiting. */
async function atOnce<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  const left = [...all]
  const worker = async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) await act(one)
  }
  await Promise.all(Array.from({ length: WORLDS }, worker))
}
