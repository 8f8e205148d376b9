// Data that are not in SQLite: a real PostgreSQL and a real MariaDB are copied before a switch while rows are written, and taken back.

import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { zstdDecompressSync } from 'node:zlib'
import { REHEARSAL_REPORT, REHEARSAL_REQUEST } from '../agent/update/rehearsal/ask-cage.ts'
import { judge } from '../agent/update/rehearsal/judge.ts'
import { readReportOf } from '../agent/update/rehearsal/report.ts'
import type { StateCopy } from '../agent/words/state.ts'
import { scratchOf } from '../agent/words/snapshot.ts'
import { assetName } from '../deploy/make/release-folder.ts'
import { equal, is, match, ok } from './assert.ts'
import { type Stranger, stranger } from './fixtures/stranger.ts'
import { databaseServer, type DatabaseServer, type Kind, lacks } from './lab/database-server.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const run = promisify(execFile)

/** A service that keeps its rows in a server: POST /N adds the row N. */
const shop = ({ client }: DatabaseServer) => `
import { execFileSync } from 'node:child_process'
import { createServer } from 'node:http'
const [file, ...args] = ${JSON.stringify(client)}.map((word) => (word === 'shop' && process.env.SHOP_DATABASE) || word)
const sql = (statement) => execFileSync(file, [...args, statement], { encoding: 'utf8' }).trim()
sql('CREATE TABLE IF NOT EXISTS notes (n INT PRIMARY KEY)')
createServer((request, response) => {
  if (request.method === 'POST') sql('INSERT INTO notes (n) VALUES (' + (request.url === '/now' ? Date.now() % 2e9 : Number(request.url.slice(1))) + ')')
  response.end(request.url === '/healthz' ? 'TAG' : 'TAG ' + process.pid)
}).listen(process.env.PORT)
`

for (const kind of ['postgresql', 'mariadb'] satisfies Kind[]) {
  const test = suite(kind, { timeoutMs: 120_000, skip: lacks(kind) })
  let server: DatabaseServer // to make one takes seconds of processor
  const made = new AsyncDisposableStack() // empty if every test of the kind is of the night
  test.before(async () => void (server = made.use(await databaseServer(kind))))
  test.after(async () => await made.disposeAsync())

  const another = kind === 'postgresql' ? test : test.long
  another(
    `an update copies the data while rows are written, names the file, and \`state restore\` takes them back`,
    async () => {
      const { environment, snapshot } = server
      await using it = await stranger({ text: shop(server), config: { snapshot }, environment })
      await it.release('v1.1.0', shop(server))
      const written: number[] = []
      let goesOn = true
      const load = (async () => {
        for (let n = 0; goesOn; n++) {
          const { status } = await it.ask('POST', `/${n}`)
          if (status === 200) written.push(n)
          await sleep(20) // each row starts a client of the server
        }
      })()
      await sleep(500)
      const before = written.length
      const { outcome, error, copies = [] } = await it.operate('/admin/update', { tag: 'v1.1.0' })
      goesOn = false
      await load
      equal([outcome, error, copies.length], ['updated', null, 1])
      const [{ name = '', bytes = 0, ms = 0 } = {}] = copies
      ok(name.startsWith('dump.v1.0.0.') && bytes > 500 && ms > 0, JSON.stringify(copies))
      const file = join(it.home.stateDirectory, 'update/snapshots', name)
      equal(readdirSync(join(it.home.stateDirectory, 'update/snapshots')), [name])
      if (kind === 'postgresql')
        match(execFileSync('pg_restore', ['--list', file], { encoding: 'utf8' }), /TABLE DATA public notes/)
      is(Number(await server.sql('SELECT count(*) FROM notes')), written.length)

      const env = { ...process.env, ...environment, BATON_NODE: process.execPath }
      const command = async (...words: string[]) => {
        const { stdout } = await run(it.home.executable, [...words, '--json'], { env }).catch((cause: Error) => {
          throw new Error(`${words.join(' ')}: ${JSON.stringify(cause)}`)
        })
        return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as {
          copies: StateCopy[]
          aside: string
          outcome: string
        }
      }
      const status = JSON.parse((await it.ask('GET', '/admin/update/status')).text) as { copies: StateCopy[] }
      equal(
        status.copies.map((copy) => [copy.name, copy.of, copy.bytes]),
        [[name, 'dump', bytes]],
      )
      equal(
        (await command('state', 'list')).copies.map((copy) => copy.name),
        [name],
      )
      const running = spawnSync(it.home.executable, ['state', 'restore', name], { env, encoding: 'utf8' })
      is(running.status, 7, running.stderr)
      await stop(it)
      const { aside, outcome: restored } = await command('state', 'restore', name)
      is(restored, 'restored')
      const rows = Number(await server.sql('SELECT count(*) FROM notes'))
      ok(rows >= before && rows <= written.length, `${before} <= ${rows} <= ${written.length}`)
      is(await server.sql('SELECT max(n) FROM notes'), String(rows - 1), 'no row is missing in the middle')
      await command('state', 'restore', aside.split('/').at(-1) ?? '')
      is(Number(await server.sql('SELECT count(*) FROM notes')), written.length, 'and what was there is not lost')
    },
  )

  // which server it is makes no difference to the trial
  const register = kind === 'postgresql' ? test : test.long
  register(
    'the trial runs on a scratch database: a migration that the release before cannot work on has no way back',
    async () => {
      await server.anew()
      const trial = { requests: [{ method: 'POST', path: '/now' }] }
      const config = { snapshot: server.snapshot, trial }
      await using it = await stranger({ text: shop(server), config, environment: server.environment })
      await using folder = await temporary('scratch')
      const tried = async (tag: string, migration: string) => {
        await it.release(tag, `${shop(server)}\nsql(${JSON.stringify(migration)})`)
        const candidate = join(folder.path, tag)
        await unpackShop(it, tag, candidate)
        await server.sql('DROP DATABASE IF EXISTS scratch')
        await server.sql('CREATE DATABASE scratch')
        const environment = { ...server.environment, SHOP_DATABASE: 'scratch' }
        const request = { do: 'rehearse', candidate, database: null, startMs: 20_000, environment }
        await writeFile(join(folder.path, REHEARSAL_REQUEST), JSON.stringify(request))
        const env = { ...process.env, BATON_NODE: process.execPath }
        await run(it.home.executable, ['as-service', 'in-cage'], { cwd: folder.path, env })
        const report = JSON.parse(await readFile(join(folder.path, REHEARSAL_REPORT), 'utf8')) as Record<
          string,
          unknown
        >
        return judge(readReportOf(report), { from: 'v1.0.0', to: tag })
      }
      const kept = await tried('v1.1.0', 'ALTER TABLE notes ADD COLUMN colour INT; DELETE FROM notes')
      equal([kept.verdict, /not compared/.test(kept.reason)], ['unproven', true], kept.reason)
      const lost = await tried('v1.2.0', 'DROP TABLE notes; CREATE TABLE notes (m INT NOT NULL, o INT NOT NULL)')
      equal([lost.verdict, /does not work with the data/.test(lost.reason)], ['irreversible', true], lost.reason)
      is(await server.sql('SELECT count(*) FROM notes'), '0', 'the data themselves were not touched')
      await operate(it, 'v1.1.0')
    },
  )

  if (kind === 'postgresql') {
    test('the page for authors, as it stands: its configuration, and its commands', async () => {
      const page = await readFile(join(import.meta.dirname, '../docs/author/database.md'), 'utf8')
      const blocks = (language: string) =>
        [...page.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, 'gms'))].map(([, text = '']) => text)
      const [config = '{}', operators = '{}'] = blocks('json')
      ok(scratchOf((JSON.parse(operators) as { update: { scratch: unknown } }).update.scratch))
      await server.anew()
      const environment = { ...server.environment, PGDATABASE: 'shop' }
      await using it = await stranger({ text: shop(server), config: JSON.parse(config) as object, environment })
      // the command finds the server by this file alone, as the page says
      const lines = Object.entries(environment).map(([name, value]) => `${name}=${value}\n`)
      await writeFile(join(it.home.configPath, '../environment'), lines.join(''), { mode: 0o600 })
      await it.release('v1.1.0', shop(server))
      await it.ask('POST', '/1')
      const { copies = [], error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
      equal([copies.length, error], [2, null])
      await it.ask('POST', '/2')
      await server.sql('CREATE TABLE later (n INT REFERENCES notes)')
      await server.sql('INSERT INTO later (n) VALUES (2)')
      const [dump = ''] = copies.map(({ name }) => name).filter((name) => name.startsWith('dump'))
      const [commands = ''] = blocks('sh')
      const script = `shop() { ${it.home.executable} "$@"; }\n${commands.replaceAll(/dump\.v\S+/g, dump)}`
      const env = { ...process.env, BATON_NODE: process.execPath }
      const { stdout } = await run('sh', ['-eu', '-c', script], { env })
      match(stdout, new RegExp(`the database was restored from .*${dump}`))
      is(await server.sql('SELECT n FROM notes'), '1')
      is(await server.sql("SELECT to_regclass('later') IS NULL"), 't', 'a table of the new release is gone')
    })
  }

  test.run()
}

/** The whole update on this host, where there is no cage: it says why it was not tried. */
async function operate(it: Stranger, tag: string): Promise<void> {
  const { outcome, trial } = await it.operate('/admin/update', { tag })
  equal([outcome, trial?.verdict], ['updated', 'untried'], trial?.reason)
  match(trial?.reason ?? '', /no scratch database is configured/)
}

async function unpackShop({ home }: Stranger, tag: string, to: string): Promise<void> {
  const asset = join(home.receipt.feed, tag, `${assetName('shop')}.zst`)
  await writeFile(to, zstdDecompressSync(await readFile(asset)), { mode: 0o755 })
}

async function stop({ home }: Stranger): Promise<void> {
  await run(home.executable, ['stop'], { env: { ...process.env, BATON_NODE: process.execPath } })
}
