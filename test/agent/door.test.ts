// Sockets that are held while no process lives: who is started with them answers what has waited in their queue. With a real
// service manager it is in test/systemd-door.test.ts.

import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { heldSockets, nameOf, startWith } from '../../agent/handover/door.ts'
import { bind, closeListener, makeListener, stopAccepting } from '../../agent/handover/listeners.ts'
import { equal, is, match, ok } from '../assert.ts'
import { ask } from '../fixtures/install.ts'
import { suite } from '../suite.ts'

const test = suite('door', { timeoutMs: 60_000 })
const PROGRAM = fileURLToPath(new URL('../fixtures/held.ts', import.meta.url))

test('what waits in the queue while nobody accepts is answered by the process that is started with the sockets', async () => {
  const server = createServer((_request, response) => response.end('first'))
  const listener = makeListener({ server, port: 0 })
  await bind(listener, { server, port: 0 })
  const port = Number(listener.address.split(':')[1])
  stopAccepting(listener)
  const waiting = ask(port, 'GET', '/', null)
  const pid = await startWith({ file: process.execPath, args: [...process.execArgv, PROGRAM] }, [listener])
  ok(pid > 0)
  closeListener(listener)
  const { body } = await waiting
  const expected = { key: listener.key, held: 1, again: 0, left: [] }
  equal(JSON.parse(body as string), expected, 'found once, and nothing of it is left for children')
  equal(JSON.parse((await ask(port, 'GET', '/end', null)).body as string), expected)
})

test('sockets that are meant for another process are not taken, nor those without a name of ours', () => {
  const environment = { LISTEN_PID: '1', LISTEN_FDS: '1', LISTEN_FDNAMES: nameOf('127.0.0.1:1') }
  is(heldSockets(environment).size, 0)
  equal(Object.keys(environment), [])
})

test('a name is what systemd takes: visible ASCII without a colon', () => {
  for (const key of ['127.0.0.1:8080', '[::1]:80', '/run/ä b:c.sock']) match(nameOf(key), /^baton-[!-9;-~]{1,249}$/)
})

test.run()
