// @deadlineMs 420000
// The guides, as somebody would follow them: every command of a page, read from the page, in order, in one shell, on a
// systemd host of its own. Only what no page can know is put in: where the releases and the repository are.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { suite } from './suite.ts'
import { equal, is, match, ok } from './assert.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { bootWithFeed, bootWithReleases, type FeedHost, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('guides', { skip: noHosts, timeoutMs: 240_000 })

const RELEASES = 'https://releases.example/beacon'
const SHOP_RELEASES = 'https://releases.example/shop'
const REPOSITORY = 'https://git.example/baton.git'

test('managed install', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  const url = await serveFeed(host)
  const { output } = await follow(host, 'managed-install.md', (text) =>
    quicker(
      text.replaceAll(RELEASES, url).replaceAll('deploy/deploy-systemd.sh', join(PROJECT, 'deploy/deploy-systemd.sh')),
      /^curl .* -y$/gm,
    ),
  )
  match(output, 'beacon v1.1.0 is in place, it was v1.0.0')
  match(output, '/var/lib/beacon/beacon.db')
})

test('a binary that you start yourself', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  const url = await serveFeed(host)
  const { output, blocks } = await follow(host, 'manual-binary.md', (text) => text.replaceAll(RELEASES, url))
  const versions = [...output.matchAll(/"tag":"(v[0-9.]+)"/g)].map(([, tag]) => tag)
  equal(versions, ['v1.0.0', 'v1.1.0'])
  is(blocks.filter(({ language }) => language !== 'sh').length, 1) // Windows
  await host.run(['pkill', '-x', 'beacon'])
})

test('from source', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }])
  await host.ok('git', 'clone', '--quiet', '--bare', '--no-hardlinks', PROJECT, '/srv/baton.git')
  for (const tag of ['v1.0.0', 'v1.1.0']) await host.ok('git', '-C', '/srv/baton.git', 'tag', tag)
  const { output } = await follow(host, 'from-source.md', (text) =>
    quicker(
      text
        .replaceAll(REPOSITORY, '/srv/baton.git')
        // the host has no registry; the packages are the ones of this very lock file
        .replaceAll('npm ci --ignore-scripts', `ln -sfn ${PROJECT}/node_modules node_modules`),
      /^deploy\/deploy-source\.sh --ref v1\.0\.0$/gm,
    ),
  )
  match(output, 'beacon v1.0.0 is running')
  match(output, 'beacon v1.1.0 is running')
  is((await host.status()).instance.version, 'v1.0.0')
})

test('moving a unit of one’s own in, and out again: every row is kept', async () => {
  await using host = await bootWithFeed(async (out) => {
    const environment = { PORT: '{port}', HOST: '{host}', DATA_DIR: '{stateDirectory}' }
    const config = {
      service: 'shop',
      kind: 'bundle',
      entry: 'shop.js',
      healthPath: '/',
      database: 'shop.db',
      environment,
    }
    const project = parseProject(config, join(PROJECT, 'test/fixtures'))
    await buildQuietly({ project, out })
  })
  const url = await serveFeed(host)
  const text = (await readFile(join(PROJECT, 'docs/guides/move.md'), 'utf8')).replaceAll(SHOP_RELEASES, url)
  const steps = async (...headings: string[]) => {
    for (const heading of headings) await obey(host, heading, shellBelow(text, heading))
  }
  const shop = async (method = 'GET') =>
    await eventually('the shop', async () => {
      const { code, stdout } = await host.run(['curl', '-fsS', '-X', method, 'http://127.0.0.1:3000/'])
      return code === 0 ? (JSON.parse(stdout) as { rows: number; folder: string; TOKEN: string | null }) : null
    })

  await host.ok('useradd', '--system', 'seller')
  await host.ok('mkdir', '-p', '/srv/shop/data')
  await host.ok('chown', 'seller', '/srv/shop/data')
  await put(
    host,
    '/etc/systemd/system/shop.service',
    `[Service]
User=seller
Environment=PORT=3000 HOST=127.0.0.1 DATA_DIR=/srv/shop/data TOKEN=secret
ExecStart=${process.execPath} ${join(PROJECT, 'test/fixtures/shop.js')}
[Install]
WantedBy=multi-user.target
`,
  )
  await host.ok('systemctl', 'enable', '--now', 'shop')
  for (let rows = 1; rows <= 3; rows++) is((await shop('POST')).rows, rows)
  equal(await shop(), { rows: 3, folder: '/srv/shop/data', TOKEN: 'secret' })
  // the installer touches none of it before it has made room
  const refused = await host.run(['sh', join(host.feed, 'v1.0.0/install.sh'), '--feed', host.feed, '-y'])
  equal([refused.code, /shop\.service, found another one/.test(refused.stderr)], [7, true], refused.stderr)

  await put(host, '/etc/default/shop', 'TOKEN=secret\n')
  await steps('A unit of your own', 'Move in')
  equal(await shop(), { rows: 3, folder: '/var/lib/shop', TOKEN: 'secret' })
  is((await shop('POST')).rows, 4)
  match(await host.ok('shop', 'status'), /v1\.0\.0/)
  await steps('And out again', 'To a unit of your own')
  equal(await shop(), { rows: 4, folder: '/srv/shop/data', TOKEN: 'secret' })
  is((await shop('POST')).rows, 5)

  // and in a second time, with what was written meanwhile
  await steps('A unit of your own', 'Move in')
  is((await shop()).rows, 5)
})

interface Block {
  language: string
  text: string
}

/** Runs the page's shell commands in one shell that stops at the first that fails. */
async function follow(
  host: FeedHost,
  page: string,
  filled: (text: string) => string,
): Promise<{ output: string; blocks: Block[] }> {
  const text = await readFile(join(PROJECT, 'docs/guides', page), 'utf8')
  const blocks = [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, language = '', body = '']) => ({
    language,
    text: body,
  }))
  ok(blocks.length > 2)
  const script = filled(
    blocks
      .filter(({ language }) => language === 'sh')
      .map((block) => block.text)
      .join('\n'),
  )
  await put(host, '/root/guide/commands.sh', script)
  const { code, stdout, stderr } = await host.run(['sh', '-eux', '-c', 'cd /root/guide && . ./commands.sh'], {
    timeoutMs: 220_000,
  })
  is(code, 0, `${page}:\n${stdout.slice(-3000)}\n${stderr.slice(-3000)}`)
  return { output: stdout, blocks }
}

/** The shell commands between this heading and the next one. */
function shellBelow(text: string, heading: string): string {
  const [, part = ''] = text.split(new RegExp(`^##+ ${heading}$`, 'm'))
  const commands = [...(part.split(/^##+ /m)[0] ?? '').matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, body]) => body)
  ok(commands.length > 0, heading)
  return commands.join('')
}

async function obey(host: FeedHost, what: string, script: string): Promise<string> {
  const { code, stdout, stderr } = await host.run(['sh', '-eux', '-c', script], { timeoutMs: 100_000 })
  is(code, 0, `${what}:\n${stdout.slice(-3000)}\n${stderr.slice(-3000)}`)
  return stdout
}

async function serveFeed(host: FeedHost): Promise<string> {
  await host.ok('systemd-run', '--unit=feed', 'busybox', 'httpd', '-f', '-p', '127.0.0.1:9000', '-h', host.feed)
  const url = 'http://127.0.0.1:9000'
  await eventually('the feed', async () => (await host.run(['curl', '-fsS', `${url}/releases.json`])).code === 0)
  return url
}

/** A probation of 30 seconds is right for people. After an install the configuration is the operator's, and needs a restart. */
function quicker(text: string, install: RegExp): string {
  const edit = `sed -i 's/"listen"/"update":{"probationMs":1000},"listen"/' /etc/beacon/config.json`
  ok(install.test(text))
  return text.replaceAll(install, (line) => `${line}\n${edit}\nbeacon stop\nbeacon start`)
}

test.run()
