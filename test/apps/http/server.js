import { createServer } from 'node:http'
import { existsSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { Worker } from 'node:worker_threads'

const worker = new Worker(new URL('./worker.js', import.meta.url))
const waiting = []
worker.on('message', (sum) => waiting.shift()?.(sum))
const added = (a, b) =>
  new Promise((resolve) => {
    waiting.push(resolve)
    worker.postMessage([a, b])
  })

const server = createServer(async (request, response) => {
  if (request.url === '/healthz') return response.end('ok')
  const file = new URL(`./public/${basename(request.url)}`, import.meta.url)
  if (request.url.endsWith('.txt') && existsSync(file)) return response.end(readFileSync(file))
  if (request.url === '/work') return response.end(String(await added(1, 2)))
  response.statusCode = 404
  response.end()
})
server.listen(Number(process.env.PORT ?? 3000), process.env.HOST)
