// A service whose clients can count; it embeds the agent as any author would. A WebSocket at /numbered and a stream of events at
// /events send a numbered message every `?everyMs=`. The service compares each message that it receives with the expected one.
// A connection carries all its state over a switch.
//
// CARRY_FAULT=byte-lost|byte-doubled makes the carrying wrong on purpose: after a switch the first bytes of each connection lack
// one byte or have one twice; of every other WebSocket the received ones, of all other connections the sent ones.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { DatabaseSync } from 'node:sqlite'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { databasePath, embedAgent } from './embedded.ts'
import { type Ledger, readMessage, writeEvent, writeMessage } from './numbers.ts'
import { type WebSocket, WebSocketServer } from './ws.ts'

const argv = process.argv.slice(2)
const FAULT = process.env['CARRY_FAULT'] ?? ''
/** long, as the clients use idle connections less often than Node's default timeout would allow */
const KEEP_ALIVE_MS = 600_000

if (argv[0] === '--version') process.stdout.write(`${BUILD.service} ${BUILD.tag}\n`)
else void serve()

async function serve(): Promise<void> {
  const settings = readSettings(BUILD.service, argv, process.env)
  const database = new DatabaseSync(databasePath(settings.stateDirectory))
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS notes (at INTEGER)')
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, (request, response) => {
    if (agent.handle(request, response)) return
    if (request.url?.startsWith('/events') === true) return follow(request, response)
    response.end(BUILD.tag)
  })
  const wss = new WebSocketServer({ server, clientTracking: false })
  wss.on('connection', (ws: WebSocket, request: IncomingMessage) => talk(ws, request))

  const begin = (request: IncomingMessage) => {
    const asked = new URL(request.url ?? '/', 'http://x').searchParams
    const came = agent.carried(request) as Ledger | undefined
    const ledger = came ?? { name: Number(asked.get('name')), sent: 0, heard: 0, wrong: 0, hops: 0 }
    if (came !== undefined) ledger.hops++
    return { ledger, everyMs: Number(asked.get('everyMs')), isCarried: came !== undefined }
  }
  const talk = (ws: WebSocket, request: IncomingMessage) => {
    const { ledger, everyMs, isCarried } = begin(request)
    const timer = setInterval(() => {
      ws.send(writeMessage({ name: ledger.name, number: ++ledger.sent, heard: ledger.heard }))
    }, everyMs)
    const leave = () => clearInterval(timer)
    agent.carry(request, { ws, state: () => (leave(), ledger) })
    ws.on('close', leave)
    ws.on('error', leave)
    ws.on('message', (data: Buffer, isBinary: boolean) => {
      if (!isBinary) {
        leave()
        return ws.send(JSON.stringify(ledger))
      }
      const message = readMessage(data)
      if (message?.name !== ledger.name || message.number !== ledger.heard + 1) ledger.wrong++
      ledger.heard = message?.number ?? ledger.heard
    })
    if (isCarried && FAULT !== '') damage(request.socket, ledger.name % 2 === 0 ? 'in' : 'out')
  }
  const follow = (request: IncomingMessage, response: ServerResponse) => {
    const { ledger, everyMs, isCarried } = begin(request)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.flushHeaders()
    const timer = setInterval(() => response.write(writeEvent(ledger.name, ++ledger.sent)), everyMs)
    const leave = () => clearInterval(timer)
    agent.carry(request, { response, state: () => (leave(), ledger) })
    response.on('close', leave)
    if (isCarried && FAULT !== '') damage(request.socket, 'out')
  }

  const agent = await embedAgent(settings, { onStop: () => database.close() })
  await agent.serve(settings.listeners.map((listener) => ({ server, ...listener })))
}

/** Damages the first chunk of at least 8 bytes, once. */
function damage(socket: Socket, way: 'in' | 'out'): void {
  let isDone = false
  const damaged = <T>(data: T): T | Buffer => {
    const bytes = Buffer.isBuffer(data) ? data : typeof data === 'string' ? Buffer.from(data, 'latin1') : null
    if (isDone || bytes === null || bytes.length < 8) return data
    isDone = true
    return FAULT === 'byte-lost' ? bytes.subarray(0, -1) : Buffer.concat([bytes, bytes.subarray(-1)])
  }
  if (way === 'out') {
    const { write } = socket
    socket.write = (data: unknown, ...rest: unknown[]) =>
      Reflect.apply(write, socket, [damaged(data), ...rest]) as boolean
    return
  }
  const { emit } = socket
  socket.emit = (event: string | symbol, ...args: unknown[]) =>
    Reflect.apply(emit, socket, [event, ...(event === 'data' ? args.map(damaged) : args)])
}
