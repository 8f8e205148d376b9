// The servers of an application that listens by itself: those that it starts with, which the agent serves at once, and each that listens
// later. Any of them may find its port taken, and try again; any may be closed again, and leave its place to another one.
// Must hold: a server that cannot listen gets its `error` event, as without Baton, and the others are served.

import cluster from 'node:cluster'
import type { ListenOptions as NetListenOptions, Server } from 'node:net'
import { type Agent, embed } from '../embed.ts'
import { EXIT, reasonOf } from '../words/errors.ts'
import type { InheritedListener } from '../words/wire.ts'
import { listens } from '../sockets/asking.ts'
import { isDatagrams } from '../sockets/datagrams.ts'
import { keyOf, type ListenerSpec, speaksHttp, whenClosed } from '../sockets/listeners.ts'
import { endQuestion } from '../sockets/questions.ts'
import type { EmbedOptions } from '../settings.ts'
import { attach } from './attach.ts'

/** what `listen()` accepts; frameworks pass `false` for what they do not have */
export type ListenOptions = Omit<NetListenOptions, 'port' | 'path'> & { fd?: unknown; port?: unknown; path?: unknown }

export interface Wanted extends ListenerSpec {
  /** arguments of `listen()`, without the callback */
  args: unknown[]
}

export interface Start {
  begun(): boolean
  /** how many HTTP servers listen, or will */
  count(): number
  /** Has this server listen with the others of the start; later, by itself. */
  add(spec: Wanted): void
}

export interface StartOptions {
  /** how many HTTP servers the author wants handed over; null: everything that listens */
  most: number | null
  inherited: readonly InheritedListener[]
  /** what the author has registered */
  hooks: EmbedOptions
  /** called before the first connection */
  embedded(agent: Agent): void
  /** called once servers of this process serve; never if none can */
  served(agent: Agent): void
  /** Has a server listen as without Baton. */
  plainly(spec: Wanted): void
  /** called when the author closes a server, or it could not listen: it may listen again */
  freed(server: Server): void
}

/** how long a successor waits for a server that its predecessor had: this release may no longer have that server */
const ONE_MORE_MS = 1000

export function startWith(options: StartOptions): Start {
  const gathered: Wanted[] = []
  const freed = new WeakSet<Wanted>()
  let begun = false
  const free = (spec: Wanted) => {
    freed.add(spec)
    options.freed(spec.server)
    if (gathered.includes(spec)) gathered.splice(gathered.indexOf(spec), 1)
  }
  const own = openedLater(free, (spec) => !freed.has(spec))
  const begin = () => {
    if (begun) return
    begun = true
    void serve([...gathered], own, options)
  }
  const { most } = options
  const soon = most === null ? whenGathered(options.inherited, begin) : () => void (gathered.length === most && begin())
  return {
    begun: () => begun,
    count: () => gathered.length,
    add(spec) {
      const isHttp = speaksHttp(spec.server)
      whenClosed(spec.server, () => {
        free(spec)
        // before a conductor lets it accept, another server may have its place, and be the first
        if (own.agent !== null) own.open(own.agent)
      })
      // serve every later server by itself: if it does not get its port, its author decides, and the others go on
      if (begun || !isHttp) void serveMore(spec, own, options)
      if (isHttp) gathered.push(spec)
      soon(spec)
    },
  }
}

interface Own {
  agent: Agent | null
  /** resolves when servers may be given to the agent one by one; to null if there is none */
  readonly opened: Promise<Agent | null>
  open(agent: Agent | null): void
  /** whether none of the servers that the application has started with could listen */
  hasNone: boolean
  /** The server may listen again: its author has closed it, or it could not listen. */
  free(spec: Wanted): void
  /** false once it was freed */
  isWanted(spec: Wanted): boolean
}

function openedLater(free: Own['free'], isWanted: Own['isWanted']): Own {
  let open: Own['open'] = () => {} // not `Promise.withResolvers`: Node 20 serves too, and has none
  const opened = new Promise<Agent | null>((resolve) => (open = resolve))
  return { agent: null, opened, open, hasNone: false, free, isWanted }
}

/**
 * Returns what to call for each server that listens. The first process begins with the servers of one turn of the event loop. A
 * successor waits for all servers that its predecessor had: the predecessor probes it as soon as it has named its servers.
 */
function whenGathered(inherited: readonly InheritedListener[], begin: () => void): (spec: ListenerSpec) => void {
  const expected = new Set(inherited.filter((one) => !isDatagrams(one)).map(({ key }) => key))
  if (expected.size === 0) return () => void setImmediate(begin)
  let timer: NodeJS.Timeout | undefined
  let hasHttp = false // the predecessor probes by HTTP
  return (spec) => {
    clearTimeout(timer)
    expected.delete(keyOf(spec))
    hasHttp ||= speaksHttp(spec.server)
    if (expected.size === 0) begin()
    else if (hasHttp) timer = setTimeout(begin, ONE_MORE_MS)
  }
}

async function serve(specs: readonly Wanted[], own: Own, options: StartOptions): Promise<void> {
  const agent = await embedFor(specs, own, options)
  if (agent === null) return own.open(null)
  own.agent = agent
  options.embedded(agent)
  for (const { server } of specs) if (speaksHttp(server)) attach(agent, server)
  const isListening = ({ server }: Wanted) => listens(server)
  for (let left = specs.filter(own.isWanted); left.length > 0 || specs.some(isListening);) {
    try {
      // A worker of node:cluster: its endpoints say why they update nothing, and node:cluster listens.
      if (cluster.isWorker) for (const spec of left) options.plainly(spec)
      else await agent.serve([...left])
      own.open(agent)
      return options.served(agent)
    } catch (cause) {
      // Servers are bound one after the other, so the first that does not listen is the one that failed. Those before it are served too.
      const [failed, ...others] = left.filter((spec) => own.isWanted(spec) && !isListening(spec))
      if (!refuse(failed, heardOf(cause), reasonOf(cause), own)) return own.open(null)
      left = others.filter(own.isWanted)
    }
  }
  own.hasNone = true // one that listens later may be the first
  own.open(agent)
}

/** null: a setting is wrong. The first server gets the error, and if its author handles that, the others listen as without Baton. */
async function embedFor(specs: readonly Wanted[], own: Own, options: StartOptions): Promise<Agent | null> {
  try {
    return await embed(options.hooks)
  } catch (cause) {
    const [first, ...others] = specs
    if (first !== undefined && first.server.listenerCount('error') > 0)
      for (const other of others) options.plainly(other)
    refuse(first, cause, reasonOf(cause), own)
    return null
  }
}

/** If Baton does not serve, the server listens as Node does. */
async function serveMore(spec: Wanted, own: Own, options: StartOptions): Promise<void> {
  const { server } = spec
  try {
    const agent = await own.opened
    if (!own.isWanted(spec)) return // its author has closed it
    if (agent !== null && speaksHttp(server)) attach(agent, server)
    if (agent === null || cluster.isWorker) return options.plainly(spec)
    await agent.serve([spec])
    if (own.hasNone) options.served(agent)
    own.hasNone = false
  } catch (cause) {
    refuse(spec, heardOf(cause), reasonOf(cause), own)
  }
}

/**
 * Tells the application that its server cannot listen: what to do about that is its own. False if it does not listen for that. Then it fails as
 * Node does, by an `error` event that nobody hears, and not by a rejected promise: many applications log those and go on. One that goes on
 * all the same has the reason in its log, and its exit code says that it has failed.
 */
function refuse(spec: Wanted | undefined, heard: unknown, reason: string, { free }: Own): boolean {
  if (spec !== undefined) endQuestion(spec.server) // it may seem to listen
  if (spec !== undefined && spec.server.listenerCount('error') > 0) {
    free(spec)
    spec.server.emit('error', heard)
    return true
  }
  process.stderr.write(`baton: ${reason}\n`)
  process.exitCode = EXIT.unexpected
  process.nextTick(() => {
    if (spec === undefined) throw heard
    spec.server.emit('error', heard)
  })
  return false
}

/** What a server's `error` event gives without Baton, with the code that authors look at. */
function heardOf(cause: unknown): unknown {
  return cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
}
