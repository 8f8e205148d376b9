import { serve } from '@hono/node-server'
import { serveStatic } from '@hono/node-server/serve-static'
import { Hono } from 'hono'

const app = new Hono()
app.get('/healthz', (c) => c.json({ status: 'ok' }))
app.get('/work', (c) => c.json({ at: Date.now() }))
app.use('/*', serveStatic({ root: new URL('./public', import.meta.url).pathname }))
serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 3000), hostname: process.env.HOST })
