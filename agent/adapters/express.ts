// Express, and every other framework whose application is a request listener: `await listen(app, { port: 3000 })` instead of
// `app.listen(3000)`.

import { createServer, type RequestListener } from 'node:http'
import type { Agent } from '../embed.ts'
import { type ListenOptions, listenWith } from './attach.ts'

/** Resolves when this process accepts connections. Rejects with BatonError if a setting is wrong or it cannot listen. */
export async function listen(app: RequestListener, options: ListenOptions = {}): Promise<Agent> {
  return await listenWith(createServer(app), options)
}
