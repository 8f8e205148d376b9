// Two clients of a document of Yjs, by y-websocket's own provider: one writes numbers, the other reads. They reconnect as the provider
// does by itself. The server keeps the document in memory only, so what it has after a switch is what its clients have brought back.
// Until stdin ends; then one line of JSON. lost: numbers that never reached the reader. doubled: those that are there twice.
// missing: numbers that a new client is not given.

import { setTimeout as sleep } from 'node:timers/promises'
import { WebsocketProvider } from 'y-websocket'
import * as Y from 'yjs'
import { absences, notesOf } from './away.mjs'

const END_MS = 30_000
const url = `ws://127.0.0.1:${process.env.PORT}`
const codes = []
const away = absences()
let working = true

const writer = openClient(true)
const reader = openClient(true)
process.stdin.resume().once('end', () => (working = false))
let written = 0
while (working) {
  writer.numbers.push([++written])
  if (written === 1) {
    await heard(reader)
    process.stderr.write('working\n')
  }
  await sleep(20)
}
await heard(reader)
const late = openClient(false)
await heard(late)
const total = {
  done: written,
  lost: written - new Set(reader.numbers).size,
  doubled: reader.numbers.length - new Set(reader.numbers).size,
  missing: written - new Set(late.numbers).size,
  notes: [`closed with ${codes.join(', ')}`, ...notesOf(away)],
}
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

function openClient(isCounted) {
  const doc = new Y.Doc()
  // two clients in one process would tell each other, without the server
  const provider = new WebsocketProvider(url, 'pad', doc, { disableBc: true })
  if (isCounted) {
    provider.on('connection-close', (event) => {
      if (event === null) return
      codes.push(event.code)
      away.left(provider)
    })
    provider.on('sync', (isSynced) => isSynced && away.back(provider))
  }
  return { numbers: doc.getArray('numbers') }
}

async function heard({ numbers }) {
  for (const end = Date.now() + END_MS; numbers.length < written && Date.now() < end;) await sleep(20)
}
