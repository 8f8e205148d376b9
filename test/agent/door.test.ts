// Sockets that are held while no process lives: who is started with them answers what has waited in their queue. With a real
// service manager it is in test/systemd-door.test.ts.

import { createServer } from 'node:http'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { spares, startWith } from '../../agent/sockets/start-with.ts'
import { heldSockets } from '../../agent/sockets/store.ts'
import { storedNameOf } from '../../agent/sockets/stored-names.ts'
import { openDescriptorStore } from '../../agent/sockets/descriptor-store.ts'
import { bind, closeListener, type Listener, makeListener, stopAccepting } from '../../agent/sockets/listeners.ts'
import { isAlive } from '../../agent/sockets/process.ts'
import { equal, is, match, ok, rejects } from '../assert.ts'
import { until } from '../fixtures/evidence.ts'
import { ask, freePort } from '../fixtures/install.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

const test = suite('door', { timeoutMs: 60_000 })
const PROGRAM = fileURLToPath(new URL('../fixtures/held.ts', import.meta.url))

const command = (...args: string[]) => ({ file: process.execPath, args: [...process.execArgv, PROGRAM, ...args] })

test('what waits in the queue while nobody accepts is answered by the process that is started with the sockets', async () => {
  const { listener, port } = await silent()
  const waiting = ask(port, 'GET', '/', null)
  const pid = await startWith(command(), spares([listener]))
  ok(pid > 0)
  closeListener(listener)
  const { body } = await waiting
  const expected = { key: listener.key, held: 1, again: 0, left: [] }
  equal(JSON.parse(body as string), expected, 'found once, and nothing of it is left for children')
  equal(JSON.parse((await ask(port, 'GET', '/end', null)).body as string), expected)
})

test('a supervision that keeps the sockets gives them to one process after the other; when it lets go clients are refused', async () => {
  await using made = await temporary('door')
  const folder = made.path
  using keeper = openDescriptorStore(join(folder, 'notify'))
  const { listener, port } = await silent()
  const first = await startWith(command(), spares([listener]), { env: { NOTIFY_SOCKET: keeper.path } })
  await until('its socket', () => keeper.held().length === 1)
  is(keeper.isReady(), true)
  is(keeper.isReady(), false, 'said once')
  closeListener(listener)
  is((await ask(port, 'GET', '/', null)).status, 200)
  await killed(first)
  const waiting = ask(port, 'GET', '/', null)
  const second = await startWith(command(), keeper.held(), { env: { NOTIFY_SOCKET: keeper.path } })
  is((await waiting).status, 200, 'it waited for the next process')
  await until('its word', () => keeper.isReady())
  equal(
    keeper.held().map(({ name }) => name),
    [storedNameOf(listener.key)],
  )
  await killed(second)
  keeper.letGo()
  await rejects(ask(port, 'GET', '/', null), /ECONNREFUSED/)
})

test('an application that would take inherited sockets for its own does not see them, and gets them by the port that it asks for', async () => {
  const { listener, port } = await silent(await freePort())
  const waiting = ask(port, 'GET', '/', null)
  const program = fileURLToPath(new URL('../fixtures/held-auto.ts', import.meta.url))
  const pid = await startWith(
    { file: process.execPath, args: [...process.execArgv, program, String(port)] },
    spares([listener]),
  )
  closeListener(listener)
  equal(JSON.parse((await waiting).body as string), [])
  await ask(port, 'GET', '/end', null)
  await until('it to be gone', () => !isAlive(pid, null))
})

test('a start that takes too long refuses those who wait', async () => {
  const { listener, port } = await silent()
  const waiting = ask(port, 'GET', '/', null)
  const pid = await startWith(command('300'), spares([listener]))
  closeListener(listener)
  await rejects(waiting, /ECONNRESET|socket hang up/)
  await rejects(ask(port, 'GET', '/', null), /ECONNREFUSED/)
  await killed(pid)
})

test('sockets that are meant for another process are not taken, nor those without a name of ours', () => {
  const environment = { LISTEN_PID: '1', LISTEN_FDS: '1', LISTEN_FDNAMES: storedNameOf('127.0.0.1:1') }
  is(heldSockets(environment).size, 0)
  equal(Object.keys(environment), [])
})

test('a name is what systemd takes: visible ASCII without a colon', () => {
  for (const key of ['127.0.0.1:8080', '[::1]:80', '/run/ä b:c.sock'])
    match(storedNameOf(key), /^baton-[!-9;-~]{1,249}$/)
})

test.run()

/** A listener whose connections wait. */
async function silent(wanted = 0): Promise<{ listener: Listener; port: number }> {
  const server = createServer()
  const spec = { server, port: wanted, host: '127.0.0.1' }
  const listener = makeListener(spec)
  await bind(listener, spec)
  stopAccepting(listener)
  return { listener, port: Number(listener.address.split(':')[1]) }
}

async function killed(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL')
  await until('it to be gone', () => !isAlive(pid, null))
}
