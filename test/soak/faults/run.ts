// Many faults, one after the other, in the same service under the same load: what one leaves behind the next one meets.

import { setTimeout as sleep } from 'node:timers/promises'
import { PREDECESSOR_STEPS, REVERT_STEPS, SUCCESSOR_STEPS } from '../../../agent/handover/moments.ts'
import { type Load, spawnLoad } from '../../lab/load.ts'
import type { Ground, GroundName } from './ground.ts'
import { conduct, type Plan, settledStatus, type Side, type Trial } from './trial.ts'

export interface World {
  ground: GroundName
  trials: Trial[]
  rowsAcknowledged: number
  /** acknowledged and not there, or there twice */
  rowsMissing: number
  rowsDoubled: number
  /** connections that nobody would take */
  refused: number
  /** how long a switch takes without a fault */
  spanMs: number
}

/** Each step once, by `signal`: of either side, and of a predecessor that takes back while its successor is dead already. */
export function atEachStep(signal: Plan['signal']): Plan[] {
  const predecessor = PREDECESSOR_STEPS.map((step): Plan => ({ side: 'predecessor', signal, at: [step] }))
  const successor = SUCCESSOR_STEPS.map((step): Plan => ({ side: 'successor', signal, at: [step] }))
  const reverting = REVERT_STEPS.map((step): Plan => ({ side: 'both', signal, at: ['said proved', step] }))
  return [...predecessor, ...successor, ...(signal === 'SIGKILL' ? reverting : [])]
}

/** `count` instants, spread evenly over a switch with a little chance in each. */
export function atRandom(signal: Plan['signal'], side: Side, count: number): Plan[] {
  return Array.from({ length: count }, (_, index) => ({ signal, side, at: (index + Math.random()) / count }))
}

const HEALTHY_SWITCHES = 3
const REFUSED = /^connect: E/

export async function runWorld(
  ground: Ground,
  plans: Plan[],
  { clients = 12, told = () => {} }: { clients?: number; told?: (trial: Trial) => void } = {},
): Promise<World> {
  const load = await startLoad(ground, clients)
  const { spanMs, descriptors } = await healthy(ground)
  const trials: Trial[] = []
  let span = spanMs
  for (const plan of plans) {
    for (let tries = 0; ; tries++) {
      const at = typeof plan.at === 'number' ? plan.at * 0.9 ** tries : plan.at // too late: a little earlier
      const began = performance.now()
      const trial = await conduct(ground, { ...plan, at }, span, descriptors)
      if (trial === null) {
        // a machine that was busy when this was measured is not any more
        span = Math.min(span, performance.now() - began)
        if (tries < 10) continue
        throw new Error(`never in time: ${JSON.stringify(plan)}`)
      }
      trials.push(trial)
      told(trial)
      break
    }
  }
  const { writes, errors } = await load.stop()
  await settledStatus(ground)
  const counts = new Map<string, number>()
  for (const text of await ground.rows()) counts.set(text, (counts.get(text) ?? 0) + 1)
  return {
    ground: ground.name,
    trials,
    spanMs,
    rowsAcknowledged: writes.ids.length,
    rowsMissing: writes.ids.filter((id) => !counts.has(id)).length,
    rowsDoubled: [...counts.values()].filter((count) => count > 1).length,
    refused: Object.entries(errors).reduce((sum, [error, times]) => sum + (REFUSED.test(error) ? times : 0), 0),
  }
}

/** What a switch takes and leaves where nothing is wrong. */
async function healthy(ground: Ground): Promise<{ spanMs: number; descriptors: number }> {
  const spans: number[] = []
  let descriptors = 0
  for (let tries = 0; spans.length < HEALTHY_SWITCHES; tries++) {
    const { instance } = await settledStatus(ground)
    const began = performance.now()
    await ground.api('POST', '/admin/update', { tag: instance.version === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0' })
    const status = await settledStatus(ground)
    const isHealthy = ['updated', 'rolled_back'].includes(String(status.operation?.outcome))
    // on a machine that stands still a process may be taken for one that hangs
    if (!isHealthy && tries < 2 * HEALTHY_SWITCHES) continue
    spans.push(performance.now() - began)
    if (!isHealthy) throw new Error(`a healthy switch: ${JSON.stringify(status.operation)}`)
    await sleep(100)
    descriptors = Math.max(descriptors, (await ground.evidence(ground.pids()[0] ?? 0, 0)).descriptors)
  }
  return { spanMs: Math.round(spans.toSorted((a, b) => a - b)[1] ?? 0), descriptors }
}

async function startLoad({ port, prefix }: Ground, clients: number): Promise<Load> {
  return await spawnLoad(
    {
      mode: 'keepalive',
      clients,
      port,
      path: '/version',
      thinkMs: [20, 60],
      hangMs: 5000,
      afterClose: 'reopen',
      failurePauseMs: 30,
      maxMs: 3_600_000,
      keepAcknowledgedIds: true,
      write: {
        every: 4,
        path: '/api/logs',
        method: 'POST',
        body: '{"level":"info","message":"{id}"}',
        headers: { 'content-type': 'application/json' },
      },
    },
    { prefix },
  )
}

/** Every broken promise of a world, in words. */
export function brokenIn({ ground, trials, refused, rowsAcknowledged, rowsMissing, rowsDoubled }: World): string[] {
  const broken = trials.flatMap(({ plan, faults }) => faults.map((fault) => `${ground}, ${nameOf(plan)}: ${fault}`))
  // a service that was told to stop is to refuse at once, until somebody starts it again
  const mayRefuse = ground === 'alone' || trials.some(({ plan }) => plan.signal === 'SIGTERM')
  if (!mayRefuse && refused > 0) broken.push(`${ground}: ${refused} connections were refused`)
  if (rowsAcknowledged === 0) broken.push(`${ground}: no row was acknowledged`)
  if (rowsMissing > 0) broken.push(`${ground}: ${rowsMissing} of ${rowsAcknowledged} acknowledged rows are missing`)
  if (rowsDoubled > 0) broken.push(`${ground}: ${rowsDoubled} rows are there twice`)
  return broken
}

export function nameOf({ signal, side, at }: Plan): string {
  return `${signal} to ${side === 'both' ? 'both' : `the ${side}`} ${typeof at === 'number' ? `at ${Math.round(at * 100)} %` : `at "${at.join('", "')}"`}`
}
