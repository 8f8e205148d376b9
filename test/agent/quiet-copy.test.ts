// A copy of a database while its application writes: the application's rows are not refused, and the copy holds no part of a
// transaction. Each transaction here puts the same number into two tables that lie far apart in the file.

import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { copyBetweenWrites, copyHere, schemaInHeader } from '../../agent/disk/quiet-copy.ts'
import { run } from '../../deploy/lib/shell.ts'
import { equal, is, match, not, ok } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('quiet-copy', { timeoutMs: 60_000 })
const ORDERS = new URL('../../agent/disk/quiet-copy.ts', import.meta.url)
const DOCTOR = new URL('../../deploy/host/doctor/database.ts', import.meta.url)
const COPIES = 12
const [WRITE_EVERY_MS, FILLING] = [50, 4000]

for (const mode of ['delete', 'truncate', 'persist', 'memory', 'wal']) {
  test(`an application without a busy timeout is refused no row while its database is copied, and each copy is whole (${mode})`, async () => {
    await using place = await databaseIn(mode)
    const { path, database } = place
    let [written, refused] = [0, 0]
    const write = () => {
      try {
        database.exec(
          `begin immediate; insert into first values (${written + 1}); insert into last values (${written + 1}); commit`,
        )
        written++
      } catch {
        refused++
        if (database.isTransaction) database.exec('rollback')
      }
    }
    const timer = setInterval(write, WRITE_EVERY_MS)
    try {
      // on a fast machine twelve copies are made while few rows are written
      for (let number = 0; number < COPIES || written <= COPIES; number++) {
        const [to, before] = [`${path}.${number}`, written]
        await writeFile(to, '', { mode: 0o600 })
        await copyOutside(path, to)
        const { first, last, check } = wholeIn(to)
        equal([check, last], ['ok', first])
        ok(first >= before, `${first} of at least ${before} rows`)
        is((await stat(to)).mode & 0o777, 0o600)
      }
    } finally {
      clearInterval(timer)
    }
    is(refused, 0)
  })
}

test('a transaction that has written to the file already is waited for, and SQLite decides', async () => {
  await using place = await databaseIn('delete')
  const { path, database } = place
  const to = `${path}.copy`
  await writeFile(to, '')
  database.exec('pragma user_version = 7')
  is(await schemaInHeader(path), 7)
  database.exec('pragma cache_size = 5; begin')
  for (let number = 0; number < 2000; number++) database.exec(`insert into last values (${number})`)
  await sleep(50)
  not(await copyBetweenWrites(path, to))
  is((await stat(to)).size, 0)
  is(await schemaInHeader(path), null)
  database.exec('commit')
  await copyHere(path, to)
  is(wholeIn(to).last, 2000)
})

test('a writer that leaves no moment is kept out by SQLite for the time of the copy', async () => {
  await using place = await databaseIn('delete')
  const { path, database } = place
  const to = `${path}.copy`
  await writeFile(to, '')
  database.exec('pragma busy_timeout = 5000; pragma synchronous = off')
  const timer = setInterval(() => database.exec('insert into first values (1)'), 1)
  await copyOutside(path, to)
  clearInterval(timer)
  is(wholeIn(to).check, 'ok')
})

test('the doctor looks through a database that rests, and keeps out no writer', async () => {
  await using place = await databaseIn('delete')
  const { path, database } = place
  const [finding] = await examineOutside(path)
  equal([finding?.level, finding?.message], ['ok', path])
  let [written, refused] = [0, 0]
  const timer = setInterval(() => {
    try {
      database.exec('insert into first values (1)')
      written++
    } catch {
      refused++
    }
  }, 20)
  const said = JSON.stringify(await examineOutside(path))
  clearInterval(timer)
  match(said, /was not checked: it uses a rollback journal/)
  ok(written > 0)
  is(refused, 0)
})

test('the doctor names another database beside it, which does not go back with it', async () => {
  await using made = await databaseIn('wal')
  is((await examineOutside(made.path))[0]?.message, made.path)
  const other = new DatabaseSync(join(dirname(made.path), 'sessions.db'))
  other.exec('create table t(x)')
  other.close()
  match(
    JSON.stringify(await examineOutside(made.path)),
    /a\.db; other databases in its folder are not restored with it: sessions\.db/,
  )
})

test.run()

// ---- parts

async function examineOutside(path: string): Promise<{ level: string; message: string }[]> {
  const subject = { receipt: { service: 'a', stateDirectory: dirname(path) } }
  const script = `const { checkDatabase } = await import(${JSON.stringify(DOCTOR.href)})
  console.log(JSON.stringify(await checkDatabase(${JSON.stringify(subject)})))`
  const { stdout } = await run([process.execPath, ...process.execArgv, '--input-type=module', '-e', script])
  return JSON.parse(stdout) as { level: string; message: string }[]
}

async function databaseIn(mode: string) {
  const folder = await mkdtemp(join(tmpdir(), 'baton-copy-'))
  const path = join(folder, 'a.db')
  const database = new DatabaseSync(path)
  database.exec(
    `pragma journal_mode = ${mode}; create table first (v); create table filling (v); create table last (v)`,
  )
  database.exec('begin')
  for (let number = 0; number < FILLING; number++)
    database.prepare('insert into filling values (?)').run('x'.repeat(400))
  database.exec('commit')
  return {
    path,
    database,
    async [Symbol.asyncDispose]() {
      database.close()
      await rm(folder, { recursive: true })
    },
  }
}

/** In another process, as an update does it. */
async function copyOutside(from: string, to: string): Promise<void> {
  const script = `(await import(${JSON.stringify(ORDERS.href)})).copyHere(...process.argv.slice(1))`
  await run([process.execPath, ...process.execArgv, '--input-type=module', '-e', script, from, to])
}

function wholeIn(path: string): { check: unknown; first: number; last: number } {
  const copy = new DatabaseSync(path, { readOnly: true })
  try {
    const count = (table: string) => Number(copy.prepare(`select count(*) as n from ${table}`).get()?.['n'])
    const check = copy.prepare('pragma integrity_check').get()?.['integrity_check']
    return { check, first: count('first'), last: count('last') }
  } finally {
    copy.close()
  }
}
