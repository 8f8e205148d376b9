// Clients by fetch: each puts a value and reads it back, without a second try. Until stdin ends; then all values are read once more, and
// one line of JSON is printed.
// lost: requests without their right answer. doubled: not counted, a key is there once. missing: acknowledged values that are not there.

import { tell, work } from './working.mjs'

const url = `http://127.0.0.1:${process.env.PORT}`
const acknowledged = []

const lost = await work({ clients: 8, pauseMs: 30 }, async (client, number) => {
  const key = `/${client}/${number}`
  const put = await fetch(url + key, { method: 'PUT', body: key })
  if (!put.ok) throw new Error(`PUT ${key}: ${put.status}`)
  acknowledged.push(key)
  const read = await (await fetch(url + key)).text()
  if (read !== key) throw new Error(`GET ${key}: ${read}`)
})
let missing = 0
for (const key of acknowledged) if ((await (await fetch(url + key)).text()) !== key) missing++
tell({ done: acknowledged.length, lost, doubled: 0, missing })
