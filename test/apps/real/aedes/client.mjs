// Two clients of the broker by MQTT.js, QoS 1: one publishes numbers, one with a persistent session reads them. Both open a new
// connection as MQTT.js does by itself. They work until stdin ends; then one line of JSON.
// lost: published, acknowledged, never delivered. doubled: delivered again, though no connection had begun or ended from a second
// before it was published until it came again; around a reconnection QoS 1 allows it, and the notes count it. missing: acknowledged
// retained messages that a new client is not given.

import { setTimeout as sleep } from 'node:timers/promises'
import mqtt from 'mqtt'

const END_MS = 30_000
// While a session comes back, aedes delivers to neither its connection nor its store: of 1801 messages over 25 plain restarts, without
// an update, 4 were lost. So nothing is published in that moment; what is on its way when a connection ends counts.
const SETTLED_MS = 300
const url = `mqtt://127.0.0.1:${process.env.MQTT_PORT}`
const notes = []
/** number -> when it was published, copies that came, and whether the connections were the same all that time */
const sent = new Map()
const acknowledged = new Set()
let ended = 0
let changedAt = 0
let retained = 0
let working = true

const options = { clean: false, reconnectPeriod: 250 }
const [reader, writer] = ['reader', 'writer'].map((clientId) => mqtt.connect(url, { ...options, clientId }))
for (const client of [reader, writer]) {
  client.on('close', () => ended++)
  for (const event of ['close', 'connect']) client.on(event, () => (changedAt = Date.now()))
  client.on('error', ({ message }) => notes.push(message))
}
reader.on('message', (_topic, text) => {
  const one = sent.get(Number(text))
  if (one === undefined) return notes.push(`${text} was never published`)
  one.copies++
  one.calm = changedAt < one.at - 1000
})
await reader.subscribeAsync('numbers', { qos: 1 })
process.stdin.resume().once('end', () => (working = false))
for (let number = 1; working; number++) {
  while (working && (!reader.connected || Date.now() - changedAt < SETTLED_MS)) await sleep(10)
  sent.set(number, { at: Date.now(), copies: 0, calm: false })
  writer.publish('numbers', String(number), { qos: 1 }, (error) => {
    if (error) return notes.push(error.message)
    acknowledged.add(number)
    if (number === 1) process.stderr.write('working\n')
  })
  if (number % 10 === 0)
    writer.publish('last', String(number), { qos: 1, retain: true }, (error) => {
      if (!error) retained = Math.max(retained, number)
    })
  await sleep(20)
}

const isLost = (number) => sent.get(number).copies === 0
await until(() => acknowledged.size === sent.size && ![...acknowledged].some(isLost))
const late = mqtt.connect(url, { clientId: 'late' })
let found = 0
late.on('message', (_topic, text) => (found = Number(text)))
await late.subscribeAsync('last', { qos: 1 })
await until(() => found >= retained)
if (acknowledged.size < sent.size) notes.push(`${sent.size - acknowledged.size} were never acknowledged`)
const again = [...sent.values()].filter(({ copies }) => copies > 1)
notes.push(`${ended} connections ended`, `${again.length} delivered again`)
const total = {
  done: acknowledged.size,
  lost: [...acknowledged].filter(isLost).length,
  doubled: again.filter(({ calm }) => calm).length,
  missing: found >= retained ? 0 : 1,
  notes,
}
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

async function until(isSo) {
  for (const end = Date.now() + END_MS; !isSo() && Date.now() < end;) await sleep(50)
}
