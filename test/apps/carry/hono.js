import { createServer } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { createNodeWebSocket } from '@hono/node-ws'
import { embed } from 'baton-kit/agent'
import { Hono } from 'hono'
import { port, settings, tag } from './settings.js'

async function main() {
  const app = new Hono()
  const { injectWebSocket, upgradeWebSocket } = createNodeWebSocket({ app })
  app.get('/healthz', (context) => context.text(tag))
  app.get(
    '/ws',
    upgradeWebSocket((context) => {
      const request = context.env.incoming
      const state = agent.carried(request) ?? { count: 0, bornIn: tag }
      return {
        onOpen: (event, ws) => agent.carry(request, { ws: ws.raw, state: () => state }),
        onMessage: ({ data }, ws) => ws.send(`${data}|${++state.count}|${state.bornIn}|${tag}`),
      }
    }),
  )
  const listener = getRequestListener(app.fetch)
  const server = createServer((request, response) => agent.handle(request, response) || listener(request, response))
  injectWebSocket(server)
  const agent = await embed(settings)
  await agent.serve([{ server, port }])
}

void main()
