// Clients of TiddlyWiki by fetch, as its page saves: each puts new tiddlers and, once a second, a draft of its own that it goes on
// writing, without a second try. Until stdin ends; then all are read once more, and one line of JSON is printed.
// lost: requests without their right answer. doubled: titles that are there twice. missing: acknowledged tiddlers that are not there, and
// drafts that are older than what was acknowledged.

import { tell, work } from './working.mjs'

const CLIENTS = 4
const url = `http://127.0.0.1:${process.env.PORT}/recipes/default/tiddlers`
const headers = { 'content-type': 'application/json', 'x-requested-with': 'TiddlyWiki' }
const acknowledged = []
const drafts = Array(CLIENTS).fill(0)

const lost = await work({ clients: CLIENTS, pauseMs: 250 }, async (client, number) => {
  const title = `t-${client}-${number}`
  await put(title, title)
  acknowledged.push(title)
  if ((await read(title)) !== title) throw new Error(`${title}: read back another`)
  if (number % 4 !== 0) return
  await put(`draft-${client}`, String(number))
  drafts[client] = number
})
const there = (await (await fetch(`${url}.json`)).json()).map(({ title }) => title)
const known = new Set(there)
const behind = await Promise.all(drafts.map(async (at, client) => at > Number(at && (await read(`draft-${client}`)))))
tell({
  done: acknowledged.length,
  lost,
  doubled: there.length - known.size,
  missing: acknowledged.filter((title) => !known.has(title)).length + behind.filter(Boolean).length,
})

async function put(title, text) {
  const body = JSON.stringify({ title, text, fields: {} })
  const response = await fetch(`${url}/${title}`, { method: 'PUT', headers, body })
  if (!response.ok) throw new Error(`${response.status} of putting ${title}`)
}

async function read(title) {
  const response = await fetch(`${url}/${title}`)
  if (!response.ok) throw new Error(`${response.status} of ${title}`)
  return (await response.json()).text
}
