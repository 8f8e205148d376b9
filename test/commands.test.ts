// An application with words and routes of its own: `"commands": "baton"` leaves it its words, and `"basePath"` its routes. Real
// installs, updated from a release without them and put back.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { detect } from '../deploy/make/detect.ts'
import { startsService } from '../deploy/make/first/beside.ts'
import { commandIn, misplacedIn, OPERATOR_WORDS } from '../deploy/make/first/command.ts'
import { planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { afterBuild, parseProject } from '../deploy/make/project.ts'
import { run } from '../deploy/lib/shell.ts'
import { equal, is, match, throws } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { bootWithFeed } from './lab/managed.ts'
import { ask } from './fixtures/install.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { buildQuietly, buildTags } from './fixtures/quiet-build.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('commands', { timeoutMs: 120_000 })
/** Says its words, and serves only if it is given none. */
const OWN_WORDS = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  if (process.argv.length > 2) console.log('the application’s:', process.argv.slice(2).join(' '), process.env.BATON_COMMAND ?? '')
  else
    createServer((request, response) => response.end(request.url === '/healthz' ? 'ok' : 'hello'))
      .listen(Number(process.env.PORT), process.env.HOST)`
const BATON = { commands: 'baton' } as const

test('without `commands` every word of Baton’s is the first; with it, it stands behind `baton`, and nothing else is taken', () => {
  for (const word of OPERATOR_WORDS) {
    equal(commandIn([word, '-q'], {}, false), [word, '-q'])
    equal(commandIn([word, '-q'], { commands: null }, false), [word, '-q'])
    equal(commandIn([word, '-q'], { commands: 'baton' }, false), null, word)
    equal(commandIn(['baton', word, '-q'], { commands: 'baton' }, false), [word, '-q'])
    equal(commandIn(['baton', word], {}, false), null, 'an application may have the word')
    equal(commandIn([word, '-q'], { commands: 'baton' }, true), [word, '-q'], 'install.sh says whose it is')
  }
  equal(commandIn(['worker'], { commands: 'baton' }, true), null)
  equal(commandIn(['--', 'baton', 'status'], { commands: 'baton' }, true), null)
  equal(commandIn(['baton'], { commands: 'baton' }, false), [], 'which is its help')
  for (const asked of ['--help', '-h', '-v']) {
    equal(commandIn([asked], {}, false), [asked])
    equal(commandIn([asked, 'more'], {}, false), null, 'of the application')
    equal(commandIn([asked], { commands: 'baton' }, false), null, 'the application has words of its own')
  }
  equal(commandIn(['--help', '--all'], {}, false), ['--help', '--all'])
})

test('what units, supervisors and root’s end call an executable with is taken by every release, in exactly that form', () => {
  const said = ['rescue', 'rescue --given-up', 'start --supervise', 'as-service', 'as-service in-unit']
  for (const words of said.map((line) => line.split(' '))) {
    equal(commandIn(words, { commands: 'baton' }, false), words)
    equal(commandIn(words, {}, false), words)
    equal(commandIn([...words, 'more'], { commands: 'baton' }, false), null)
  }
  for (const words of [['start'], ['rescue', '--now'], ['healthcheck'], ['snapshot', '--for-update']])
    equal(commandIn(words, { commands: 'baton' }, false), null, words.join(' '))
})

test('a flag of Baton’s before a word of Baton’s is told, and anything else is the application’s', () => {
  const typed = (line: string, release: { commands?: 'baton' | null } = {}, isSaid = false) =>
    misplacedIn(line.split(' '), release, isSaid)?.join(' ') ?? null
  is(typed('--user status'), 'status --user')
  is(typed('-q --prefix /opt/shop state list --json'), 'state -q --prefix /opt/shop list --json')
  is(typed('--prefix=/opt/shop upgrade'), 'upgrade --prefix=/opt/shop')
  is(typed('--user baton status -q', BATON), 'baton status --user -q')
  is(typed('--user status', BATON, true), 'status --user', 'install.sh says whose it is')
  const theirs = ['status --user', '--user', '--user worker', '--port 1 status', '--prefix status', '-- --user status']
  for (const line of [...theirs, 'serve --config start', '--user --toString status']) is(typed(line), null, line)
  for (const line of ['--user status', '--json rescue']) is(typed(line, BATON), null, line)
})

test('`shop --user status` says how it is typed and ends with 2; the application is not started beside the one that serves', async () => {
  const text = OWN_WORDS.replace('import ', `import { appendFileSync } from 'node:fs'\n import `).replace(
    'if (process',
    `appendFileSync(process.env.HOME + '/starts', process.argv.slice(2).join(' ') + '\\n')\n if (process`,
  )
  await using it = await adopted(text)
  const { exitCode, stdout, stderr } = await it.typed('--user', 'status')
  is(exitCode, 2, stderr)
  is(stdout, '')
  is(
    stderr,
    'error: expected a command as the first argument, got "--user"\nhint: use `shop status --user`; to start the application with these arguments, use `shop -- --user status`\n',
  )
  match((await it.typed('--', '--user', 'status')).stdout, /^the application’s: --user status $/m)
  const starts = await readFile(join(it.configPath, '../../../starts'), 'utf8')
  is(starts, '\n--user status\n', 'the service, and the word behind `--`')
})

test('the executable started by a person beside its running service is refused before the application, which begins if that is stopped or has other data', async () => {
  const text = OWN_WORDS.replace(
    'if (process',
    `if (!process.argv[2] && !process.env.PORT) { console.log('the application’s own'); process.exit() }\n if (process`,
  )
  await using it = await adopted(text)
  const refused = await it.typed()
  equal([refused.exitCode, refused.stdout], [7, ''], refused.stderr)
  match(refused.stderr, /^error: expected no other process of shop, found process \d+, which uses \S+config\.json: /)
  match(refused.stderr, /^hint: run `shop status` to see it, or `shop stop` to stop it/m)
  match((await it.typed('--')).stdout, /own/, 'whoever says so knows it')
  const home = join(it.configPath, '../../..')
  const command = join(home, '.local/bin/shop')
  const other = { HOME: home, BATON_NODE: process.execPath, STATE_DIRECTORY: join(home, 'other') }
  match((await run([command], { env: other })).stdout, /own/)

  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  is((await it.typed()).exitCode, 7, 'after a handover, too')
  is((await it.typed('stop', '--user', '-q')).exitCode, 0)
  match((await it.typed()).stdout, /own/)
})

test.long(
  'so is one beside a service that sets `process.title`, and one with the words that `args` give every start',
  async () => {
    const text = OWN_WORDS.replace(
      'if (process',
      `if (!process.env.PORT || process.argv.length !== 4) { console.log('the application’s own', ...process.argv.slice(2)); process.exit() }
     process.title = 'a shop'
     process.argv.length = 2
     if (process`,
    )
    await using it = await adopted(text, { args: ['--at', '{host}:{port}'] })
    const beside = /^error: expected no other process of shop, found process \d+, which uses \S+config\.json: /
    for (const words of [[], ['--at', '127.0.0.1:1']]) {
      const { exitCode, stdout, stderr } = await it.typed(...words)
      equal([exitCode, stdout, beside.test(stderr)], [7, '', true], stderr)
    }
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    is((await it.typed()).exitCode, 7, 'after a handover, too')
    match((await it.typed('tidy')).stdout, /own tidy/, 'a tool beside it')
    match((await it.typed('--at', 'x', 'y')).stdout, /own --at x y/)
    is((await it.typed('stop', '--user', '-q')).exitCode, 0)
    match((await it.typed()).stdout, /own/)
  },
)

test('which words start a service, and which a tool beside it', () => {
  const cases: [string, string, boolean][] = [
    ['', '', true],
    ['', 'tidy', false],
    ['--at {host}:{port}', '', true],
    ['--at {host}:{port}', '--at 0.0.0.0:1', true],
    ['--at {host}:{port}', '--at', false],
    ['{port}', 'tidy', false],
    ['serve --port {port}', '', false],
    ['serve --port {port}', 'serve --port 1', true],
    ['serve --port {port}', 'import --port 1', false],
  ]
  const words = (line: string) => line.split(' ').filter((word) => word !== '')
  for (const [args, typed, starts] of cases) is(startsService(words(typed), words(args)), starts, `${args} | ${typed}`)
})

test('who has built a release is told to publish it, or to make its image', () => {
  const told = (more: object) => afterBuild(parseProject({ service: 'shop', entry: 'a.js', ...more }, '/x'), 'v1.0.0')
  const publish = '/srv/releases'
  const image = 'or, for containers: npx baton image v1.0.0 --repository <registry/name>'
  equal(told({ publish }), ['next: npx baton publish v1.0.0', image])
  equal(told({ publish, image: 'registry.example/shop' }), [
    'next: npx baton publish v1.0.0',
    'or, for containers: npx baton image v1.0.0',
  ])
  equal(told({ publish, root: 'root.json' }), ['next: npx baton trust sign', 'then: npx baton publish v1.0.0', image])
  match(told({}).join('\n'), /^next: npx baton publish v1\.0\.0 --to </)
})

test('the settings are checked: `commands` is baton, `basePath` is a path', () => {
  const parse = (more: object) => parseProject({ service: 'shop', entry: 'a.js', ...more }, '/x')
  equal([parse({}).commands, parse({}).basePath], [null, ''])
  equal([parse({ commands: null }).commands, parse({ basePath: '' }).basePath], [null, ''])
  equal([parse(BATON).commands, parse({ basePath: '/_baton' }).basePath], ['baton', '/_baton'])
  throws(() => parse({ commands: 'shop' }), /expected `baton` in `commands`, got "shop"/)
  for (const basePath of ['baton', '/', '/a//b', '/a b', 3]) throws(() => parse({ basePath }), /such as `\/_baton`/)
})

test.long(
  'an update to a release with `commands` changes the words of the command, a rollback changes them back',
  async () => {
    await using it = await adopted(OWN_WORDS, {}, {}, true, BATON)
    match((await it.typed('status', '--user')).stdout, /v1\.0\.0/)
    match((await it.typed('status')).stdout, /v1\.0\.0/, 'root has no other install of it')
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')

    match((await it.typed('status', '--user')).stdout, /^the application’s: status --user $/m)
    match((await it.typed('start')).stdout, /^the application’s: start $/m)
    match((await it.typed('baton', 'status', '--user')).stdout, /v1\.1\.0/)
    match((await it.typed('baton')).stderr, /shop baton/)
    match((await it.word('status', '--user')).stdout, /v1\.1\.0/, 'install.sh, which knows no release')
    const doctor = (await it.typed('baton', 'doctor', '--user')).stdout
    match(doctor, /v1\.0\.0/, 'the backup')

    // the service stops and starts, by the supervision that calls the executable and its backup
    is((await it.typed('baton', 'stop', '--user', '-q')).exitCode, 0)
    is((await it.typed('baton', 'start', '--user', '-q')).exitCode, 0)
    match((await it.typed('baton', 'status', '--user')).stdout, /v1\.1\.0/)

    // back with nothing running: v1.1.0's code puts v1.0.0 there and starts it, then v1.0.0's the other one
    is((await it.typed('baton', 'stop', '--user', '-q')).exitCode, 0)
    is((await it.typed('baton', 'rollback', '--user', '-q', '-y')).exitCode, 0)
    match((await it.typed('status', '--user')).stdout, /v1\.0\.0/)
    is((await it.typed('stop', '--user', '-q')).exitCode, 0)
    is((await it.typed('rollback', '--user', '-q', '-y')).exitCode, 0)
    match((await it.typed('baton', 'status', '--user')).stdout, /v1\.1\.0/)
  },
)

test.long(
  'the backup of a release with `commands` rescues, as units that an older installer wrote call it',
  async () => {
    await using it = await adopted(OWN_WORDS, BATON, {}, true, {})
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    const backup = join(it.configPath, '../../../.local/share/shop/shop.backup')
    const env = { HOME: join(it.configPath, '../../..'), BATON_NODE: process.execPath, XDG_STATE_HOME: undefined }
    const { exitCode, stdout, stderr } = await run([backup, 'rescue'], { env, allowFailure: true })
    is(exitCode, 7, 'there is nothing to rescue')
    is(/application/.test(stdout + stderr), false, stdout)
  },
)

test('a first install takes `basePath` into its configuration: endpoints, panel and commands are below it, after an update too', async () => {
  const config = { basePath: '/_baton' }
  const text = OWN_WORDS.replace(`? 'ok' : 'hello'`, `? 'ok' : 'the application’s ' + request.url`)
  await using it = await adopted(text, config)
  const written = JSON.parse(await readFile(it.configPath, 'utf8')) as { basePath?: string }
  is(written.basePath, '/_baton')
  for (const tag of ['v1.0.0', 'v1.1.0']) {
    if (tag === 'v1.1.0') is((await it.typed('upgrade', '--user', '-q', '-y')).exitCode, 0)
    is((await ask(it.port, 'GET', '/_baton/admin/update/status', it.password)).status, 200)
    is((await ask(it.port, 'GET', '/_baton/web/settings.html', null)).status, 200)
    for (const path of ['/admin/update/status', '/web/settings.html'])
      is((await ask(it.port, 'GET', path, null)).body, `the application’s ${path}`)
    match((await it.typed('status', '--user')).stdout, new RegExp(tag))
  }
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
})

test.long(
  'from source the author’s `basePath` holds too; an installed configuration without one keeps `/admin` where it was',
  async () => {
    await using made = await temporary('words')
    const folder = made.path
    await writeFile(join(folder, 'package.json'), '{ "name": "shop", "type": "module" }')
    await writeFile(
      join(folder, 'baton.config.json'),
      JSON.stringify({ service: 'shop', entry: 'server.js', basePath: '/_baton', database: 'data/orders.db' }),
    )
    await writeFile(
      join(folder, 'server.js'),
      `import { agent } from '${join(PROJECT, 'agent/adapters/auto.ts')}'
     import { ownDatabase } from '${join(PROJECT, 'agent/own.ts')}'
     import { createServer } from 'node:http'
     console.log(ownDatabase('shop', '/state'))
     const server = createServer((request, response) => response.end('hello')).listen(0, '127.0.0.1')
     await agent
     const { port } = server.address()
     const asked = await Promise.all(['/web/settings.html', '/_baton/web/settings.html'].map((path) => fetch('http://127.0.0.1:' + port + path)))
     console.log(JSON.stringify((await Promise.all(asked.map((one) => one.text()))).map((text) => text === 'hello')))
     process.exit(0)`,
    )
    const { stdout } = await run([process.execPath, join(folder, 'server.js')], { cwd: folder })
    match(stdout, /^\[true,false\]$/m)
    match(stdout, /^\/state\/data\/orders\.db$/m)
    await using it = await adopted(OWN_WORDS, {}, {}, true, { basePath: '/_baton' })
    is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
    await eventually(
      'the panel',
      async () => (await ask(it.port, 'GET', '/web/settings.html', null)).status === 200,
      10_000,
    )
  },
)

test('init proposes both if it sees such words or routes, and neither otherwise', async () => {
  await using made = await temporary('words')
  const folder = made.path
  const proposed = async (source: string, manifest: object = {}) => {
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'shop', main: 'server.js', ...manifest }))
    await writeFile(join(folder, 'server.js'), source)
    const { files, notes } = planInit(detect(folder))
    const { commands, basePath } = JSON.parse(files[0]?.content ?? '{}') as Record<string, unknown>
    parseProject(JSON.parse(files[0]?.content ?? '{}'), folder)
    return { commands, basePath, notes: notes.filter((note) => /shop baton|_baton/.test(note)).length }
  }
  equal(await proposed(`const what = 'start'; switch (what) { case 'status': }`), {
    commands: undefined,
    basePath: undefined,
    notes: 0,
  })
  const words = { commands: 'baton', basePath: undefined, notes: 1 }
  equal(await proposed(`program.command('start <port>').action(go)`), words)
  equal(await proposed(`if (process.argv[2] === 'status') tell()`), words)
  equal(await proposed('', { scripts: { start: 'node server.js start --loud' } }), words)
  equal(await proposed(`program.command('worker')`), { commands: undefined, basePath: undefined, notes: 0 })
  await mkdir(join(folder, 'commands'))
  await writeFile(join(folder, 'commands', 'start.js'), '')
  equal(await proposed('', { oclif: { commands: './commands' } }), words)
  const routes = { commands: undefined, basePath: '/_baton', notes: 1 }
  equal(await proposed(`app.get('/admin/users', users)`), routes)
  equal(await proposed(`app.use('/web', files)`), routes)
  equal(await proposed(`app.use('/website', files)`), { commands: undefined, basePath: undefined, notes: 0 })
})

test.run()

// ---- the whole host, with systemd

const hosted = suite('commands: systemd', { skip: noHosts, timeoutMs: 200_000 })

/** v1.1.0 does not start any more once the file is there. */
const DIES = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { release } from '${join(PROJECT, 'agent/adapters/release.ts')}'
  import { existsSync } from 'node:fs'
  import { createServer } from 'node:http'
  if (process.argv.length > 2) {
    console.log('the application’s:', process.argv.slice(2).join(' '))
    process.exit(0)
  }
  process.title = 'a shop'
  if (release.tag === 'v1.1.0' && existsSync(process.env.STATE_DIRECTORY + '/dies')) process.exit(7)
  createServer((request, response) => response.end(release.tag)).listen(Number(process.env.PORT), process.env.HOST)`

// units, supervisors and words have their tests above
hosted.long(
  'root’s command, a deployment and install.sh know the words; the backup rescues, by the unit of a release of either kind',
  async () => {
    await using made = await temporary('words')
    const folder = made.path
    await writeFile(join(folder, 'server.js'), DIES)
    await using host = await bootWithFeed(async (out) => {
      const config = { service: 'shop', kind: 'bundle', entry: 'server.js', healthPath: '/' }
      const withWord = parseProject({ ...config, commands: 'baton' }, folder)
      await buildTags({ project: withWord, out }, ['v1.0.0', 'v1.2.0'])
      await buildQuietly({ project: parseProject({ ...config, commands: null }, folder), tag: 'v1.1.0', out })
    })
    const installer = join(host.feed, 'v1.0.0/install.sh')
    const flags = ['--feed', host.feed, '--release', 'v1.0.0', '--no-start', '-y']
    await host.ok('sh', installer, ...flags)
    await host.ok(
      'sed',
      '-i',
      's/"listen"/"update":{"probation":"20s","quietTimeout":"500ms"},"listen"/',
      '/etc/shop/config.json',
    )
    await host.ok('shop', 'baton', 'start')
    match(await host.ok('shop', 'status'), /the application’s: status/)
    match(await host.ok('shop', 'baton', 'status'), /v1\.0\.0/)
    match(await host.ok('sh', installer, 'status'), /v1\.0\.0/)

    // v1.1.0 is on probation: every process dies, and it does not start again
    const moving = host.run(['shop', 'baton', 'upgrade', 'v1.1.0', '-y'])
    const serves = async (tag: string) => (await host.run(['curl', '-fsS', 'http://127.0.0.1:8080/'])).stdout === tag
    await eventually('v1.1.0', async () => await serves('v1.1.0'), 30_000)
    await host.ok('touch', '/var/lib/shop/dies')
    await host.ok('systemctl', 'kill', '--signal=KILL', 'shop')
    await eventually('the rescue', async () => await serves('v1.0.0'), 60_000)
    await moving
    match(await host.ok('shop', 'baton', 'status'), /v1\.0\.0/)

    // root's copy is v1.0.0's still: the words of the whole host change when install.sh is run
    await host.ok('rm', '/var/lib/shop/dies')
    const deployed = await host.deploy('--service', 'shop', '--release', 'v1.2.0')
    is(deployed.code, 0, deployed.stderr)
    await eventually('v1.2.0', async () => await serves('v1.2.0'), 30_000)
    for (const command of ['shop', '/opt/shop/shop']) {
      const beside = await host.run(['env', 'PORT=8081', command])
      equal([beside.code, /expected no other process of shop/.test(beside.stderr)], [7, true], beside.stderr)
    }
    await host.ok('shop', 'baton', 'uninstall', '-y')
  },
)

hosted.run()
