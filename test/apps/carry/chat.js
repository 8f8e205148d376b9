// A chat room that an update does not interrupt. Each message is a row, so it does not matter which process a writer or a reader is in.

import { createServer } from 'node:http'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { embed } from 'baton-kit/agent'
import { WebSocketServer } from 'ws'
import { port, settings, tag } from './settings.js'

const path = join(settings.stateDirectory, 'beacon.db')
const database = new DatabaseSync(path, { timeout: 5000 })
database.exec(
  'PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE IF NOT EXISTS lines (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, text TEXT)',
)
const insert = database.prepare('INSERT INTO lines (name, text) VALUES (?, ?)')
const after = database.prepare('SELECT * FROM lines WHERE id > ? ORDER BY id')
const newest = database.prepare('SELECT max(id) AS id FROM lines')

const nameIn = (request) => new URL(request.url, 'http://x').searchParams.get('name')
const newestRow = () => newest.get().id ?? 0
const insertRow = (name, text) => insert.run(name, text)
const rowsAfter = (last) => after.all(last)

let agent
const wss = new WebSocketServer({ noServer: true })

const room = new Map() // ws -> { name, last }

wss.on('connection', (ws, request) => {
  const member = agent.carried(request) ?? { name: nameIn(request), last: newestRow() }
  room.set(ws, member)
  const leave = () => room.delete(ws)
  agent.carry(request, { ws, state: () => (leave(), member) })
  ws.on('close', leave)
  ws.on('message', (data) => {
    insertRow(member.name, String(data))
    deliver()
  })
})

/** everybody gets the rows that they have not had; also called every 100 ms, for those that the other process wrote */
function deliver() {
  for (const [ws, member] of room) {
    for (const row of rowsAfter(member.last)) {
      ws.send(`${row.name}: ${row.text}`)
      member.last = row.id
    }
  }
}

setInterval(deliver, 100)

async function main() {
  const server = createServer((request, response) => agent.handle(request, response) || response.end(tag))
  server.on('upgrade', (request, socket, head) => {
    wss.handleUpgrade(request, socket, head, (ws) => wss.emit('connection', ws, request))
  })
  agent = await embed({ ...settings, database: path, onStop: () => database.close() })
  await agent.serve([{ server, port }])
}

void main()
