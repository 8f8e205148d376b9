import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { serve } from '@hono/node-server'
import { serveStatic } from '@hono/node-server/serve-static'
import argon2 from 'argon2'
import { Hono } from 'hono'

const worker = new Worker(new URL('./worker.js', import.meta.url))
const app = new Hono()
app.get('/healthz', (c) => c.json({ status: 'ok' }))
app.get('/work', async (c) => {
  const hash = await argon2.hash('secret', { memoryCost: 1024, timeCost: 2 })
  worker.postMessage([1, 2])
  const [sum] = await once(worker, 'message')
  return c.json({ verified: await argon2.verify(hash, 'secret'), sum })
})
app.use('/*', serveStatic({ root: new URL('./public', import.meta.url).pathname }))
serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 3000), hostname: process.env.HOST })
