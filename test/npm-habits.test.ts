// @long
// `deploy-npm.sh` over time: runs that are killed, addons, and the page of the operator.

import { is, match, ok } from './assert.ts'
import { put } from './lab/managed.ts'
import { bootNpmHost, DEPLOY_NPM, GREETER, greeter } from './lab/npm-host.ts'
import type { Package } from './lab/npm-registry.ts'
import { commandsOf } from './lab/page.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('npm habits', { skip: noHosts, timeoutMs: 400_000 })

test('a run that is killed at any stage leaves the service as it is, and the next one goes on; three versions stay', async () => {
  await using lab = await bootNpmHost()
  const { host, deploy, killed, publish, says } = lab
  await publish(greeter('1.0.0'))
  const feed = '/var/lib/baton-npm/greeter/feed'
  await killed(`grep -q '"stage":"see"' /tmp/said`, 'greeter', '--listen', '127.0.0.1:8123')
  await killed('test -e /opt/greeter', 'greeter', '--listen', '127.0.0.1:8123')
  const installed = await deploy('greeter', '--listen', '127.0.0.1:8123')
  is(installed.code, 0, installed.stdout + installed.stderr)
  is(await says(), '1.0.0 0')

  await publish(greeter('1.1.0'))
  for (const stage of ['lock', 'fetch', 'addons', 'compose', 'try', 'publish']) {
    await killed(`grep -q '"stage":"${stage}"' /tmp/said`, '--update')
    is(await says(), '1.0.0 0', stage)
  }
  for (const version of ['1.1.0', '1.2.0', '1.3.0']) {
    if (version !== '1.1.0') await publish(greeter(version))
    const next = await deploy('--update')
    is(next.code, 0, next.stdout + next.stderr)
    is(next.end['to'], `v${version}`)
    await host.ok('greeter', 'upgrade')
    is(await says(), `${version} 0`)
    if (version === '1.3.0') match(next.stdout, 'removed from disk: v1.0.0')
  }
  is((await host.ok('ls', feed)).match(/^v.*$/gm)?.join(' '), 'v1.1.0 v1.2.0 v1.3.0')
})

const ADDER = 'adder'

/** An addon in C, which a compiler makes. */
const adder = (version: string, more = ''): Package => ({
  name: ADDER,
  version,
  manifest: { main: 'build/Release/adder.node', scripts: { install: 'node-gyp rebuild' }, gypfile: true },
  files: {
    'binding.gyp': JSON.stringify({ targets: [{ target_name: 'adder', sources: ['adder.c'] }] }),
    'adder.c': `#include <node_api.h>\n${more}\nNAPI_MODULE_INIT() { return exports; }\n`,
  },
})

test('an addon is built for the Node of the release if it is named; one that does not build is refused before anything is installed', async () => {
  await using lab = await bootNpmHost()
  const { host, deploy, publish } = lab
  const withAdder = (version: string, needed: string) =>
    greeter(version, {
      files: { 'bin/greeter.js': `${GREETER(version)}require('${ADDER}')\n` },
      manifest: { bin: { greeter: 'bin/greeter.js' }, dependencies: { adder: needed } },
    })
  await publish(adder('1.0.0'))
  await publish(adder('1.0.1', '#error no'))
  await publish(withAdder('1.0.0', '1.0.0'))
  await publish(withAdder('1.1.0', '1.0.1'))
  const flags = ['--build-only', '--release', '1.0.0']
  const unnamed = await deploy('greeter', ...flags)
  ok(unnamed.code !== 0, unnamed.stdout)
  match(String(unnamed.end['hint']), '`--allow-scripts adder`')
  const named = await deploy('greeter', ...flags, '--allow-scripts', 'adder')
  is(named.code, 0, named.stdout + named.stderr)
  const broken = await deploy('greeter', '--listen', '127.0.0.1:8123')
  is(broken.code, 7, broken.stdout + broken.stderr)
  match(String(broken.end['message']), 'the native addons of adder could not be built for greeter 1.1.0')
  match(String(broken.end['hint']), 'the newest version that already works here, 1.0.0')
  is((await host.ok('ls', '/var/lib/baton-npm/greeter/feed')).match(/^v.*$/gm)?.join(' '), 'v1.0.0')
  is((await host.run(['test', '-e', '/opt/greeter'])).code, 1)
})

test('the page of the operator is followed: an install, updates, a folder for another host, and a unit of the same package taken over', async () => {
  await using lab = await bootNpmHost()
  const { host, publish } = lab
  const like = { name: 'node-red', manifest: { bin: { 'node-red': 'bin/greeter.js' } } }
  for (const version of ['5.0.7', '5.0.8']) await publish(greeter(version, like))
  const kit = await packedKit()
  const follow = async (script: string) => {
    const filled = script
      .replaceAll('deploy/deploy-npm.sh', `${DEPLOY_NPM} --kit ${kit}`)
      .replace(' node-red --listen', ' node-red --release 5.0.7 --listen')
    const { code, stdout, stderr } = await host.run(['sh', '-eux', '-c', filled], { env: lab.env, timeoutMs: 500_000 })
    is(code, 0, stdout + stderr)
    return stdout
  }
  const [first = '', next = '', adopt = '', elsewhere = '', ...more] = await commandsOf('docs/operator/npm.md')
  is(more.length, 0)
  match(await follow(`${first}\n${next}`), 'node-red v5.0.8 is running and healthy, replacing v5.0.7')
  await follow(elsewhere)
  await host.ok('test', '-e', '/srv/red/v5.0.8/release.json')

  // what was there before, on a host that Baton has left. Below /usr/local the command of a release has its own place
  await host.ok('node-red', 'uninstall', '--purge', '--confirm', 'node-red', '-y')
  await host.ok('rm', '-r', '/var/lib/baton-npm/node-red')
  await follow('npm install -g node-red@5.0.7 --prefix /usr && mkdir ~/.node-red && printf xxx > ~/.node-red/visits')
  const settings = 'PORT=1880 HOST=127.0.0.1 STATE_DIRECTORY=/root/.node-red'
  const unit = `[Service]\nEnvironment=${settings}\nExecStart=/usr/bin/env node /usr/bin/node-red\n`
  await put(host, '/etc/systemd/system/red.service', `${unit}[Install]\nWantedBy=multi-user.target\n`)
  await host.ok('systemctl', 'enable', '--now', 'red')
  const says = async () => (await host.run(['curl', '-fsS', 'http://127.0.0.1:1880/'])).stdout
  await eventually('the former one', async () => (await says()) === '5.0.7 3')
  await follow(adopt)
  is(await says(), '5.0.7 3')
  await follow(adopt.replace('--dry-run', '--yes'))
  is(await says(), '5.0.8 3')
})

test.run()
