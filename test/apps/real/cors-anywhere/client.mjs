// Clients of cors-anywhere by fetch: each posts through it to a server of this process, without a second try. Until stdin ends; then one
// line of JSON is printed.
// lost: requests without that server's answer. doubled: requests that came there twice. missing: answered ones that never came.

import { once } from 'node:events'
import { createServer } from 'node:http'
import { tell, work } from './working.mjs'

/** path -> how often it came */
const came = new Map()
const server = createServer((request, response) => {
  came.set(request.url, (came.get(request.url) ?? 0) + 1)
  response.end(request.url)
})
await once(server.listen(0, '127.0.0.1'), 'listening')
const url = `http://127.0.0.1:${process.env.PORT}/http://127.0.0.1:${server.address().port}`
const answered = []

const lost = await work({ clients: 4, pauseMs: 50 }, async (client, number) => {
  const path = `/${client}/${number}`
  const response = await fetch(url + path, { method: 'POST', headers: { 'x-requested-with': 'client' }, body: path })
  const text = await response.text()
  if (response.status !== 200 || text !== path) throw new Error(`${response.status} of ${path}: ${text.slice(0, 200)}`)
  answered.push(path)
})
tell({
  done: answered.length,
  lost,
  doubled: [...came.values()].filter((times) => times > 1).length,
  missing: answered.filter((path) => !came.has(path)).length,
})
