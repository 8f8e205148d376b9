import websocket from '@fastify/websocket'
import { listen } from 'baton-kit/fastify'
import Fastify from 'fastify'
import { port, settings, tag } from './settings.js'

async function main() {
  const app = Fastify()
  await app.register(websocket)
  app.get('/healthz', () => tag)
  app.get('/ws', { websocket: true }, (ws, request) => {
    const state = agent.carried(request.raw) ?? { count: 0, bornIn: tag }
    ws.on('message', (data) => ws.send(`${data}|${++state.count}|${state.bornIn}|${tag}`))
    agent.carry(request.raw, { ws, state: () => state })
  })
  const agent = await listen(app, { ...settings, port })
}

void main()
