// Two containers as the ground of a switch (agent/handover/conduct.ts): the new one takes the old one's place beside it, right after its
// end, or started after its end. Each step may be repeated, by another run too, and then does only what is missing.
// Must hold: unless the images of both say that two containers may serve at once, the application of the new one has begun nothing
// before every process of the old one has ended.

import { existsSync } from 'node:fs'
import type { Ground } from '../../agent/install.ts'
import { BatonError, type Order, untilWell } from '../../agent/words.ts'
import { formatDuration } from '../lib/progress.ts'
import type { Engine } from './engine/engine.ts'
import {
  type ContainerGate,
  GATES,
  hasGate,
  howToReplace,
  keepTurn,
  makeGate,
  passTurn,
  removeGate,
  type Replacing,
} from './gate.ts'
import { becomesHealthy, standsProbation } from './health.ts'
import { carryVolume } from './hold.ts'
import type { Job } from './job.ts'
import { watchEnd } from './last-process.ts'
import * as move from './moves.ts'
import type { OutageWatch } from './outage.ts'
import { exchangeMark } from './own-data.ts'
import { namesFor } from './reference.ts'
import { type Limits, refuseStopped, step, type Tools } from './request.ts'
import { imageOfContainer } from './survey.ts'

/** how long a healthy container may take to answer through its holder; each try waits a second for its answer */
const DOOR_MS = 10_000

export type Switching = Pick<Tools, 'engine' | 'report' | 'stop'>

/** Two containers, and who looks at them. */
export interface Between {
  job: Job
  limits: Limits
  tools: Switching
  outage: OutageWatch
}

/** How to go forward. Its steps throw BatonError: restart_failed, probation_failed, interrupted. */
export type Forward = Pick<Ground<never>, 'start' | 'retire' | 'begin' | 'claim' | 'hand' | 'prove'> & {
  /** The old one has ended, in whatever order. */
  endOld(): Promise<void>
}

export function forward(between: Between): Forward {
  const { job, limits, tools, outage } = between
  // as `start` has told it: what the engine shows later, when it comes back, must not change how this switch ends
  let order: Order | null = null
  let hasProved = false
  let place = takingPlace(between, order)
  const again = async (): Promise<void> => {
    place = takingPlace(between, order)
    if ((await place.start()) === 'stop-first') await place.retire()
    await place.begin()
    await outage.follow(job.successor)
  }
  const asked = { answers: outage.answers, again }
  return {
    async start() {
      const old = namesFor(job.origin.name).predecessor
      await step(tools, 'switch', `the old container is renamed to ${old} until the new one has proved itself`)
      return (order = await place.start())
    },
    async retire() {
      if (order === 'stop-first') await place.retire() // start-first, the old one stays until the commit (`endOld`)
    },
    async begin() {
      await place.begin()
      await outage.follow(job.successor)
      await step(tools, 'health', `at most ${formatDuration(limits.healthTimeoutMs)}`)
      await becomesHealthy(job, limits, tools, asked)
    },
    async claim() {
      if (outage.isHeld() && order === 'stop-first') await answersItsDoor(between)
    },
    hand: async () => {}, // the holder keeps what clients have open, or nobody does
    /** The first time all of it: `hand` changes nothing here, so a second part would see no more. */
    async prove() {
      const { probationMs } = limits
      if (hasProved || probationMs <= 0) return
      await step(tools, 'probation', formatDuration(probationMs))
      await standsProbation(job, limits, tools, asked)
      hasProved = true
    },
    async endOld() {
      if (order !== 'start-first') return
      await leaveAlone(job, tools.engine)
      await answersItsDoor(between)
    },
  }
}

/** How the new container takes the old one's place, by what the engine shows now. `told`: the order in which the switch began; null: it begins. */
function takingPlace({ job, limits, tools }: Between, told: Order | null) {
  const { engine } = tools
  let how: Replacing = 'stopped'
  let gate: ContainerGate | null = null
  /** the engine's own word that the old one has ended: clients do not wait for it, but all that asks the engine does */
  let stopped = Promise.resolve()
  const orPutAway = async (act: () => Promise<void>): Promise<void> => {
    try {
      await act()
    } catch (cause) {
      // stop it before its gate goes: without a gate, a new container that has not reached it would begin beside the old one
      await move.ensureStopped(job.successor, 0, engine).finally(async () => await gate?.[Symbol.asyncDispose]())
      throw cause
    }
  }
  return {
    async start(): Promise<Order> {
      const mark = await exchangeMark(job, engine)
      if (mark?.isBack === true)
        throw new BatonError('restart_failed', 'the engine went down, then restarted the old release with its old data')
      if (existsSync(GATES)) await carryVolume(GATES)
      await move.passName(job, engine)
      const now = await howNow(job, engine)
      // they cannot share the data; or the old one has ended already, and an engine that came back has started it
      how = now === 'start-first' && (mark !== null || told === 'stop-first') ? 'stop-first' : now
      if (how === 'start-first') await keepTurn(job.successor)
      // it waits for an earlier run, which is gone
      if (how === 'stop-first' || hasGate(job.successor)) await move.ensureStopped(job.successor, 0, engine)
      await removeGate(job.successor)
      if (how === 'stop-first') {
        const waitsAt = (gate = await makeGate(job.successor))
        await orPutAway(async () => {
          await move.ensureRunning(job.successor, engine)
          await waitsAt.arrival(job, limits, tools)
        })
      }
      return how === 'start-first' ? 'start-first' : 'stop-first'
    },
    /** Stop-first only. */
    async retire(): Promise<void> {
      if (how === 'stopped') {
        await leaveAlone(job, engine)
        return await move.passPorts(job.origin, engine, { back: false })
      }
      await orPutAway(async () => {
        using end = await watchEnd(job.predecessor, engine)
        stopped = move.endOld(job.predecessor, engine)
        await Promise.race([stopped, end.seen])
        if (tools.stop.aborted) await stopped // before that, an engine does not start it again
        refuseStopped(tools.stop) // an application that has just begun may not handle a stop yet
      })
    },
    async begin(): Promise<void> {
      if (gate === null) return await move.ensureRunning(job.successor, engine)
      await gate.open().finally(async () => await gate?.[Symbol.asyncDispose]())
      await stopped
    },
  }
}

/** Only the switcher has the gates. */
async function howNow({ origin, predecessor, successor }: Job, engine: Engine): Promise<Replacing> {
  const [old, next] = [await engine.container(predecessor), await engine.container(successor)]
  if (old === null || next === null || origin.hold !== undefined || !existsSync(GATES)) return 'stopped'
  const [before, after] = [await imageOfContainer(old, engine), await imageOfContainer(next, engine)]
  const how = await howToReplace({ container: old, image: before }, { container: next, image: after }, engine)
  // an earlier run has let it in: the old one has ended, whatever the engine knows
  return how === 'stop-first' && next.State.Running && !hasGate(successor) ? 'stopped' : how
}

/** The old container ends, and the new one is the only one. */
async function leaveAlone({ predecessor, successor }: Job, engine: Engine): Promise<void> {
  await move.endOld(predecessor, engine)
  await passTurn(successor)
}

/** A healthy container may accept nothing from its holder: its image lacks the kit, or the container lacks the group. Throws then. */
async function answersItsDoor({ job, limits, tools, outage: { answers } }: Between): Promise<void> {
  if (answers === null) return
  const look = async () => {
    if (await answers()) return null
    const found = await tools.engine.container(job.successor)
    if (found === null) throw new BatonError('restart_failed', 'the new container no longer exists')
    const { Running, ExitCode } = found.State
    if (Running) return 'the new container is healthy, but cannot be reached through its holder'
    throw new BatonError('restart_failed', `the new container exited with code ${ExitCode ?? 'unknown'}`)
  }
  const late = await untilWell(look, Math.min(limits.healthTimeoutMs, DOOR_MS))
  if (late === null) return
  throw new BatonError('restart_failed', late, {
    hint: 'check that the new container includes baton-kit and can connect to the socket that BATON_HOLDER names (`--group-add 65531`)',
  })
}
