// What an author's application is told while processes come and go, and what is told of a release that died.

import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { formatEvent, type LogEvent } from '../agent/log.ts'
import { lineOf } from '../agent/words/said.ts'
import type { Operation } from '../agent/words/state.ts'
import { equal, is, match, not } from './assert.ts'
import { journalOf, processesBelow, until } from './fixtures/evidence.ts'
import type { HookFault } from './fixtures/hooks.ts'
import { type Install, install } from './fixtures/install.ts'
import { programRelease, publishTo } from './fixtures/releases.ts'
import { suite } from './suite.ts'

const test = suite('hooks', { timeoutMs: 120_000 })
const PROGRAM = join(import.meta.dirname, 'fixtures/hooks.ts')

test('the old process is told that it goes on after a revert, each that leaves is told why, and a hook that throws stops none of it', async () => {
  await using world = await served()
  equal(await world.heard(), [])

  // everything was given away when the new one died: what was ended begins again
  const reverted = await world.update('dies-drained')
  is(reverted.outcome, 'reverted')
  equal(await world.heard(), ['v1.0.0 drain', 'v1.0.0 drain too', 'v1.0.0 drained', 'v1.0.0 resume'])
  match(
    reverted.error?.message ?? '',
    /failed during probation: it exited with code 5 after printing: .*Error: the disk has melted/,
  )

  // the new one cannot take over: this process has ended nothing
  is((await world.update('busy-listener')).outcome, 'reverted')
  equal(await world.heard(), ['v1.1.0 stop revert'])

  is((await world.update(null)).outcome, 'updated')
  await until('the old one to leave', () => processesBelow(world.home.home).length === 1)
  equal(await world.heard(), ['v1.0.0 drain', 'v1.0.0 drain too', 'v1.0.0 drained', 'v1.0.0 stop handover'])

  for (const pid of processesBelow(world.home.home)) process.kill(pid, 'SIGTERM')
  await until('it to stop', () => processesBelow(world.home.home).length === 0)
  equal(await world.heard(), ['v1.1.0 drain', 'v1.1.0 drain too', 'v1.1.0 drained', 'v1.1.0 stop stop'])
  // the work of one process: there, back as the new one dies, there again, and its end
  const jobs = (await world.home.output()).matchAll(/^job: (.*)$/gm).map(([, said]) => said ?? '')
  const passed = ['v1.0.0 end', 'v1.1.0 begin']
  equal([...jobs], ['v1.0.0 begin', ...passed, 'v1.0.0 begin', ...passed, 'v1.1.0 end'])
  match(await world.home.output(), /warning: the application's onDrain failed: a hook that fails/)
})

test('a release that wants a port which it does not get: the operation tells what it said last, fit for a terminal', async () => {
  await using world = await served()
  for (const [fault, code] of [
    ['busy-udp', 1],
    ['busy-said', 4],
  ] as const) {
    const { outcome, error } = await world.update(fault)
    is(outcome, 'reverted')
    const message = error?.message ?? ''
    match(message, new RegExp(`v1\\.1\\.0 did not take over: it exited with code ${code} `))
    match(message, ` after printing: Error: bind EADDRINUSE 127.0.0.1:${world.taken}`)
    not(/\p{Cc}/u.test(message), JSON.stringify(message))
    is((await journalOf(world.home)).history[0]?.error?.message, message)
  }
})

test('of what a release wrote the error is told, and not what stands before it; without an error, the last lines', () => {
  const noise = Array.from({ length: 9 }, (_, number) => `loading \u001B[31m${number}\u001B[0m`)
  const error = ["Error: Cannot find module 'x'", '    at load (a.js:1:1)', 'Require stack:', '- /a.js']
  is(lineOf([...noise, ...error, '', 'Node.js v26.1.0']), "Error: Cannot find module 'x' | Require stack: | - /a.js")
  const caused = ['TypeError [ERR_X]: no', '  [cause]: Error: refused']
  is(
    lineOf([...noise, 'Error: an old one', 'well again', ...caused]),
    'TypeError [ERR_X]: no | [cause]: Error: refused',
  )
  is(lineOf(noise.slice(-2)), 'loading 7 | loading 8')
  is(lineOf(['', '  at a.js']), null)
  const events: LogEvent[] = [
    { event: 'serving', tag: 'v1.2.0', listeners: ['127.0.0.1:8080'], managed: true, missing: [] },
    { event: 'listening', address: '127.0.0.1:8081' },
  ]
  const ours = [
    '2026-11-30T22:05:46.536Z baton: warning: updates are not signed: anyone who can',
    ...events.map((event) => `baton: ${formatEvent(event)}`),
  ]
  is(lineOf(ours), null, 'what Baton logs in every start is no reason')
})

test.run()

interface World extends AsyncDisposable {
  home: Install
  /** a port that somebody has, for TCP and for UDP */
  taken: number
  /** to v1.1.0, to its end */
  update(fault: HookFault | null): Promise<Operation>
  /** what the hooks were told since this was asked last */
  heard(): Promise<string[]>
}

async function served(): Promise<World> {
  const [from, to] = await Promise.all([programRelease('v1.0.0', PROGRAM), programRelease('v1.1.0', PROGRAM)])
  const home = await install({ release: from, update: { probation: '1500ms' } })
  await publishTo(join(home.home, 'no-feed'), [to])
  const taker = createServer()
  await once(taker.listen(0, '127.0.0.1'), 'listening')
  const taken = (taker.address() as { port: number }).port
  const second = createSocket('udp4')
  second.bind(taken, '127.0.0.1')
  await once(second, 'listening')
  await home.start({ TAKEN: String(taken), LOG: home.logPath })
  const fault = join(home.stateDirectory, 'fault')
  let told = 0
  return {
    home,
    taken,
    async update(name) {
      await (name === null ? rm(fault, { force: true }) : writeFile(fault, name))
      is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
      return await home.settled()
    },
    async heard() {
      const all = (await home.output()).split('\n').flatMap((line) => /^hook: (.*)$/.exec(line)?.[1] ?? [])
      const since = all.slice(told)
      told = all.length
      return since
    },
    async [Symbol.asyncDispose]() {
      await home[Symbol.asyncDispose]()
      taker.close()
      second.close()
    },
  }
}
