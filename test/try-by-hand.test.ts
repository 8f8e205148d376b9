// `snapshot FILE --try NEW`: somebody replaces the file without an installer, and asks before anything is stopped.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { run } from '../deploy/lib/shell.ts'
import { freePort } from '../agent/update/started.ts'
import { equal, is, match, ok } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { buildLedgers, fillLedger, unpackLedger } from './lab/ledger.ts'
import { suite } from './suite.ts'

const test = suite('try by hand', { timeoutMs: 60_000 })
const walled = suite('try by hand: behind walls', {
  timeoutMs: 60_000,
  skip:
    spawnSync('unshare', ['--user', '--map-root-user', '--mount', '--net', '--pid', '--fork', 'true']).status === 0
      ? null
      : 'needs namespaces of a user, which the kernel does not give here',
})
let home: string
let state: string
let live: { port: number; child: ReturnType<typeof spawn> }
const at = (name: string) => join(home, name)

for (const one of [walled, test]) {
  one.before(begin)
  one.after(end)
}

walled('the way back is open: it says so, the copy is there, and the service has not noticed', async () => {
  const { exitCode, stdout } = await tried('database.exec("ALTER TABLE notes ADD COLUMN colour TEXT")')
  match(stdout, /^tried on a copy of your data \(103 rows\) in [\d.]+ s: can be rolled back$/m)
  is(exitCode, 0)
})

walled('no way back is 7, and a release that fails on the copy is 5', async () => {
  const drops = await tried('database.exec("DELETE FROM notes WHERE id = 7")')
  match(drops.stdout, 'cannot be rolled back: 1 row of notes would be lost')
  is(drops.exitCode, 7)
  const fails = await tried('throw new Error("no room for the index")')
  equal([fails.exitCode, /v1\.1\.0 fails on a copy of the data: .*no room/.test(fails.stderr)], [5, true], fails.stderr)
})

walled(
  'in it an absolute path of the data leads to the copy, and neither the live process nor its port is there',
  async () => {
    const { exitCode, stderr } = await tried(`
    const { existsSync, readdirSync, writeFileSync } = require('node:fs'), net = require('node:net'), through = []
    writeFileSync(${JSON.stringify(join(state, 'uploads'))}, 'moved')
    if (!existsSync(state + '/uploads')) through.push('the state directory')
    if (existsSync('/proc/${live.child.pid}/environ')) through.push('the live process')
    try { process.kill(${live.child.pid}, 0); through.push('a signal') } catch {}
    return new Promise((resolve) => {
      const socket = net.connect(${live.port}, '127.0.0.1', () => { through.push('the live port'); resolve() })
      socket.setTimeout(1500, resolve); socket.on('error', resolve)
    }).then(() => { throw new Error('through: ' + (through.join('; ') || 'none')) })`)
    match(stderr, 'through: none')
    is(exitCode, 5)
    ok(!(await readdir(state)).includes('uploads'))
  },
)

walled.run()

test('where the kernel allows no such walls it is not tried, and the copy is there all the same', async () => {
  await writeFile(at('unshare'), '#!/bin/sh\necho "unshare failed: Operation not permitted" >&2\nexit 1\n', {
    mode: 0o755,
  })
  const { exitCode, stdout } = await tried('', { PATH: `${home}:${process.env['PATH']}` })
  match(stdout, /^not tried on a copy of your data: .*unshare failed: Operation not permitted/m)
  is(exitCode, 0)
})

test('an executable of another service in the same folder is refused by name, and is not started', async () => {
  await writeFile(
    at('other'),
    `#!/bin/sh\n[ "$1" = --version ] && exec echo "shop v1.1.0"\ntouch '${at('started')}'\n`,
    {
      mode: 0o755,
    },
  )
  const { exitCode, stderr } = await tried('', {}, 'other')
  match(stderr, `error: ${at('other')} is an executable of shop, not of ledger`)
  is(exitCode, 5)
  ok(!(await readdir(home)).includes('started'))
})

test.run()

async function begin(): Promise<void> {
  home = await mkdtemp(join(tmpdir(), 'baton-by-hand-'))
  state = at('state')
  await mkdir(at('feed'))
  await mkdir(at('tmp'))
  await mkdir(state)
  await buildLedgers(at('feed'), ['v1.0.0', 'v1.1.0'])
  for (const tag of ['v1.0.0', 'v1.1.0']) await unpackLedger(at('feed'), tag, at(tag))
  fillLedger(join(state, 'ledger.db'), 100)
  const port = await freePort()
  const settings = { dashboard: { password: 'p'.repeat(32) }, listen: { host: '127.0.0.1', port } }
  await writeFile(at('config.json'), JSON.stringify({ ...settings, stateDirectory: state }))
  live = { port, child: spawn(at('v1.0.0'), ['serve', '--config', at('config.json')], { stdio: 'ignore' }) }
  await until(
    'the service',
    async () => (await fetch(`http://127.0.0.1:${port}/health`).catch(() => null))?.ok === true,
  )
}
async function end(): Promise<void> {
  live.child.kill('SIGKILL')
  await once(live.child, 'exit')
  await rm(home, { recursive: true, force: true })
}

/** Everything that holds for each of them is looked at here. */
async function tried(migration: string, more: NodeJS.ProcessEnv = {}, candidate = 'v1.1.0') {
  await writeFile(join(state, 'migration.js'), migration)
  const copy = at('before.db')
  await rm(copy, { force: true })
  const names = await readdir(state)
  const words = [at('v1.0.0'), 'snapshot', copy, '--try', at(candidate), '--config', at('config.json')]
  const env = { ...process.env, TMPDIR: at('tmp'), ...more }
  const ended = await run(words, { allowFailure: true, timeoutMs: 60_000, env })
  equal(await readdir(state), names)
  equal(await readdir(at('tmp')), [], 'what was tried on is gone')
  for (const path of [copy, join(state, 'ledger.db')]) {
    const database = new DatabaseSync(path, { readOnly: true })
    is(database.prepare('SELECT count(*) AS n FROM notes').get()?.['n'], 100)
    database.close()
  }
  is((await fetch(`http://127.0.0.1:${live.port}/health`)).status, 200)
  return ended
}
