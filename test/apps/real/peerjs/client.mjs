// Two peers that signal through PeerServer by WebSocket as the PeerJS client does: an id by HTTP, OPEN, OFFER and ANSWER, HEARTBEAT;
// and `reconnect()` under the same id when their connection ends. Until stdin ends; then one line of JSON.
// lost: offers that were not answered in 10 s, though both connections were open all that time (the server acknowledges nothing, so an
// offer of a connection that ends is offered again). doubled: offers that arrived more often than they were sent. missing: peers that are
// not there under their id at the end.

import { setTimeout as sleep } from 'node:timers/promises'
import WebSocket from 'ws'

const HEARTBEAT_MS = 5000
const ANSWER_MS = 10_000
const host = `127.0.0.1:${process.env.PORT}`
const notes = []
let ended = 0
let changedAt = 0
let working = true

const [caller, callee] = [await startPeer(), await startPeer()]
/** number -> how often it was sent, and came */
const offers = new Map()
const answered = new Map()
callee.heard = ({ type, src, payload }) => {
  if (type !== 'OFFER') return
  offers.get(payload).came++
  callee.send({ type: 'ANSWER', dst: src, payload })
}
caller.heard = ({ type, payload }) => type === 'ANSWER' && answered.get(payload)?.()
process.stdin.resume().once('end', () => (working = false))

let [done, lost] = [0, 0]
for (let number = 1; working; number++) {
  if ((await offer(number)) === 'lost') lost++
  else done++
  if (number === 1) process.stderr.write('working\n')
  await sleep(20)
}
const missing = (await offer(0)) === 'lost' ? 1 : 0
const doubled = [...offers.values()].filter(({ sent, came }) => came > sent).length
notes.push(`${ended} connections ended`)
process.stdout.write(`${JSON.stringify({ done, lost, doubled, missing, notes })}\n`, () => process.exit())

/** Offers until it is answered; again only if a connection ended before. */
async function offer(number) {
  const one = { sent: 0, came: 0 }
  offers.set(number, one)
  const answer = new Promise((resolve) => answered.set(number, () => resolve('answered')))
  for (;;) {
    await Promise.all([caller.open, callee.open])
    const before = ended
    one.sent++
    caller.send({ type: 'OFFER', dst: callee.id, payload: number })
    const changed = (async () => {
      for (const end = Date.now() + ANSWER_MS; Date.now() < end; await sleep(10)) if (ended !== before) return 'ended'
      return 'lost'
    })()
    const how = await Promise.race([answer, changed])
    if (how === 'lost') {
      const since = Date.now() - changedAt - ANSWER_MS
      notes.push(
        `offer ${number}, sent ${one.sent} times, came ${one.came} times; made ${since} ms after a connection had changed`,
      )
    }
    if (how !== 'ended') return how
  }
}

async function startPeer() {
  const id = await (await fetch(`http://${host}/peerjs/id`)).text()
  const token = Math.random().toString(36).slice(2)
  const peer = { id, heard: () => {}, open: null, send: null }
  const connect = () => {
    const opened = Promise.withResolvers()
    peer.open = opened.promise
    const ws = new WebSocket(`ws://${host}/peerjs?key=peerjs&id=${id}&token=${token}&version=1.5.5`)
    const heart = setInterval(() => ws.readyState === WebSocket.OPEN && peer.send({ type: 'HEARTBEAT' }), HEARTBEAT_MS)
    peer.send = (message) => ws.readyState === WebSocket.OPEN && ws.send(JSON.stringify(message))
    ws.on('message', (data) => {
      const message = JSON.parse(data)
      if (message.type === 'OPEN') {
        changedAt = Date.now()
        opened.resolve()
      } else peer.heard(message)
    })
    ws.on('error', ({ message }) => notes.push(message))
    ws.on('close', (code) => {
      clearInterval(heart)
      ended++
      changedAt = Date.now()
      if (code !== 1012) notes.push(`closed with ${code}`)
      connect()
      void peer.open.then(opened.resolve)
    })
  }
  connect()
  await peer.open
  return peer
}
