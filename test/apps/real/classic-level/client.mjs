// Clients by fetch: each puts a value and reads it back, without a second try. Until stdin ends; then all values are read once more, and
// one line of JSON is printed.
// lost: requests without their right answer. doubled: not counted, a key is there once. missing: acknowledged values that are not there.
// A request that ends with the process of the broken release, at most one of each client, is not lost but noted: docs/adopt.md says so.

import { setTimeout as sleep } from 'node:timers/promises'

const CLIENTS = 8
const url = `http://127.0.0.1:${process.env.PORT}`
const notes = []
const acknowledged = []
let lost = 0
let died = 0
let broken = false
let working = true

process.stdin.on('data', () => (broken = true)).once('end', () => (working = false))
await Promise.all(Array.from({ length: CLIENTS }, (_, index) => work(index)))
let missing = 0
for (const key of acknowledged) if ((await (await fetch(url + key)).text()) !== key) missing++
notes.push(`${died} requests ended with the broken release`)
const total = { done: acknowledged.length, lost, doubled: 0, missing, notes }
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

async function work(client) {
  for (let number = 1; working; number++) {
    const key = `/${client}/${number}`
    try {
      const put = await fetch(url + key, { method: 'PUT', body: key })
      if (!put.ok) throw new Error(`PUT ${key}: ${put.status}`)
      acknowledged.push(key)
      const read = await (await fetch(url + key)).text()
      if (read !== key) throw new Error(`GET ${key}: ${read}`)
      if (client === 0 && number === 1) process.stderr.write('working\n')
    } catch (error) {
      if (broken && died < CLIENTS && error.cause !== undefined) died++
      else lost++
      if (notes.length < 10) notes.push(`${error.message} ${error.cause?.code ?? error.cause?.message ?? ''}`)
    }
    await sleep(30)
  }
}
