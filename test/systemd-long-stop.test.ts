// @long
// A stop that takes longer than systemd gives it, because work is under way: with the operator's `drainTimeout` nobody ends it midway, in
// either order of a switch, before one and after it, when the main process is no child of systemd's.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ORDERS } from '../agent/words/order.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match } from './assert.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { bootWithFeed } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { isLong, suite } from './suite.ts'

const test = suite('systemd: a long stop', { skip: noHosts, timeoutMs: 280_000 })

/** a command says after 5 s what it waits for */
const [GIVEN_S, JOB_MS, SAID_MS] = [2, 7000, 14_000]

const WORKS = `import { busy } from '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { appendFileSync } from 'node:fs'
  import { createServer } from 'node:http'
  createServer((request, response) => {
    const ms = Number(/^\\/job\\/(\\d+)/.exec(request.url)?.[1] ?? 0)
    const job = () => new Promise((resolve) => setTimeout(resolve, ms))
    if (ms > 0) void busy('export', job().then(() => appendFileSync('jobs', 'end ')))
    response.end('ok')
  }).listen(Number(process.env.PORT), process.env.HOST)`

for (const order of isLong ? ORDERS : (['start-first'] as const)) {
  test(`${order}: work that takes three times as long as systemd gives a stop is whole after a restart, an update and a stop, and a stop`, async () => {
    await using made = await temporary('long-stop')
    await writeFile(join(made.path, 'server.js'), WORKS)
    await using host = await bootWithFeed(async (out) => {
      const config = { service: 'shop', kind: 'bundle', entry: 'server.js', healthPath: '/', order }
      await buildTags({ project: parseProject(config, made.path), out }, ['v1.0.0', 'v1.1.0'])
    })
    const installer = [join(host.feed, 'v1.0.0/install.sh'), '--feed', host.feed, '--release', 'v1.0.0', '-y']
    await host.ok('sh', ...installer)
    const edit = `const f = '/etc/shop/config.json', fs = require('node:fs'), c = JSON.parse(fs.readFileSync(f)); c.update = { ...c.update, drainTimeout: '2m', probation: '1s' }; fs.writeFileSync(f, JSON.stringify(c))`
    await host.ok(process.execPath, '-e', edit)
    const unit = '/etc/systemd/system/shop.service.d'
    const dropIn = `[Service]\\nTimeoutStopSec=${GIVEN_S}\\n`
    await host.ok('sh', '-c', `mkdir -p ${unit} && printf '${dropIn}' >${unit}/short.conf`)
    await host.ok('systemctl', 'daemon-reload')
    await host.ok('shop', 'restart') // from here on it has these settings
    const whole = async (ms: number, count: number, ...command: string[]) => {
      await eventually(
        'an answer',
        async () => (await host.run(['curl', '-sf', `http://127.0.0.1:8080/job/${ms}`])).code === 0,
      )
      const ran = await host.run(command, { timeoutMs: 60_000 })
      is(ran.code, 0, ran.stderr)
      is(await host.ok('cat', '/var/lib/shop/jobs'), 'end '.repeat(count))
      match(await host.ok('systemctl', 'show', 'shop', '--property=Result'), /^Result=success$/m)
      return ran
    }
    match((await whole(SAID_MS, 1, 'shop', 'restart')).stderr, /is waiting for work and open requests to finish/)
    await host.ok('shop', 'upgrade', '-y')
    await whole(JOB_MS, 2, 'systemctl', 'restart', 'shop')
    await host.ok('shop', 'rollback', '-y')
    await whole(JOB_MS, 3, 'shop', 'stop')
    await host.ok('shop', 'start')
    // a process that hangs says nothing, and is killed when systemd's time is up
    const main = await host.ok('systemctl', 'show', 'shop', '--property=MainPID', '--value')
    await host.ok('kill', '-STOP', main.trim())
    const began = performance.now()
    await host.run(['systemctl', 'stop', 'shop'], { timeoutMs: 60_000 })
    equal([performance.now() - began < 20_000, await host.ok('cat', '/var/lib/shop/jobs')], [true, 'end '.repeat(3)])
  })
}

test.run()
