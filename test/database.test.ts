// The application's database, under a driver with a copy of SQLite of its own: whatever is done about updates, its locks stay its
// own. A lock that is gone is told by nobody: another process writes beside an open transaction, and what was committed is not there.

import { spawn, spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Status, VersionReport } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { ask, type Install, install } from './fixtures/install.ts'
import { programRelease, publishTo } from './fixtures/releases.ts'
import { openersIn } from './lab/strace.ts'
import { suite } from './suite.ts'

const isHere = (command: string) => spawnSync(command, ['-version']).error === undefined
const problem =
  process.platform !== 'linux' || process.getuid?.() !== 0
    ? 'needs Linux and root, to look at the calls of a process'
    : isHere('strace') && isHere('sqlite3')
      ? null
      : 'needs strace and sqlite3'
const test = suite('database', { skip: problem, timeoutMs: 90_000 })
const APPLICATION = join(import.meta.dirname, 'fixtures/other-sqlite.ts')
const BUSY = 5
const built =
  problem === null ? Promise.all(['v1.0.0', 'v1.1.0', 'v1.2.0'].map((tag) => programRelease(tag, APPLICATION))) : null

for (const mode of ['delete', 'wal']) {
  const register = mode === 'wal' ? test : test.long
  register(
    `a transaction of the application keeps others out and is committed, over a check and a reverted update (${mode})`,
    async () => {
      await using home = await started(mode)
      await hold(home)
      const report = (await home.api('POST', '/admin/update/check')).body as VersionReport
      equal(report.database, { name: 'beacon.db', schema: 7 })
      is((await home.api('GET', '/admin/update/status')).status, 200)
      is(writeBeside(home), BUSY, 'after the check')
      is((await home.api('POST', '/admin/update', { tag: 'v1.2.0' })).status, 202)
      is((await home.settled()).outcome, 'reverted')
      is(writeBeside(home), BUSY, 'after the update')
      equal(await sql(home, 'commit'), 0)
      is(writeBeside(home), 0)
      equal(rowsOf(home.database), ['before', 'held', 'beside'])
      const [snapshot = ''] = readdirSync(join(home.stateDirectory, 'update/snapshots'))
      equal(rowsOf(join(home.stateDirectory, 'update/snapshots', snapshot)), ['before'])
    },
  )

  register(
    `no process that serves opens the database but its application: check, status, update and rollback under strace (${mode})`,
    async () => {
      await using home = await started(mode)
      const files = ['', '-wal', '-shm'].map((end) => `${home.database}${end}`)
      await using traced = await trace(home)
      for (const operation of ['update', 'update/rollback'] as const) {
        is((await home.api('POST', '/admin/update/check')).status, 200)
        is((await home.api('GET', '/admin/update/status')).status, 200)
        is((await home.api('POST', `/admin/${operation}`, operation === 'update' ? { tag: 'v1.1.0' } : {})).status, 202)
        match((await home.settled()).outcome ?? '', /^updated$|^rolled_back$/)
        is(await sql(home, `insert into rows values ('${operation}')`), 0)
      }
      const processes = openersIn(await traced.ended(), files)
      const [asked, serving] = [true, false].map((is) =>
        processes.filter(({ argv }) => argv.includes('--version') === is),
      )
      // the first one opened it before anybody looked; each successor does it once
      const byApplication = (mode === 'wal' ? files : files.slice(0, 1)).map(
        (path) => `${path} O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC`,
      )
      equal(
        (serving ?? []).filter(({ argv }) => argv.includes('--config') || argv === '').map(({ opened }) => opened),
        [[], byApplication, byApplication],
      )
      ok(
        (asked ?? []).some(({ opened }) => opened.length > 0),
        'the trace shows who does open it',
      )
    },
  )
}

test('an executable that was put there by hand and cannot copy the database: no update, no schema, and no look by the service itself', async () => {
  await using home = await started('wal')
  const stranger = `${home.executable}.by-hand`
  await writeFile(stranger, '#!/bin/sh\necho "beacon v1.0.0"\n', { mode: 0o755 })
  await rename(stranger, home.executable)
  await hold(home)
  const report = (await home.api('POST', '/admin/update/check')).body as VersionReport
  equal(report.database, { name: 'beacon.db', schema: null })
  is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
  const failed = await home.settled()
  equal([failed.outcome, failed.error?.code, failed.stage], ['failed', 'swap_failed', 'swap'])
  match(failed.error?.message ?? '', /does not know how to copy the database/)
  is(writeBeside(home), BUSY)
  equal(await sql(home, 'commit'), 0)
})

test.run()

async function started(mode: string): Promise<Install> {
  const [v100, v110, v120] = (await built) ?? []
  if (v100 === undefined || v110 === undefined || v120 === undefined) throw new Error('expected three releases')
  const home = await install({ release: v100, update: { probation: '400ms', drainTimeout: '400ms' } })
  try {
    await publishTo(join(home.home, 'no-feed'), [v100, v110, v120])
    await home.start()
    is(await sql(home, `pragma journal_mode = ${mode}; pragma user_version = 7; create table rows (text)`), 0)
    is(await sql(home, `insert into rows values ('before')`), 0)
    return home
  } catch (error) {
    await home[Symbol.asyncDispose]()
    throw error
  }
}

/** SQLite's result code, in the service. */
async function sql(home: Install, text: string): Promise<number> {
  return Number((await ask(home.port ?? 0, 'POST', '/', null, text)).body)
}

/** A transaction that stays open, and keeps another process out. */
async function hold(home: Install): Promise<void> {
  is(await sql(home, `begin immediate; insert into rows values ('held')`), 0)
  is(writeBeside(home), BUSY)
}

/** By another process: its exit code is SQLite's. */
function writeBeside({ database }: Install): number | null {
  return spawnSync('sqlite3', ['-bail', database, "insert into rows values ('beside')"]).status
}

function rowsOf(database: string): string[] {
  const { stdout } = spawnSync('sqlite3', [database, 'select text from rows; pragma integrity_check'])
  const lines = stdout.toString().trim().split('\n')
  is(lines.pop(), 'ok')
  return lines
}

/** Of the service and everything that it starts, from now on. */
async function trace(home: Install) {
  const [{ instance }] = [(await home.api('GET', '/admin/update/status')).body as Status]
  const path = join(home.home, 'trace')
  const calls = 'trace=openat,execve,clone,clone3,fork,vfork'
  const strace = spawn('strace', ['-f', '-s', '4096', '-e', calls, '-o', path, '-p', String(instance.pid)], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const gone = new Promise<void>((resolve) => strace.once('close', () => resolve()))
  let said = ''
  strace.stderr.setEncoding('utf8').on('data', (text: string) => (said += text))
  await until('strace', () => said.includes('attached'))
  const ended = async () => {
    strace.kill('SIGINT')
    await gone
    const text = await readFile(path, 'utf8')
    await rm(path)
    return text
  }
  return {
    ended,
    [Symbol.asyncDispose]: async () => void (strace.exitCode === null && (strace.kill('SIGINT'), await gone)),
  }
}
