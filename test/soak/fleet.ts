// What may happen to a fleet, on many real systemd hosts, with the probation that operators have: every scenario once, and the
// controller killed in each way at each step. Ends with 0 where every promise was kept.

import { reasonOf } from '../../agent/words.ts'
import * as scenarios from '../fleet/scenarios.ts'
import { bootFleet } from '../lab/fleet.ts'
import { runLong } from './long.ts'

const PROBATION_MS = 30_000
const WAY: scenarios.Way = {
  waves: '1,5,100%',
  soak: '5s',
  dies: 'dies-after-20s',
  longSoak: '25s',
  load: { clients: 8, thinkMs: [10, 40] },
}

/** At least 14 hosts. */
export async function soakFleet(hosts: number, say: (line: string) => void): Promise<number> {
  let broken = 0
  const step = async (promise: string, work: () => Promise<string | void>): Promise<void> => {
    const begin = performance.now()
    const time = () => `${((performance.now() - begin) / 1000).toFixed(0)} s`
    try {
      const said = await work()
      say(`kept    ${promise} (${time()})${said === undefined ? '' : `: ${said}`}`)
    } catch (error) {
      broken++
      say(`broken  ${promise} (${time()}): ${reasonOf(error).slice(0, 2000)}`)
    }
  }
  const begin = performance.now()
  await using fleet = await bootFleet(hosts, scenarios.RELEASES, PROBATION_MS)
  say(`${hosts} hosts with v1.0.0, up in ${((performance.now() - begin) / 1000).toFixed(0)} s`)
  await step('what is wrong with a host is seen before anything is changed', () => scenarios.lookFindsThem(fleet))
  await step('a release that dies after 20 s reverts on the canary, nobody else is asked', () =>
    scenarios.canaryReverts(fleet, WAY),
  )
  await step('in waves with load on four hosts and on HAProxy before all: lost 0', () =>
    scenarios.movesUnderLoad(fleet, WAY),
  )
  await step('all go back from their own backup, without a feed, drained by hooks: lost 0', () =>
    scenarios.goesBack(fleet, WAY),
  )
  // each on hosts of its own, side by side
  const ten = hosts - 10
  await Promise.all([
    step('good on three hosts and bad from the fourth on', () =>
      scenarios.badFromTheFourth(fleet, WAY, scenarios.part(fleet, 0, ten)),
    ),
    step("a host vanishes in the middle, another is in the middle of somebody's update", () =>
      scenarios.vanishesInTheMiddle(fleet, WAY, scenarios.part(fleet, ten, 3)),
    ),
    step('passes its probation, fails the gate of Prometheus in wave 2', () =>
      scenarios.prometheusSaysNo(fleet, WAY, scenarios.part(fleet, ten + 3, 3)),
    ),
    step('killed in the second wave, and the same command again', () =>
      scenarios.killedAndAgain(fleet, WAY, scenarios.part(fleet, ten + 6, 4)),
    ),
  ])
  await step('the controller killed in each way at each step', async () => {
    const code = await runLong('fleet-killed')
    if (code !== 0) throw new Error(`it ended with ${code}`)
  })
  return broken === 0 ? 0 : 1
}
