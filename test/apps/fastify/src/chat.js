import { carried, carry } from 'baton-kit/auto'

export async function chat(app) {
  app.get('/ws', { websocket: true }, (ws, { raw }) => {
    const state = carried(raw) ?? { count: 0 }
    ws.on('message', (data) => {
      state.count++
      ws.send(String(data))
    })
    carry(raw, { ws, state: () => state })
  })
}
