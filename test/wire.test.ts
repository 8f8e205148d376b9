// Releases whose kits differ in age: the first version of the wire is kept, and what speaks none of the versions is refused before the swap.
// Real processes: the executable that was kept, and today's.

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import { whyNoSwitch } from '../agent/update/other-wire.ts'
import { runVersion } from '../agent/update/version.ts'
import { GATE_MARK } from '../agent/handover/container-gate.ts'
import { KILLED_FOR_MEMORY_ONCE } from '../agent/words/blame.ts'
import { NOT_ARRIVED, WIRES } from '../agent/words/wire.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { journalOf } from './fixtures/evidence.ts'
import { type Install, install } from './fixtures/install.ts'
import { programRelease, publishTo, releases, type TestRelease, textRelease, unpack } from './fixtures/releases.ts'
import { KEPT_TAG, keptPath } from './fixtures/wire/make.ts'
import { bootWithFeed } from './lab/managed.ts'
import { noHosts } from './lab/systemd.ts'
import { startLoad } from './lab/load.ts'
import { WebSocket } from './lab/ws.ts'
import { suite } from './suite.ts'

const test = suite('wire', { timeoutMs: 120_000 })
const onHost = suite('wire: a host', { skip: noHosts, timeoutMs: 240_000 })
const APP = join(import.meta.dirname, 'fixtures/wire/app.ts')
const KINDS = ['stop-first', 'start-first']
const WORD = 'BATON_SAY_WIRES'
/** where app.ts reads its words, in a text that is kept */
const ARGUMENTS = /=""\]=process\.argv\.slice\(2\)/

test('two releases switch if they speak one version of the wire, and this kit still speaks every version that is kept', async () => {
  is(whyNoSwitch([1], [1]), null)
  is(whyNoSwitch([1, 2], [2, 3]), null)
  is(whyNoSwitch([1], [2, 3]), 'supports different switch protocol versions (2, 3) than the running release (1)')
  is(whyNoSwitch([1], []), 'supports different switch protocol versions (none) than the running release (1)')
  match(whyNoSwitch([1], null) ?? '', /^was built with an older version of Baton/)
  for (const wire of WIRES) ok((await readFile(keptPath(wire))).length > 100_000, `version ${wire} is kept`)
})

test('what this kit looks for in the words of another release is what every kept one says', async () => {
  for (const wire of WIRES) {
    const program = brotliDecompressSync(await readFile(keptPath(wire))).toString()
    for (const word of [NOT_ARRIVED, KILLED_FOR_MEMORY_ONCE]) ok(program.includes(word), `${wire}: ${word}`)
  }
  is(GATE_MARK, 'the command that replaces the old container is gone') // in executables that no kept one is of
})

for (const wire of WIRES)
  for (const kind of KINDS) {
    const register = kind === 'stop-first' ? test : test.long
    register(
      `wire ${wire}, ${kind}: today's executable takes over from the one that is kept, and gives back to it; nobody loses anything`,
      async () => {
        await using it = await serving(await kept(wire, 'v1.0.0'), await programRelease('v1.1.0', APP), kind)
        const { home, port } = it
        equal((await runVersion(home.executable)).wires, [wire])
        const loads = (['fresh', 'keepalive'] as const).map((mode) =>
          startLoad({ mode, clients: 4, port, path: '/', thinkMs: 20 }),
        )
        const socket = new WebSocket(`ws://127.0.0.1:${port}/`)
        await once(socket, 'open')
        let isClosed = false
        socket.on('close', () => (isClosed = true))
        const said = async () => {
          socket.send('here')
          return String((await once(socket, 'message'))[0])
        }
        is(await said(), 'v1.0.0 here')
        for (const [path, tag, outcome] of [
          ['/admin/update', 'v1.1.0', 'updated'],
          ['/admin/update/rollback', 'v1.0.0', 'rolled_back'],
          ['/admin/update', 'v1.1.0', 'updated'],
        ] as const) {
          const done = await it.carryOut(path, tag)
          equal([done.outcome, done.error, done.handover?.cut], [outcome, null, 0])
          is(await said(), `${tag} here`)
        }
        const totals = await Promise.all(loads.map((load) => load.stop()))
        equal(
          totals.map(({ lost, closed }) => [lost, closed]),
          [
            [0, 0],
            [0, 0],
          ],
          JSON.stringify(totals),
        )
        is(isClosed, false)
        socket.terminate()
      },
    )
  }

test('a release that does not say what it speaks is refused for a switch, by name and with the way, in both directions', async () => {
  const older = await kept(1, 'v1.1.0', WORD)
  const today = await programRelease('v1.0.0', APP)
  await using it = await serving(today, older, 'stop-first')
  const before = (await it.status()).instance.id
  const refused = await it.carryOut('/admin/update', 'v1.1.0')
  equal([refused.outcome, refused.error?.code, refused.stage], ['failed', 'refused', 'verify'])
  match(
    refused.error?.message ?? '',
    /^v1\.1\.0 cannot take over from v1\.0\.0 without stopping the service: v1\.1\.0 was built with an older version of Baton/,
  )
  match(refused.error?.hint ?? '', /`\w+ stop`, then `\w+ upgrade v1\.1\.0`, which starts the service again/)
  equal([(await it.status()).instance.id, (await journalOf(it.home)).bad], [before, []])
})

test('a rollback to a release that does not say it is refused too, and the service goes on', async () => {
  // as if an update of a stopped service had brought today's release
  const [older, today] = [await kept(1, 'v1.0.0', WORD), await programRelease('v1.1.0', APP)]
  await using it = await serving(today, older, 'stop-first')
  await unpack(older, it.home.backup)
  const refused = await it.carryOut('/admin/update/rollback', 'v1.0.0')
  equal([refused.outcome, refused.error?.code], ['failed', 'refused'])
  match(refused.error?.message ?? '', /^v1\.0\.0 cannot take over from v1\.1\.0 without stopping the service/)
  match(refused.error?.hint ?? '', /`\w+ stop`, then `\w+ rollback`/)
  const { instance, state } = await it.status()
  equal([instance.version, state], ['v1.1.0', 'idle'])
})

test.run()

onHost.long(
  'the stopped way, by the command: a dry run refuses as the service does; stopped, both directions go',
  async () => {
    await using host = await bootWithFeed(async (out) => {
      await publishTo(out, [...(await releases([{ tag: 'v1.0.0' }])), await kept(1, 'v1.1.0', WORD)])
    })
    await host.install()
    const refuses = async (to: string, ...words: string[]) => {
      const { code, stderr } = await host.cli(...words)
      is(code, 7, stderr)
      match(
        stderr,
        new RegExp(
          `${to} cannot take over from \\S+ without stopping the service: ${to} was built with an older version of Baton`,
        ),
      )
      match(stderr, new RegExp(`beacon stop\`, then \`beacon ${words[0]}`))
    }
    const goes = async (...words: string[]) => {
      const { code, stderr } = await host.cli(...words)
      is(code, 0, stderr)
    }
    await refuses('v1.1.0', 'upgrade', 'v1.1.0', '--dry-run', '--trial')
    await refuses('v1.1.0', 'upgrade', 'v1.1.0')
    await goes('stop')
    await goes('upgrade', 'v1.1.0', '-y')
    is((await host.status()).instance.version, 'v1.1.0')
    await goes('stop')
    await goes('rollback', '-y')
    is((await host.status()).instance.version, 'v1.0.0')
    await refuses('v1.1.0', 'rollback', '--dry-run')
  },
)
onHost.run()

/** What is kept for a version of the wire, with this tag. `without`: a word that it then does not know. */
async function kept(wire: number, tag: string, without?: string): Promise<TestRelease> {
  const text = brotliDecompressSync(await readFile(keptPath(wire))).toString()
  ok(text.includes(KEPT_TAG) && text.includes(WORD) && ARGUMENTS.test(text))
  const said = text.replaceAll(KEPT_TAG, tag).replaceAll(without ?? KEPT_TAG, 'BATON_SAID_NOTHING')
  // a unit starts it with `serve` before the words that it knows
  return await textRelease(tag, said.replace(ARGUMENTS, '$&.filter((one) => one !== "serve")'))
}

interface Serving extends AsyncDisposable {
  home: Install
  port: number
  status(): Promise<Status>
  /** asks for an operation, and resolves when it has ended */
  carryOut(path: string, tag: string): Promise<Operation>
}

async function serving(first: TestRelease, next: TestRelease, kind: string): Promise<Serving> {
  const update = { quietTimeout: '1s', probation: '500ms', maxPause: '1m', drainTimeout: '2s' }
  const home = await install({ release: first, update })
  await publishTo(home.receipt.feed, [first, next])
  await home.start({ WIRE_SWITCH: kind === 'start-first' ? 'together' : '' }) // the word of the executable that is kept
  return {
    home,
    port: home.port ?? 0,
    status: async () => (await home.api('GET', '/admin/update/status')).body as Status,
    async carryOut(path, tag) {
      const answer = await home.api('POST', path, path.endsWith('update') ? { tag } : undefined)
      is(answer.status, 202, JSON.stringify(answer.body))
      return await home.settled(60_000) // the kept one knows no `probation` with a unit: its own is 30 s
    },
    [Symbol.asyncDispose]: () => home[Symbol.asyncDispose](),
  }
}
