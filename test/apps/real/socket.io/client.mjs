// Two clients of the chat of socket.io's own tutorial, by socket.io-client with its `ackTimeout`, `retries` and `serverOffset`: one
// writes, the other reads. They reconnect as socket.io-client does by itself. Until stdin ends; then one line of JSON.
// lost: acknowledged messages that never reached the reader. doubled: rows that reached it twice, or messages that are two rows.
// missing: acknowledged messages that a new client is not given.

import { setTimeout as sleep } from 'node:timers/promises'
import { io } from 'socket.io-client'
import { absences, notesOf } from './away.mjs'

const END_MS = 30_000
const url = `http://127.0.0.1:${process.env.PORT}`
const notes = []
const acknowledged = new Set()
const away = absences()
let [ended, back, recovered] = [0, 0, 0]
let working = true

const reader = startReader()
const writer = io(url, { ackTimeout: 5000, retries: 5, reconnectionDelay: 250 })
for (const socket of [reader.socket, writer]) {
  socket.on('disconnect', (reason) => {
    ended++
    away.left(socket)
    if (!['transport close', 'transport error'].includes(reason)) notes.push(reason)
  })
  socket.on('connect', () => {
    if (ended === 0) return
    back++
    if (socket.recovered) recovered++
    away.back(socket)
  })
}
process.stdin.resume().once('end', () => (working = false))
for (let number = 1; working; number++) {
  const text = String(number)
  writer.emit('chat message', text, `${writer.id ?? 'early'}-${number}`, (error) => {
    if (error) return notes.push(`${text}: ${error.message}`)
    acknowledged.add(text)
    if (number === 1) process.stderr.write('working\n')
  })
  await sleep(20)
}

const isMissingFrom = (heard) => [...acknowledged].filter((text) => !heard.has(text))
for (const end = Date.now() + END_MS; isMissingFrom(reader.heard).length > 0 && Date.now() < end;) await sleep(50)
const late = startReader()
for (const end = Date.now() + END_MS; isMissingFrom(late.heard).length > 0 && Date.now() < end;) await sleep(50)
notes.push(`${ended} connections ended`, `${recovered} of ${back} were \`recovered\``, ...notesOf(away))
const total = {
  done: acknowledged.size,
  lost: isMissingFrom(reader.heard).length,
  doubled: [...reader.heard.values()].filter((copies) => copies > 1).length,
  missing: isMissingFrom(late.heard).length,
  notes,
}
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

function startReader() {
  /** text -> how often it came */
  const heard = new Map()
  const socket = io(url, { auth: { serverOffset: 0 }, reconnectionDelay: 250 })
  socket.on('chat message', (text, serverOffset) => {
    heard.set(text, (heard.get(text) ?? 0) + 1)
    socket.auth.serverOffset = serverOffset
  })
  return { socket, heard }
}
