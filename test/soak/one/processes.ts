// The processes of a stop-first switch, as this host shows them: the old one, the holder and the new one. Reads only.

import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { startTimeOf } from '../../../agent/sockets/process.ts'
import { HOLDING, INHERITANCE, type ProcessName } from '../../../agent/words/wire.ts'
import type { Role, World } from '../../fixtures/only-world.ts'

export interface Cast {
  old: ProcessName
  holder: ProcessName | null
  new: ProcessName | null
}

/** When each process of a switch was there, in `performance.now()`. */
export interface Times {
  holderBorn: number
  newBorn: number
  oldGone: number
  holderGone: number
}

const LOOK_EVERY_MS = 10

/** Who is there now, besides the old process. A process between its fork and its exec is not seen. */
export function castOf({ home }: World, old: ProcessName): Cast {
  const cast: Cast = { old, holder: null, new: null }
  for (const pid of home.pids()) {
    if (pid === old.pid) continue
    const name = { pid, startTime: startTimeOf(pid) }
    const variables = environmentOf(pid)
    if (variables.some((text) => text.startsWith(`${HOLDING}=`))) cast.holder = name
    else if (variables.some((text) => text.startsWith(`${INHERITANCE}=`))) cast.new = name
  }
  return cast
}

/** Follows a switch until the holder is gone, or nobody lives. */
export async function follow(world: World, old: ProcessName, signal: AbortSignal): Promise<Times> {
  const times: Times = { holderBorn: NaN, newBorn: NaN, oldGone: NaN, holderGone: NaN }
  while (!signal.aborted) {
    const cast = castOf(world, old)
    const now = performance.now()
    if (cast.holder !== null && Number.isNaN(times.holderBorn)) times.holderBorn = now
    if (cast.new !== null && Number.isNaN(times.newBorn)) times.newBorn = now
    if (!lives(old) && Number.isNaN(times.oldGone)) times.oldGone = now
    if (cast.holder === null && !Number.isNaN(times.holderBorn)) {
      times.holderGone = now
      break
    }
    await sleep(LOOK_EVERY_MS)
  }
  return times
}

export function lives({ pid, startTime }: ProcessName): boolean {
  const now = startTimeOf(pid)
  return now !== null && now === startTime
}

/** The steps that this process has taken, the oldest first. */
export function stepsOf({ home }: World, { startTime }: ProcessName): string[] {
  const roles: Role[] = ['old', 'holder', 'new']
  return roles.flatMap((role) => {
    try {
      const text = readFileSync(`${home.stateDirectory}/steps.${role}.taken`, 'utf8')
      const own = text.split('\n').filter((line) => line.startsWith(`${startTime} `))
      return own.map((line) => line.slice(`${startTime} `.length))
    } catch {
      return [] // nobody has taken a step in this role
    }
  })
}

function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
  } catch {
    return [] // it is gone
  }
}
