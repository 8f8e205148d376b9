// The tests' only importer of `ws`.

export { WebSocket, WebSocketServer } from 'ws'
