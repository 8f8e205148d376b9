// How the new container takes the old one's place: beside it, right after its end, or started after its end. Each may be repeated, by
// another run too, and then does only what is missing.
// Must hold: unless the images of both say that two containers may serve at once, the application of the new one has begun nothing
// before the engine has seen the old one's end.

import { existsSync } from 'node:fs'
import { BatonError } from '../../agent/words.ts'
import type { Engine } from './engine/engine.ts'
import { GATES, howToReplace, keepTurn, makeGate, passTurn, type Replacing } from './gate.ts'
import { carryVolume } from './hold.ts'
import type { Job } from './job.ts'
import * as move from './moves.ts'
import { exchangeMark } from './own-data.ts'
import { type Limits, refuseStopped, type Tools } from './request.ts'
import { imageOfContainer } from './survey.ts'

/** Says how it was done. Throws BatonError restart_failed if the new container does not come as far as its gate; interrupted. */
export async function replace(job: Job, limits: Limits, tools: Pick<Tools, 'engine' | 'stop'>): Promise<Replacing> {
  const { engine } = tools
  const mark = await exchangeMark(job, engine)
  if (mark?.isBack === true)
    throw new BatonError('restart_failed', 'the engine was away: the old release has begun again, on its own data')
  if (existsSync(GATES)) await carryVolume(GATES)
  await move.passName(job, engine)
  const now = await howNow(job, engine)
  const how = now === 'start-first' && mark !== null ? 'stop-first' : now // they cannot share the data
  if (how === 'start-first') await keepTurn(job.successor)
  if (how === 'stop-first') return await afterWaiting(job, limits, tools)
  if (how === 'stopped') {
    await leaveAlone(job, engine)
    await move.passPorts(job.origin, engine, { back: false })
  }
  await move.ensureRunning(job.successor, engine)
  return how
}

/** Only the switcher has the gates. */
async function howNow({ origin, predecessor, successor }: Job, engine: Engine): Promise<Replacing> {
  const [old, next] = [await engine.container(predecessor), await engine.container(successor)]
  if (old === null || next === null || origin.hold !== undefined || !existsSync(GATES)) return 'stopped'
  const [before, after] = [await imageOfContainer(old, engine), await imageOfContainer(next, engine)]
  return await howToReplace({ container: old, image: before }, { container: next, image: after }, engine)
}

/** The old container ends, and the new one is the only one. */
export async function leaveAlone({ predecessor, successor }: Job, engine: Engine): Promise<void> {
  await move.endOld(predecessor, engine)
  await passTurn(successor)
}

async function afterWaiting(job: Job, limits: Limits, tools: Pick<Tools, 'engine' | 'stop'>): Promise<Replacing> {
  const { engine } = tools
  await move.ensureStopped(job.successor, 0, engine) // it waits for an earlier run, which is gone
  await using gate = await makeGate(job.successor)
  try {
    await move.ensureRunning(job.successor, engine)
    await gate.arrival(job, limits, tools)
    await move.endOld(job.predecessor, engine)
    refuseStopped(tools.stop) // an application that has just begun may not handle a stop yet
  } catch (cause) {
    // stop it before its gate goes: without a gate, a new container that has not reached it would begin beside the old one
    await move.ensureStopped(job.successor, 0, engine)
    throw cause
  }
  await gate.open()
  return 'stop-first'
}
