// What an application writes into its own folder. Each release of kind `app` has a folder of its own: rows in there would not be
// found after an update. The build refuses what makes a database there, `init` says where data belongs, and what was made all the
// same is never removed.

import { mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { makeDisk } from '../agent/disk/disk.ts'
import type { BatonError } from '../agent/words/errors.ts'
import { placesOf } from '../agent/disk/places.ts'
import { sweepUnpacked } from '../agent/disk/sweep.ts'
import { detect } from '../deploy/make/detect.ts'
import { planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import type { Project } from '../deploy/make/project.ts'
import { tryOut } from '../deploy/make/trial-start.ts'
import { survey } from '../deploy/host/service/survey.ts'
import { equal, is, match, rejects } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { until } from './fixtures/evidence.ts'
import { install } from './fixtures/install.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('own folder')

test('what was unpacked goes when no release needs it, but not with a database that the application made in it', async () => {
  await using room = await temporary('own')
  const executable = join(room.path, 'svc')
  const [old, shipped, mine] = ['1'.repeat(16), '2'.repeat(16), '3'.repeat(16)].map((name) =>
    join(room.path, '.svc', name),
  ) as [string, string, string]
  await unpackedAt(old, 'v1.0.0')
  await unpackedAt(shipped, 'v1.1.0', () => makeDatabase(join(shipped, 'app', 'cities.db')))
  await unpackedAt(mine, 'v1.2.0')
  const database = join(mine, 'app', 'data', 'shop.sqlite')
  await makeDatabase(database)
  await mkdir(join(old, 'app', 'cache'))
  await writeFile(join(old, 'app', 'cache', 'page.txt'), 'can be made again')
  const kept = await sweepUnpacked(makeDisk(), 'svc', placesOf(executable), ['v2.0.0'])
  equal(kept, [database])
  equal(await readdir(join(room.path, '.svc')), ['3'.repeat(16)])
  const { ours, written } = await survey({ service: 'svc', executable, stateDirectory: join(room.path, 'state') })
  equal([ours, written], [[], join(room.path, '.svc')], 'an uninstall leaves it, unless it is to take all data')
  await rm(database)
  const orders = join(dirname(database), 'orders.json')
  await writeFile(orders, '[]')
  equal(
    await sweepUnpacked(makeDisk(), 'svc', placesOf(executable), ['v2.0.0']),
    [orders],
    'data need not be a database',
  )
  await rm(orders)
  await writeFile(join(dirname(database), 'shop.log'), 'no data')
  equal(await sweepUnpacked(makeDisk(), 'svc', placesOf(executable), ['v2.0.0']), [])
  equal(await readdir(join(room.path, '.svc')), [])
})

test('an update that the service carries out itself leaves nothing unpacked but what it and its backup need', async () => {
  const [v100, v110] = await Promise.all(['v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag)))
  if (v100 === undefined || v110 === undefined) throw new Error('expected two releases')
  await using feed = await temporary('own')
  await publishTo(feed.path, [v100, v110])
  await using home = await install({ release: v100, feed: feed.path, update: { probation: '200ms' } })
  const unpacked = join(dirname(home.executable), '.beacon')
  const folders = ['v0.8.0', 'v0.9.0', 'v1.0.0', 'v1.1.0'].map((tag, at) => [tag, String(at).repeat(16)] as const)
  for (const [tag, name] of folders) await unpackedAt(join(unpacked, name), tag)
  await home.start()
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
  await until('the others are gone', async () => (await readdir(unpacked)).length === 2)
  equal((await readdir(unpacked)).toSorted(), ['2'.repeat(16), '3'.repeat(16)])
})

test('a build whose application makes a database in its own folder fails, and says where data belongs', async () => {
  await using room = await temporary('own')
  const program = async (database: string, host: string) => {
    const path = join(room.path, `service-${host}`)
    await writeFile(path, programOf(database, host), { mode: 0o755 })
    return path
  }
  const inside = await program('join(own, "app/data/shop.sqlite")', '127.0.0.1')
  const error = await rejects(() => tryOut(PROJECT_OF, inside))
  match(error.message, /the database data\/shop\.sqlite is inside .*: each release has its own folder/)
  match(String((error as BatonError).hint), /"DATA_DIR": "\{stateDirectory\}"/)
  const outside = await program('join(process.env.STATE_DIRECTORY, "shop.sqlite")', '::')
  const { line, warnings } = await tryOut(PROJECT_OF, outside)
  match(line, /^answers \/healthz with 200 after /)
  match(warnings.join('\n'), /^the application listens on every address, ignoring the one that it is given/)
})

test('a build says what its application keeps in its own folder, and so do doctor and every move to another release', async () => {
  await using room = await temporary('own')
  const path = join(room.path, 'service')
  const keeps = `mkdirSync(join(own, 'app/uploads'), { recursive: true })
    mkdirSync(join(own, 'app/tmp'), { recursive: true })
    writeFileSync(join(own, 'app/orders.json'), '[]')
    mkdirSync(join(own, 'app/public'), { recursive: true })`
  await writeFile(path, programOf('join(process.env.STATE_DIRECTORY, "shop.sqlite")', '127.0.0.1', keeps), {
    mode: 0o755,
  })
  await mkdir(join(room.path, 'uploads'))
  const project = { ...PROJECT_OF, kind: 'app' as const, called: 'baton.config.json', folder: room.path }
  const { warnings } = await tryOut(project, path)
  match(
    warnings.join('\n'),
    /the application keeps files in its own folder \(orders\.json, uploads\/\)[^]*"exclude": \["uploads\/\*\*"\]/,
  )

  await using it = await adopted(APP)
  const folder = join(dirname(it.configPath), '../../.local/share/shop/.shop', 'a'.repeat(16))
  await unpackedAt(folder, 'v1.0.0')
  await mkdir(join(folder, 'app', 'data'))
  await writeFile(join(folder, 'app', 'data', 'orders.json'), '[]')
  const doctor = await it.word('doctor', '--user')
  match(
    doctor.stdout + doctor.stderr,
    /warning.*v1\.0\.0 has written files into its own folder, \S+\/app: data\/orders\.json/,
  )
  const said =
    /^warning: v1\.0\.0 has written files into its own folder \(data\/orders\.json\): other releases will not have them/m
  match((await it.word('upgrade', '--user', '--dry-run', 'v1.1.0')).stderr, said)
  const moved = await it.word('upgrade', '--user', '-y', 'v1.1.0')
  equal([moved.exitCode, said.test(moved.stderr)], [0, true], moved.stderr)
})

test('init gives the variables that say where data belongs the state directory', async () => {
  await using room = await temporary('own')
  await writeFile(join(room.path, 'package.json'), JSON.stringify({ name: 'shop', main: 'server.js' }))
  const text = (data: string) => `import 'node:http'\nconst folder = ${data} ?? 'data'\n`
  await writeFile(join(room.path, 'server.js'), text('process.env.DATA_DIR'))
  const environmentOf = () => {
    const config = planInit(detect(room.path)).files.find(({ path }) => path === 'baton.config.json')
    return (JSON.parse(config?.content ?? '') as { environment?: Record<string, string> }).environment
  }
  equal(environmentOf(), {
    PORT: '{port}',
    HOST: '{host}',
    STATE_DIRECTORY: '{stateDirectory}',
    NODE_ENV: 'production',
    DATA_DIR: '{stateDirectory}',
  })
  await writeFile(join(room.path, 'server.js'), text(`process.env['HOME']`))
  is(environmentOf(), undefined)
})

test.run()

const APP = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST)`

const PROJECT_OF = { service: 'svc', healthPath: '/healthz', database: null, try: { environment: {} } } as Project

/** A release of kind `app` as far as it matters here: it has unpacked itself, says where it serves, and made a database. */
function programOf(database: string, host: string, more = ''): string {
  return `#!${process.execPath}
    require('${join(PROJECT, 'agent/adapters/auto.ts')}')
    const { dirname, join } = require('node:path')
    const { mkdirSync, readFileSync, writeFileSync } = require('node:fs')
    const own = join(__dirname, '.svc', '${'a'.repeat(16)}')
    mkdirSync(join(own, 'app/public'), { recursive: true })
    if (process.argv[2] === '--prepare') writeFileSync(join(own, 'app/public/index.html'), '')
    writeFileSync(join(own, 'complete'), '')
    if (process.argv[2] === '--prepare') process.exit(0)
    const { listen } = JSON.parse(readFileSync(process.argv[4]))
    setTimeout(() => {
      ${more}
      const file = ${database}
      mkdirSync(dirname(file), { recursive: true })
      new (require('node:sqlite').DatabaseSync)(file).exec('create table rows (text)')
      require('node:http').createServer((request, response) => response.end('ok')).listen(listen.port, '${host}', () =>
        console.log('serving, and ' + 'much more of it '.repeat(500)))
    }, 50)`
}

/** `before`: what is there before the mark, as shipped. */
async function unpackedAt(folder: string, tag: string, before: () => Promise<void> = async () => {}): Promise<void> {
  await mkdir(join(folder, 'app'), { recursive: true })
  await mkdir(join(folder, 'tags'))
  await writeFile(join(folder, 'tags', tag), '')
  await before()
  await writeFile(join(folder, 'complete'), '')
  const past = new Date(Date.now() - 1000)
  for (const path of [join(folder, 'app', 'cities.db'), join(folder, 'complete')])
    await utimes(path, past, past).catch(() => {})
}

async function makeDatabase(path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true })
  const database = new DatabaseSync(path)
  database.exec('create table rows (text)')
  database.close()
}
