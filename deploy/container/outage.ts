// Measures how long the service gives no answer, as a client on its network sees it. Asks over the service's own network before,
// during and after the switch. Must hold: if nothing can be asked, no time is reported.

import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { askHere } from '../../agent/first.ts'
import type { Engine } from './engine/engine.ts'
import { holderOf, refuseUnheld } from './hold.ts'
import { type ContainerInspection, labelsOf } from './inspection.ts'
import { saidPort, tcpPorts } from './ports.ts'
import { IMAGE_LABELS } from './reference.ts'
import { HELD, type Refused } from './report.ts'

export interface OutageWatch {
  /** whether the container that should answer does so now; null if nothing can be asked */
  answers: (() => Promise<boolean>) | null
  /** whether the container that is followed has answered at all, be it with an error; null if nothing can be asked */
  hasAnswered(): boolean | null
  /** From now on this container should answer, at its holder if it has one. */
  follow(id: string): Promise<void>
  /** whether the container that is followed has a holder */
  isHeld(): boolean
  end(): Promise<Measured>
}

export interface Measured {
  /** milliseconds in which nobody answered: the longest time that a client waited at a holder, else all of them together */
  downMs: number | null
  downMeasured: string | null
  /** milliseconds in which the health path was answered with an error of the server: clients were answered, the service was not well */
  illMs: number | null
  refused: Refused | null
}

/** from good to bad */
const ANSWERS = ['well', 'ill', 'none'] as const
type Answer = (typeof ANSWERS)[number]

interface Asked {
  port: number
  /** null: only whether a connection is accepted can be asked */
  path: string | null
}

interface Answering extends Asked {
  tookMs: number
}

const FAST_MS = 10
const SLOW_MS = 50
/** after a change, asks every `FAST_MS` for this long, then every `SLOW_MS` */
const FAST_FOR_MS = 2000
const ANSWER_MS = 1000
/** longer than this, and than this many times the first answer, nobody has answered in between */
const [LATE_MIN_MS, LATE_TIMES] = [50, 4]
const PORTS_MAX = 4

/** `container`: the one that serves now. */
export async function watchOutage(container: ContainerInspection | null, engine: Engine): Promise<OutageWatch> {
  let door: ContainerInspection | null = null
  let [followed, wasAlone]: [ContainerInspection | null, boolean] = [container, false]
  const lookedUp = async (one: ContainerInspection) => {
    followed = one
    door = await holderOf(one, engine)
    wasAlone ||= door === null && publishes(one)
    return await addressOf(door?.State.Running === true ? door : one, engine)
  }
  if (container === null || !container.State.Running) return nothing('the container was already down')
  let address = await lookedUp(container)
  if (address === null) return nothing('the container has no network')
  const asked = await whatAnswers(container, address)
  if (asked === null) return nothing(`none of the container’s ports answers at ${address}`)
  const promptMs = Math.max(LATE_MIN_MS, LATE_TIMES * asked.tookMs)

  const tally = makeTally()
  let [changedAt, hasAnswered, isEnded] = [performance.now(), false, false]
  let moved = new AbortController()
  const watching = (async () => {
    while (!isEnded) {
      const askedAt = performance.now()
      const answer = address === null ? 'none' : await answerOf(address, asked, moved.signal)
      const now = performance.now()
      if (isEnded && answer === 'none') break // it was not waited for
      // a holder lets who asks wait until somebody answers: nobody did meanwhile
      const isLate = door !== null && now - askedAt > promptMs
      tally.note(answer, isLate ? now - askedAt : 0)
      if (answer !== 'well') changedAt = now
      if (answer !== 'none') hasAnswered = true
      await sleep(now - changedAt < FAST_FOR_MS ? FAST_MS : SLOW_MS)
    }
  })()
  return {
    answers: async () => address !== null && (await answers(address, asked, AbortSignal.timeout(ANSWER_MS))),
    hasAnswered: () => hasAnswered,
    isHeld: () => door !== null,
    async follow(id) {
      const now = await engine.container(id)
      address = now === null ? null : await lookedUp(now)
      hasAnswered = false
      changedAt = performance.now()
      moved.abort()
      moved = new AbortController()
    },
    async end() {
      isEnded = true
      moved.abort()
      await watching
      const times = tally.end()
      const what =
        asked.path === null ? `a connection to port ${asked.port}` : `GET ${asked.path} on port ${asked.port}`
      const isHeld = door !== null && !wasAlone
      const downMeasured = `${what} every ${FAST_MS} ms, ${isHeld ? HELD : 'from the container’s own network'}`
      const downMs = Math.round(isHeld ? tally.longestMs() : times.none)
      const refused = wasAlone && downMs > 0 ? { holdable: await isHoldable(followed, engine) } : null
      return { downMs, downMeasured, illMs: Math.round(times.ill), refused }
    },
  }
}

function makeTally() {
  const times: Record<Answer, number> = { well: 0, ill: 0, none: 0 }
  let last: { answer: Answer; at: number } = { answer: 'well', at: performance.now() }
  let [answeredAt, longestMs] = [last.at, 0]
  return {
    /** `lateMs`: for how long of this time it is known that nobody answered */
    note(answer: Answer, lateMs: number) {
      const now = performance.now()
      // the time between two answers counts as the worse one
      const worse = ANSWERS.indexOf(answer) > ANSWERS.indexOf(last.answer) ? answer : last.answer
      times.none += lateMs
      times[worse] += Math.max(0, now - last.at - lateMs)
      last = { answer, at: now }
      if (answer === 'none' || lateMs > 0) longestMs = Math.max(longestMs, now - answeredAt)
      if (answer !== 'none') answeredAt = now
    },
    /** the longest time without an answer */
    longestMs: () => longestMs,
    end(): Record<Answer, number> {
      times[last.answer] += performance.now() - last.at
      return times
    },
  }
}

function nothing(why: string): OutageWatch {
  return {
    answers: null,
    hasAnswered: () => null,
    follow: async () => {},
    isHeld: () => false,
    end: async () => ({ downMs: null, downMeasured: why, illMs: null, refused: null }),
  }
}

function publishes({ HostConfig }: ContainerInspection): boolean {
  return tcpPorts(HostConfig.PortBindings).length > 0 || HostConfig.PublishAllPorts === true
}

/** Only of an image that says that it has this kit: another may take nothing from a holder. */
async function isHoldable(container: ContainerInspection | null, engine: Engine): Promise<boolean> {
  if (container === null || labelsOf(container)[IMAGE_LABELS.service] === undefined) return false
  return await refuseUnheld(container, engine).then(
    () => true,
    () => false,
  )
}

async function addressOf(container: ContainerInspection, engine: Engine): Promise<string | null> {
  const { NetworkMode: mode } = container.HostConfig
  if (mode === 'host') return '127.0.0.1'
  const lender = /^container:(.+)$/.exec(mode)?.[1]
  const owner = lender === undefined ? container : await engine.container(lender)
  const addresses = Object.values(owner?.NetworkSettings.Networks ?? {}).map(({ IPAddress }) => IPAddress)
  return addresses.find((address) => address !== undefined && address !== '') ?? null
}

/** While the service still runs, finds what can be asked: HTTP if a port speaks it, else a connection. Null if no port answers. */
async function whatAnswers(container: ContainerInspection, address: string): Promise<Answering | null> {
  const path = labelsOf(container)[IMAGE_LABELS.healthPath] ?? '/'
  const ports = portsOf(container).slice(0, PORTS_MAX)
  for (const how of [path, null]) {
    for (const port of ports) {
      const askedAt = performance.now()
      if (await answers(address, { port, path: how }, AbortSignal.timeout(ANSWER_MS)))
        return { port, path: how, tookMs: performance.now() - askedAt }
    }
  }
  return null
}

/** TCP ports to ask: first the one of the image's label, then published ports, then exposed ones. */
function portsOf(container: ContainerInspection): number[] {
  const said = saidPort(container)
  const { Config, HostConfig } = container
  return [
    ...new Set([
      ...(said === null ? [] : [said]),
      ...tcpPorts(HostConfig.PortBindings),
      ...tcpPorts(Config.ExposedPorts),
    ]),
  ]
}

async function answers(host: string, asked: Asked, given: AbortSignal): Promise<boolean> {
  return (await answerOf(host, asked, given)) === 'well'
}

async function answerOf(host: string, { port, path }: Asked, given: AbortSignal): Promise<Answer> {
  const signal = AbortSignal.any([given, AbortSignal.timeout(ANSWER_MS)])
  try {
    if (path === null) return (await accepts(host, port, signal)) ? 'well' : 'none'
    using answer = await askHere({ host, port }, { path, signal })
    return answer.status < 500 ? 'well' : 'ill'
  } catch {
    return 'none' // also if a label holds a path that no request can have
  }
}

async function accepts(host: string, port: number, signal: AbortSignal): Promise<boolean> {
  const socket = connect({ host, port, signal })
  try {
    await once(socket, 'connect')
    return true
  } finally {
    socket.destroy()
  }
}
