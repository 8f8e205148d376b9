// The flags of Node in a start script: what `init` keeps of them, and that a release has them. And what is left of a `.env`.

import { spawn } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { zstdDecompressSync } from 'node:zlib'
import { isGone, startTimeOf } from '../agent/sockets/process.ts'
import { run } from '../deploy/lib/shell.ts'
import { detect } from '../deploy/make/detect.ts'
import { noteOfDotEnv } from '../deploy/make/dot-env.ts'
import { planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject, type Project } from '../deploy/make/project.ts'
import { assetName } from '../deploy/make/release-folder.ts'
import { readNodeCommand } from '../deploy/make/start-script.ts'
import { equal, is, match, ok, not, throws } from './assert.ts'
import { freePort } from './fixtures/install.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('flags', { timeoutMs: 240_000 })

test('a start script is read: flags, those of NODE_OPTIONS too, and the program behind them', () => {
  const cases: [string, string[], string | null][] = [
    ['node server.js', [], 'server.js'],
    ['node --inspect=0.0.0.0:9229 ./dist/main.js --port 1', ['--inspect=0.0.0.0:9229'], './dist/main.js'],
    ['npm run build && node -r dotenv/config server.js', ['--require=dotenv/config'], 'server.js'],
    ['node --import ./a.mjs --import "b" -C dev s.js', ['--import=./a.mjs', '--import=b', '--conditions=dev'], 's.js'],
    ['NODE_ENV=x tsx --trace-warnings src/a.ts --b', ['--import=tsx', '--trace-warnings'], 'src/a.ts'],
    ['NODE_OPTIONS="--a --b=1" cross-env X=1 node --c server.js', ['--a', '--b=1', '--c'], 'server.js'],
  ]
  for (const [command, flags, program] of cases) {
    const read = readNodeCommand(command)
    equal([read?.flags, read?.program], [flags, program], command)
  }
  equal(readNodeCommand('next start'), null)
  equal(readNodeCommand('tsx watch src/node.ts'), null)
})

test('init keeps the flags that a release can have, and says which it cannot', async () => {
  await using room = await temporary('flags')
  const start = 'node -r ./pre.cjs --import tracer/on --enable-source-maps --inspect --env-file=.env server.js'
  await writeFile(
    join(room.path, 'package.json'),
    JSON.stringify({ name: 'shop', scripts: { start }, devDependencies: { tracer: '1' } }),
  )
  await writeFile(join(room.path, 'server.js'), '')
  const { files, notes } = planInit(detect(room.path))
  const config = JSON.parse(files[0]?.content ?? '') as Project
  equal(
    [config.entry, config.nodeFlags],
    ['server.js', ['--require=./pre.cjs', '--import=tracer/on', '--enable-source-maps']],
  )
  const said = notes.join('\n')
  match(said, 'dropped from the start script: --inspect, --env-file=.env. A release contains no env file')
  match(said, 'tracer is loaded before the application and is a development package')
  const refused = { service: 'shop', entry: 'server.js', nodeFlags: ['--inspect'] }
  throws(() => parseProject(refused, room.path), /expected Node flags .* in `nodeFlags`, got "--inspect"/)
  throws(() => parseProject({ ...refused, nodeFlags: ['--title=$(id)'] }, room.path), /`nodeFlags`/)
})

for (const kind of ['app', 'bundle', 'script'] as const) {
  // an executable that unpacks itself has flags in the test below, and is dear to build
  const register = kind === 'script' ? test : test.long
  register(`the flags are in effect in a release of the kind ${kind}, which starts and is named no fault`, async () => {
    await using room = await temporary('flags')
    const told = join(room.path, 'told.json')
    const nodeFlags = ['--enable-source-maps', '--max-old-space-size=300']
    const { warnings } = await built(room.path, { kind, nodeFlags }, told)
    equal(warnings, [])
    const { maps, bytes } = JSON.parse(await readFile(told, 'utf8')) as { maps: boolean; bytes: number }
    is(maps, true)
    is(Math.abs(bytes / 2 ** 20 - 300) < 150, true, `${bytes} bytes`)
  })
}

test('a release loads first what `--require` and `--import` name, in workers and children too; `build` checks it with variables that no release has, and says what is large; a killed start leaves no `before` behind', async () => {
  await using room = await temporary('preloads')
  const folder = join(room.path, 'app')
  await mkdir(folder)
  await mkdir(join(folder, 'data'))
  await writeFile(join(folder, 'data/table.json'), Buffer.alloc(2e6))
  for (const [name, text] of Object.entries(PRELOADED)) await writeFile(join(folder, name), text)
  const config = {
    nodeFlags: ['--import=./instrument.mjs', '--require=./first.cjs'],
    before: [['migrate.js', '{port}']],
  }
  const environment = { SECRET: 'of-the-try-alone' }
  await writeFile(join(folder, 'baton.config.json'), JSON.stringify({ try: { environment } }))
  const given = { service: 'shop', entry: 'server.js', healthPath: '/', ...config, try: { environment } }
  const project = parseProject(given, folder)
  const { warnings, directory, contents } = await buildQuietly({ project, out: join(room.path, 'out'), trial: true })
  equal([warnings, contents?.largest], [[], [{ path: 'data/', sizeBytes: 2e6 }]])
  const executable = join(room.path, 'shop')
  const bytes = zstdDecompressSync(await readFile(join(directory, `${assetName('shop')}.zst`)))
  is(bytes.includes('of-the-try-alone'), false)
  await writeFile(executable, bytes, { mode: 0o755 })
  const [state, configPath, port] = [join(room.path, 'state'), join(room.path, 'config.json'), await freePort()]
  await mkdir(state)
  const settings = {
    dashboard: { password: 'x'.repeat(16) },
    listen: { host: '127.0.0.1', port },
    stateDirectory: state,
  }
  await writeFile(configPath, JSON.stringify(settings), { mode: 0o600 })
  const env = { ...process.env, STATE_DIRECTORY: state, SECRET: 'of-the-host' }
  const start = () => spawn(executable, ['serve', '--config', configPath], { env, stdio: 'ignore' })

  await writeFile(join(state, 'slow'), '')
  const killed = start()
  const migration = await eventually('the migration', async () =>
    Number(await readFile(join(state, 'migrates'), 'utf8')),
  )
  const startTime = startTimeOf(migration)
  killed.kill('SIGKILL')
  await eventually('its end', async () => isGone({ pid: migration, startTime }))
  await rm(join(state, 'slow'))

  const served = start()
  try {
    const told = await eventually('an answer', async () => await (await fetch(`http://127.0.0.1:${port}/`)).json())
    const all = { first: true, traced: 'traced' }
    equal(told, { ...all, migrated: String(port), isMain: true, worker: all, child: all })
  } finally {
    served.kill('SIGKILL')
  }
})

test('a kind that has no files refuses what a file of the release would do', () => {
  const config = { service: 'shop', entry: 'server.js', kind: 'bundle' }
  throws(
    () => parseProject({ ...config, nodeFlags: ['--import=./a.mjs'] }, '/'),
    /`kind` to be `app` for `--import=\.\/a\.mjs`/,
  )
  throws(() => parseProject({ ...config, before: [['a.js']] }, '/'), /`kind` to be `app` for `before`/)
  throws(
    () => parseProject({ ...config, kind: 'app', before: ['a.js'] }, '/'),
    /expected a list of a file in the release and its arguments .* in `before\[0\]`/,
  )
  throws(
    () => parseProject({ ...config, kind: 'app', before: [['../a.js']] }, '/'),
    /expected a list of a file in the release .* in `before`, got/,
  )
})

test.long('an install unpacks the application before its start, whose time it is not', async () => {
  await using room = await temporary('flags')
  await built(room.path, { kind: 'app' })
  const home = join(room.path, 'home')
  await mkdir(home)
  const env = { HOME: home, XDG_CONFIG_HOME: undefined, XDG_STATE_HOME: undefined }
  const listen = ['--listen', `127.0.0.1:${await freePort()}`]
  const where = ['--user', '--no-service', '-y', '--json', ...listen]
  const command = ['sh', join(room.path, 'out/v1.0.0/install.sh'), 'install', ...where]
  try {
    const { stdout } = await run(command, { env })
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; stage?: string; do?: string; outcome?: string })
    const said = events.map(({ event, stage, do: step }) => `${event} ${stage ?? step ?? ''}`.trim())
    const at = said.indexOf('step start')
    ok(said.slice(0, at).includes('stage unpack'), said.join('; '))
    equal(said.slice(at), ['step start', 'stage start', 'step wait-healthy', 'result'])
    is(events.at(-1)?.outcome, 'installed')
  } finally {
    await run([join(home, '.local/bin/shop'), 'stop', '--user', '-q'], { env, allowFailure: true })
  }
})

test.long('what a `.env` sets is named, never its values; what the configuration gives is not', async () => {
  await using room = await temporary('flags')
  is(await noteOfDotEnv(room.path, {}), null)
  await writeFile(join(room.path, '.env'), '# ours\r\nPORT=8080\r\nexport API_KEY="s3cret"\n  DB_URL = x=y\n')
  await writeFile(join(room.path, '.env.example'), 'EXAMPLE=1\n')
  const note = (await noteOfDotEnv(room.path, { PORT: '{port}' })) ?? ''
  match(note, /^\.env in this folder stays out of the release, so an install does not get API_KEY, DB_URL: put/)
  for (const value of ['s3cret', 'x=y', '8080', 'EXAMPLE']) not(note.includes(value), value)
})

test.run()

// ---- parts

/** Each process says what was loaded before it; `dep.mjs` is another text if a hook was there in time. */
const PRELOADED = {
  'package.json': '{ "name": "shop", "type": "module" }',
  'first.cjs': 'globalThis.first = !globalThis.isLate',
  'instrument.mjs': `import { registerHooks } from 'node:module'
    await new Promise((resolve) => setTimeout(resolve, 20))
    globalThis.isLate = true
    const source = "export const told = 'traced'"
    const load = (url, context, next) => url.endsWith('/dep.mjs') ? { format: 'module', source, shortCircuit: true } : next(url, context)
    registerHooks({ load })`,
  'dep.mjs': `export const told = 'plain'`,
  'say.js': `import { told } from './dep.mjs'
    import { parentPort } from 'node:worker_threads'
    const say = parentPort === null ? (said) => process.send(said) : (said) => parentPort.postMessage(said)
    say({ first: globalThis.first, traced: told })`,
  'migrate.js': `import { existsSync, writeFileSync } from 'node:fs'
    const state = process.env.STATE_DIRECTORY
    writeFileSync(state + '/migrates', String(process.pid))
    while (existsSync(state + '/slow')) await new Promise((resolve) => setTimeout(resolve, 20))
    writeFileSync(state + '/migrated', process.argv[2])`,
  'server.js': `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
    if (!process.env.SECRET) throw new Error('no secret')
    import { told } from './dep.mjs'
    import { fork } from 'node:child_process'
    import { once } from 'node:events'
    import { readFileSync } from 'node:fs'
    import { createServer } from 'node:http'
    import { Worker } from 'node:worker_threads'
    const file = import.meta.dirname + '/say.js'
    const [[worker], [child]] = await Promise.all([once(new Worker(file), 'message'), once(fork(file), 'message')])
    const own = { first: globalThis.first, traced: told, isMain: import.meta.main }
    const migrated = readFileSync(process.env.STATE_DIRECTORY + '/migrated', 'utf8')
    createServer((request, response) => response.end(JSON.stringify({ ...own, migrated, worker, child }))).listen(process.env.PORT, process.env.HOST)`,
}

/** A release of a small service in `<room>/out`; it writes to `told` what Node has been told. */
async function built(room: string, config: object, told = join(room, 'told.json')) {
  const folder = join(room, 'app')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "name": "shop" }')
  await writeFile(
    join(folder, 'server.js'),
    `require('${join(PROJECT, 'agent/adapters/auto.ts')}')
     const { heap_size_limit: bytes } = require('node:v8').getHeapStatistics()
     require('node:fs').writeFileSync('${told}', JSON.stringify({ maps: process.sourceMapsEnabled, bytes }))
     require('node:http').createServer((request, response) => response.end('ok')).listen(process.env.PORT, process.env.HOST)`,
  )
  const project = parseProject({ service: 'shop', entry: 'server.js', ...config }, folder)
  return await buildQuietly({ project, out: join(room, 'out'), trial: true })
}
