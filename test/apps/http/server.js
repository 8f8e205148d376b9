import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { existsSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import argon2 from 'argon2'
import { release } from 'baton-kit/release'

const worker = new Worker(new URL('./worker.js', import.meta.url))
const waiting = []
worker.on('message', (answer) => waiting.shift()?.(answer))
const added = (a, b) =>
  new Promise((resolve) => {
    waiting.push(resolve)
    worker.postMessage([a, b])
  })

const server = createServer(async (request, response) => {
  if (request.url === '/healthz') return response.end('ok')
  const file = new URL(`./public/${basename(request.url)}`, import.meta.url)
  if (request.url.endsWith('.txt') && existsSync(file)) return response.end(readFileSync(file))
  if (request.url === '/work') {
    const hash = await argon2.hash('secret', { memoryCost: 1024, timeCost: 2 })
    return response.end(JSON.stringify({ ...(await added(1, 2)), verified: await argon2.verify(hash, 'secret') }))
  }
  if (request.url === '/tags') {
    const [child] = await once(fork(join(import.meta.dirname, 'child.js')), 'message')
    return response.end([release.tag, (await added(1, 2)).tag, child].join(' '))
  }
  response.statusCode = 404
  response.end()
})
server.listen(Number(process.env.PORT ?? 3000), process.env.HOST)
