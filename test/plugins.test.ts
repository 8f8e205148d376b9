// Plugins that an application installs at run time, into its state directory: what docs/author/packages.md says of them. A real
// executable, a real npm, an update and a rollback.

import { copyFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Operation, Status } from '../agent/index.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { run } from '../deploy/lib/shell.ts'
import { equal, is, match } from './assert.ts'
import { ask, freePort } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('plugins', { timeoutMs: 240_000 })

/** a package of the application, and one of the plugin */
const [LENT, OWN] = ['host-lib', 'greeter-dep']
/** Loads its plugins from the state directory, and lends them its own copy of `host-lib`. */
const APPLICATION = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
import { mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { host } from '${LENT}'

const folder = join(process.env.STATE_DIRECTORY, 'plugins')
const load = createRequire(join(folder, 'package.json'))
const lent = join(folder, 'node_modules', 'host-lib')
const lend = () => {
  mkdirSync(join(folder, 'node_modules'), { recursive: true })
  rmSync(lent, { force: true, recursive: true })
  symlinkSync(join(import.meta.dirname, 'node_modules', 'host-lib'), lent)
}
if (process.env.STATE_DIRECTORY.includes('state')) lend()
createServer(async (request, response) => {
  if (request.url === '/healthz') return response.end('ok')
  if (request.url === '/take-back') rmSync(lent, { force: true })
  if (request.url === '/lend') lend()
  try {
    const plugin = load('greeter')
    const asModule = await import(pathToFileURL(load.resolve('greeter')))
    response.end(JSON.stringify({ ...(await plugin.report(host)), asModule: asModule.default === plugin }))
  } catch (error) {
    response.end(JSON.stringify({ error: error.code }))
  }
}).listen(Number(process.env.PORT), process.env.HOST)
`

const PLUGIN = `const { fork } = require('node:child_process')
const { Worker } = require('node:worker_threads')
const tried = (act) => { try { return act() } catch (error) { return error.code ?? error.message } }
exports.report = async (host) => ({
  own: require('${OWN}'),
  host: tried(() => require('${LENT}').host === host),
  addon: tried(() => typeof require('./addon.node').db_open),
  child: await new Promise((done) => fork(__filename + '.child', { stdio: 'ignore' }).once('exit', done)),
  worker: await new Promise((done) => new Worker('process.exit(4)', { eval: true }).once('exit', done)),
})
`

test('plugins live in the state directory: an update and a rollback find them, and what the application lends them is its own', async () => {
  await using made = await temporary('plugins')
  const home = made.path
  const out = join(home, 'feed')
  const folder = join(home, 'app')
  const put = async (path: string, text: string) => {
    await mkdir(join(home, path, '..'), { recursive: true })
    await writeFile(join(home, path), text)
  }
  await put('app/package.json', '{ "name": "shop", "type": "module", "dependencies": { "host-lib": "*" } }')
  await put('app/server.js', APPLICATION)
  await put('app/node_modules/host-lib/package.json', '{ "name": "host-lib", "version": "1.0.0" }')
  await put('app/node_modules/host-lib/index.js', 'exports.host = {}')
  await mkdir(join(home, 'greeter'))
  await copyFile(await addonHere(), join(home, 'greeter', 'addon.node'))
  await put(
    'greeter/package.json',
    '{ "name": "greeter", "version": "1.0.0", "dependencies": { "greeter-dep": "file:../greeter-dep" } }',
  )
  await put('greeter/index.js', PLUGIN)
  await put('greeter/index.js.child', 'process.exit(3)')
  await put('greeter-dep/package.json', '{ "name": "greeter-dep", "version": "1.0.0" }')
  await put('greeter-dep/index.js', `module.exports = 'its own'`)
  const project = parseProject({ service: 'shop', entry: 'server.js', healthPath: '/healthz' }, folder)
  await buildTags({ project, out }, ['v1.0.0', 'v1.1.0'])

  const port = await freePort()
  const env = { HOME: home, XDG_CONFIG_HOME: undefined, XDG_STATE_HOME: undefined }
  const flags = ['--user', '--no-service', '--no-start', '-y', '-q', '--listen', `127.0.0.1:${port}`]
  await run(['sh', join(out, 'v1.0.0', 'install.sh'), ...flags], { env })
  const config = join(home, '.config/shop/config.json')
  const written = JSON.parse(await readFile(config, 'utf8')) as {
    dashboard: { password: string }
    stateDirectory: string
  }
  await writeFile(config, JSON.stringify({ ...written, update: { probation: '500ms' } }), { mode: 0o600 })
  const { password } = written.dashboard
  const command = join(home, '.local/bin/shop')
  const report = async (path = '/') => JSON.parse(String((await ask(port, 'GET', path, null)).body)) as unknown
  const operate = async (path: string, body?: unknown) => {
    const { id } = (await ask(port, 'POST', path, password, body)).body as Operation
    const look = async () => {
      const { operation } = (await ask(port, 'GET', '/admin/update/status', password)).body as Status
      return operation?.id === id && operation.outcome !== null ? operation : null
    }
    return (await eventually('the outcome', look, 60_000)).outcome
  }
  try {
    is((await run([command, 'start', '--user', '-q'], { env, allowFailure: true })).exitCode, 0)
    equal(await report(), { error: 'MODULE_NOT_FOUND' })

    const plugins = join(written.stateDirectory, 'plugins')
    const npm = ['npm', 'install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', '--install-links']
    await writeFile(join(plugins, 'package.json'), '{ "private": true }')
    await run([...npm, '--prefix', plugins, join(home, 'greeter')], { env: { HOME: home }, cwd: plugins })
    // npm knows nothing of what the application lends: it may remove that
    const without = {
      own: 'its own',
      host: 'MODULE_NOT_FOUND',
      addon: 'function',
      child: 7,
      worker: 4,
      asModule: true,
    }
    equal(await report('/take-back'), without)
    equal(await report('/lend'), { ...without, host: true })

    // each release lends its own copy, from a folder of its own
    for (const [path, body] of [
      ['/admin/update', { tag: 'v1.1.0' }],
      ['/admin/update/rollback', undefined],
    ] as const) {
      match((await operate(path, body)) ?? '', /updated|rolled_back/)
      equal(await report(), { ...without, host: true })
    }
  } finally {
    await run([command, 'stop', '--user', '-q'], { env, allowFailure: true })
  }
})

/** An addon of Node-API that was compiled elsewhere. */
async function addonHere(): Promise<string> {
  const folder = join(PROJECT, 'node_modules/classic-level/prebuilds', `${process.platform}-${process.arch}`)
  const names = (await readdir(folder)).filter((name) => name.endsWith('.node') && !name.includes('musl'))
  return join(folder, names[0] ?? '')
}

test.run()
