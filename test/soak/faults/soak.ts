// `npm run soak -- --faults N`: each step once, and N random instants, for each signal and each side, on each ground.

import { type Ground, type GroundName, openGround } from './ground.ts'
import { lateIn, markdownOf, reportOf } from './report.ts'
import { atEachStep, atRandom, nameOf, runWorld, type World } from './run.ts'
import type { Plan, Side } from './trial.ts'

export const SIGNALS = ['SIGKILL', 'SIGSTOP', 'SIGTERM'] as const
export const SIDES: readonly Side[] = ['predecessor', 'successor', 'both']

/** How many services are hit at once: most of the time of one is waiting. */
const AT_ONCE = 3

export async function soakFaults(count: number, grounds: readonly string[], isJson: boolean): Promise<number> {
  const worlds: World[] = []
  const queue = grounds.flatMap((ground) =>
    SIGNALS.map((signal) => ({
      ground: ground as GroundName,
      plans: [...atEachStep(signal), ...SIDES.flatMap((side) => atRandom(signal, side, count))],
    })),
  )
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      await using ground = await openAny(next.ground)
      worlds.push(
        await runWorld(ground, next.plans, ({ plan, faults, backMs }) => say(next.ground, plan, backMs, faults)),
      )
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  const report = reportOf(worlds)
  const late = lateIn(worlds)
  process.stdout.write(isJson ? `${JSON.stringify({ ...report, late })}\n` : `${markdownOf(report)}\n`)
  if (!isJson && late.length > 0) process.stdout.write(`late:\n${late.join('\n')}\n`)
  return report.broken.length === 0 && late.length === 0 ? 0 : 1
}

async function openAny(name: GroundName): Promise<Ground> {
  if (name === 'systemd') return await (await import('./systemd.ts')).openSystemdGround()
  return await openGround(name)
}

function say(ground: string, plan: Plan, backMs: number | null, faults: string[]): void {
  process.stderr.write(`${ground}, ${nameOf(plan)}: ${backMs ?? '-'} ms ${faults.join('; ')}\n`)
}
