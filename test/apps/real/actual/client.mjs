// Clients of Actual. Two devices by its own @actual-app/api, each in a process of its own: one enters transactions and syncs after each,
// the other syncs and sees them. Four more speak the sync protocol by HTTP, without a second try: a message in protobuf, and now and then a
// budget file up and down again, and a login. Each has an address of its own, because the server allows 500 requests a minute to one.
// Until stdin ends; then all is read once more, and one line of JSON is printed.
// lost: requests and syncs without their right answer. doubled: transactions or messages that are there twice, or that the server's own
// merkle tree has counted twice. missing: acknowledged transactions, messages and files that are not there.
// A request that ends with the process of the broken release, at most one of each client, is not lost but noted: docs/about/services.md says so.

import { fork } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import * as actual from '@actual-app/api'
import * as crdt from '@actual-app/crdt'

const CLIENTS = 4
const DEVICES = 2
const DAY = '2026-01-02'
const PASSWORD = 'a test'
const port = Number(process.env.PORT)
const url = `http://127.0.0.1:${port}`
const notes = []
let [done, lost, died, entered] = [0, 0, 0, 0]
let broken = false
let working = true

console.log = console.info = console.debug = () => {} // stdout is for the one line
await (process.argv[2] === undefined ? main() : read(process.argv[2]))

async function main() {
  const first = clientAt('127.0.0.1')
  await askJson(first, 'POST', '/account/bootstrap', { password: PASSWORD })
  const home = await mkdtemp(join(tmpdir(), 'baton-actual-'))
  await actual.init({ dataDir: home, serverURL: url, password: PASSWORD })
  let account
  await actual.runImport('House', async () => (account = await actual.createAccount({ name: 'Cash' })))
  const [{ groupId }] = await actual.getBudgets()
  const reader = fork(import.meta.filename, [groupId])
  await once(reader, 'message')
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, (_, index) => begin(clientAt(`127.0.0.${index + 11}`))),
  )
  process.stdin.on('data', () => (broken = true)).once('end', () => (working = false))
  await Promise.all([enter(account), ...clients.map(work)])

  await actual.sync()
  reader.send(entered)
  const [seen] = await once(reader, 'message')
  const counts = await Promise.all(clients.map(look))
  const sum = (key) => counts.reduce((all, one) => all + one[key], 0)
  const known = new Set(seen.rows)
  const unseen = Array.from({ length: entered }, (_, index) => String(index + 1)).filter((row) => !known.has(row))
  lost += seen.lost
  died += seen.died
  notes.push(...seen.notes, `${entered} transactions`, `${died} requests ended with the broken release`)
  const total = {
    done: done + entered,
    lost,
    doubled: seen.rows.length - known.size + sum('doubled'),
    missing: unseen.length + sum('missing'),
    notes,
  }
  await actual.shutdown()
  await rm(home, { recursive: true, force: true })
  process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())
}

/** The device that writes. What it has entered is its own, and goes along with a later sync: a device works without its server too. */
async function enter(account) {
  while (working) {
    const row = String(entered + 1)
    await actual.addTransactions(account, [{ date: DAY, amount: -100, notes: row, imported_id: row }])
    entered++
    await counted(() => actual.sync(), DEVICES - 1)
    if (entered === 1) process.stderr.write('working\n')
    await sleep(500)
  }
}

/** The device that reads, in a process of its own. Told how many rows there are, it syncs once more and sends what it has. */
async function read(groupId) {
  let told = null
  process.once('message', (rows) => (told = rows))
  process.on('disconnect', () => process.exit())
  const home = await mkdtemp(join(tmpdir(), 'baton-actual-'))
  await actual.init({ dataDir: home, serverURL: url, password: PASSWORD })
  await actual.downloadBudget(groupId)
  process.send('ready')
  // it is not told of the broken release: at most one sync may end with that
  broken = true
  while (told === null) {
    await counted(() => actual.sync(), DEVICES - 1)
    await sleep(500)
  }
  await actual.sync()
  const [{ id }] = await actual.getAccounts()
  const rows = (await actual.getTransactions(id, DAY, DAY)).map((row) => row.notes)
  await actual.shutdown()
  await rm(home, { recursive: true, force: true })
  process.send({ rows, lost, died, notes }, () => process.exit())
}

/** Logs in, and uploads a budget file of its own. */
async function begin(client) {
  await login(client)
  await upload(client)
  return client
}

async function work(client) {
  for (let number = 1; working; number++) {
    await counted(() => send(client, `${client.node}/${number}`))
    if (number % 5 === 0) await counted(() => thereAndBack(client))
    if (number % 20 === 0) await counted(() => login(client))
    await sleep(150)
  }
}

async function counted(act, most = CLIENTS + DEVICES - 1) {
  try {
    await act()
    done++
  } catch (error) {
    const isCut = error.code !== undefined || /network-failure|fetch failed/.test(`${error.message} ${error.reason}`)
    if (broken && died < most && isCut) died++
    else lost++
    if (notes.length < 10) notes.push(`${error.message} ${error.code ?? error.reason ?? ''}`)
  }
}

/** One message of its own; the answer has all that the server knows since the last one. */
async function send(client, value) {
  const timestamp = new crdt.Timestamp(Date.now(), 0, client.node).toString()
  const message = crdt.create(crdt.MessageSchema, { dataset: 'notes', row: value, column: 'note', value: `S:${value}` })
  const content = crdt.toBinary(crdt.MessageSchema, message)
  const envelope = crdt.create(crdt.MessageEnvelopeSchema, { timestamp, isEncrypted: false, content })
  await sync(client, [envelope], client.since)
  client.acknowledged.push(value)
  client.since = timestamp
}

async function sync({ agent, token, fileId, groupId }, messages, since) {
  const body = crdt.toBinary(
    crdt.SyncRequestSchema,
    crdt.create(crdt.SyncRequestSchema, { messages, fileId, groupId, since }),
  )
  const answer = await ask(agent, 'POST', '/sync/sync', Buffer.from(body), {
    'content-type': 'application/actual-sync',
    'x-actual-token': token,
  })
  return crdt.fromBinary(crdt.SyncResponseSchema, answer)
}

async function login(client) {
  const { data } = await askJson(client, 'POST', '/account/login', { loginMethod: 'password', password: PASSWORD })
  client.token = data.token
}

async function upload(client) {
  const file = randomBytes(20_000)
  const { agent, token, fileId, groupId, node } = client
  const answer = await ask(agent, 'POST', '/sync/upload-user-file', file, {
    'content-type': 'application/encrypted-file',
    'x-actual-token': token,
    'x-actual-file-id': fileId,
    'x-actual-name': node,
    'x-actual-format': '2',
    ...(groupId === null ? {} : { 'x-actual-group-id': groupId }),
  })
  client.groupId = JSON.parse(answer).groupId
  client.file = file
}

async function download({ agent, token, fileId }) {
  return await ask(agent, 'GET', '/sync/download-user-file', null, {
    'x-actual-token': token,
    'x-actual-file-id': fileId,
  })
}

async function thereAndBack(client) {
  await upload(client)
  if (!client.file.equals(await download(client))) throw new Error('another file came back')
}

/** What the server has of a client in the end, by its messages, by its merkle tree of them, and by the file. */
async function look(client) {
  const { messages, merkle } = await sync(client, [], crdt.Timestamp.zero.toString())
  const values = messages.map(({ content }) => crdt.fromBinary(crdt.MessageSchema, content).row)
  const known = new Set(values)
  const tree = messages.reduce(
    (trie, { timestamp }) => crdt.merkle.insert(trie, crdt.Timestamp.parse(timestamp)),
    crdt.merkle.emptyTrie(),
  )
  const isCountedTwice = JSON.parse(merkle).hash !== tree.hash
  const missing = client.acknowledged.filter((value) => !known.has(value)).length
  const isOther = !client.file.equals(await download(client))
  return { doubled: values.length - known.size + Number(isCountedTwice), missing: missing + Number(isOther) }
}

function clientAt(localAddress) {
  const node = randomBytes(8).toString('hex').toUpperCase()
  return {
    agent: new Agent({ keepAlive: true, maxSockets: 1, localAddress }),
    node,
    fileId: randomUUID(),
    groupId: null,
    token: null,
    /** the last file whose upload was acknowledged */
    file: null,
    acknowledged: [],
    since: crdt.Timestamp.zero.toString(),
  }
}

async function askJson({ agent }, method, path, body) {
  const answer = await ask(agent, method, path, JSON.stringify(body), { 'content-type': 'application/json' })
  return JSON.parse(answer)
}

/** The body of a good answer. */
async function ask(agent, method, path, body, headers) {
  return await new Promise((resolve, reject) => {
    const call = request({ agent, host: '127.0.0.1', port, method, path, headers })
    call.on('error', reject)
    call.on('response', (response) => {
      const chunks = []
      response.on('error', reject)
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('end', () => {
        const text = Buffer.concat(chunks)
        if (response.statusCode === 200) resolve(text)
        else reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`))
      })
    })
    call.end(body)
  })
}
