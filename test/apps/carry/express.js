import { createServer } from 'node:http'
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
