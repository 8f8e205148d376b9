// Shared by the adapters: puts the agent in front of everything else that a server's requests meet, body parsers included.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server } from 'node:net'
import { type Agent, embed } from '../embed.ts'
import { noteUpgrade } from '../handover/carry/upgrades.ts'
import type { ListenerSpec } from '../sockets/listeners.ts'
import type { EmbedOptions } from '../settings.ts'
import { takeStreams } from './http2-streams.ts'

export interface ListenOptions extends EmbedOptions, Omit<ListenerSpec, 'server'> {}

const attached = new WeakSet<Server>()

/** Lets the agent answer its requests before any listener of `server` sees them, and notes which connections become WebSockets. */
export function attach(agent: Pick<Agent, 'handle'>, server: Server): void {
  if (attached.has(server)) return // it listens again
  attached.add(server)
  takeStreams(server)
  const emit = server.emit
  server.emit = function (this: Server, event: string, ...args: unknown[]): boolean {
    if (event === 'request') {
      const [request, response] = args as [IncomingMessage, ServerResponse]
      if (agent.handle(request, response)) return true
    }
    if (event === 'upgrade') noteUpgrade(args[0] as IncomingMessage)
    return Reflect.apply(emit, this, [event, ...args])
  }
}

/**
 * Embeds the agent and listens, or takes over from a predecessor. Without `port`, `host` and `path`: the environment's PORT and
 * HOST, else 127.0.0.1:8080.
 */
export async function listenWith(server: Server, options: ListenOptions): Promise<Agent> {
  const { host, port, path, mode, group, backlog, ...embedded } = options
  const agent = await embed(embedded)
  attach(agent, server)
  const { PORT, HOST } = process.env
  const where =
    path === undefined ? { host: host ?? HOST ?? '127.0.0.1', port: port ?? Number(PORT ?? 8080) } : { path }
  const given = Object.entries({ mode, group, backlog }).filter(([, value]) => value !== undefined)
  const rest: Pick<ListenerSpec, 'mode' | 'group' | 'backlog'> = Object.fromEntries(given)
  await agent.serve([{ server, ...where, ...rest }])
  return agent
}
