// Borrows sockets from a holder in another container (container/holder/holder.c). The connection to the holder stays open; its end is
// the end of the holder. Must hold: if the holder is away or answers nonsense, this process asks again without end; a Node that cannot
// take sockets does not ask.

import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, codeOf, reasonOf } from '../words/errors.ts'
import { descriptorOf } from './internals-moving.ts'
import { closeDescriptor, hasLibc } from './libc.ts'
import { kindOfSocket, packetsOfAny } from './packets.ts'

export interface Loan {
  /** descriptors by the holder's name for them */
  sockets: Map<string, number>
  link: Socket
}

export interface BorrowOptions {
  warn(message: string): void
  /** aborts when this process is asked to stop */
  leaving: AbortSignal
}

/** What a holder says first: `baton-holder 1 NONCE`, and a line for each name */
const GREETING = /^baton-holder 1 ([0-9a-f]{32})\n((?:[!-~]{1,64}\n){1,32})$/
const [ANSWER_MS, LOOK_MS, AGAIN_MS, SAY_EVERY_MS] = [2000, 2, 50, 10_000]

/** The holder's names in what it says first, such as `8080` or `127.0.0.1:8080`; empty if that is no greeting. Pure. */
export function namesInGreeting(greeting: string): string[] {
  return GREETING.exec(greeting)?.[2]?.trimEnd().split('\n') ?? []
}

/** Asks until there is an answer. Throws BatonError cancelled, node_unsupported. */
export async function loanAt(path: string, { warn, leaving }: BorrowOptions): Promise<Loan> {
  refuseNode()
  let saidAt = -Infinity
  for (;;) {
    try {
      return await ask(path)
    } catch (cause) {
      if (performance.now() - saidAt > SAY_EVERY_MS) {
        const hint =
          codeOf(cause) === 'EACCES' ? ' (is this process in the group that owns the socket? `--group-add 65531`)' : ''
        warn(`waiting for the holder at ${path}: ${reasonOf(cause)}${hint}`)
        saidAt = performance.now()
      }
      if (leaving.aborted)
        throw new BatonError('cancelled', 'this process was told to stop before the holder answered', { cause })
      await sleep(AGAIN_MS)
    }
  }
}

async function ask(path: string): Promise<Loan> {
  const link = new Socket()
  try {
    link.pause() // Node would read the message, and drop the descriptors
    await new Promise<void>((resolve, reject) => {
      link.once('error', reject)
      link.connect(path, resolve)
    })
    link.on('error', () => {}) // 'close' follows
    const sockets = await receive(link)
    link.resume()
    return { sockets, link }
  } catch (cause) {
    link.destroy()
    throw cause
  }
}

async function receive(link: Socket): Promise<Map<string, number>> {
  const packets = packetsOfAny(descriptorOf(link) ?? -1)
  for (const deadline = performance.now() + ANSWER_MS; performance.now() < deadline; await sleep(LOOK_MS)) {
    const packet = packets.receive()
    if (packet === null) continue
    const { text, descriptors } = packet
    const names = namesInGreeting(text)
    const isWhole = names.length > 0 && names.length === descriptors.length && new Set(names).size === names.length
    if (isWhole && descriptors.every((fd) => kindOfSocket(fd) !== null))
      return new Map(names.map((name, i) => [name, descriptors[i] ?? -1]))
    for (const fd of descriptors) closeDescriptor(fd)
    throw new Error(
      `expected a list of socket names with one socket for each, got ${JSON.stringify(text.slice(0, 80))}`,
    )
  }
  throw new Error(`no answer after ${ANSWER_MS} ms`)
}

/** Throws node_unsupported if this Node cannot take sockets: it would ask for ever. */
function refuseNode(): void {
  if (hasLibc()) return
  const hint =
    'use Node 26.10 without --no-experimental-ffi, or unset BATON_HOLDER: this container then opens its ports itself'
  throw new BatonError(
    'node_unsupported',
    `using the sockets of a holder (BATON_HOLDER) requires node:ffi, which is not available in this Node (${process.version})`,
    { hint },
  )
}
