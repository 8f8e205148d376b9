// Clients of GraphQL by fetch: each adds notes, without a second try. One more has a subscription (server-sent events), and subscribes
// again when it ends. Until stdin ends; then all notes are read, and one line of JSON is printed.
// lost: requests without their right answer, and notes of which a subscription that was there all the time heard nothing. doubled: notes
// that are there twice. missing: acknowledged notes that are not there.

import { setTimeout as sleep } from 'node:timers/promises'
import { noteFailure, notes, tell, work } from './working.mjs'

const url = `http://127.0.0.1:${process.env.PORT}/graphql`
const acknowledged = []
const heard = new Set()
/** notes that were added while one and the same subscription was there */
const owed = []
/** counts the subscriptions; null while there is none */
let subscription = null
let subscriptions = 0

void subscribe()
while (subscription === null) await sleep(20)
const failed = await work({ clients: 4, pauseMs: 0 }, async (client, number) => {
  const note = `${client}/${number}`
  const before = subscription
  const { add } = await ask('mutation ($note: String!) { add(note: $note) }', { note })
  if (!(add > 0)) throw new Error(`add: got ${add}`)
  acknowledged.push(note)
  await sleep(50)
  if (before !== null && before === subscription) owed.push(note)
})
await sleep(500)
const { notes: there } = await ask('{ notes }')
const known = new Set(there)
notes.push(`${subscriptions - 1} subscriptions ended`)
tell({
  done: acknowledged.length,
  lost: failed + owed.filter((note) => !heard.has(note)).length,
  doubled: there.length - known.size,
  missing: acknowledged.filter((note) => !known.has(note)).length,
})

async function ask(query, variables = {}) {
  const headers = { 'content-type': 'application/json', accept: 'application/json' }
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ query, variables }) })
  const { data, errors } = await response.json()
  if (errors !== undefined || data === undefined) throw new Error(JSON.stringify(errors))
  return data
}

async function subscribe() {
  for (;;) {
    try {
      const query = encodeURIComponent('subscription { added }')
      const response = await fetch(`${url}?query=${query}`, { headers: { accept: 'text/event-stream' } })
      subscription = ++subscriptions
      let text = ''
      for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
        text += chunk
        const events = text.split('\n\n')
        text = events.pop()
        for (const event of events) for (const [, note] of event.matchAll(/"added":"([^"]+)"/g)) heard.add(note)
      }
    } catch (error) {
      noteFailure(`subscription: ${error.message}`)
    }
    subscription = null
    await sleep(100)
  }
}
