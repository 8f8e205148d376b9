// @deadlineMs 300000
// The flags of Node in a start script: what `init` keeps of them, and that a release has them. And what is left of a `.env`.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../deploy/lib/shell.ts'
import { detect } from '../deploy/make/detect.ts'
import { noteOfDotEnv } from '../deploy/make/dot-env.ts'
import { planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject, type Project } from '../deploy/make/project.ts'
import { readNodeCommand } from '../deploy/make/start-script.ts'
import { equal, is, match, not, throws } from './assert.ts'
import { freePort } from './fixtures/install.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('flags', { timeoutMs: 240_000 })

test('a start script is read: flags, those of NODE_OPTIONS too, and the program behind them', () => {
  const cases: [string, string[], string | null][] = [
    ['node server.js', [], 'server.js'],
    ['node --inspect=0.0.0.0:9229 ./dist/main.js --port 1', ['--inspect=0.0.0.0:9229'], './dist/main.js'],
    ['npm run build && node -r dotenv/config server.js', ['-r dotenv/config'], 'server.js'],
    ['NODE_OPTIONS="--a --b=1" cross-env X=1 node --c server.js', ['--a', '--b=1', '--c'], 'server.js'],
  ]
  for (const [command, flags, program] of cases) {
    const read = readNodeCommand(command)
    equal([read?.flags, read?.program], [flags, program], command)
  }
  equal(readNodeCommand('next start'), null)
  equal(readNodeCommand('tsx src/node.ts'), null)
})

test('init keeps the flags that a release can have, and says which it cannot', async () => {
  await using room = await temporary('flags')
  const start = 'node --enable-source-maps --max-old-space-size=300 --inspect --env-file=.env server.js'
  await writeFile(join(room.path, 'package.json'), JSON.stringify({ name: 'shop', scripts: { start } }))
  await writeFile(join(room.path, 'server.js'), '')
  const { files, notes } = planInit(detect(room.path))
  const config = JSON.parse(files[0]?.content ?? '') as Project
  equal([config.entry, config.nodeFlags], ['server.js', ['--enable-source-maps', '--max-old-space-size=300']])
  match(notes.join('\n'), 'not kept of the start script: --inspect, --env-file=.env')
  const refused = { service: 'shop', entry: 'server.js', nodeFlags: ['--inspect'] }
  throws(() => parseProject(refused, room.path), /expected flags of Node .* in `nodeFlags`, got "--inspect"/)
  throws(() => parseProject({ ...refused, nodeFlags: ['--title=$(id)'] }, room.path), /`nodeFlags`/)
})

for (const kind of ['app', 'bundle', 'script'] as const) {
  const register = kind === 'app' ? test : test.long
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

test('an install unpacks the application before its start, whose time it is not', async () => {
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
    equal(said.slice(said.indexOf('step start')), [
      'step start',
      'stage unpack',
      'stage start',
      'step wait-healthy',
      'result',
    ])
    is(events.at(-1)?.outcome, 'installed')
  } finally {
    await run([join(home, '.local/bin/shop'), 'stop', '--user', '-q'], { env, allowFailure: true })
  }
})

test('what a `.env` sets is named, never its values; what the configuration gives is not', async () => {
  await using room = await temporary('flags')
  is(await noteOfDotEnv(room.path, {}), null)
  await writeFile(join(room.path, '.env'), '# ours\r\nPORT=8080\r\nexport API_KEY="s3cret"\n  DB_URL = x=y\n')
  await writeFile(join(room.path, '.env.example'), 'EXAMPLE=1\n')
  const note = (await noteOfDotEnv(room.path, { PORT: '{port}' })) ?? ''
  match(note, /^\.env of this folder stays out of the release, so an install does not get API_KEY, DB_URL from there/)
  for (const value of ['s3cret', 'x=y', '8080', 'EXAMPLE']) not(note.includes(value), value)
})

test.run()

// ---- parts

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
  return await buildQuietly({ project, out: join(room, 'out'), check: true })
}
