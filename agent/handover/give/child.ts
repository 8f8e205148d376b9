// Starts a process for a handover, the successor or the holder, with the listening sockets and a channel; reads its messages and its
// signs of life; kills it if it must not go on.

import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { blameless, KILLED_FOR_MEMORY, KNOWS_NO_SWITCH } from '../../words/blame.ts'
import { howEnded } from '../../words/ended.ts'
import { reasonOf } from '../../words/errors.ts'
import { descendantsOf, isAlive, startTimeOf } from '../../sockets/process.ts'
import { type Channel, channelOver } from '../channel.ts'
import { memoryKills, memoryRisk } from '../../sockets/memory.ts'
import { environmentAtStart } from '../../sockets/environment.ts'
import { spawn, type Spawned } from '../../sockets/spawn.ts'
import type { Command } from '../../sockets/start-with.ts'
import { descriptorOf, stopReading } from '../../sockets/internals-moving.ts'
import { ALIVE_EVERY_MS, type Heartbeat, lifeOf } from '../heartbeat.ts'
import { lineOf, plainOf } from '../../words/said.ts'
import type { Listener } from '../../sockets/listeners.ts'
import {
  type FromHolder,
  type Gate,
  type Holding,
  HOLDING,
  type Inheritance,
  INHERITANCE,
  type ProcessName,
  type ToHolder,
  type ToPredecessor,
  type ToSuccessor,
} from '../../words/wire.ts'
import { packetPair } from '../../sockets/packets.ts'
import { closeDescriptor } from '../../sockets/libc.ts'

/** descriptors in the child: its ends of the channel, then the sockets and files for it */
const [MESSAGES, PACKETS, FIRST] = [3, 4, 5]

/** how much longer than a switch may take a successor waits for its predecessor's commit */
const PATIENCE_MS = 10_000
/** how long to wait until the last words of a dead process have been read */
const LAST_WORDS_MS = 200

interface Message {
  type: string
}

interface Told {
  type: string
  message?: string
  lines?: string[]
  isOwnLock?: boolean
}

export interface Child<Said, Heard extends Message> {
  /** `pid` 0 if it could not be started */
  name: ProcessName
  pid: number
  life: Heartbeat
  /** resolves once, with the reason, when it has exited or could not be started */
  gone: Promise<string>
  /** If it exited by itself without saying why: one line of what it wrote last. Else null. Call it once the process is gone. */
  lastWords(): Promise<string | null>
  /** Whether a lock that it met was its own; see `words/blame.ts`. Call it after `lastWords`. */
  metOwnLock(): boolean
  /** looks at the process now, not at its messages */
  isAlive(): boolean
  tell: Channel<Said, Heard>['tell']
  give: Channel<Said, Heard>['give']
  /** resolves when a message of this type has come; rejects if the process is gone first */
  heard<T extends Heard['type']>(type: T): Promise<Extract<Heard, { type: T }>>
  /** `heard` gets every message from now on, unless `end` was called */
  also(heard: (message: Heard) => void): void
  /** Kills it, hung or not, and waits until the kernel has removed it: only one process may accept. */
  end(): Promise<void>
}

export interface Successor extends Child<ToSuccessor, ToPredecessor> {
  /** Whether an operator or a supervisor has asked it to stop. If it is dead, first reads its last messages. */
  isStopping(): Promise<boolean>
  /** whether it has the listener of this key */
  has(key: string): boolean
  /** sends it one end of a pair of sockets, on which a request will come; false if it cannot take that end now */
  takeQuestion(far: Socket): boolean
  /** lets it pass its gate; does nothing if it has none */
  open(): void
  /** whether it has exited because it must be the only process; for use once it is gone */
  wantsToBeAlone(): Promise<boolean>
}

type SwitchLimits = Pick<Holding, 'operationId' | 'hangMs' | 'probationMs' | 'drainMaxMs' | 'readyMs'>

export type DoorHolder = Child<ToHolder, FromHolder>

/**
 * Spawns, never forks: a single executable that forks itself runs its own main with a shifted argv. `gate`: the process that must be
 * gone before the successor's application begins; `values`: see Inheritance.
 */
export function spawnSuccessor(
  command: Command,
  listeners: readonly Pick<Listener, 'key' | 'spare'>[],
  { operationId, hangMs, probationMs, drainMaxMs, readyMs }: SwitchLimits,
  { gate = null, values = null }: { gate?: Gate['old'] | null; values?: number | null } = {},
): Successor {
  const descriptors: number[] = []
  const risk = memoryRisk()
  const inheritance: Inheritance = {
    operationId,
    hangMs,
    patienceMs: probationMs + drainMaxMs + readyMs + PATIENCE_MS,
    channel: { messages: MESSAGES, packets: PACKETS },
    listeners: listeners.map(({ key, spare }) => {
      if (spare === null) throw new Error(`there is no spare listening socket for ${key}`)
      // the same socket twice: one descriptor to accept on, and a spare that stays open when the first is closed
      const accept = FIRST + descriptors.length
      descriptors.push(spare, spare)
      return { key, accept, spare: accept + 1 }
    }),
    predecessor: { pid: process.pid, startTime: startTimeOf(process.pid) },
    ...(risk === null ? {} : { memoryRisk: risk }),
    ...(values === null ? {} : { values: FIRST + descriptors.push(values) - 1 }),
    ...(gate === null ? {} : { gate: { descriptor: FIRST + descriptors.length, old: gate } }),
  }
  const stdio = gate === null ? descriptors : [...descriptors, 'pipe' as const]
  const child = spawnChild<ToSuccessor, ToPredecessor>(command, INHERITANCE, inheritance, stdio)
  const opening = gate === null ? null : (child.process.stdio.at(-1) as Socket)
  opening?.on('error', () => {}) // the successor is gone
  const has = (key: string) => {
    const hello = child.cameOf('hello')
    return hello !== null && hello.listeners.includes(key)
  }
  return {
    ...child,
    has,
    open: () => void opening?.end('.'),
    async wantsToBeAlone() {
      await child.heardOut()
      return child.cameOf('alone') !== null
    },
    async isStopping() {
      if (!child.isAlive()) {
        await child.gone
        if (child.process.exitCode === 0) await child.heardOut() // a successor exits with 0 only if it was asked to stop
      }
      return child.cameOf('stopping') !== null
    },
    takeQuestion(far) {
      stopReading(far)
      return child.give({ type: 'ask' }, [descriptorOf(far) ?? -1])
    },
  }
}

/** Starts the holder: a process of the old executable that never loads the application. */
export function spawnHolder(
  command: Command,
  listeners: readonly Pick<Listener, 'key' | 'spare'>[],
  told: Omit<Holding, 'listeners' | 'old' | 'channel' | 'children' | 'values'>,
  values: number | null,
): DoorHolder {
  const spares = listeners.flatMap(({ key, spare }) => (spare === null ? [] : [{ key, fd: spare }]))
  const holding: Holding = {
    ...told,
    channel: { messages: MESSAGES, packets: PACKETS },
    listeners: spares.map(({ key }, at) => ({ key, spare: FIRST + at })),
    old: { pid: process.pid, startTime: startTimeOf(process.pid) },
    children: descendantsOf(process.pid),
    ...(values === null ? {} : { values: FIRST + spares.length }),
  }
  const descriptors = [...spares.map(({ fd }) => fd), ...(values === null ? [] : [values])]
  return spawnChild<ToHolder, FromHolder>(command, HOLDING, holding, descriptors)
}

interface Started<Said, Heard extends Message> extends Child<Said, Heard> {
  process: Spawned
  /** the last message of this type; null if none has come */
  cameOf<T extends Heard['type']>(type: T): Extract<Heard, { type: T }> | null
  /** Resolves when no more messages can come. Call it once the process is gone. */
  heardOut(): Promise<unknown>
}

function spawnChild<Said extends Message, Heard extends Message>(
  { file, args, cwd }: Command,
  variable: string,
  told: object,
  descriptors: readonly (number | 'pipe')[],
): Started<Said, Heard> {
  const [packets, farPackets] = packetPair()
  const child = spawn(file, args, {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe', farPackets, ...descriptors],
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...environmentAtStart(), [variable]: JSON.stringify(told) },
    // its own session: a Ctrl-C meant for this process's terminal group must not kill it
    detached: true,
  })
  closeDescriptor(farPackets)
  const messages = (child.stdio as Spawned['stdio'] | undefined)?.[MESSAGES] ?? null
  if (messages === null) {
    child.on('error', () => {}) // if no descriptor is left, Node starts nothing and there are no streams
    packets.close()
    throw blameless('interrupted', 'no process could be started: this host may have no file descriptors left') // the fault of this host, not of the release
  }
  return follow(child, channelOver<Said, Heard>(messages, packets))
}

function follow<Said extends Message, Heard extends Message>(
  child: Spawned,
  channel: Channel<Said, Heard>,
): Started<Said, Heard> {
  const pid = child.pid ?? 0
  const startTime = startTimeOf(pid)
  const killsBefore = memoryKills()
  const life = lifeOf(pid)
  const awaited = new Map<string, (message: Heard) => void>()
  const came = new Map<string, Heard>()
  const listeners: ((message: Heard) => void)[] = []
  let failure: string | null = null
  let words: string | null = null
  let isOwnLock = false
  let isEnded = false
  /** this process has killed it, so that a kill of the kernel's at the same moment does not count */
  let isKilled = false
  const gone = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(`it could not be started: ${reasonOf(error)}`))
    child.once('exit', (code, signal) => {
      const isForMemory = failure === null && signal === 'SIGKILL' && !isKilled && memoryKills() > killsBefore
      if (isForMemory) resolve(KILLED_FOR_MEMORY)
      else resolve(failure ?? `it ${howEnded(code, signal)}`)
    })
  })
  // The timer keeps this process alive: Node never reports the channel as closed if the last socket that was given was not
  // acknowledged.
  const heardOut = () => Promise.race([channel.closed, sleep(LAST_WORDS_MS)])
  const alive = setInterval(() => void channel.tell({ type: 'alive' } as Said), ALIVE_EVERY_MS)
  void gone.then(() => clearInterval(alive))
  channel.hear((message) => {
    life.sign()
    if (!isEnded) for (const heard of listeners) heard(message)
    const { type, message: why, ...last } = message as Told
    if (type === 'failed') failure = `it reported: ${plainOf(String(why).slice(0, 2000))}`
    if (type === 'last words') [words, isOwnLock] = [lineOf(last.lines ?? []), last.isOwnLock === true]
    came.set(type, message)
    awaited.get(type)?.(message)
  })
  return {
    name: { pid, startTime },
    pid,
    life,
    gone,
    process: child,
    heardOut,
    tell: channel.tell,
    give: channel.give,
    cameOf: <T extends Heard['type']>(type: T) => (came.get(type) ?? null) as Extract<Heard, { type: T }> | null,
    also: (heard) => void listeners.push(heard),
    async lastWords() {
      await heardOut()
      if (came.size === 0 && child.exitCode === 0) return KNOWS_NO_SWITCH
      return failure === null ? words : null
    },
    metOwnLock: () => isOwnLock,
    isAlive: () => child.exitCode === null && child.signalCode === null && isAlive(pid, startTime),
    heard: async <T extends Heard['type']>(type: T) => {
      const message = new Promise<Heard>((resolve) => {
        const already = came.get(type)
        if (already === undefined) awaited.set(type, resolve)
        else resolve(already)
      })
      return (await Promise.race([message, gone.then(rejected)])) as Extract<Heard, { type: T }>
    },
    async end() {
      if (child.exitCode === null && child.signalCode === null) isKilled = true
      child.kill('SIGKILL')
      await Promise.race([gone, sleep(5000, undefined, { ref: false })])
      isEnded = true
      void heardOut().then(() => channel.hangUp())
    },
  }
}

export function rejected(reason: string): never {
  throw new Error(reason)
}
