// Hono, and every other framework that answers a web `Request`: `await listen(app, getRequestListener, { port: 3000 })`, with
// `getRequestListener` of `@hono/node-server`.

import { createServer, type RequestListener } from 'node:http'
import type { Agent } from '../embed.ts'
import { type ListenOptions, listenWith } from './attach.ts'

/** The part of a Hono application that the adapter uses. */
export interface FetchLike {
  // oxlint-disable-next-line typescript/no-explicit-any -- each framework has its own types of request, environment and answer
  fetch: (...args: any[]) => any
}

/** Resolves when this process accepts connections. Rejects with BatonError if a setting is wrong or it cannot listen. */
export async function listen(
  app: FetchLike,
  getRequestListener: (fetch: FetchLike['fetch']) => RequestListener,
  options: ListenOptions = {},
): Promise<Agent> {
  return await listenWith(createServer(getRequestListener(app.fetch)), options)
}
