// @long @deadlineMs 600000
// A foreign program beside an exchange of the database: a cron job that writes, a shell that dies and leaves a log or a hot journal, a
// replicator that stays. It comes between any two changes of the exchange, while that runs and after it was killed there. No row that was
// acknowledged is lost, and no database has the log of another. In CI some of the changes, in `npm run soak -- --long` each.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { tagOfCopy } from '../agent/disk/copies.ts'
import { copySet } from '../agent/disk/database-set.ts'
import { exchangeNow, ownState, readMark, type StateMark } from '../agent/disk/state-mark.ts'
import { equal, is, ok, throws } from './assert.ts'
import { isLong, suite } from './suite.ts'

const test = suite('state: a foreign program', { timeoutMs: 580_000 })
const [OLD, NEW] = ['v1.0.0', 'v1.1.0']
/** in CI, of so many changes one; which one differs with the case */
const EVERY = isLong ? 1 : 11
const MODULE = JSON.stringify(join(import.meta.dirname, '../agent/disk/state-mark.ts'))
let home: string

test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-state-foreign-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

/** What it does with the database `d`; it tells each row that it has written by `row()`. */
const FOREIGN = {
  'a cron job that writes': `d.exec('CREATE TABLE IF NOT EXISTS t(x)'); row(); d.close()`,
  'a shell that dies with its log': `d.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE IF NOT EXISTS t(x)'); row(); die()`,
  'a shell that dies and leaves a hot journal': `d.exec('PRAGMA journal_mode = DELETE; CREATE TABLE IF NOT EXISTS t(x)'); row()
    d.exec('PRAGMA cache_size = 2; PRAGMA cache_spill = ON; BEGIN; UPDATE t SET x = x || hex(randomblob(2000))'); die()`,
}
/** What the database has when the exchange begins: rows in its log alone, or a hot journal beside it. */
const BEGINS = {
  'with a log': 'a shell that dies with its log',
  'with a hot journal': 'a shell that dies and leaves a hot journal',
} as const
/** the exchanges, as calls with `state`, `copy` and `look` */
const EXCHANGES = {
  'a revert': `ownState(state, '${OLD}', look)`,
  '`state restore`': `await exchangeNow(state, copy, { database, tag: '${NEW}', refuse: async () => {} }, look)`,
}

let turn = 0
for (const [how, exchange] of Object.entries(EXCHANGES))
  for (const [begins, first] of Object.entries(BEGINS))
    for (const [what, foreign] of Object.entries(FOREIGN)) {
      const at = turn++
      test(`${how} of a database ${begins}, killed at each change, and ${what} before the next start`, async () => {
        for (let dieAt = 1 + (at % EVERY), killed = true; killed; dieAt += EVERY) {
          const world = await makeWorld(FOREIGN[first])
          killed = world.killedAt(exchange, dieAt)
          if (killed) world.foreign(foreign)
          await world.goOn(exchange, `change ${dieAt}`)
        }
      })
      test(`${how} of a database ${begins}, and ${what} between two changes`, async () => {
        for (let comesAt = 1 + (at % EVERY), came = true; came; comesAt += EVERY) {
          const world = await makeWorld(FOREIGN[first])
          let changes = 0
          const look = () => void (++changes === comesAt && world.foreign(foreign))
          if (how === 'a revert') ownState(world.state, OLD, look)
          else await world.restore(look)
          came = changes >= comesAt
          await world.holds(`change ${comesAt}`)
        }
      })
    }

for (const [how, exchange] of Object.entries(EXCHANGES))
  test(`${how}, killed at each change, and a replicator that stays: what it writes later is in the set that it has open`, async () => {
    for (let dieAt = 1, killed = true; killed; dieAt += Math.ceil(EVERY / 2)) {
      const world = await makeWorld(FOREIGN['a shell that dies with its log'])
      killed = world.killedAt(exchange, dieAt)
      await using staying = await world.staying(
        `d.exec('CREATE TABLE IF NOT EXISTS t(x)'); row(); d.prepare('SELECT count(*) FROM t').get()`,
      )
      await world.goOn(exchange, `change ${dieAt}`)
      world.add('of the service')
      await staying.goOn()
      world.add('of the service, later')
      await world.holds(`change ${dieAt}, later`)
    }
  })

test('a foreign transaction with a rollback journal is waited for: what it commits is put aside with the rest', async () => {
  for (const how of Object.values(EXCHANGES)) {
    const world = await makeWorld(
      `d.exec('PRAGMA journal_mode = DELETE; CREATE TABLE IF NOT EXISTS t(x)'); row(); d.close()`,
    )
    await using writing = await world.staying(
      `d.exec('PRAGMA cache_size = 2; PRAGMA cache_spill = ON; BEGIN IMMEDIATE; INSERT INTO t SELECT hex(randomblob(5000)) FROM t')`,
      `setTimeout(() => { row(() => d.exec('COMMIT')); d.close() }, 500)`,
    )
    await world.goOn(how, 'a transaction')
    await writing.goOn()
    await world.holds('a transaction, later')
    ok(world.acknowledged.length > 43)
  }
})

test('a database that was put in place by hand after a kill: nothing is moved until it is away, and then each row is there', async () => {
  for (let more = 0, isBetween = true; isBetween; more++) {
    const world = await makeWorld(FOREIGN['a shell that dies with its log'])
    let dieAt = 0
    while (existsSync(world.database)) ok(world.killedAt(EXCHANGES['a revert'], ++dieAt))
    isBetween = more === 0 || world.killedAt(EXCHANGES['a revert'], more)
    if (!isBetween || existsSync(world.database)) return
    await rm(world.database) // the link that shuts it
    await writeFile(world.database, 'restored by hand')
    throws(
      () => ownState(world.state, OLD),
      /an interrupted replacement of the database left .*: move one of them away/,
    )
    is(await readFile(world.database, 'utf8'), 'restored by hand')
    await rm(world.database)
    await world.goOn(EXCHANGES['a revert'], `by hand, ${more}`)
  }
})

test('a copy that is made for the old release while somebody writes is made again: no log of another moment is beside it', async () => {
  for (const foreign of Object.values(FOREIGN)) {
    for (let comesAt = 1, came = true; came; comesAt++) {
      const world = await makeWorld(FOREIGN['a shell that dies with its log'], { owner: OLD, next: NEW, other: null })
      let changes = 0
      ownState(
        world.state,
        NEW,
        (what) => void (what.startsWith('copy') && ++changes === comesAt && world.foreign(foreign)),
      )
      came = changes >= comesAt
      const owed = world.acknowledged.slice(2) // without the rows of another copy
      world.add('of the next release')
      const copy = readMark(world.state)?.other?.path ?? ''
      const rows = rowsOf(copy)
      equal(
        owed.filter((row) => !rows.includes(row)),
        [],
        `change ${comesAt}`,
      )
    }
  }
})

test('somebody who never stops to write: no copy is taken for one', async () => {
  const world = await makeWorld(FOREIGN['a cron job that writes'])
  const to = join(world.state, 'never')
  throws(() => copySet(world.database, to, () => world.write(world.database, 'again')), /expected no process to write/)
  equal(
    (await readdir(world.state)).filter((name) => name.startsWith('never')),
    [],
  )
})

for (const elsewhere of isLong && existsSync('/dev/shm') ? ['/dev/shm'] : [])
  test('the database is linked into the state directory, from another file system', async () => {
    for (const foreign of Object.values(FOREIGN)) {
      const folder = await mkdtemp(join(elsewhere, 'baton-foreign-'))
      try {
        for (let dieAt = 1, killed = true; killed; dieAt++) {
          const world = await makeWorld(
            FOREIGN['a shell that dies with its log'],
            {},
            join(folder, `real-${dieAt}/ledger.db`),
          )
          killed = world.killedAt(EXCHANGES['a revert'], dieAt)
          if (killed) world.foreign(foreign)
          await world.goOn(EXCHANGES['a revert'], `change ${dieAt}`)
        }
      } finally {
        await rm(folder, { recursive: true, force: true })
      }
    }
  })

test.run()

let worlds = 0

/** The state of NEW, to be exchanged for a copy of OLD. `begins`: what has written to it last. */
async function makeWorld(begins: string, more: Partial<StateMark> = {}, file: string | null = null) {
  const state = join(home, `world-${++worlds}`)
  const [database, copy] = [
    file ?? join(state, 'ledger.db'),
    join(state, 'update/snapshots', `ledger.db.${OLD}.20261123T170510.900Z`),
  ]
  await mkdir(join(state, 'update/snapshots'), { recursive: true })
  await mkdir(dirname(database), { recursive: true })
  if (file !== null) await symlink(file, join(state, 'ledger.db'))
  await writeFile(join(state, 'update/journal.json'), JSON.stringify({ operation: { id: 'op', outcome: null } }))
  const acknowledged: string[] = []
  const own = Array.from({ length: 40 }, (_, i) => `row ${i}: ${'x'.repeat(1000)}`)
  const [then, added] = [['then', 'and then'], [] as string[]]
  const write = (path: string, ...rows: string[]) => {
    insert(path, rows)
    acknowledged.push(...rows)
  }
  const program = (body: string, path = database) => {
    const row = `const row = (act) => { const x = 'foreign ' + process.pid + ' ' + n++; act ? (d.prepare('INSERT INTO t VALUES (?)').run(x), act()) : d.prepare('INSERT INTO t VALUES (?)').run(x); require('node:fs').writeSync(1, x + '\\n') }`
    return `const { DatabaseSync } = require('node:sqlite'); let n = 0; const d = new DatabaseSync(${JSON.stringify(path)}, { timeout: 5000 }); ${row}; const die = () => process.kill(process.pid, 'SIGKILL'); ${body}`
  }
  /** It may be refused: then it has told no row. */
  const foreign = (body: string) => {
    const { stdout } = spawnSync(process.execPath, ['-e', program(body)], { encoding: 'utf8' })
    acknowledged.push(...stdout.split('\n').filter((line) => line !== ''))
  }
  write(copy, ...then)
  write(database, ...own)
  foreign(begins)
  const mark: StateMark = {
    operationId: 'op',
    database,
    owner: NEW,
    next: null,
    other: { tag: OLD, path: copy },
    exchanged: null,
    moving: null,
    ...more,
  }
  await writeFile(join(state, 'update/state.json'), JSON.stringify(mark))
  const restore = async (look?: () => void) => {
    const by = { database, tag: NEW, refuse: () => Promise.resolve() }
    await exchangeNow(state, copy, by, look)
  }
  const world = {
    state,
    database,
    acknowledged,
    foreign,
    write,
    restore,
    /** The service writes to what it has now. */
    add(row: string): void {
      write(database, row)
      added.push(row)
    },
    /** Whether the exchange was killed: it is before its change `at`, counted from 1. */
    killedAt(call: string, at: number): boolean {
      const words = [state, copy, database].map((word) => JSON.stringify(word))
      const script = `import { ownState, exchangeNow } from ${MODULE}; const [state, copy, database] = [${words.join()}]; let n = 0
        const look = () => { if (++n === ${at}) process.kill(process.pid, 'SIGKILL') }; ${call}`
      const { signal, status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        encoding: 'utf8',
      })
      ok(signal === 'SIGKILL' || status === 0, stderr)
      return signal === 'SIGKILL'
    },
    /** The next start, or the next command. */
    async goOn(call: string, where: string): Promise<void> {
      if (call === EXCHANGES['a revert']) ownState(state, OLD)
      else if (readMark(state) !== null) await restore()
      await world.holds(where)
    },
    /** A foreign program that stays. `later`: what it does when it is told to go on; it may be refused. */
    async staying(
      body: string,
      later = `process.stdin.once('data', () => { try { row(); d.close() } finally { process.exit() } })`,
    ) {
      const child = spawn(
        process.execPath,
        ['-e', `${program(body)}; require('node:fs').writeSync(1, '\\n'); ${later}`],
        {
          stdio: ['pipe', 'pipe', 'ignore'],
        },
      )
      let said = ''
      child.stdout.setEncoding('utf8').on('data', (text: string) => void (said += text))
      await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
      return {
        async goOn(): Promise<void> {
          child.stdin.on('error', () => {}).end('go on')
          if (!child.stdout.closed) await once(child.stdout, 'close')
          acknowledged.push(...said.split('\n').filter((line) => line !== ''))
        },
        async [Symbol.asyncDispose](): Promise<void> {
          child.kill('SIGKILL')
          if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
        },
      }
    },
    /** Each acknowledged row is in the live database or in one that is listed, each of these is whole, and the live one is the copy's. */
    async holds(where: string): Promise<void> {
      const live = rowsOf(database)
      equal(
        [...then, ...added].filter((row) => !live.includes(row)),
        [],
        where,
      )
      equal(
        live.filter((row) => own.includes(row)),
        [],
        `${where}: rows of what was put aside`,
      )
      const all = new Set([...live, ...(await setsIn(state)).flatMap(rowsOf)])
      equal(
        acknowledged.filter((row) => !all.has(row)),
        [],
        where,
      )
    },
  }
  return world
}

function insert(path: string, rows: string[]): void {
  const database = new DatabaseSync(path, { timeout: 5000 })
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t(x)')
  const one = database.prepare('INSERT INTO t VALUES (?)')
  for (const row of rows) one.run(row)
  database.close()
}

/** The databases that `state list` shows. */
async function setsIn(state: string): Promise<string[]> {
  const found = ['aside', 'snapshots'].map(async (name) => {
    const folder = join(state, 'update', name)
    const names = await readdir(folder).catch(() => [])
    return names.filter((one) => tagOfCopy(one, 'ledger.db') !== null).map((one) => join(folder, one))
  })
  return (await Promise.all(found)).flat()
}

/** As a copy of the set would give them, as far as it is closed: it is whole. */
function rowsOf(path: string): string[] {
  ok(existsSync(path), `expected a database at ${path}`)
  const database = new DatabaseSync(path, { timeout: 5000 })
  try {
    is(database.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok', path)
    return database
      .prepare('SELECT x FROM t')
      .all()
      .map(({ x }) => String(x))
  } finally {
    database.close()
  }
}
