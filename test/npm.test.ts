// @deadlineMs 900000
// `deploy-npm.sh` on a host with systemd, with a registry of its own: from nothing to a service that is updated. What it decides before
// anything runs: npm-rules.test.ts. Attacks: npm-hostile.test.ts. Real packages of others: `npm run apps -- --npm`.

import { equal, is, match, ok } from './assert.ts'
import { bootNpmHost, GREETER, greeter } from './lab/npm-host.ts'
import type { Package } from './lab/npm-registry.ts'
import { noHosts } from './lab/systemd.ts'
import { isLong, suite } from './suite.ts'

const test = suite('npm', { skip: noHosts, timeoutMs: 600_000 })

const CUT_SHORT = `const fs = require('node:fs'), folder = '/var/lib/baton-npm/greeter/'
const change = (name, edit) => fs.writeFileSync(folder + name, JSON.stringify(edit(JSON.parse(fs.readFileSync(folder + name, 'utf8'))), null, 2))
change('service.json', (record) => ({ ...record, built: record.built.filter(({ version }) => version !== '1.1.0') }))
change('feed/releases.json', (list) => ({ ...list, releases: list.releases.filter(({ tag }) => tag !== 'v1.1.0') }))`

/** Of its other paths it knows `health` alone. */
function answersAt(version: string, health: string): Package {
  const known = `  if (!['/', '/visit', '${health}'].includes(request.url)) response.statusCode = 404\n`
  return greeter(version, { files: { 'bin/greeter.js': GREETER(version).replace('  let visits', `${known}$&`) } })
}

test('a package becomes a service by one command, a newer version comes by itself into its folder, and nothing is lost', async () => {
  await using lab = await bootNpmHost()
  const { host, deploy, publish, says } = lab
  await publish(answersAt('1.0.0', '/health'))
  const planned = await deploy('greeter', '--dry-run')
  is(planned.code, 0, planned.stderr)
  match((await deploy('greeter', '--build-only', '--dry-run')).stdout, '"install nothing"')
  const absent = await deploy('greeter', '--release', '9.9.9', '--dry-run')
  is(absent.code, 4, absent.stdout)
  is(absent.end['hint'], 'available versions: 1.0.0; latest is 1.0.0')
  await publish({ ...greeter('1.0.0', { manifest: {} }), name: 'mute' })
  is((await deploy('mute', '--dry-run')).end['code'], 'invalid_settings')
  is((await host.run(['test', '-e', '/var/lib/baton-npm'])).code, 1)

  const installed = await deploy('greeter', '--listen', '127.0.0.1:8123')
  is(installed.code, 0, installed.stdout + installed.stderr)
  match(JSON.stringify(installed.end), '"outcome":"installed"')
  match(JSON.stringify(installed.end['notes']), 'the panel is at http://127.0.0.1:8123/_baton/web/settings.html')
  is(await says('/visit'), '1.0.0 1')
  is(await host.ok('systemctl', 'is-active', 'greeter', 'baton-npm.timer'), 'active\nactive\n')
  const again = await deploy('greeter')
  is(again.end['outcome'], 'up_to_date', again.stdout)

  await publish(answersAt('1.1.0', '/status'))
  await publish(greeter('1.2.0', { publishedAt: new Date().toISOString() }))
  await publish(greeter('1.1.1', { deprecated: 'it forgets' }))
  equal((({ outcome, to }) => [outcome, to])((await deploy('--update', '--dry-run')).end), ['planned', 'v1.1.0'])
  is((await host.run(['test', '-e', '/var/lib/baton-npm/greeter/feed/v1.1.0'])).code, 1)
  if (isLong) await lab.killed(`grep -q '"stage":"fetch"' /tmp/said`, '--update')
  is(await says(), '1.0.0 1')
  const updated = await deploy('--update') // the next run goes on
  is(updated.code, 0, updated.stdout + updated.stderr)
  is(updated.end['to'], 'v1.1.0', updated.stdout)
  match(updated.stdout, 'its health path is now /status; it was /health')
  is(await says(), '1.0.0 1') // its own policy decides
  if (isLong) await host.ok('node', '-e', CUT_SHORT) // a run that was killed before it had listed the release
  is((await deploy('--update')).code, 0)
  await host.ok('greeter', 'upgrade')
  is(await says('/visit'), '1.1.0 2')
  is((await deploy('--update')).end['outcome'], 'up_to_date')
  ok((await lab.registry.requests()).some((line) => line === '304 /greeter'))

  await publish(greeter('1.1.0', { files: { 'bin/greeter.js': GREETER('other') } }))
  match((await deploy('--update')).stdout, 'replaced under the same version number')
  is((await host.run(['test', '-e', '/var/lib/baton-npm/greeter/feed/v1.1.0'])).code, 1)
  is((await deploy('greeter', '--release', '1.1.0')).code, 5)

  const units = async () => (await host.run(['systemctl', 'list-unit-files', '--no-legend', 'baton-npm*'])).stdout
  match(await units(), 'baton-npm.timer')
  await host.ok('greeter', 'uninstall', '-y')
  match(
    (await deploy('--update')).stdout,
    'removed the timer baton-npm.timer, which checked the npm registry: no npm service is installed here',
  )
  is(await units(), '')
  is((await host.run(['systemctl', 'is-active', 'baton-npm.timer'])).stdout, 'inactive\n')
})

test.run()
