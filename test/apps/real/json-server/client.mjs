// Clients of json-server by fetch: each posts and reads back what it has posted, without a second try. Until stdin ends; then all posts
// are read once more, and one line of JSON is printed.
// lost: requests without their right answer. doubled: posts that are there twice. missing: acknowledged posts that are not there.

import { tell, work } from './working.mjs'

const url = `http://127.0.0.1:${process.env.PORT}/posts`
const acknowledged = []

const lost = await work({ clients: 4, pauseMs: 60 }, async (client, number) => {
  const title = `${client}/${number}`
  const posted = await ask(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ title }),
  })
  acknowledged.push(title)
  const read = await ask(`${url}/${posted.id}`)
  if (read.title !== title) throw new Error(`read back ${read.title}, posted ${title}`)
})
const there = (await (await fetch(url)).json()).map(({ title }) => title)
const known = new Set(there)
tell({
  done: acknowledged.length,
  lost,
  doubled: there.length - known.size,
  missing: acknowledged.filter((title) => !known.has(title)).length,
})

async function ask(address, options) {
  const response = await fetch(address, options)
  if (!response.ok) throw new Error(`${response.status} of ${address}`)
  return await response.json()
}
