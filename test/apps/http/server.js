import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'

const text = readFileSync(new URL('./public/hello.txt', import.meta.url))
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
  if (request.url === '/hello.txt') return response.end(text)
  if (request.url === '/work') return response.end(String(await added(1, 2)))
  response.statusCode = 404
  response.end()
})
server.listen(Number(process.env.PORT ?? 3000), process.env.HOST)
