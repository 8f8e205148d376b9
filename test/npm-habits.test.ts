// @long
// `deploy-npm.sh` over time: runs that are killed, a former install that is taken over, and the page of the operator.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { is, match } from './assert.ts'
import { bootNpmHost, DEPLOY_NPM, GREETER, greeter } from './lab/npm-host.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('npm habits', { skip: noHosts, timeoutMs: 400_000 })

test('a run that is killed at any moment leaves the service as it is, and the next run goes on', async () => {
  await using lab = await bootNpmHost()
  const { host, deploy, publish, says } = lab
  await publish(greeter('1.0.0'))
  is((await deploy('greeter', '--listen', '127.0.0.1:8123')).code, 0)
  for (let round = 1; round <= 4; round++) {
    await publish(greeter(`1.${round}.0`))
    const command = `${DEPLOY_NPM} --update --json`
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

test('an existing unit of the same package is taken over with its data after one consent, and can come back', async () => {
  await using lab = await bootNpmHost()
  const { host, deploy, publish, says } = lab
  await publish(greeter('1.0.0'))
  const program = '/usr/local/lib/node_modules/greeter/bin/greeter.js'
  const unit = `[Service]\nEnvironment=PORT=8123 HOST=127.0.0.1 STATE_DIRECTORY=/srv/former\nExecStart=${process.execPath} ${program}\n[Install]\nWantedBy=multi-user.target\n`
  const write = (path: string, text: string) =>
    host.run(['sh', '-c', `mkdir -p $(dirname ${path}) && cat >${path}`], { input: text })
  await write(program, GREETER('former'))
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
})

test('the page of the operator is followed', async () => {
  await using lab = await bootNpmHost()
  const { host, publish } = lab
  const like = { name: 'node-red', manifest: { bin: { 'node-red': 'bin/greeter.js' } } }
  for (const version of ['5.0.7', '5.0.8']) await publish(greeter(version, like))
  const page = await readFile(join(PROJECT, 'docs/operator/npm.md'), 'utf8')
  const blocks = [...page.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text)
  is(blocks.length, 3)
  const script = blocks
    .join('\n')
    .replaceAll('deploy/deploy-npm.sh', `${DEPLOY_NPM} --kit ${await packedKit()}`)
    .replace('node-red --listen', 'node-red --release 5.0.7 --listen')
  const { code, stdout, stderr } = await host.run(['sh', '-eux', '-c', script], { env: lab.env, timeoutMs: 500_000 })
  is(code, 0, stdout + stderr)
  match(stdout, 'node-red v5.0.8 is in place, it was v5.0.7')
  await host.ok('test', '-e', '/srv/red/v5.0.8/release.json')
})

test.run()
