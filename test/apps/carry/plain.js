import { createServer } from 'node:http'
import { embed } from 'baton-kit/agent'
import { WebSocketServer } from 'ws'
import { port, settings, tag } from './settings.js'

const forgetful = { threshold: 0, clientNoContextTakeover: true, serverNoContextTakeover: true }
const rooms = {
  '/ws': new WebSocketServer({ noServer: true }),
  '/ws/forgetful': new WebSocketServer({ noServer: true, perMessageDeflate: forgetful }),
  '/ws/takeover': new WebSocketServer({ noServer: true, perMessageDeflate: { threshold: 0 } }),
}

async function main() {
  const server = createServer((request, response) => agent.handle(request, response) || response.end(tag))
  server.on('upgrade', (request, socket, head) => {
    const room = rooms[request.url]
    room?.handleUpgrade(request, socket, head, (ws) => room.emit('connection', ws, request))
  })
  for (const wss of Object.values(rooms)) {
    wss.on('connection', (ws, request) => {
      const state = agent.carried(request) ?? { count: 0, bornIn: tag }
      ws.on('message', (data) => ws.send(`${data}|${++state.count}|${state.bornIn}|${tag}`))
      agent.carry(request, { ws, state: () => state })
    })
  }
  const agent = await embed(settings)
  await agent.serve([{ server, port }])
}

void main()
