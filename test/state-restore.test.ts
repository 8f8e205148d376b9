// `state restore` and a start of the service at the same time: one of the two waits, or is refused. Real processes of a real release.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { DatabaseSync } from 'node:sqlite'
import { rowsBetween } from '../agent/disk/copy-database.ts'
import { markPath } from '../agent/disk/places.ts'
import { readMark } from '../agent/disk/state-mark.ts'
import type { Receipt } from '../agent/disk/receipt.ts'
import { freePort } from '../agent/update/started.ts'
import { restoreCopy } from '../deploy/host/service/state.ts'
import { equal, is, match, ok, rejects, withCode } from './assert.ts'
import { isStopped, until } from './fixtures/evidence.ts'
import { buildLedgers, fillLedger, unpackLedger } from './lab/ledger.ts'
import { isLong, suite } from './suite.ts'

const test = suite('state restore', { timeoutMs: 60_000 })
const COPY = 'ledger.db.v1.0.0.20261123T170510.900Z'
const [THEN, NOW] = [3, 50]
const ROUNDS_MIN = isLong ? 12 : 6
let home: string
let executable: string

test.before(async () => {
  home = await mkdtemp(join(tmpdir(), 'baton-restore-'))
  await mkdir(join(home, 'feed'))
  await buildLedgers(join(home, 'feed'), ['v1.0.0'])
  executable = join(home, 'ledger')
  await unpackLedger(join(home, 'feed'), 'v1.0.0', executable)
})
test.after(async () => await rm(home, { recursive: true, force: true }))

test('a start in the middle of an exchange waits until it has ended, and serves what was taken back', async () => {
  await using world = await makeWorld()
  const command = world.stoppedRestore()
  await until('the command to stop', () => isStopped(command.pid ?? 0))
  ok(!existsSync(world.database) && readMark(world.state)?.moving?.step === 'placing')
  const service = world.start()
  const early = await Promise.race([world.healthy().then(() => 'serves'), sleep(1500, 'waits')])
  equal([early, existsSync(world.database), service.exitCode], ['waits', false, null])
  command.kill('SIGCONT')
  equal(await once(command, 'exit'), [0, null])
  await world.healthy()
  equal([await world.write(), world.rows()], [THEN + 1, THEN + 1])
  const [aside = ''] = await readdir(join(world.state, 'update/aside'))
  is(rowsIn(join(world.state, 'update/aside', aside)), NOW)
})

test('a command that is killed in the middle keeps no start waiting: the start ends the exchange', async () => {
  await using world = await makeWorld()
  const command = world.stoppedRestore()
  await until('the command to stop', () => isStopped(command.pid ?? 0))
  command.kill('SIGKILL')
  await once(command, 'exit')
  world.start()
  await world.healthy()
  equal([await world.write(), world.rows()], [THEN + 1, THEN + 1])
})

test('a service that has begun, and has not opened its database yet, is seen: the command is refused and nothing has changed', async () => {
  await using world = await makeWorld()
  const sleeper = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)', 'serve', '--config', 'config.json'], {
    cwd: world.home,
    stdio: 'ignore',
  })
  try {
    await until('its words', async () => (await readFile(`/proc/${sleeper.pid}/cmdline`, 'utf8')).includes('--config'))
    const refused = await rejects(world.restore(), withCode('refused'))
    match(refused.message, `ledger must be stopped while its data is replaced, but it is running (pid ${sleeper.pid})`)
    ok(!existsSync(markPath(world.state)))
    is(world.rows(), NOW)
  } finally {
    sleeper.kill('SIGKILL')
    await once(sleeper, 'exit')
  }
})

test('somebody else who has the database open is named, and nothing has changed', async () => {
  await using world = await makeWorld()
  const script = `const { DatabaseSync } = require('node:sqlite'); const d = new DatabaseSync(process.argv[1]); d.exec('SELECT * FROM notes'); console.log('open'); setTimeout(() => {}, 60000)`
  const other = spawn(process.execPath, ['-e', script, world.database], { stdio: ['ignore', 'pipe', 'inherit'] })
  try {
    await once(other.stdout, 'data')
    const refused = await rejects(world.restore(), withCode('refused'))
    match(refused.message, 'the database cannot be replaced while ')
    match(refused.message, `(pid ${other.pid}) has ${world.database} open`)
    equal([existsSync(markPath(world.state)), world.rows()], [false, NOW])
  } finally {
    other.kill('SIGKILL')
    await once(other, 'exit')
  }
  await world.restore()
  is(world.rows(), THEN)
})

test('a copy of a newer release is said to be one, before anything is exchanged too', async () => {
  await using world = await makeWorld()
  const newer = COPY.replace('v1.0.0', 'v1.1.0')
  fillLedger(join(world.state, 'update/snapshots', newer), THEN)
  const warnings = [
    (await world.restore({ name: newer, dryRun: true })).warning,
    (await world.restore({ name: newer })).warning,
    (await world.restore()).warning,
  ]
  const said = `${newer} holds the data of v1.1.0, which v1.0.0 may not be able to read`
  equal(warnings, [said, said, null])
})

test('started at the same moment, again and again: one waits or is refused, and each acknowledged row is where it is said to be', async () => {
  const seen = { refused: 0, restored: 0 }
  // one that waits ever longer is late in the end, on any machine
  for (let round = 0; round < ROUNDS_MIN || seen.refused === 0 || seen.restored === 0; round++) {
    await using world = await makeWorld()
    const delays = [0, round * 50]
    const restore = async () => {
      await sleep(delays[round % 2] ?? 0)
      return await world.restore().catch((cause: unknown) => String(cause))
    }
    const service = async () => {
      await sleep(delays[1 - (round % 2)] ?? 0)
      world.start()
      await world.healthy()
      return await world.write()
    }
    const [restored, count] = await Promise.all([restore(), service()])
    const where = `round ${round}: ${JSON.stringify(restored)}`
    if (typeof restored === 'string') {
      seen.refused++
      match(restored, /ledger must be stopped|cannot be replaced while/, where)
      equal([count, world.rows()], [NOW + 1, NOW + 1], where)
    } else {
      seen.restored++
      equal([count, world.rows(), rowsIn(restored.aside ?? '')], [THEN + 1, THEN + 1, NOW], where)
    }
  }
})

test('rows that were added are counted; where a migration may have moved rows, nobody says how many', async () => {
  const [kept, aside] = [join(home, 'kept.db'), join(home, 'aside.db')]
  const change = (path: string, text: string) => {
    const database = new DatabaseSync(path)
    database.exec(text)
    database.close()
  }
  const between = () => rowsBetween(executable, { more: aside, than: kept })
  const tables = 'CREATE TABLE notes (text); CREATE TABLE pairs (id INTEGER PRIMARY KEY, text) WITHOUT ROWID;'
  change(kept, `${tables} INSERT INTO notes VALUES ('a')`)
  change(aside, `${tables} INSERT INTO notes VALUES ('a'), ('b'), ('c')`)
  is(await between(), 2)
  change(aside, "CREATE TABLE dishes (text); INSERT INTO dishes VALUES ('a')")
  is(await between(), null)
  change(aside, "DROP TABLE dishes; INSERT INTO pairs VALUES (1, 'a')")
  is(await between(), null)
})

test.run()

let worlds = 0

async function makeWorld() {
  const folder = join(home, `world-${++worlds}`)
  const [state, config, port] = [join(folder, 'state'), join(folder, 'config.json'), await freePort()]
  const database = join(state, 'ledger.db')
  await mkdir(join(state, 'update/snapshots'), { recursive: true })
  fillLedger(join(state, 'update/snapshots', COPY), THEN)
  fillLedger(database, NOW)
  const settings = {
    dashboard: { password: 'p'.repeat(32) },
    listen: { host: '127.0.0.1', port },
    stateDirectory: state,
  }
  await writeFile(config, JSON.stringify(settings))
  const receipt: Receipt = {
    format: 1,
    service: 'ledger',
    executable,
    scope: 'user',
    supervisor: 'none',
    user: 'test',
    stateDirectory: state,
    configPath: config,
    feed: folder,
    installedAt: '2026-11-21T08:00:00Z',
    options: {},
  }
  const children: ChildProcess[] = []
  const ask = (path: string, method = 'GET') => fetch(`http://127.0.0.1:${port}${path}`, { method })
  return {
    home: folder,
    state,
    database,
    restore: ({ name = COPY, dryRun = false } = {}) => restoreCopy({ receipt, name, dryRun }),
    /** A command that stops itself when the database was put aside, and nothing is in its place. */
    stoppedRestore(): ChildProcess {
      const module = join(import.meta.dirname, '../agent/disk/state-mark.ts')
      const words = [state, join(state, 'update/snapshots', COPY), database].map((word) => JSON.stringify(word))
      const script = `import { exchangeNow } from ${JSON.stringify(module)}
        let moved = 0
        const look = (what) => { if (what.startsWith('move') && ++moved === 2) process.kill(process.pid, 'SIGSTOP') }
        await exchangeNow(${words[0]}, ${words[1]}, { database: ${words[2]}, tag: 'v1.0.0', refuse: async () => {} }, look)`
      const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' })
      children.push(child)
      return child
    },
    start(): ChildProcess {
      const child = spawn(executable, ['serve', '--config', config], { stdio: 'ignore' })
      children.push(child)
      return child
    },
    async healthy(): Promise<void> {
      await until('the service to answer', async () => (await ask('/health').catch(() => null))?.ok === true)
    },
    /** Resolves to how many notes there are, with the one that it has written. */
    async write(): Promise<number> {
      const answer = await ask('/notes', 'POST')
      is(answer.status, 201)
      return ((await answer.json()) as { id: number }).id
    },
    rows: () => rowsIn(database),
    async [Symbol.asyncDispose]() {
      for (const child of children) {
        if (child.exitCode !== null || child.signalCode !== null) continue
        child.kill('SIGKILL')
        await once(child, 'exit')
      }
    },
  }
}

function rowsIn(path: string): number {
  const database = new DatabaseSync(path, { timeout: 5000 })
  try {
    is(database.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok', path)
    return Number(database.prepare('SELECT count(*) AS n FROM notes').get()?.['n'])
  } finally {
    database.close()
  }
}
