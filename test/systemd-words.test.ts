// @long
// A word of the application that root types: it works on the service's data, as the service's user, with what the unit sets, within the
// unit's walls.

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

const SAYS = `import { readFileSync, statSync, writeFileSync } from 'node:fs'
  import { createServer } from 'node:http'
  import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  const [word, ...rest] = process.argv.slice(2)
  const words = {
    'create-admin': () => {
      const { ADMIN, STATE_DIRECTORY, TOKEN, MODE, OF_ROOT = null } = process.env
      const [, uid] = /^Uid:\\s+(.*)$/m.exec(readFileSync('/proc/self/status', 'utf8'))
      const [, caps] = /^CapEff:\\s+(.*)$/m.exec(readFileSync('/proc/self/status', 'utf8'))
      console.log(JSON.stringify({ STATE_DIRECTORY, TOKEN, MODE, OF_ROOT, hasAdmin: ADMIN !== undefined, cwd: process.cwd(), ids: new Set(uid.split('\\t')).size, isRoot: process.getuid() === 0, caps }))
      process.exit(4)
    },
    repeat: () => {
      process.stderr.write('said')
      process.stdout.write(JSON.stringify(rest) + readFileSync(0, 'utf8'))
    },
    write: () => {
      const found = rest.map((path) => {
        try {
          writeFileSync(path, '')
          return (statSync(path).mode & 0o777).toString(8)
        } catch (error) {
          return error.code
        }
      })
      console.log(found.join(' '))
    },
    wait: () => {
      if (rest[0] === 'well') process.on('SIGTERM', () => process.exit(9))
      setTimeout(() => {}, 1e6)
      console.log('waits')
    },
    terminal: () => {
      console.log(String(process.stdin.isTTY && process.stdout.isTTY))
      process.exit(5)
    },
  }
  if (Object.hasOwn(words, word ?? '')) words[word]()
  else createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST)`

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

  // what the unit may not do, a word may not do either
  const places = ['/tmp/open', '/var/tmp/open', '/var/lib/open/x', '/var/lib/shop/own', '/opt/shop/own']
  await host.ok('install', '-d', '-m', '777', '/var/lib/open')
  const written = await host.run(['shop', 'write', ...places])
  is(written.stdout, '600 600 EROFS 600 600\n', written.stderr)
  for (const path of places.slice(0, 2)) is((await host.run(['test', '-e', path])).code, 1, path)

  const odd = ['$HOME', '${HOME}', '$', '%n', 'a b', "'", '"', String.raw`\n`, '']
  const repeated = await host.run(['shop', 'repeat', ...odd], { input: 'typed\n' })
  equal(repeated, { code: 0, stdout: `${JSON.stringify(odd)}typed\n`, stderr: 'said' })

  for (const [how, code] of [
    ['well', 9],
    ['badly', 143],
  ] as const) {
    const ended = `shop wait ${how} >/run/said & pid=$!; until grep -q waits /run/said; do sleep 0.1; done; kill $pid; wait $pid`
    is((await host.run(['sh', '-c', ended])).code, code, how)
  }
  const typing = await host.run(['script', '-qec', 'shop terminal', '/dev/null'])
  is(typing.code, 5, typing.stderr)
  match(typing.stdout, /true\r\n$/)
  const mistyped = await host.run(['shop', 'stauts', '-q'])
  equal([mistyped.code, mistyped.stdout], [2, ''])
  match(
    mistyped.stderr,
    'error: unknown command `stauts`\nhint: did you mean `shop status`? To pass it to the application, use `shop -- stauts -q`\n',
  )
  for (const words of [['--', 'stauts'], ['history']]) {
    const second = await host.run(['shop', ...words])
    equal([second.code, second.stdout], [2, ''], second.stderr)
    match(
      second.stderr,
      `error: the application does not seem to have a command \`${words.at(-1) ?? ''}\`: it tried to listen on the address of shop`,
    )
  }
  is(await host.ok('systemctl', 'list-units', '--all', '--plain', '--no-legend', 'baton-*-word-*'), '')

  // other data than the install's: it starts as root says
  await host.ok('install', '-d', '/srv/other')
  const elsewhere = await host.run(['env', 'STATE_DIRECTORY=/srv/other', 'shop', 'create-admin'])
  is((JSON.parse(elsewhere.stdout) as { STATE_DIRECTORY: string }).STATE_DIRECTORY, '/srv/other')

  const other = await host.run(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'shop', 'create-admin'])
  is(other.code, 7, other.stdout)
  match(other.stderr, /expected to run as root or as shop/)
})

test.run()
