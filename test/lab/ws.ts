// The one importer of `ws` among the tests.

export { WebSocket, WebSocketServer } from 'ws'
