import { Worker } from 'node:worker_threads'
import staticFiles from '@fastify/static'
import argon2 from 'argon2'
import bufferutil from 'bufferutil'
import websocket from '@fastify/websocket'
import Fastify from 'fastify'
import { chat } from './chat.js'

const worker = new Worker(new URL('./worker.js', import.meta.url))
const app = Fastify({ logger: { transport: { target: 'pino/file', options: { destination: 1 } }, level: 'warn' } })
await app.register(staticFiles, { root: new URL('../public', import.meta.url).pathname })
await app.register(websocket)
await app.register(chat)
app.get('/healthz', async () => ({ status: 'ok' }))
app.get('/work', async () => {
  const masked = Buffer.from([1, 2, 3, 4])
  bufferutil.mask(masked, Buffer.from([1, 1, 1, 1]), masked, 0, 4)
  const hash = await argon2.hash('secret', { memoryCost: 1024, timeCost: 2 })
  const sum = await new Promise((resolve) => {
    worker.once('message', resolve)
    worker.postMessage([1, 2])
  })
  return { verified: await argon2.verify(hash, 'secret'), masked: [...masked], sum }
})
await app.listen({ port: Number(process.env.PORT ?? 3000), host: process.env.HOST ?? 'localhost' })
