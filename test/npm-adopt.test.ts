// @long
// `deploy-npm.sh --adopt`: former installs of each kind are taken over with their data, and come back.

import { is, match } from './assert.ts'
import { pm2 } from './bench/setup.ts'
import { bootNpmHost, DEPLOY_NPM, GREETER, greeter, type NpmHost } from './lab/npm-host.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('npm adopt', { skip: noHosts, timeoutMs: 400_000 })

const FLAGS = ['--adopt', '--data', '/srv/former', '--listen', '127.0.0.1:8123']

/** A global install of its first version, with three visits; `start` runs it. */
async function bootFormer(start: (lab: NpmHost) => Promise<void>): Promise<NpmHost> {
  const lab = await bootNpmHost()
  const { host, publish, says } = lab
  await publish(greeter('0.9.0', { files: { 'bin/greeter.js': GREETER('former') } }))
  await host.ok(
    'sh',
    '-c',
    `npm_config_registry=${lab.env['npm_config_registry']} npm install -g greeter --prefix /srv/npm`,
  )
  await host.ok('sh', '-c', 'mkdir -p /srv/former && printf xxx >/srv/former/visits')
  await start(lab)
  await eventually('the former one', async () => (await says()) === 'former 3')
  await publish(greeter('1.0.0', { files: { 'bin/greeter.js': SPOILT } }))
  return lab
}

/** It does not start with spoilt data. */
const SPOILT = GREETER('1.0.0').replace(
  '\n',
  `\nif (require('node:fs').existsSync(process.env.STATE_DIRECTORY + '/spoilt')) process.exit(4)\n`,
)
const SETTINGS = 'PORT=8123 HOST=127.0.0.1 STATE_DIRECTORY=/srv/former'

async function startUnit({ host }: NpmHost): Promise<void> {
  const unit = `[Service]\nEnvironment=${SETTINGS}\nExecStart=/usr/bin/env node \\\n  /srv/npm/bin/greeter\n[Install]\nWantedBy=multi-user.target\n`
  await host.run(['sh', '-c', 'cat >/etc/systemd/system/hello.service'], { input: unit })
  await host.ok('systemctl', 'enable', '--now', 'hello.service')
}

test('an existing unit of the same package is taken over with its data after one consent, and can come back', async () => {
  await using lab = await bootFormer(startUnit)
  const { host, deploy, killed, says } = lab
  const refused = async (code: number, text: string, ...flags: string[]) => {
    const ran = await deploy('greeter', ...FLAGS, ...flags)
    is(ran.code, code, ran.stdout + ran.stderr)
    match(String(ran.end['message']), text)
    await eventually(`the former one, after ${text}`, async () => (await says()) === 'former 3')
  }
  await refused(7, 'this would stop the unit hello.service')
  await refused(7, 'the service will listen on 127.0.0.1:8123')
  await refused(2, 'where the data of', '--data', '/srv/none', '--yes')
  await host.ok('sh', '-c', 'mkdir /var/lib/greeter && touch /var/lib/greeter/mine')
  await refused(7, '/var/lib/greeter already exists', '--yes')
  await host.ok('rm', '-r', '/var/lib/greeter')
  // what does not start with the data does not stay
  await host.ok('touch', '/srv/former/spoilt')
  await refused(8, 'did not take over from the unit hello.service, which is running again', '--yes')
  is((await host.run(['ls', '/etc/systemd/system/greeter.service', '/var/lib/greeter/visits'])).stdout, '')
  await host.ok('rm', '/srv/former/spoilt')
  await killed('! systemctl -q is-active hello', 'greeter', ...FLAGS, '--yes')

  const done = await deploy('greeter', ...FLAGS, '--yes')
  is(done.code, 0, done.stdout + done.stderr)
  is(await says('/visit'), '1.0.0 4')
  is(await host.ok('cat', '/srv/former/visits'), 'xxx')
  is((await host.run(['systemctl', 'is-enabled', 'hello'])).stdout, 'disabled\n')
  is((await deploy('greeter', ...FLAGS, '--yes')).end['outcome'], 'up_to_date')
  is(await says(), '1.0.0 4')
  await host.ok('sh', '-c', 'greeter uninstall -y && systemctl enable --now hello.service')
  await eventually('the former one again', async () => (await says()) === 'former 3')
  is(await host.ok('cat', '/var/lib/greeter/visits'), 'xxxx')
})

test('what pm2 runs is taken over, stays stopped after a boot, and comes back by the command that was said', async () => {
  const tool = await pm2(() => {})
  if ('missing' in tool) throw new Error(`it needs pm2: ${tool.missing}`)
  await using lab = await bootFormer(async ({ host }) => {
    await host.ok('ln', '-s', tool.path, '/usr/local/bin/pm2')
    await host.ok('sh', '-c', `${SETTINGS} pm2 start /srv/npm/bin/greeter --name hi`) // nobody has saved it
  })
  const { host, deploy, says } = lab
  const done = await deploy('greeter', ...FLAGS, '--yes')
  is(done.code, 0, done.stdout + done.stderr)
  is(await says('/visit'), '1.0.0 4')
  match(done.stdout, 'pm2 start hi && pm2 save')
  await host.ok('sh', '-c', 'pm2 kill && pm2 resurrect')
  match(await host.ok('pm2', 'jlist'), '"status":"stopped"')
  is(await says(), '1.0.0 4')
  await host.ok('sh', '-c', 'greeter stop && pm2 start hi && pm2 save')
  await eventually('the former one again', async () => (await says()) === 'former 3')
})

test('what somebody has started by hand is taken over too, also if it was started again meanwhile, and a global install that does not run', async () => {
  const start = `cd /srv/former; ${SETTINGS} setsid /srv/npm/bin/greeter >/dev/null 2>&1 </dev/null & echo $! >/tmp/former`
  await using lab = await bootFormer(async ({ host }) => void (await host.ok('sh', '-c', start)))
  const { host, deploy, env, says } = lab
  const asked = await deploy('greeter', '--adopt', '--yes')
  is(asked.code, 2, asked.stdout)
  match(String(asked.end['hint']), 'the running processes use /srv/former')
  const isMade = async () => (await host.run(['test', '-d', '/var/lib/baton-npm/greeter/work'])).code === 0
  const again = `p=$(cat /tmp/former); kill $p; while kill -0 $p; do sleep 0.05; done; ${start}`
  const [done] = await Promise.all([
    deploy('greeter', ...FLAGS, '--yes'),
    eventually('its release to be made', isMade).then(async () => await host.ok('sh', '-c', again)),
  ])
  is(done.code, 0, done.stdout + done.stderr)
  match(done.stdout, /the process \d+ is stopped/)
  is(await says(), '1.0.0 3')
  await host.ok('sh', '-c', 'greeter uninstall -y --purge --confirm greeter && rm -r /var/lib/baton-npm')
  const command = `PATH=/srv/npm/bin:$PATH ${DEPLOY_NPM} greeter --kit ${await packedKit()} ${FLAGS.join(' ')} --yes`
  const unstarted = await host.run(['sh', '-c', command], { env, timeoutMs: 300_000 })
  is(unstarted.code, 0, unstarted.stdout + unstarted.stderr)
  is(await says(), '1.0.0 3')
})

test.run()
