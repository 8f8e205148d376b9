import { createServer } from 'node:http'
import { constants, createGzip } from 'node:zlib'
import { embed } from 'baton-kit/agent'
import express from 'express'
import { WebSocketServer } from 'ws'
import { port, settings, tag } from './settings.js'

async function main() {
  const app = express()
  app.get('/healthz', (request, response) => response.send(tag))
  app.get('/events', (request, response) => {
    const state = agent.carried(request) ?? { next: 0 }
    response.set('Content-Type', 'text/event-stream')
    response.flushHeaders()
    const timer = setInterval(() => response.write(`data: ${state.next++}|${tag}\n\n`), 20)
    const leave = () => clearInterval(timer)
    agent.carry(request, { response, state: () => (leave(), state) })
    response.on('close', leave)
  })
  // as middleware that compresses does it
  app.get('/packed', (request, response) => {
    response.set({ 'Content-Type': 'text/event-stream', 'Content-Encoding': 'gzip' })
    response.flushHeaders()
    const gzip = createGzip({ flush: constants.Z_SYNC_FLUSH })
    gzip.pipe(response)
    const timer = setInterval(() => gzip.write(`data: ${tag}\n\n`), 20)
    agent.carry(request, { response })
    response.on('close', () => clearInterval(timer))
  })
  app.get('/sized', (request, response) => {
    const state = agent.carried(request) ?? { next: 0 }
    response.writeHead(200, { 'Content-Length': 200 * 4 })
    const most = tag === 'v1.0.0' ? 100 : 200 // the other half is the next release's, however long an update takes
    const timer = setInterval(() => {
      if (state.next < most) response.write(String(state.next++).padStart(4))
      if (state.next === 200) leave(response.end())
    }, 20)
    const leave = () => clearInterval(timer)
    agent.carry(request, { response, state: () => (leave(), state) })
    response.on('close', leave)
  })
  const server = createServer((request, response) => agent.handle(request, response) || app(request, response))
  const wss = new WebSocketServer({ server, path: '/ws' })
  wss.on('connection', (ws, request) => {
    const state = agent.carried(request) ?? { count: 0, bornIn: tag }
    ws.on('message', (data) => ws.send(`${data}|${++state.count}|${state.bornIn}|${tag}`))
    agent.carry(request, { ws, state: () => state })
  })
  const agent = await embed(settings)
  await agent.serve([{ server, port }])
}

void main()
