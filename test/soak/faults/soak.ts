// `npm run soak -- --faults N`: each step once, and N random instants, for each signal and each side, on each ground.

import { type Ground, type GroundName, openGround } from './ground.ts'
import { lateIn, markdownOf, reportOf, summaryOf } from './report.ts'
import { atEachStep, atRandom, nameOf, runWorld, type World } from './run.ts'
import type { Plan, Side, Trial } from './trial.ts'
import { writeSection } from '../docs.ts'

export const SIGNALS = ['SIGKILL', 'SIGSTOP', 'SIGTERM'] as const
export const SIDES: readonly Side[] = ['predecessor', 'successor', 'both']

const HOSTS_AT_ONCE = 2

/** Each ground's services, one for each signal, are hit at once: most of the time of one is waiting. Whole hosts take more. */
export async function soakFaults(
  count: number,
  grounds: readonly string[],
  how: { isJson: boolean; isWritten: boolean },
): Promise<number> {
  let isWell = true
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void leave())
  for (const name of grounds) {
    const errors: string[] = []
    const worlds: World[] = []
    const left = [...SIGNALS.entries()]
    const lane = async () => {
      for (let next = left.shift(); next !== undefined; next = left.shift())
        worlds[next[0]] = await world(name as GroundName, next[1], count, errors)
    }
    await Promise.all(Array.from({ length: name === 'systemd' ? HOSTS_AT_ONCE : SIGNALS.length }, lane))
    const report = reportOf(worlds)
    report.broken.push(...errors)
    const late = lateIn(worlds)
    const page = `${markdownOf(report)}\n\nlate: ${late.length}\n${late.join('\n')}`.trim()
    process.stdout.write(how.isJson ? `${JSON.stringify({ ...report, late })}\n` : `${page}\n\n`)
    if (how.isWritten) await writeSection(`faults ${name}`, summaryOf(report, late))
    isWell &&= report.broken.length === 0 && late.length === 0
  }
  return isWell ? 0 : 1
}

async function world(name: GroundName, signal: Plan['signal'], count: number, errors: string[]): Promise<World> {
  const plans = [...atEachStep(signal), ...SIDES.flatMap((side) => atRandom(signal, side, count))]
  const trials: Trial[] = []
  const told = (trial: Trial) => {
    trials.push(trial)
    say(name, trial.plan, trial.backMs, trial.faults)
  }
  try {
    await using ground = await openAny(name)
    open.add(ground)
    return await runWorld(ground, plans, { told })
  } catch (cause) {
    const next = plans[trials.length]
    errors.push(
      `${name}, ${next === undefined ? signal : nameOf(next)}: it ended there, ${trials.length} of ${plans.length} done: ${String(cause)}`,
    )
    process.stderr.write(`${errors.at(-1)}\n`)
    return { ground: name, trials, rowsAcknowledged: 0, rowsMissing: 0, rowsDoubled: 0, refused: 0, spanMs: 0 }
  }
}

const open = new Set<Ground>()

/** Whoever ends it leaves no service behind. */
async function leave(): Promise<never> {
  await Promise.allSettled([...open].map((ground) => ground[Symbol.asyncDispose]()))
  process.exit(130)
}

async function openAny(name: GroundName): Promise<Ground> {
  if (name === 'systemd') return await (await import('./systemd.ts')).openSystemdGround()
  return await openGround(name)
}

function say(ground: string, plan: Plan, backMs: number | null, faults: string[]): void {
  process.stderr.write(`${ground}, ${nameOf(plan)}: ${backMs ?? '-'} ms ${faults.join('; ')}\n`)
}
