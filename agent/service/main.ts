// The reference service: a small HTTP service that embeds the agent. Copy this file to embed the agent in your own service.

import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import { join } from 'node:path'
import { embed } from '../index.ts'
import { BUILD } from './build.ts'
import { type Environment, type Listener, readSettings } from './config.ts'
import { createHandler } from './handler.ts'
import { createLive, type Live } from './live.ts'
import { openStore } from './store.ts'
import { createTail } from './tail.ts'

/** The parts of `main`. Test fixtures replace one to break the service on purpose. */
export interface Parts {
  build: typeof BUILD
  openStore: typeof openStore
  /** the executable to update, if that is not the running process's own file */
  executable: string | null
  log: (line: string) => void
}

const PARTS: Parts = {
  build: BUILD,
  openStore,
  executable: null,
  log: (line) => process.stdout.write(`${BUILD.service}: ${line.replaceAll(/\p{Cc}/gu, ' ')}\n`),
}

/** Resolves when the service accepts connections. Throws BatonError if it cannot start. */
export async function main(
  argv: readonly string[],
  environment: Environment,
  parts: Partial<Parts> = {},
): Promise<void> {
  const { build, openStore, executable, log } = { ...PARTS, ...parts }
  const settings = readSettings(build.service, argv, environment)
  const database = join(settings.stateDirectory, `${build.service}.db`)
  const { configPath: _, listeners, busy, ...given } = settings
  const store = openStore(database)
  const tail = createTail(store)
  const live = createLive(store, tail, () => agent)
  const app = createHandler(store, build, log, live)

  const agent = await embed({
    ...build,
    ...given,
    database,
    healthPath: '/healthz',
    order: 'start-first', // its store is SQLite, which two processes may use at once
    ...(busy === null ? {} : { busy }),
    ...(executable === null ? {} : { executable }),
    onDrain: () => app.drain(),
    onStop: async () => {
      tail.stop()
      await store.close()
    },
  })
  const answer: RequestListener = (request, response) => {
    if (!agent.handle(request, response)) app.handle(request, response)
  }
  await agent.serve(
    listeners.map((listener) => ({ server: serverFor(listener, answer, live), ...addressOf(listener) })),
  )
}

function serverFor({ tls }: Listener, answer: RequestListener, live: Live): Server {
  // answer a request to upgrade to anything but a WebSocket as a plain request
  const options = {
    shouldUpgradeCallback: ({ headers }: IncomingMessage) => /^websocket$/i.test(headers.upgrade ?? ''),
  }
  const server =
    tls === null
      ? createServer(options, answer)
      : process
          .getBuiltinModule('node:https')
          .createServer({ ...options, key: readFileSync(tls.key), cert: readFileSync(tls.cert) }, answer)
  server.on('upgrade', live.upgrade)
  return server
}

function addressOf(listener: Listener): { host: string; port: number } | { path: string } {
  return 'path' in listener ? { path: listener.path } : { host: listener.host, port: listener.port }
}
