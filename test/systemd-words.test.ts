// A word of the application that root types: it works on the service's data, as the service's user, with what the unit sets.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match } from './assert.ts'
import { buildTags } from './fixtures/quiet-build.ts'
import { bootWithFeed } from './lab/managed.ts'
import { noHosts } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('systemd: words', { skip: noHosts, timeoutMs: 280_000 })

const SAYS = `import { readFileSync } from 'node:fs'
  import { createServer } from 'node:http'
  import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  if (process.argv.length > 2) {
    const { ADMIN, STATE_DIRECTORY, TOKEN, MODE, OF_ROOT = null } = process.env
    const [, uid] = /^Uid:\\s+(.*)$/m.exec(readFileSync('/proc/self/status', 'utf8'))
    const [, caps] = /^CapEff:\\s+(.*)$/m.exec(readFileSync('/proc/self/status', 'utf8'))
    console.log(JSON.stringify({ STATE_DIRECTORY, TOKEN, MODE, OF_ROOT, hasAdmin: ADMIN !== undefined, cwd: process.cwd(), ids: new Set(uid.split('\\t')).size, isRoot: process.getuid() === 0, caps }))
    process.exit(4)
  }
  createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST)`

test('root types it: as the service’s user, in its state directory, with its drop-ins and its environment file; another user is refused', async () => {
  await using made = await temporary('words')
  await writeFile(join(made.path, 'server.js'), SAYS)
  await using host = await bootWithFeed(async (out) => {
    const environment = { PORT: '{port}', HOST: '{host}', ADMIN: '{password}' }
    const config = { service: 'shop', kind: 'bundle', entry: 'server.js', healthPath: '/', environment }
    await buildTags({ project: parseProject(config, made.path), out }, ['v1.0.0'])
  })
  await host.ok('sh', join(host.feed, 'v1.0.0/install.sh'), '--feed', host.feed, '--release', 'v1.0.0', '-y')
  const write = `umask 077; mkdir -p /etc/systemd/system/shop.service.d
    printf '[Service]\\nEnvironment=MODE=shop\\n' >/etc/systemd/system/shop.service.d/own.conf
    echo TOKEN=secret >/etc/default/shop; systemctl daemon-reload`
  await host.ok('sh', '-c', write)
  const typed = await host.run(['env', 'OF_ROOT=1', 'shop', 'create-admin'])
  is(typed.code, 4, typed.stderr)
  const state = { STATE_DIRECTORY: '/var/lib/shop', cwd: '/var/lib/shop' }
  const who = { ids: 1, isRoot: false, caps: '0'.repeat(16) }
  equal(JSON.parse(typed.stdout), { ...state, TOKEN: 'secret', MODE: 'shop', OF_ROOT: null, hasAdmin: true, ...who })

  const other = await host.run(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'shop', 'create-admin'])
  is(other.code, 7, other.stdout)
  match(other.stderr, /expected to run as root or as shop/)
})

test.run()
