// Clients of json-server by fetch: each posts and reads back what it has posted, without a second try. Until stdin ends; then all posts
// are read once more, and one line of JSON is printed.
// lost: requests without their right answer. doubled: posts that are there twice. missing: acknowledged posts that are not there.
// A request that ends with the process of the broken release, at most one of each client, is not lost but noted: docs/adopt.md says so.

import { setTimeout as sleep } from 'node:timers/promises'

const CLIENTS = 4
const url = `http://127.0.0.1:${process.env.PORT}/posts`
const notes = []
const acknowledged = []
let lost = 0
let died = 0
let broken = false
let working = true

process.stdin.on('data', () => (broken = true)).once('end', () => (working = false))
await Promise.all(Array.from({ length: CLIENTS }, (_, index) => work(index)))
const there = (await (await fetch(url)).json()).map(({ title }) => title)
const known = new Set(there)
notes.push(`${died} requests ended with the broken release`)
const total = {
  done: acknowledged.length,
  lost,
  doubled: there.length - known.size,
  missing: acknowledged.filter((title) => !known.has(title)).length,
  notes,
}
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

async function work(client) {
  for (let number = 1; working; number++) {
    const title = `${client}/${number}`
    try {
      const posted = await ask(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ title }),
      })
      acknowledged.push(title)
      const read = await ask(`${url}/${posted.id}`)
      if (read.title !== title) throw new Error(`read back ${read.title}, posted ${title}`)
      if (client === 0 && number === 1) process.stderr.write('working\n')
    } catch (error) {
      if (broken && died < CLIENTS && error.cause !== undefined) died++
      else lost++
      if (notes.length < 10) notes.push(`${error.message} ${error.cause?.code ?? error.cause?.message ?? ''}`)
    }
    await sleep(60)
  }
}

async function ask(address, options) {
  const response = await fetch(address, options)
  if (!response.ok) throw new Error(`${response.status} of ${address}`)
  return await response.json()
}
