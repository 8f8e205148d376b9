// Asks a successor, before it may go on, who it is and whether it is healthy. A failure counts against the successor only if the old
// release is healthy at the same moment: a locked database or a full disk says nothing about a release.

import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { reasonOf } from '../../words/errors.ts'
import { type PrivateAnswer, ask } from '../private.ts'
import { PROBE_PATH, type ProbeAnswer } from '../../words/wire.ts'

export interface ProbeOptions {
  /** the service and the tag that the successor must answer with */
  service: string
  tag: string
  /** path that must answer 2xx on a private connection; null if the author names none */
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

/** `ill`: only the successor failed. `both`: the old release failed too, so this says nothing about the successor. */
export type ProbeVerdict = { is: 'well' } | { is: 'ill' | 'both'; why: string }

/** Asks the successor who it is and whether it is healthy. If an answer is bad, checks the old release too. Never rejects. */
export async function probe(take: (far: Socket) => boolean, options: ProbeOptions): Promise<ProbeVerdict> {
  try {
    await examine(take, options)
    return { is: 'well' }
  } catch (cause) {
    const why = reasonOf(cause)
    if (why === options.excused) return { is: 'well' }
    return { is: (await options.isOldWell()) ? 'ill' : 'both', why }
  }
}

/** Why the service behind `own`, this process's private server, is not healthy; null if it is. */
export async function ownIllness(own: Server, health: Health) {
  const askOwn = (far: Socket) => {
    own.emit('connection', far)
    return true
  }
  return await examineHealth(askOwn, health).then(() => null, reasonOf)
}

async function examine(take: (far: Socket) => boolean, options: ProbeOptions): Promise<void> {
  const healthy = examineHealth(take, options)
  healthy.catch(() => {}) // a wrong identity is reported first
  const who = await ask(take, PROBE_PATH, timeoutMs(options))
  if (who.status !== 200) throw new Error(`expected status 200 from its probe, got ${who.status}`)
  const { service, tag } = JSON.parse(who.body) as ProbeAnswer
  if (service !== options.service || tag !== options.tag) {
    throw new Error(`expected ${options.service} ${options.tag}, it says it is ${service} ${tag}`)
  }
  await healthy
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
