// The successor as its predecessor sees it. The predecessor spawns it with the listening sockets, follows its messages and its
// signs of life, and kills it if it must not go on.

import { type ChildProcess, spawn } from 'node:child_process'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from '../../words/errors.ts'
import { isAlive, startTimeOf } from '../../sockets/process.ts'
import type { HandoverReport } from '../../words/state.ts'
import { type Channel, channelOver } from '../channel.ts'
import { environmentAtStart } from '../../sockets/environment.ts'
import type { Command } from '../../sockets/store.ts'
import { type Giving, makeGiving } from './giving.ts'
import { descriptorOf, stopReading } from '../../sockets/internals.ts'
import { ALIVE_EVERY_MS, type Heartbeat, lifeOf } from '../heartbeat.ts'
import { lineOf, plainOf } from '../last-words.ts'
import type { Listener } from '../../sockets/listeners.ts'
import { type Inheritance, INHERITANCE, type ToPredecessor, type ToSuccessor } from '../../words/wire.ts'
import { packetPair } from '../../sockets/packets.ts'
import { closeDescriptor } from '../../sockets/libc.ts'

/** descriptors in the successor: its ends of the channel, then two for each listening socket */
const [MESSAGES, PACKETS, FIRST] = [3, 4, 5]

/** how long to wait until the last words of a dead process have been read */
const LAST_WORDS_MS = 200

export interface Successor {
  pid: number
  life: Heartbeat
  /** resolves once, with the reason, when it has exited or could not be started */
  gone: Promise<string>
  /** If it exited by itself without saying why: one line of what it wrote last. Else null. Call it once the process is gone. */
  lastWords(): Promise<string | null>
  /** looks at the process now, not at its messages */
  isAlive(): boolean
  /** Whether an operator or a supervisor told it to stop. If it is dead, this first reads its last messages. */
  isStopping(): Promise<boolean>
  tell(message: ToSuccessor): Promise<boolean>
  /** resolves when a message of this type has come; rejects if the successor is gone first */
  heard<T extends ToPredecessor['type']>(type: T): Promise<Extract<ToPredecessor, { type: T }>>
  /** whether it has the listener of this key */
  has(key: string): boolean
  /** sends it one end of a pair of sockets, on which a request will come; false if it cannot take it */
  takeQuestion(far: Socket): boolean
  /** gives connections to it */
  giving: Giving
  /** Kills it, hung or not, and waits until the kernel has removed it: only one process may accept. */
  end(): Promise<void>
}

/** Spawns, never forks: a single executable that forks itself runs its own main with a shifted argv. */
export function spawnSuccessor(
  { file, args, cwd }: Command,
  listeners: Listener[],
  told: Omit<Inheritance, 'listeners' | 'predecessor' | 'channel'>,
  report: HandoverReport,
): Successor {
  const [packets, farPackets] = packetPair()
  const descriptors: number[] = []
  const inheritance: Inheritance = {
    ...told,
    channel: { messages: MESSAGES, packets: PACKETS },
    listeners: listeners.map(({ key, spare }) => {
      if (spare === null) throw new Error(`the listening socket of ${key} has no spare`)
      // the same socket twice: one to accept on, and a spare that stays open when that one is closed
      const accept = FIRST + descriptors.length
      descriptors.push(spare, spare)
      return { key, accept, spare: accept + 1 }
    }),
    predecessor: { pid: process.pid, startTime: startTimeOf(process.pid) },
  }
  const child = spawn(file, args, {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe', farPackets, ...descriptors],
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...environmentAtStart(), [INHERITANCE]: JSON.stringify(inheritance) },
    // its own session: a Ctrl-C meant for the predecessor's terminal group must not kill the successor
    detached: true,
  })
  closeDescriptor(farPackets)
  const messages = (child.stdio as ChildProcess['stdio'] | undefined)?.[MESSAGES] as Socket | undefined
  if (messages === undefined) {
    child.on('error', () => {}) // without a descriptor left Node starts nothing, and gives no streams
    packets.close()
    throw new Error('no process can be started: are any descriptors left?')
  }
  return follow(child, channelOver<ToSuccessor, ToPredecessor>(messages, packets), listeners, report)
}

function follow(
  child: ChildProcess,
  channel: Channel<ToSuccessor, ToPredecessor>,
  listeners: readonly Listener[],
  report: HandoverReport,
): Successor {
  const pid = child.pid ?? 0
  const startTime = startTimeOf(pid)
  const life = lifeOf(pid)
  const awaited = new Map<string, (message: ToPredecessor) => void>()
  const came = new Map<string, ToPredecessor>()
  let failure: string | null = null
  let words: string | null = null
  let isEnded = false
  const gone = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(`it could not be started: ${reasonOf(error)}`))
    child.once('exit', (code, signal) => {
      resolve(failure ?? (signal === null ? `it exited with code ${code}` : `it was ended by ${signal}`))
    })
  })
  // For use once the successor is gone. The timer keeps this process alive: Node never reports the channel as closed if the last
  // socket that was given was not acknowledged.
  const heardOut = () => Promise.race([channel.closed, sleep(LAST_WORDS_MS)])
  const alive = setInterval(() => void channel.tell({ type: 'alive' }), ALIVE_EVERY_MS)
  void gone.then(() => clearInterval(alive))
  const has = (key: string) => {
    const hello = came.get('hello')
    return hello?.type === 'hello' && hello.listeners.includes(key)
  }
  const giving = makeGiving({ has, give: channel.give, tell: channel.tell, gone, listeners, report })
  channel.hear((message) => {
    life.sign()
    if (!isEnded) giving.hear(message)
    if (message.type === 'failed') failure = `it says: ${plainOf(message.message.slice(0, 2000))}`
    if (message.type === 'last words') words = lineOf(message.lines)
    came.set(message.type, message)
    awaited.get(message.type)?.(message)
  })
  const lives = () => child.exitCode === null && child.signalCode === null && isAlive(pid, startTime)
  return {
    pid,
    life,
    gone,
    async lastWords() {
      await heardOut()
      return failure === null ? words : null
    },
    isAlive: lives,
    async isStopping() {
      if (!lives()) {
        await gone
        if (child.exitCode === 0) await heardOut() // only a process that was told to stop exits with 0
      }
      return came.has('stopping')
    },
    tell: (message) => channel.tell(message),
    heard: async <T extends ToPredecessor['type']>(type: T) => {
      const message = new Promise<ToPredecessor>((resolve) => {
        const already = came.get(type)
        if (already === undefined) awaited.set(type, resolve)
        else resolve(already)
      })
      return (await Promise.race([message, gone.then(rejected)])) as Extract<ToPredecessor, { type: T }>
    },
    has,
    giving,
    takeQuestion(far) {
      stopReading(far)
      return channel.give({ type: 'ask' }, [descriptorOf(far) ?? -1])
    },
    async end() {
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
