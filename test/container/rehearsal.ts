// A release is tried on a copy of the data before the container is stopped: what it may do there, and what becomes of the deployment.

import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { basename, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { markPath } from '../../agent/disk/places.ts'
import { type DeployEvent, formatDeployEvent } from '../../deploy/container/report.ts'
import { run } from '../../deploy/lib/shell.ts'
import { equal, is, match, ok } from '../assert.ts'
import { labFolder, openLab } from '../lab/docker.ts'
import { buildLedgers, REQUESTS } from '../lab/ledger.ts'
import { MIGRATIONS } from '../lab/migrations.ts'
import { suite } from '../suite.ts'
import { scriptImages } from './images.ts'
import { deployIn, healthy, statusIn, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container rehearsal', { timeoutMs: 240_000, skip })
const [NAME, STATE] = ['ledger', '/var/lib/ledger']
const CAGE = `${NAME}-baton-trial`
const MAIN = join(import.meta.dirname, '../../deploy/deploy-container.ts')
let repository = ''
let place = ''
let schema = 100

test.before(async () => {
  repository = `${registry.host}/ledger`
  const dist = join(labFolder(), 'dist')
  const tags = ['v1.0.0', 'v1.1.0']
  await buildLedgers(dist, tags, {
    service: NAME,
    rehearse: { requests: REQUESTS, files: ['uploads/a', 'absent'] },
  })
  await scriptImages(engine, registry, { dist, repository, tags })
  const options = ['--restart', 'always', '--health-interval', '20s', '-v', `rows:${STATE}`]
  await engine.docker('run', '-d', '--name', NAME, ...options, `${repository}:v1.0.0`)
  await healthy(engine, NAME)
  place = (await engine.inspect(NAME)).Mounts[0].Source
  mkdirSync(join(place, 'uploads/a'), { recursive: true })
  for (const name of ['a/b.txt', 'c.txt']) writeFileSync(join(place, 'uploads', name), 'an upload')
  sql("INSERT INTO authors VALUES (1, 'ada'), (99, ''); INSERT INTO notes VALUES (1, 1, 'first'), (2, 1, 'second')")
})
test.after(close)

test('the way back is open: the deployment says so and goes on, and nothing is left of the copy', async () => {
  migrate(`
    const there = (name) => require('node:fs').existsSync(state + '/uploads/' + name)
    if (!there('a/b.txt')) throw new Error('no upload')
    if (process.env.BATON_TRIAL === '1' && there('c.txt')) throw new Error('more than was named')
    if (!database.prepare("SELECT 1 FROM pragma_table_info('notes') WHERE name = 'colour'").get())
      database.exec("ALTER TABLE notes ADD COLUMN colour TEXT")`)
  const ended = await deployTo('v1.1.0')
  equal([ended.outcome, ended.error?.message], ['updated', undefined])
  match(notesOf(ended), /^tried on a copy of your data \(\d rows\) in [\d.]+ s: can be rolled back$/m)
  const { snapshotOnHost = null } = ended
  ok(snapshotOnHost?.startsWith(join(place, 'update/snapshots/ledger.db.v1.0.0.')) === true, `${snapshotOnHost}`)
  match(
    formatDeployEvent(ended.events.at(-1) as DeployEvent).join('\n'),
    `the database from before the switch: ${snapshotOnHost}`,
  )
  await nothingLeft()
  sql('SELECT colour FROM notes')
  const back = await deployIn(engine, { container: NAME, release: null, probationMs: 200 })
  is(back.outcome, 'rolled_back')
  match(notesOf(back), /^v1\.0\.0 was tried on a copy of the current data and works$/m)
})

test('no way back: it ends with 7 and the container as it was, until a person allows it; then the rollback is refused', async () => {
  migrate(`
    breaks.select = 'SELECT * FROM notes'
    breaks.insert = 'INSERT INTO notes(author, body) VALUES (1, ?)'
    if (!database.prepare("SELECT 1 FROM pragma_table_info('notes') WHERE name = 'body'").get())
      database.exec("DELETE FROM notes WHERE id = 1; ALTER TABLE notes RENAME COLUMN text TO body")`)
  const before = (await engine.inspect(NAME)).Id
  const refused = await faultOf(deployTo('v1.1.0'))
  is(refused.code, 'irreversible')
  match(refused.message, /would change the data irreversibly: 1 row of notes would be lost; nothing has changed/)
  is((await engine.inspect(NAME)).Id, before)
  is(sql('SELECT count(*) AS n FROM notes'), 2)
  await nothingLeft()
  const allowed = await deployTo('v1.1.0', { allowIrreversible: true })
  equal([allowed.outcome, sql('SELECT count(*) AS n FROM notes')], ['updated', 1])
  // of its two copies the one that was made last, when the old container had ended
  const copies = readdirSync(join(place, 'update/snapshots')).filter((name) => name.startsWith('ledger.db.v1.0.0.'))
  is(
    basename(allowed.snapshotOnHost ?? ''),
    copies
      .filter((name) => !/-(wal|shm|journal)$/.test(name))
      .toSorted()
      .at(-1),
  )
  const { Id } = await engine.inspect(NAME)
  const rollback = { container: NAME, release: null, probationMs: 200 }
  const back = await faultOf(deployIn(engine, rollback))
  equal([back.code, (await engine.inspect(NAME)).Id], ['schema_newer', Id])
  is(back.message, 'the update from v1.0.0 to v1.1.0 has changed the data irreversibly')
  const copy = basename(allowed.snapshotOnHost ?? '')
  match(back.hint ?? '', `use \`--rollback --trial never\`, then \`--restore-state ${copy}\``)
  match(notesOf(allowed), `then \`--restore-state ${copy}\``)
  // without the note of it, as after a release of an older kit, the trial finds out
  rmSync(markPath(place))
  const tried = await faultOf(deployIn(engine, rollback))
  equal([tried.code, (await engine.inspect(NAME)).Id], ['schema_newer', Id])
  match(tried.message, /^v1\.0\.0 cannot run on the data that v1\.1\.0 has changed: .*no such column: text/)
  await nothingLeft()
  sql('ALTER TABLE notes RENAME COLUMN body TO text')
  is((await deployIn(engine, { ...rollback, rehearse: false })).outcome, 'rolled_back')
})

test.long(
  'a release with no way back that was allowed, and dies: the old one starts on the data of before, and what it left lies aside',
  async () => {
    migrate(MIGRATIONS['renamed and dies']?.text ?? '')
    sql(`PRAGMA user_version = ${++schema}`)
    sql("INSERT INTO notes(id, author, text) VALUES (40, 1, 'before')")
    const { Id } = await engine.inspect(NAME)
    const ended = await deployTo('v1.1.0', { allowIrreversible: true, probationMs: 20_000 })
    equal([ended.outcome, ended.healthy, (await engine.inspect(NAME)).Id], ['reverted', true, Id], ended.error?.message)
    is(sql('SELECT text FROM notes WHERE id = 40'), 'before') // `no such column` on what the new one has left
    is(ended.snapshotOnHost, ended.stateMoved?.restored)
    const { aside = '', restored = '', rows } = ended.stateMoved ?? {}
    ok(aside.startsWith(join(place, 'update/aside/ledger.db.v1.1.0.')), aside)
    ok(restored.startsWith(join(place, 'update/snapshots/ledger.db.v1.0.0.')), restored)
    is(rows, 0)
    const [, , line = ''] = formatDeployEvent(ended.events.at(-1) as DeployEvent).slice(-3)
    match(line, `what clients have written since then, with no new rows, is in ${aside}; \`--restore-state`)
    ok(!ended.events.some((event) => event.event === 'warning' && event.message.includes('irreversibly')))

    // told, as long as it is there, and brought back by its name
    const status = await statusIn(engine, NAME)
    equal(status.stateMoved, ended.stateMoved)
    migrate('')
    const words = [process.execPath, ...process.execArgv, MAIN, '--container', NAME, '--json', '--restore-state']
    const restore = async (name: string) =>
      await run([...words, name], { env: { ...process.env, ...engine.environment }, allowFailure: true })
    const unknown = await restore('ledger.db.v9.9.9.x')
    match(unknown.stderr, new RegExp(`expected the name of a copy of the data; available copies: .*${basename(aside)}`))
    equal((await engine.inspect(NAME)).State.StartedAt, status.startedAt)
    sql("INSERT INTO notes(id, author, text) VALUES (41, 1, 'since')")
    const back = await restore(basename(restored))
    equal([back.exitCode, back.exitCode === 0 ? '' : back.stderr], [0, ''])
    equal(
      [sql('SELECT count(*) AS n FROM notes WHERE id = 41'), sql('SELECT text FROM notes WHERE id = 40')],
      [0, 'before'],
    )
    const told = await statusIn(engine, NAME)
    equal([told.containerId, told.stateMoved?.rows, told.healthy], [Id, 1, true])
    migrate('')
    sql('DELETE FROM notes WHERE id = 40')
    await deployTo('v1.1.0').then(({ outcome, stateMoved }) => equal([outcome, stateMoved], ['updated', null]))
    is((await deployIn(engine, { container: NAME, release: null, probationMs: 200 })).outcome, 'rolled_back')
  },
)

// the hostile release below ends with its last words too, and bad.ts has what a switch finds out
test.long(
  'a migration that fails is refused with its last words; with `--trial never` it is found out by the switch',
  async () => {
    migrate('throw new Error("no room for the index")')
    const before = (await engine.inspect(NAME)).Id
    const refused = await faultOf(deployTo('v1.1.0'))
    is(refused.code, 'verify_failed')
    match(refused.message, /no room for the index/)
    is((await engine.inspect(NAME)).Id, before)
    await nothingLeft()
    const late = await deployTo('v1.1.0', { rehearse: false })
    equal([late.outcome, notesOf(late).includes('tried on a copy')], ['reverted', false])
  },
)

for (const [what, { text, verdict }] of Object.entries(MIGRATIONS))
  test.long(`${what}: the deployment finds ${verdict} before the container is stopped`, async () => {
    migrate(text)
    sql(`PRAGMA user_version = ${++schema}`) // so that it is not known from before
    const before = [(await engine.inspect(NAME)).Id, sql('SELECT count(*) || max(text) FROM notes')]
    const ended = await deployTo('v1.1.0', { probationMs: 2000 }).catch((cause: { code: string }) => cause)
    const [code, isThere] = [
      'code' in ended ? ended.code : ended.outcome,
      (await engine.inspect(NAME)).Id === before[0],
    ]
    if (verdict === 'fails' || verdict === 'irreversible') {
      equal([code, isThere], [verdict === 'fails' ? 'verify_failed' : 'irreversible', true], JSON.stringify(ended))
      equal(sql('SELECT count(*) || max(text) FROM notes'), before[1])
    } else {
      is(code, what === 'dies later' ? 'reverted' : 'updated', JSON.stringify(ended))
      if ('events' in ended)
        match(notesOf(ended), verdict === 'reversible' ? 'can be rolled back' : 'values changed in')
      if ('events' in ended && verdict === 'unproven') {
        const lines = ended.events.flatMap((event) => formatDeployEvent(event))
        is(lines.filter((line) => line.includes('rollback not verified')).length, 1, 'told in one line, and once')
      }
    }
    await nothingLeft()
    if (code === 'updated')
      is(
        (await deployIn(engine, { container: NAME, release: null, probationMs: 200, rehearse: false })).outcome,
        'rolled_back',
      )
  })

test('a hostile release reaches neither the service nor its data nor a network', async () => {
  const address = (await engine.inspect(NAME)).NetworkSettings.IPAddress
  migrate(`
    const { readFileSync, readdirSync, writeFileSync } = require('node:fs'), net = require('node:net'), through = []
    const attempt = (name, act) => { try { if (act() !== false) through.push(name) } catch {} }
    attempt('other processes', () => readdirSync('/proc').filter((name) => /^\\d+$/.test(name)).length > 4)
    attempt('the root', () => writeFileSync('/etc/x', ''))
    attempt('the executable', () => writeFileSync('/usr/local/bin/service', ''))
    attempt('the engine', () => readdirSync('/var/run/docker.sock'))
    attempt('capabilities', () => !/CapEff:\\s*0+$/m.test(readFileSync('/proc/self/status', 'utf8')))
    attempt('more privileges', () => !/NoNewPrivs:\\s*1/.test(readFileSync('/proc/self/status', 'utf8')))
    attempt('process 1', () => { process.kill(1, 'SIGKILL'); process.kill(1, 'SIGSTOP'); return false })
    return new Promise((resolve) => {
      const socket = net.connect(8080, '${address}', () => { through.push('the network'); resolve() })
      socket.setTimeout(1500, resolve); socket.on('error', resolve)
    }).then(() => { throw new Error('through: ' + (through.join('; ') || 'none')) })`)
  match((await faultOf(deployTo('v1.1.0'))).message, 'through: none')
  is(sql('SELECT count(*) AS n FROM notes'), 1)
  await nothingLeft()
})

test.long(
  'a tool that is killed in the middle leaves the service alone, and the next deployment clears up',
  async () => {
    migrate('return new Promise((resolve) => setTimeout(resolve, 60_000))')
    const words = ['--container', NAME, '--release', 'v1.1.0', '--probation', '0']
    const child = spawn(process.execPath, [...process.execArgv, MAIN, ...words], {
      env: { ...process.env, ...engine.environment },
    })
    // the one of the test before may just be going
    const runs = ({ State }: { State: { Running: boolean } }) => State.Running
    await until('the trial', async () => await engine.inspect(CAGE).then(runs, () => false))
    child.kill('SIGKILL')
    await once(child, 'close')
    await healthy(engine, NAME)
    const { left } = await statusIn(engine, NAME)
    const ofThis = left.filter((name) => name !== `${NAME}-baton-failed`) // a release has failed in a test before
    equal(ofThis.toSorted(), [CAGE, `${NAME}-baton-successor`].toSorted())
    migrate('')
    const ended = await deployTo('v1.1.0')
    equal([ended.outcome, ended.error?.message], ['updated', undefined])
    await nothingLeft()
  },
)

test.run()

// ---- parts

async function deployTo(release: string, more: Parameters<typeof deployIn>[1] | object = {}) {
  return await deployIn(engine, { container: NAME, release, probationMs: 200, ...more })
}

async function faultOf(deployment: Promise<unknown>): Promise<{ code: string; message: string; hint?: string }> {
  return (await deployment.catch((cause: unknown) => cause)) as { code: string; message: string; hint?: string }
}

function notesOf({ events }: Awaited<ReturnType<typeof deployIn>>): string {
  return events.map((event) => (event.event === 'note' ? event.message : '')).join('\n')
}

async function nothingLeft(): Promise<void> {
  not(await engine.names(), CAGE)
  const dangling = await engine.docker('volume', 'ls', '-q', '--filter', 'dangling=true')
  is(dangling.trim(), '')
}

function not(names: string[], name: string): void {
  ok(!names.includes(name), `${name} is still there`)
}

function migrate(text: string): void {
  sql(`UPDATE authors SET name = '${text.replaceAll("'", "''")}' WHERE id = 99`)
}

/** Runs statements; returns the first value of a SELECT. */
function sql(text: string): unknown {
  const database = new DatabaseSync(join(place, 'ledger.db'), { timeout: 5000 })
  try {
    if (text.startsWith('SELECT')) return Object.values(database.prepare(text).get() ?? {})[0]
    database.exec(text)
    return null
  } finally {
    database.close()
  }
}
