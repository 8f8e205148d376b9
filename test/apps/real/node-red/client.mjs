// Clients of Node-RED: one deploys a flow by the admin API (as the editor does) again and again, four call what the flow serves, without
// a second try, and one is connected to its `/comms` by WebSocket as the editor is. Until stdin ends; then one line of JSON.
// lost: requests without their right answer. doubled: not counted. missing: the last acknowledged deployment is not what is there.
// A request that ends with the process of the broken release, at most one of each client, is not lost but noted: docs/about/services.md says so.

import { setTimeout as sleep } from 'node:timers/promises'
import WebSocket from 'ws'
import { absences, notesOf } from './away.mjs'

const CLIENTS = 4
const { PORT, ADMIN = '/red', API = '/api' } = process.env
const url = `http://127.0.0.1:${PORT}`
const notes = []
const closed = []
const away = absences()
let [done, lost, deployed] = [0, 0, 0]
let died = 0
let broken = false
let working = true

await deploy(1)
for (const end = Date.now() + 10_000; (await fetch(`${url}${API}/hello`)).status !== 200 && Date.now() < end;)
  await sleep(100)
connect()
process.stdin.on('data', () => (broken = true)).once('end', () => (working = false))
await Promise.all([...Array.from({ length: CLIENTS }, call), redeploy()])
const flows = await (await fetch(`${url}${ADMIN}/flows`)).json()
const there = flows.find(({ type }) => type === 'tab')?.label
const missing = there === `version ${deployed}` ? 0 : 1
if (missing > 0) notes.push(`expected version ${deployed}, got ${there}`)
notes.push(`${died} requests ended with the broken release`, `comms closed with ${closed.join(', ')}`, ...notesOf(away))
process.stdout.write(`${JSON.stringify({ done, lost, doubled: 0, missing, notes })}\n`, () => process.exit())

async function call() {
  while (working) {
    await counted(async () => {
      const response = await fetch(`${url}${API}/hello`)
      const text = await response.text()
      if (response.status !== 200 || text !== 'hello') throw new Error(`/hello: ${response.status} ${text}`)
      process.stderr.write(done === 0 ? 'working\n' : '')
    })
    await sleep(30)
  }
}

/** Only the tab is changed: `nodes` deploys what has changed, and the flow goes on. */
async function redeploy() {
  while (working) {
    await counted(() => deploy(deployed + 1))
    await sleep(500)
  }
}

async function counted(act) {
  try {
    await act()
    done++
  } catch (error) {
    if (broken && died < CLIENTS + 1 && error.cause !== undefined) died++
    else lost++
    if (notes.length < 10) notes.push(`${error.message} ${error.cause?.code ?? error.cause?.message ?? ''}`)
  }
}

async function deploy(version) {
  const flow = [
    { id: 'tab', type: 'tab', label: `version ${version}` },
    { id: 'in', z: 'tab', type: 'http in', url: '/hello', method: 'get', wires: [['say']] },
    { id: 'say', z: 'tab', type: 'function', func: `msg.payload = 'hello'; return msg`, outputs: 1, wires: [['out']] },
    { id: 'out', z: 'tab', type: 'http response', wires: [] },
  ]
  const headers = { 'content-type': 'application/json', 'node-red-deployment-type': 'nodes' }
  const response = await fetch(`${url}${ADMIN}/flows`, { method: 'POST', headers, body: JSON.stringify(flow) })
  if (!response.ok) throw new Error(`deploying: ${response.status} ${await response.text()}`)
  deployed = version
}

function connect() {
  const ws = new WebSocket(`${url.replace('http', 'ws')}${ADMIN}/comms`)
  ws.on('error', ({ message }) => notes.push(message))
  ws.on('open', () => away.back('comms'))
  ws.on('close', (code) => {
    closed.push(code)
    away.left('comms')
    if (working) setTimeout(connect, 1000) // as the editor
  })
}
