// @long
// A start that takes longer than systemd gives it, because there is a migration in it: with the author's `readyTimeout` nobody ends it midway.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { is, match } from './assert.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { bootWithFeed } from './lab/managed.ts'
import { noHosts } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('systemd: a long start', { skip: noHosts, timeoutMs: 280_000 })

const [GIVEN_S, MIGRATION_MS] = [5, 15_000]

/** Its thread stands still from its first line on, as in a migration. */
const MIGRATES = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  import { existsSync } from 'node:fs'
  if (existsSync(process.env.STATE_DIRECTORY + '/migrate'))
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${MIGRATION_MS})
  createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST)`

test('stop, upgrade: a migration that takes three times as long as systemd gives a start ends, and the release is in place', async () => {
  await using made = await temporary('long-start')
  await writeFile(join(made.path, 'server.js'), MIGRATES)
  await using host = await bootWithFeed(async (out) => {
    const config = { service: 'shop', kind: 'bundle', entry: 'server.js', healthPath: '/' }
    await buildTags({ project: parseProject(config, made.path), out }, ['v1.0.0', 'v1.1.0'])
  })
  await host.ok('sh', join(host.feed, 'v1.0.0/install.sh'), '--feed', host.feed, '--release', 'v1.0.0', '-y')
  const edit = `const f = '/etc/shop/config.json', fs = require('node:fs'), c = JSON.parse(fs.readFileSync(f)); c.update = { ...c.update, readyTimeout: '2m' }; fs.writeFileSync(f, JSON.stringify(c))`
  await host.ok(process.execPath, '-e', edit)
  const unit = '/etc/systemd/system/shop.service.d'
  await host.ok(
    'sh',
    '-c',
    `mkdir -p ${unit} && printf '[Service]\\nTimeoutStartSec=${GIVEN_S}\\n' >${unit}/short.conf`,
  )
  await host.ok('systemctl', 'daemon-reload')
  await host.ok('touch', '/var/lib/shop/migrate')
  await host.ok('shop', 'stop')
  const moved = await host.run(['shop', 'upgrade', '-y', '--health-timeout', '5s'])
  is(moved.code, 0, moved.stderr + moved.stdout)
  match(moved.stdout, /^shop v1\.1\.0 is in place, replacing v1\.0\.0/m)
  match(await host.ok('systemctl', 'show', 'shop', '--property=NRestarts'), /^NRestarts=0$/m)
})

test.run()
