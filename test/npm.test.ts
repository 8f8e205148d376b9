// @deadlineMs 900000
// `deploy-npm.sh` on a host with systemd, with a registry of its own: from nothing to a service that is updated; what it refuses, and what
// a hostile package comes to. Real packages of others: `npm run apps -- --npm`.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { is, match, ok } from './assert.ts'
import { type NpmRegistry, type Package, publishPackage, startRegistry } from './lab/npm-registry.ts'
import { bootHost, eventually, type Host, noHosts, type Ran } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('npm', { skip: noHosts, timeoutMs: 400_000 })

/** A service as somebody writes it who has never heard of Baton. */
const SERVER = (word: string) => `#!/usr/bin/env node
const { appendFileSync, readFileSync } = require('node:fs')
const { join } = require('node:path')
const file = join(process.env.STATE_DIRECTORY ?? '.', 'visits')
require('node:http').createServer((request, response) => {
  if (request.url === '/visit') appendFileSync(file, 'x')
  let visits = 0
  try { visits = readFileSync(file).length } catch {}
  response.end('${word} ' + visits)
}).listen(process.env.PORT ?? 8000, process.env.HOST)
`

function greeter(version: string, more: Partial<Package> = {}): Package {
  return {
    name: 'greeter',
    version,
    files: { 'bin/greeter.js': SERVER(version) },
    manifest: { bin: { greeter: 'bin/greeter.js' }, license: 'MIT' },
    ...more,
  }
}

/** It says what it could reach, and ends. */
const SPY = `
const { readFileSync, readdirSync, writeFileSync } = require('node:fs')
const found = { isRoot: process.getuid() === 0 }
const attempt = (name, act) => { try { act(); found[name] = 'done' } catch (error) { found[name] = error.code } }
attempt('secret', () => readFileSync('/root/.ssh/id_rsa'))
attempt('mine', () => readFileSync('/srv/mine'))
attempt('etc', () => writeFileSync('/etc/evil', 'x'))
found.capabilities = /CapPrm:\\s*(\\w+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]
const socket = require('node:net').connect(Number(process.env.PORT) + 1, '192.0.2.1')
socket.on('error', (error) => { found.network = error.code; console.log(JSON.stringify(found)); process.exit(3) })
`

interface Lab extends AsyncDisposable {
  host: Host
  folder: string
  registry: NpmRegistry
  env: Record<string, string>
  deploy(...args: string[]): Promise<Ran & { end: Record<string, unknown> }>
  publish(one: Package): Promise<void>
  says(path?: string): Promise<string>
}

/** A host, and a registry in its network. */
async function boot(): Promise<Lab> {
  await using scope = new AsyncDisposableStack()
  const folder = scope.use(await temporary('registry')).path
  const host = scope.use(await bootHost())
  const registry = scope.use(await startRegistry(folder, { prefix: await host.network() }))
  const kit = await packedKit()
  const env = { npm_config_registry: registry.url }
  const kept = scope.move()
  return {
    host,
    folder,
    registry,
    env,
    publish: async (one) => await publishPackage(folder, one),
    async deploy(...args) {
      const flags = ['--json', '--kit', kit]
      const command = [join(PROJECT, 'deploy/deploy-npm.sh'), ...args.slice(0, 1), ...flags, ...args.slice(1)]
      const ran = await host.run(command, { env, timeoutMs: 300_000 })
      const last = ran.stdout.trim().split('\n').at(-1) ?? ''
      return { ...ran, end: JSON.parse(last.startsWith('{') ? last : '{}') as Record<string, unknown> }
    },
    says: async (path = '/') => (await host.run(['curl', '-fsS', `http://127.0.0.1:8123${path}`])).stdout,
    [Symbol.asyncDispose]: async () => await kept.disposeAsync(),
  }
}

test('a package becomes a service by one command, a newer version comes by itself into its folder, and nothing is lost', async () => {
  await using lab = await boot()
  const { host, deploy, publish, says } = lab
  await publish(greeter('1.0.0'))
  const planned = await deploy('greeter', '--dry-run')
  is(planned.code, 0, planned.stderr)
  is((await host.run(['test', '-e', '/var/lib/baton-npm'])).code, 1)

  const installed = await deploy('greeter', '--listen', '127.0.0.1:8123')
  is(installed.code, 0, installed.stdout + installed.stderr)
  match(JSON.stringify(installed.end), '"outcome":"installed"')
  is(await says('/visit'), '1.0.0 1')
  is(await host.ok('systemctl', 'is-active', 'greeter', 'baton-npm.timer'), 'active\nactive\n')
  const again = await deploy('greeter')
  is(again.end['outcome'], 'up_to_date', again.stdout)

  await publish(greeter('1.1.0'))
  await publish(greeter('1.2.0', { publishedAt: new Date().toISOString() }))
  await publish(greeter('1.1.1', { deprecated: 'it forgets' }))
  const updated = await deploy('--update')
  is(updated.code, 0, updated.stdout + updated.stderr)
  is(updated.end['to'], 'v1.1.0', updated.stdout)
  is(await says(), '1.0.0 1') // its own policy decides
  await host.ok('greeter', 'upgrade')
  is(await says('/visit'), '1.1.0 2')
  is((await deploy('--update')).end['outcome'], 'up_to_date')
  ok((await lab.registry.requests()).some((line) => line === '304 /greeter'))

  await publish(greeter('1.1.0', { files: { 'bin/greeter.js': SERVER('other') } }))
  match((await deploy('--update')).stdout, 'replaced under the same number')
  is((await host.run(['test', '-e', '/var/lib/baton-npm/greeter/feed/v1.1.0'])).code, 1)
  is((await deploy('greeter', '--release', '1.1.0')).code, 5)
})

test('a hostile package runs nothing outside of its cell, and what the registry or the lock file shows of it is refused before', async () => {
  await using lab = await boot()
  const { host, deploy, publish } = lab
  await host.ok(
    'sh',
    '-c',
    'mkdir -p /root/.ssh && echo secret >/root/.ssh/id_rsa && echo mine >/srv/mine && chmod 777 /srv',
  )
  const script = (file: string) => `id >/srv/${file}; cat /root/.ssh/id_rsa >/srv/${file}; touch /tmp/${file}; true`
  const manifest = { scripts: { postinstall: script('installed') }, bin: { greeter: 'bin/greeter.js' } }
  const files = { 'bin/greeter.js': SPY }
  await publish(greeter('1.0.0', { files, manifest }))
  const seen = await deploy('greeter', '--build-only', '--allow-scripts', 'greeter')
  is(seen.code, 5, seen.stdout)
  const said = String(seen.end['message'])
  for (const word of [
    '"secret":"ENOENT"',
    '"mine":"ENOENT"',
    '"etc":"EROFS"',
    '"isRoot":false',
    '"capabilities":"0000000000000000"',
  ])
    match(said, word)
  match(said, /"network":"(ENETUNREACH|ECONNREFUSED)"/)
  is(
    await host.ok('sh', '-c', 'ls /srv /var/lib/baton-npm/greeter/feed'),
    '/srv:\nmine\n\n/var/lib/baton-npm/greeter/feed:\n',
  )
  is((await host.run(['test', '-e', '/tmp/installed'])).code, 1)

  const refused: [Partial<Package>, string][] = [
    [{ manifest: { bin: { greeter: '../../../bin/sh' } } }, 'expected a command inside of greeter'],
    [
      { manifest: { bin: { greeter: 'bin/greeter.js' }, dependencies: { other: 'file:/srv' } } },
      'packages of the registry only',
    ],
    [
      { manifest: { bin: { greeter: 'bin/greeter.js' }, dependencies: { 'baton-kit': '1.0.0' } } },
      'no place for a package',
    ],
    [{ manifest: { engines: { node: '<24' }, bin: 'bin/greeter.js' } }, 'wants Node <24'],
    [{ deprecated: 'no more' }, 'deprecated: no more'],
  ]
  await publish({ ...greeter('1.0.0'), name: 'baton-kit' })
  for (const [at, [more, expected]] of refused.entries()) {
    const version = `2.${at}.0`
    await publish(greeter(version, more))
    const ran = await deploy('greeter', '--build-only', '--release', version)
    ok(ran.code !== 0, ran.stdout)
    match(String(ran.end['message']), expected)
  }
})

test.long('a run that is killed at any moment leaves the service as it is, and the next run goes on', async () => {
  await using lab = await boot()
  const { host, deploy, publish, says } = lab
  await publish(greeter('1.0.0'))
  is((await deploy('greeter', '--listen', '127.0.0.1:8123')).code, 0)
  for (let round = 1; round <= 8; round++) {
    await publish(greeter(`1.${round}.0`))
    const command = `${join(PROJECT, 'deploy/deploy-npm.sh')} --update --json`
    const afterS = (Math.random() * 40).toFixed(1)
    await host.run(['timeout', '-s', 'KILL', afterS, 'sh', '-c', `exec ${command}`], {
      env: lab.env,
      timeoutMs: 120_000,
    })
    is(await says(), `${round === 1 ? '1.0.0' : `1.${round - 1}.0`} 0`, `killed after ${afterS} s`)
    const next = await deploy('--update')
    is(next.code, 0, next.stdout + next.stderr)
    is(next.end['to'], `v1.${round}.0`)
    await host.ok('greeter', 'upgrade')
    is(await says(), `1.${round}.0 0`)
  }
  const tags = (await host.ok('ls', '/var/lib/baton-npm/greeter/feed'))
    .split('\n')
    .filter((name) => name.startsWith('v'))
  is(tags.length, 3)
})

test.long(
  'an existing unit of the same package is taken over with its data after one consent, and can come back',
  async () => {
    await using lab = await boot()
    const { host, deploy, publish, says } = lab
    await publish(greeter('1.0.0'))
    const program = '/usr/local/lib/node_modules/greeter/bin/greeter.js'
    const unit = `[Service]\nEnvironment=PORT=8123 HOST=127.0.0.1 STATE_DIRECTORY=/srv/former\nExecStart=${process.execPath} ${program}\n[Install]\nWantedBy=multi-user.target\n`
    const write = (path: string, text: string) =>
      host.run(['sh', '-c', `mkdir -p $(dirname ${path}) && cat >${path}`], { input: text })
    await write(program, SERVER('former'))
    await write('/etc/systemd/system/hello.service', unit)
    await host.ok('sh', '-c', 'mkdir -p /srv/former && printf xxx >/srv/former/visits')
    await host.ok('systemctl', 'enable', '--now', 'hello.service')
    await eventually('the former one', async () => (await says()) === 'former 3')
    const flags = ['--adopt', '--data', '/srv/former', '--listen', '127.0.0.1:8123']
    const asked = await deploy('greeter', ...flags)
    is(asked.code, 7)
    match(String(asked.end['message']), 'this stops the unit hello.service')
    is(await says(), 'former 3')

    const done = await deploy('greeter', ...flags, '--yes')
    is(done.code, 0, done.stdout + done.stderr)
    is(await says('/visit'), '1.0.0 4')
    is(await host.ok('cat', '/srv/former/visits'), 'xxx')
    await host.ok('sh', '-c', 'greeter stop && systemctl enable --now hello.service')
    await eventually('the former one again', async () => (await says()) === 'former 3')
  },
)

test.long('the page of the operator is followed', async () => {
  await using lab = await boot()
  const { host, publish } = lab
  const like = { name: 'node-red', manifest: { bin: { 'node-red': 'bin/greeter.js' } } }
  for (const version of ['5.0.7', '5.0.8']) await publish(greeter(version, like))
  const page = await readFile(join(PROJECT, 'docs/operator/npm.md'), 'utf8')
  const blocks = [...page.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text)
  is(blocks.length, 3)
  const script = blocks
    .join('\n')
    .replaceAll('deploy/deploy-npm.sh', `${join(PROJECT, 'deploy/deploy-npm.sh')} --kit ${await packedKit()}`)
    .replace('node-red --listen', 'node-red --release 5.0.7 --listen')
  const { code, stdout, stderr } = await host.run(['sh', '-eux', '-c', script], { env: lab.env, timeoutMs: 500_000 })
  is(code, 0, stdout + stderr)
  match(stdout, 'node-red v5.0.8 is in place, it was v5.0.7')
  await host.ok('test', '-e', '/srv/red/v5.0.8/release.json')
})

test.run()
