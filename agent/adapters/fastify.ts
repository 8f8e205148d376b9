// Fastify: `await listen(app, { port: 3000 })` instead of `app.listen({ port: 3000 })`. Its hooks run: `ready` before, `close`
// (with `onClose`) last.

import type { Server } from 'node:net'
import type { Agent } from '../embed.ts'
import type { StopReason } from '../settings.ts'
import { type ListenOptions, listenWith } from './attach.ts'

/** The part of a Fastify instance that the adapter uses. */
export interface FastifyLike {
  server: Server
  ready(): PromiseLike<unknown>
  close(): PromiseLike<unknown>
}

/** Resolves when this process accepts connections. Rejects with BatonError if a setting is wrong or it cannot listen. */
export async function listen(app: FastifyLike, options: ListenOptions = {}): Promise<Agent> {
  await app.ready()
  const onStop = async (reason: StopReason) => {
    await options.onStop?.(reason)
    await app.close()
  }
  return await listenWith(app.server, { ...options, onStop })
}
