// Asks a successor, before it may go on, who it is and whether it is healthy. A failure counts against the successor only if the old
// release is healthy at the same moment: a locked database or a full disk says nothing about a release.

import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { reasonOf } from '../../words/errors.ts'
import { untilWell } from '../../words/until-well.ts'
import { type PrivateAnswer, ask } from '../private.ts'
import { PROBE_PATH, type ProbeAnswer } from '../../words/wire.ts'

export interface ProbeOptions {
  /** the service and the tag that the successor must answer with */
  service: string
  tag: string
  /** path that must answer 2xx on a private connection, unless the successor names its own; null if the author names none */
  healthPath: string | null
  readyMs: number
  /** a process that gives no sign of life for this long hangs */
  hangMs: number
  /** whether the old release is healthy now */
  isOldWell(): Promise<boolean>
  /** a failure that does not count, because the old release had the same one before it stopped; null or absent: none */
  excused?: string | null
}

type Health = Pick<ProbeOptions, 'healthPath' | 'readyMs' | 'hangMs'>

/** most time between two questions to a release that is not ready yet: while it is asked, clients may wait */
export const NOT_YET_MS = 200

/**
 * `wrong`: another release answers. `ill`: only the successor failed; while it starts, that may be *not yet*. `both`: the old release failed too, so this says nothing
 * about the successor. `isSilent`: it has not even said who it is, so nobody else gets an answer either.
 */
export type ProbeVerdict = { is: 'well' } | { is: 'wrong' | 'ill' | 'both'; why: string; isSilent: boolean }

/** Asks the successor who it is and whether it is healthy. If an answer is bad, checks the old release too. Never rejects. */
export async function probe(take: (far: Socket) => boolean, options: ProbeOptions): Promise<ProbeVerdict> {
  const at = (healthPath: string | null) => examineHealth(take, { ...options, healthPath }).then(() => null, reasonOf)
  const healthy = at(options.healthPath)
  const examined = ({ healthPath }: ProbeAnswer) =>
    healthPath === undefined || healthPath === options.healthPath ? healthy : at(healthPath)
  const who = await whoAnswers(take, options).catch(reasonOf)
  if (typeof who !== 'string') {
    const why = `expected ${options.service} ${options.tag}, got ${who.service} ${who.tag}`
    if (who.service !== options.service || who.tag !== options.tag) return { is: 'wrong', why, isSilent: false }
  }
  const why = typeof who === 'string' ? who : await examined(who)
  if (why === null || why === options.excused) return { is: 'well' }
  return { is: (await options.isOldWell()) ? 'ill' : 'both', why, isSilent: typeof who === 'string' }
}

/** Why the service behind `own`, which makes this process's private server, is not healthy; null if it is. */
export async function ownIllness(own: () => Server, health: Health) {
  const askOwn = (far: Socket) => {
    own().emit('connection', far)
    return true
  }
  return await examineHealth(askOwn, health).then(() => null, reasonOf)
}

/** For a process that nobody watches: why it is not well within `readyMs`; null: it is, or `isOver`. */
export async function illnessAlone(own: () => Server, health: Health, isOver: () => boolean): Promise<string | null> {
  const { readyMs, hangMs } = health
  const look = async () => (isOver() ? null : await ownIllness(own, health))
  return await untilWell(look, readyMs, Math.min(hangMs, NOT_YET_MS))
}

async function whoAnswers(take: (far: Socket) => boolean, options: ProbeOptions): Promise<ProbeAnswer> {
  const { status, body } = await ask(take, PROBE_PATH, timeoutMs(options))
  if (status !== 200) throw new Error(`expected status 200 from ${PROBE_PATH}, got ${status}`)
  return JSON.parse(body) as ProbeAnswer
}

async function examineHealth(take: (far: Socket) => boolean, health: Health): Promise<void> {
  const { healthPath } = health
  if (healthPath === null) return
  const { status }: PrivateAnswer = await ask(take, healthPath, timeoutMs(health))
  if (status < 200 || status > 299) throw new Error(`expected status 2xx from ${healthPath}, got ${status}`)
}

/** milliseconds that an answer may take */
function timeoutMs({ readyMs, hangMs }: Health): number {
  return Math.min(readyMs, hangMs)
}
