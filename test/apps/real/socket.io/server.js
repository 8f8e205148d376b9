const { join } = require('node:path')
const { createServer } = require('node:http')
const { DatabaseSync } = require('node:sqlite')
const express = require('express')
const { Server } = require('socket.io')

const db = new DatabaseSync(join(process.env.STATE_DIRECTORY ?? '.', 'chat.db'))
db.exec(`CREATE TABLE IF NOT EXISTS messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT, client_offset TEXT UNIQUE, content TEXT
)`)

const app = express()
const server = createServer(app)
const io = new Server(server, { connectionStateRecovery: {} })

app.get('/', (req, res) => res.send('<h1>chat</h1>'))

io.on('connection', (socket) => {
  socket.on('chat message', (msg, clientOffset, callback) => {
    let result
    try {
      result = db.prepare('INSERT INTO messages (content, client_offset) VALUES (?, ?)').run(msg, clientOffset)
    } catch (e) {
      if (e.errcode === 2067 /* SQLITE_CONSTRAINT_UNIQUE */) callback()
      return
    }
    io.emit('chat message', msg, result.lastInsertRowid)
    callback()
  })

  if (!socket.recovered) {
    const rows = db
      .prepare('SELECT id, content FROM messages WHERE id > ?')
      .all(socket.handshake.auth.serverOffset || 0)
    for (const row of rows) socket.emit('chat message', row.content, row.id)
  }
})

server.listen(process.env.PORT ?? 3000, process.env.HOST)
