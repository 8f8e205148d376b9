// The service that the bench runs as Baton: the reference service with a WebSocket echo, embedding the agent as any author would. Its
// streams are short, so on a drain they are left to finish; the WebSockets are carried.

import { createServer } from 'node:http'
import { join } from 'node:path'
import { embed } from '../../agent/index.ts'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { createHandler } from '../../agent/service/handler.ts'
import { openStore } from '../../agent/service/store.ts'
import type { Order } from '../../agent/words/order.ts'
import { addEcho } from './echo.ts'
import { traceSteps } from './step-trace.ts'

/** megabytes that the service keeps: what a switch costs a large one (`bench -- handover --memory 1500`) */
const ballast = Array.from({ length: Number(process.env['BENCH_MEMORY_MB'] ?? 0) }, () => Buffer.alloc(1 << 20, 1))

export async function serve(argv: readonly string[], order: Order): Promise<void> {
  const settings = readSettings(BUILD.service, argv, process.env)
  const { password, feed, stateDirectory, update } = settings
  const database = join(stateDirectory, `${BUILD.service}.db`)
  const store = openStore(database)
  const app = createHandler(store, BUILD, (line) => process.stderr.write(`${line}\n`))
  const server = createServer((request, response) => {
    if (!agent.handle(request, response)) app.handle(request, response)
  })
  traceSteps(server)
  addEcho(server, (request, ws) => agent.carry(request, { ws }))
  const agent = await embed({
    ...BUILD,
    password,
    feed,
    stateDirectory,
    update,
    database,
    healthPath: '/healthz',
    order,
    onStop: () => {
      ballast.length = 0
      return store.close()
    },
  })
  await agent.serve(settings.listeners.map((listener) => ({ server, ...listener })))
}
