// @long
// Sockets that systemd holds. A service on a unix socket, with nginx in front as another user: the folder is systemd's (RuntimeDirectory=), which removes
// it whenever the service ends. Stop, crash, restart, update and rollback: nginx reaches the service after each.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match, ok } from './assert.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { bootWithFeed, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('systemd: sockets', { skip: noHosts, timeoutMs: 380_000 })

const CLEARS = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { unlinkSync } from 'node:fs'
  import { createServer } from 'node:http'
  try { unlinkSync(process.env.SOCKET) } catch {}
  createServer((request, response) => response.end(String(process.pid))).listen(process.env.SOCKET)`

const NGINX = (path: string) => `user www-data;
worker_processes 1;
pid /run/nginx-test.pid;
error_log /var/log/nginx-test.log;
events {}
http {
  access_log off;
  server { listen 127.0.0.1:8088; location / { proxy_pass http://unix:${path}; } }
}
`

for (const kind of ['start-first', 'stop-first'] as const)
  for (const preserved of [false, true])
    test(`${kind}, RuntimeDirectoryPreserve=${preserved ? 'restart' : 'no'}: nginx reaches the service after an update, a rollback, a kill, a restart, and a stop and a start`, async () => {
      await using made = await temporary('unix-socket')
      await writeFile(join(made.path, 'server.js'), CLEARS)
      await using host = await bootWithFeed(async (out) => {
        const environment = { SOCKET: '{path}' }
        const config = {
          service: 'shop',
          kind: 'bundle',
          entry: 'server.js',
          healthPath: '/',
          order: kind,
          environment,
        }
        await buildTags({ project: parseProject(config, made.path), out }, ['v1.0.0', 'v1.1.0'])
      })
      const [folder, path] = ['/run/shop', '/run/shop/app.sock']
      const lines = `RuntimeDirectory=shop\nRuntimeDirectoryPreserve=${preserved ? 'restart' : 'no'}\nSupplementaryGroups=www-data\n`
      await put(host, '/etc/systemd/system/shop.service.d/socket.conf', `[Service]\n${lines}`)
      await host.ok(
        'sh',
        join(host.feed, 'v1.0.0/install.sh'),
        '--feed',
        host.feed,
        '--release',
        'v1.0.0',
        '-y',
        '--no-start',
      )
      const listen = JSON.stringify({ path, group: 'www-data' })
      const update = JSON.stringify({ probation: '1s', trial: 'never' })
      const edit = `const f = '/etc/shop/config.json', fs = require('node:fs'), c = JSON.parse(fs.readFileSync(f)); c.listen = ${listen}; c.update = ${update}; fs.writeFileSync(f, JSON.stringify(c))`
      await host.ok(process.execPath, '-e', edit)
      await host.ok('systemctl', 'daemon-reload')
      const started = await host.run(['shop', 'start'])
      is(started.code, 0, started.stderr)
      await put(host, '/etc/nginx-test.conf', NGINX(path))
      await host.ok('nginx', '-c', '/etc/nginx-test.conf')
      const well = async (before: string | null, version: string) => {
        const pid = await eventually(
          'nginx reaches it',
          async () => {
            const { stdout } = await host.run(['curl', '-s', '--max-time', '5', 'http://127.0.0.1:8088/'])
            return /^\d+$/.test(stdout) && stdout !== before ? stdout : null
          },
          20_000,
        )
        match(await host.ok('shop', 'status'), version)
        equal((await host.ok('stat', '-c', '%G %a', path)).trim(), 'www-data 660')
        return pid
      }
      const first = await well(null, 'v1.0.0')
      const upgrade = await host.run(['shop', 'upgrade', '-y'])
      is(upgrade.code, 0, upgrade.stderr)
      const second = await well(first, 'v1.1.0')
      is((await host.run(['shop', 'rollback', '-y'])).code, 0)
      const third = await well(second, 'v1.0.0')
      await host.ok('systemctl', 'kill', '--signal=KILL', '--kill-who=main', 'shop')
      const fourth = await well(third, 'v1.0.0')
      await host.ok('systemctl', 'restart', 'shop')
      const fifth = await well(fourth, 'v1.0.0')
      await host.ok('systemctl', 'stop', 'shop')
      is((await host.run(['test', '-e', folder])).code === 0, false)
      await host.ok('systemctl', 'start', 'shop')
      const sixth = await well(fifth, 'v1.0.0')
      is((await host.run(['shop', 'upgrade', '-y'])).code, 0)
      await well(sixth, 'v1.1.0')
      ok((await host.ok('ls', '-A', folder)).trim().split('\n').length === 2, 'the path, and its hidden name')
      await host.run(['nginx', '-c', '/etc/nginx-test.conf', '-s', 'stop'])
    })

const ASKS = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  import { readFileSync } from 'node:fs'
  const hex = ':' + Number(process.env.PORT).toString(16).toUpperCase().padStart(4, '0')
  const isTaken = readFileSync('/proc/net/tcp', 'utf8').split('\\n').some((line) => line.split(/\\s+/)[2]?.endsWith(hex) && / 0A /.test(line))
  if (isTaken) { console.error('the port is in use'); process.exit(1) }
  createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), process.env.HOST)`

for (const kind of ['stop-first', 'start-first'] as const)
  test(`${kind}: an application that finds its own port taken, in a way that nobody foresees, serves again after a kill, a restart and an update`, async () => {
    await using made = await temporary('last-resort')
    await writeFile(join(made.path, 'server.js'), ASKS)
    await using host = await bootWithFeed(async (out) => {
      const config = { service: 'shop', kind: 'bundle', entry: 'server.js', healthPath: '/', order: kind }
      await buildTags({ project: parseProject(config, made.path), out }, ['v1.0.0', 'v1.1.0'])
    })
    await host.ok('sh', join(host.feed, 'v1.0.0/install.sh'), '--feed', host.feed, '--release', 'v1.0.0', '-y')
    const well = async (before: string | null) =>
      await eventually(
        'an answer',
        async () => {
          const { stdout } = await host.run(['curl', '-s', '--max-time', '5', 'http://127.0.0.1:8080/'])
          return /^\d+$/.test(stdout) && stdout !== before ? stdout : null
        },
        30_000,
      )
    const first = await well(null)
    await host.ok('systemctl', 'kill', '--signal=KILL', '--kill-who=main', 'shop')
    const second = await well(first)
    await host.run(['systemctl', 'restart', 'shop'])
    const third = await well(second)
    const upgrade = await host.run(['shop', 'upgrade', '-y'])
    const fourth = await well(null)
    is(fourth === third, kind === 'start-first', upgrade.stderr)
    match(await host.ok('shop', 'status'), 'v1.0.0')
    await host.ok('systemctl', 'reset-failed', 'shop') // seven starts in two minutes are more than a unit has
    await host.ok('systemctl', 'kill', '--signal=KILL', '--kill-who=main', 'shop')
    await well(fourth)
    match(
      await host.ok('journalctl', '-u', 'shop', '-o', 'cat', '--no-pager'),
      /this process exited before serving on .*:8080: the sockets held/,
    )
    // an update of a stopped service is a plain start
    await host.ok('systemctl', 'stop', 'shop')
    is((await host.run(['shop', 'upgrade', '-y'])).code, 0)
    await well(null)
    match(await host.ok('shop', 'status'), 'v1.1.0')
  })

test.run()
