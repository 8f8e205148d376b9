// @long
// Releases are rehearsed and installed while clients write 500 notes a second, in the cage that the installer makes: how each ends, and
// that every acknowledged note is in the live database or in a file that the operation or `state` names.
// test/systemd-rehearsal.test.ts tries each way without a writer.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { asideDirectory, snapshotDirectory } from '../agent/disk/places.ts'
import type { Operation, Outcome, StateCopy } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { bootWithFeed, eventsIn, type FeedHost, put } from './lab/managed.ts'
import { publishLedgers } from './lab/ledger.ts'
import { noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: rehearsal under a writer', { skip: noHosts, timeoutMs: 240_000 })
const STATE = '/var/lib/beacon'
const LIVE = `${STATE}/ledger.db`
const ROWS = 100_000
const RATE = 500

let host: FeedHost | null = null

interface Case {
  migration: string
  flags?: string[]
  code: number
  outcome: Outcome
  said: RegExp
  /** clients may lose what the failing process was answering */
  mayLose?: true
}

const OPEN = { code: 0, outcome: 'updated', said: /can be rolled back/ } as const

const CASES: Record<string, Case> = {
  'a column': {
    migration: 'database.exec("ALTER TABLE notes ADD COLUMN colour TEXT")',
    ...OPEN,
  },
  'an index': {
    migration: 'database.exec("CREATE INDEX IF NOT EXISTS by_text ON notes(text)")',
    ...OPEN,
  },
  'a migration of 20 s, in which clients would have to wait too long': {
    migration: 'return new Promise((resolve) => setTimeout(resolve, 20_000))',
    code: 7,
    outcome: 'failed',
    said: /clients would have to wait about \d{5} ms .*but `maxPause` allows 15s/,
  },
  'a migration of 4 s': {
    migration: 'return new Promise((resolve) => setTimeout(resolve, 4000))',
    ...OPEN,
  },
  'a table copied, which needs twice the space': {
    migration: 'database.exec("CREATE TABLE IF NOT EXISTS copies AS SELECT * FROM notes")',
    ...OPEN,
  },
  'a migration that fails half-way': {
    migration: 'database.exec("ALTER TABLE notes ADD COLUMN half TEXT"); throw new Error("half-way")',
    code: 5,
    outcome: 'failed',
    said: /fails on a copy of the data: .*half-way/,
  },
  'a migration that hangs': {
    migration: 'return new Promise((resolve) => setTimeout(resolve, 600_000))',
    code: 5,
    outcome: 'failed',
    said: /fails on a copy of the data: it was not healthy after/,
  },
  'a migration that fills the disk': {
    migration: `const fs = require('node:fs'), f = fs.openSync(state + '/big', 'w'), b = Buffer.alloc(8 << 20)
      for (;;) fs.writeSync(f, b)`,
    code: 7,
    outcome: 'failed',
    said: /trying v1\.1\.0 on a copy of the data would have filled the disk/,
  },
  'a migration that breaks a foreign key': {
    migration: `database.exec("PRAGMA foreign_keys = OFF; DELETE FROM authors WHERE id = 1; INSERT INTO authors VALUES (9, 'x')")`,
    code: 5,
    outcome: 'failed',
    said: /the number of rows that refer to missing rows has grown by/,
  },
  'rows dropped, and nobody allows it': {
    migration: 'database.exec("DELETE FROM notes WHERE id % 2 = 0")',
    code: 7,
    outcome: 'failed',
    said: /rows of notes would be lost/,
  },
  'rows dropped, and a person allows it': {
    migration: 'database.exec("DELETE FROM notes WHERE id % 2 = 0")',
    flags: ['--allow-irreversible'],
    code: 0,
    outcome: 'updated',
    said: /cannot be rolled back/,
  },
  'rows dropped, a person allows it, and the release dies': {
    migration: `database.exec('DELETE FROM notes WHERE id % 2 = 0')
      if (!about.isTrial) setTimeout(() => process.exit(9), 700)`,
    flags: ['--allow-irreversible'],
    code: 8,
    outcome: 'reverted',
    said: /v1\.0\.0/,
    mayLose: true,
  },
}

test.before(async () => {
  host = await bootWithFeed((out) => publishLedgers(out, ['v1.0.0', 'v1.1.0']))
  await host.install({ probation: '2s', quietTimeout: '500ms', trial: 'auto' })
  await host.sql(
    `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})
     INSERT INTO notes SELECT i, NULL, 'note ' || i FROM n; INSERT INTO authors VALUES (1, 'ada')`,
    LIVE,
  )
})
test.after(async () => await host?.off())

for (const [at, [what, { migration, flags = [], code, outcome, said, mayLose = false }]] of Object.entries(
  CASES,
).entries())
  test(`${what}: ${outcome}, and every acknowledged note is there`, async () => {
    const on = host ?? fail()
    await put(on, `${STATE}/migration.js`, migration)
    await on.sql(`PRAGMA user_version = ${at + 1}`, LIVE) // so that it is not known from before
    await using writer = await startWriter(on)
    const upgrade = ['beacon', 'upgrade', 'v1.1.0', '-y', ...flags, '--health-timeout', '60s']
    // a trial waits for a release that hangs for a minute, and longer where the copy took long
    const ended = await on.run(upgrade, { timeoutMs: 600_000 })
    is(ended.code, code, ended.stderr)
    match(ended.stderr + ended.stdout, said)
    if (outcome === 'updated') {
      await put(on, `${STATE}/migration.js`, '')
      const back = flags.length > 0 ? ['--restore-state'] : []
      const rolled = await on.cli('rollback', '-y', ...back)
      is(rolled.code, 0, rolled.stderr)
    }
    const { sent, lost, acknowledged } = await writer.end()
    ok(acknowledged.length > RATE, `expected more than ${RATE} notes, got ${acknowledged.length} of ${sent}`)
    if (!mayLose) equal(lost, {}, `of ${sent}`)
    const { instance, operation, history } = await on.status()
    is(instance.version, 'v1.0.0')
    if (outcome === 'failed') is(operation?.stage, 'verify') // nothing had changed
    ok([operation, ...history].slice(0, 3).some((one) => one?.outcome === outcome))
    equal(await missingIn(on, acknowledged, [operation, ...history]), [])
  })

test.run()

/** The notes that are neither in the live database nor in a file that an operation or `state` names. */
async function missingIn(on: FeedHost, acknowledged: readonly string[], operations: readonly (Operation | null)[]) {
  const copies = (eventsIn((await on.cli('state', '--json')).stdout).at(-1)?.['copies'] ?? []) as StateCopy[]
  const listed = copies.map(({ kind, name }) =>
    join(kind === 'aside' ? asideDirectory(STATE) : snapshotDirectory(STATE), name),
  )
  const named = operations.flatMap((one) =>
    one?.stateMoved === undefined ? [] : [one.stateMoved.restored, one.stateMoved.aside],
  )
  const there = new Set<string>()
  // what an earlier operation has restored may have made room since; sqlite3 would make an empty file of that name
  const isThere = async (path: string) => (await on.run(['test', '-e', path])).code === 0
  const kept = await Promise.all(named.map(async (path) => ((await isThere(path)) ? [path] : [])))
  for (const path of new Set([LIVE, ...kept.flat(), ...listed]))
    for (const text of (await on.sql("SELECT text FROM notes WHERE text LIKE 'w-%'", path)).split('\n')) there.add(text)
  return acknowledged.filter((text) => !there.has(text))
}

async function startWriter(on: FeedHost) {
  const [command = '', ...prefix] = await on.network()
  const { listen } = JSON.parse(await readFile(await on.path('/etc/beacon/config.json'), 'utf8')) as {
    listen: { port: number }
  }
  const file = join(tmpdir(), `baton-notes-${process.pid}`)
  const program = [...process.execArgv, join(import.meta.dirname, 'fixtures/note-writer.ts')]
  const args = [...prefix, process.execPath, ...program, String(listen.port), String(RATE), file]
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines: string[] = []
  createInterface({ input: child.stdout }).on('line', (line) => lines.push(line))
  const exited = once(child, 'exit')
  return {
    async end() {
      child.kill('SIGTERM')
      await exited
      const { sent, lost } = JSON.parse(lines.at(-1) ?? '') as { sent: number; lost: Record<string, number> }
      return { sent, lost, acknowledged: (await readFile(file, 'utf8')).trim().split('\n') }
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
      await exited
      await rm(file, { force: true })
    },
  }
}

function fail(): never {
  throw new Error('expected a host')
}
