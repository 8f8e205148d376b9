// @long
// What a hostile package comes to that `deploy-npm.sh` is told to make a service of.

import { is, match, ok } from './assert.ts'
import { bootNpmHost, greeter } from './lab/npm-host.ts'
import type { Package } from './lab/npm-registry.ts'
import { noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('npm hostile', { skip: noHosts, timeoutMs: 400_000 })

/** It says what it could reach, and ends. */
const SPY = `
const { readFileSync, readdirSync, writeFileSync } = require('node:fs')
const found = { isRoot: process.getuid() === 0 }
const attempt = (name, act) => { try { act(); found[name] = 'done' } catch (error) { found[name] = error.code } }
attempt('secret', () => readFileSync('/root/.ssh/id_rsa'))
attempt('mine', () => readFileSync('/srv/open/mine'))
attempt('etc', () => writeFileSync('/etc/evil', 'x'))
found.capabilities = /CapPrm:\\s*(\\w+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]
const socket = require('node:net').connect(Number(process.env.PORT) + 1, '192.0.2.1')
socket.on('error', (error) => { found.network = error.code; console.log(JSON.stringify(found)); process.exit(3) })
`

test('a hostile package runs nothing outside of its cell, and what the registry or the lock file shows of it is refused before', async () => {
  await using lab = await bootNpmHost()
  const { host, deploy, publish } = lab
  await host.ok(
    'sh',
    '-c',
    'mkdir -p /root/.ssh && echo secret >/root/.ssh/id_rsa && mkdir -m 777 /srv/open && echo mine >/srv/open/mine',
  )
  const script = (file: string) =>
    `id >/srv/open/${file}; cat /root/.ssh/id_rsa >/srv/open/${file}; touch /tmp/${file}; true`
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
    await host.ok('sh', '-c', 'ls /srv/open /var/lib/baton-npm/greeter/feed'),
    '/srv/open:\nmine\n\n/var/lib/baton-npm/greeter/feed:\n',
  )
  is((await host.run(['test', '-e', '/tmp/installed'])).code, 1)

  const refused: [Partial<Package>, string][] = [
    [{ manifest: { bin: { greeter: '../../../bin/sh' } } }, 'expected a command inside greeter'],
    [
      { manifest: { bin: { greeter: 'bin/greeter.js' }, dependencies: { other: 'file:/srv' } } },
      'every package must come from the registry, but ',
    ],
    [
      { manifest: { bin: { greeter: 'bin/greeter.js' }, dependencies: { 'baton-kit': '1.0.0' } } },
      'was installed from a local copy of Baton',
    ],
    [{ manifest: { engines: { node: '<24' }, bin: 'bin/greeter.js' } }, 'requires Node <24, but releases run on Node'],
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

test.run()
