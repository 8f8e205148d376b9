const { carried, carry } = require('baton-kit/auto')
const { WebSocketServer } = require('ws')

exports.chatOn = (server) => {
  const sockets = new WebSocketServer({ server, path: '/ws' })
  sockets.on('connection', (ws, request) => {
    const state = carried(request) ?? { count: 0 }
    ws.on('message', (data) => {
      state.count++
      ws.send(String(data))
    })
    carry(request, { ws, state: () => state })
  })
}
