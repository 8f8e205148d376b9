import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import argon2 from 'argon2'

export const dynamic = 'force-dynamic'

const ADD = `require('node:worker_threads').parentPort.on('message', function ([a, b]) { this.postMessage(a + b) })`
let worker = null

export async function GET() {
  worker ??= new Worker(ADD, { eval: true })
  const hash = await argon2.hash('secret', { memoryCost: 1024, timeCost: 2 })
  worker.postMessage([1, 2])
  const [sum] = await once(worker, 'message')
  return Response.json({ verified: await argon2.verify(hash, 'secret'), sum })
}
