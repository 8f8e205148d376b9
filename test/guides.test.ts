// The guides, as somebody would follow them: every command of a page, read from the page, in order, in one shell, on a
// systemd host of its own. Only what no page can know is put in: where the releases and the repository are.

import { copyFile, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isLong, suite } from './suite.ts'
import { equal, is, match, ok } from './assert.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { run } from '../deploy/lib/shell.ts'
import { parseProject } from '../deploy/make/project.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { madeOnce } from './fixtures/releases.ts'
import { bootWithFeed, bootWithReleases, type FeedHost, put } from './lab/managed.ts'
import { below, shellBlocks } from './lab/page.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('guides', { skip: noHosts, timeoutMs: 240_000 })

const RELEASES = 'https://releases.example/beacon'
const SHOP_RELEASES = 'https://releases.example/shop'
/** the part of a page that is followed by somebody else than root */
const OWN = 'As an ordinary user'
const REPOSITORY = 'https://git.example/baton.git'

test('managed install, with an update and a rollback', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  const url = await serveFeed(host)
  const { output } = await follow(
    host,
    'install.md',
    (text) =>
      quicker(
        text
          .replaceAll(RELEASES, url)
          .replaceAll('deploy/deploy-systemd.sh', join(PROJECT, 'deploy/deploy-systemd.sh')),
        /^curl .* -y$/gm,
      ),
    { page: 'update.md', before: 'Change the unit' },
  )
  match(output, 'beacon v1.1.0 is running and healthy, replacing v1.0.0')
  match(output, '/var/lib/beacon/beacon.db')
})

// its commands are those of root's install with --user: test/systemd-refusals.test.ts has such an install in CI
test.long('managed install, by somebody else than root', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  const url = await serveFeed(host)
  const page = await readFile(join(PROJECT, 'docs/operator/install.md'), 'utf8')
  await host.ok('useradd', '--create-home', 'someone')
  const own = quicker(shellBelow(page, OWN).replaceAll(RELEASES, url), /^curl .* -y$/gm, '$HOME/.config').replaceAll(
    /^beacon (stop|start)$/gm,
    '$HOME/.local/bin/beacon $1',
  )
  await put(host, '/srv/own.sh', `URL=${url}\n${own}`)
  const said = await obey(host, OWN, 'su - someone -s /bin/sh -c "sh -eux /srv/own.sh"')
  match(said, 'beacon v1.1.0 is running and healthy, replacing v1.0.0')
  match(said, '/home/someone/.local/state/beacon/beacon.db')
})

test('a binary that you start yourself', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  const url = await serveFeed(host)
  const { output, blocks } = await follow(host, 'by-hand.md', (text) => text.replaceAll(RELEASES, url))
  const versions = [...output.matchAll(/"tag":"(v[0-9.]+)"/g)].map(([, tag]) => tag)
  equal(versions, ['v1.0.0', 'v1.1.0'])
  is(blocks.filter(({ language }) => language !== 'sh').length, 0)
  await host.run(['pkill', '-x', 'beacon'])
})

test.long('from source', async () => {
  await using host = await bootWithReleases([{ tag: 'v1.0.0' }])
  await host.ok('git', 'clone', '--quiet', '--bare', '--no-hardlinks', PROJECT, '/srv/baton.git')
  for (const tag of ['v1.0.0', 'v1.1.0']) await host.ok('git', '-C', '/srv/baton.git', 'tag', tag)
  const { output } = await follow(host, 'from-source.md', (text) =>
    quicker(
      partOf(text, /^git fetch /m)
        .replaceAll(REPOSITORY, '/srv/baton.git')
        // the host has no registry; the packages are the ones of this very lock file
        .replaceAll('npm ci --ignore-scripts', `ln -sfn ${PROJECT}/node_modules node_modules`),
      /^deploy\/deploy-source\.sh --release v1\.0\.0$/gm,
    ),
  )
  match(output, 'beacon v1.0.0 is running')
  match(output, 'beacon v1.1.0 is running')
  is((await host.status()).instance.version, 'v1.0.0')
})

/** What stands before `end`, which only the long form runs: a third build of the same sources. */
function partOf(text: string, end: RegExp): string {
  const at = text.search(end)
  ok(at > 0)
  return isLong ? text : text.slice(0, at)
}

/** A host with a feed of the shop, which is built once. */
async function bootWithShop(): Promise<FeedHost> {
  const built = await (shopFeed ??= buildShop())
  return await bootWithFeed(async (out) => void (await run(['cp', '-al', `${built}/.`, out])))
}

let shopFeed: Promise<string> | null = null

async function buildShop(): Promise<string> {
  return await madeOnce('shop', async (out) => {
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
}

/** How to follow parts of move.md there, and to ask the shop. */
async function mover(host: FeedHost) {
  const url = await serveFeed(host)
  const text = (await readFile(join(PROJECT, 'docs/operator/move.md'), 'utf8')).replaceAll(SHOP_RELEASES, url)
  const steps = async (...headings: string[]) => {
    for (const heading of headings) await obey(host, heading, shellBelow(text, heading))
  }
  const shop = async (method = 'GET') =>
    await eventually('the shop', async () => {
      const { code, stdout } = await host.run(['curl', '-fsS', '-X', method, 'http://127.0.0.1:3000/'])
      return code === 0 ? (JSON.parse(stdout) as { rows: number; folder: string; TOKEN: string | null }) : null
    })
  return { text, steps, shop }
}

test.long('moving a unit of one’s own in, and out again: every row is kept', async () => {
  await using host = await bootWithShop()
  const { steps, shop } = await mover(host)

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
  equal(
    [refused.code, /shop\.service exists, but was not created by the installer/.test(refused.stderr)],
    [7, true],
    refused.stderr,
  )

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

test.long(
  'moving in from pm2, and out again: every row is kept, and pm2 brings back only what is its own',
  async () => {
    const folder = join(PROJECT, '.cache', 'pm2') // the host sees it, but has no registry
    await mkdir(folder, { recursive: true })
    for (const name of ['package.json', 'package-lock.json'])
      await copyFile(join(PROJECT, 'test/fixtures/pm2', name), join(folder, name))
    await run(['npm', 'ci', '--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts'], { cwd: folder })
    await using host = await bootWithShop()
    const { steps, shop } = await mover(host)
    const program = { name: 'shop', script: join(PROJECT, 'test/fixtures/shop.js'), interpreter: process.execPath }
    const app = { ...program, env: { PORT: '3000', HOST: '127.0.0.1', DATA_DIR: '/srv/shop/data' } }
    await put(host, '/srv/shop/ecosystem.config.js', `module.exports = ${JSON.stringify({ apps: [app] })}\n`)
    const pm2 = join(folder, 'node_modules/pm2/bin/pm2')
    await put(host, '/usr/local/bin/pm2', `#!/bin/sh\nexec ${process.execPath} ${pm2} "$@"\n`)
    await obey(host, 'pm2 start', 'chmod 755 /usr/local/bin/pm2; pm2 start /srv/shop/ecosystem.config.js; pm2 save')
    is((await shop('POST')).rows, 1)
    const boot = 'pm2 kill; pm2 resurrect'

    await steps('pm2', 'Move in')
    await obey(host, 'a boot', boot)
    is((await host.ok('pm2', 'jlist', '--silent')).trim(), '[]')
    equal([(await shop('POST')).rows, (await shop()).folder], [2, '/var/lib/shop'])
    await steps('And out again', 'To pm2')
    await obey(host, 'another boot', boot)
    equal([(await shop('POST')).rows, (await shop()).folder], [3, '/srv/shop/data'])
    await obey(host, 'the end', 'pm2 kill')
  },
)

test.long('moving in from `npm -g`, and out again: every row is kept', async () => {
  await using host = await bootWithShop()
  const { text, steps, shop } = await mover(host)
  await put(
    host,
    '/srv/package/package.json',
    JSON.stringify({ name: 'shop', version: '1.0.0', type: 'module', bin: 'shop.js' }),
  )
  // the host has no registry: the package is a file, whose imports are this repository's
  const program = `#!${process.execPath}\nawait import('${join(PROJECT, 'test/fixtures/shop.js')}')\n`
  await put(host, '/srv/package/shop.js', program)
  // where the command of a release belongs, too, as with most packages of Node
  await obey(host, 'npm config', 'npm config set prefix /usr/local')
  await obey(host, 'npm pack', 'cd /srv && npm pack ./package && npm install -g /srv/shop-1.0.0.tgz')
  const start = [
    'mkdir -p /srv/shop/data',
    'systemd-run --unit=by-hand env PORT=3000 HOST=127.0.0.1 DATA_DIR=/srv/shop/data shop',
  ].join('\n')
  await obey(host, 'by hand', start)
  is((await shop('POST')).rows, 1)

  await host.ok('systemctl', 'stop', 'by-hand')
  const refused = await host.run(['sh', join(host.feed, 'v1.0.0/install.sh'), '--feed', host.feed, '-y'])
  equal(
    [refused.code, /\/usr\/local\/bin\/shop exists, but was not created by the installer/.test(refused.stderr)],
    [7, true],
    refused.stderr,
  )
  await steps('npm -g', 'Move in')
  equal([(await shop('POST')).rows, (await shop()).folder], [2, '/var/lib/shop'])
  await steps('And out again')
  await obey(host, 'To npm -g', shellBelow(text, 'To npm -g').replace('shop@1.0.0', '/srv/shop-1.0.0.tgz'))
  await obey(host, 'by hand again', start)
  equal([(await shop('POST')).rows, (await shop()).folder], [3, '/srv/shop/data'])
})

test.long(
  'moving in from an image, and out again: every row is kept, and has the owner that the image expects',
  async () => {
    await using host = await bootWithShop()
    const { steps, shop } = await mover(host)
    const engine = '--bridge=none --ip-forward=false --iptables=false --ip6tables=false --storage-driver=vfs'
    // a tmpfs has the engine's files: an overlay cannot lie on the host's own
    await obey(
      host,
      'dockerd',
      `mkdir /run/engine && systemd-run --unit=engine -p Delegate=yes dockerd --data-root=/run/engine/data --exec-root=/run/engine/exec ${engine}`,
    )
    await eventually('the engine', async () => (await host.run(['docker', 'version'])).code === 0)
    const shared = ['/usr', '/lib', '/lib64', PROJECT].map((path) => `-v ${path}:${path}:ro`).join(' ')
    const variables = '-e PORT=3000 -e HOST=127.0.0.1 -e DATA_DIR=/var/lib/shop'
    await obey(
      host,
      'docker run',
      `tar -C /srv -c --exclude=. -T /dev/null | docker import - shop:1
    docker create --name shop --network host --user 4711 --restart unless-stopped ${shared} ${variables} -v shop:/var/lib/shop shop:1 \
      ${process.execPath} ${join(PROJECT, 'test/fixtures/shop.js')}
    chown 4711 /run/engine/data/volumes/shop/_data
    docker start shop`,
    )
    is((await shop('POST')).rows, 1)

    await steps('An image', 'Move in')
    equal([(await shop('POST')).rows, (await shop()).folder], [2, '/var/lib/shop'])
    await steps('And out again')
    // the volume has a `-wal`, what comes back has none
    await host.ok('test', '-s', '/run/engine/data/volumes/shop/_data/shop.db-wal')
    await host.ok('sqlite3', '/srv/shop/data/shop.db', 'pragma journal_mode = delete')
    await steps('To an image')
    is((await shop('POST')).rows, 3)
    match(await host.ok('stat', '-c', '%u', '/run/engine/data/volumes/shop/_data/shop.db'), /^4711$/m)
    await host.ok('docker', 'stop', 'shop')
  },
)

interface Block {
  language: string
  text: string
}

/** Runs the page's shell commands in one shell that stops at the first that fails; `between`: those of another page, at that heading. */
async function follow(
  host: FeedHost,
  page: string,
  filled: (text: string) => string,
  between?: { page: string; before: string },
): Promise<{ output: string; blocks: Block[] }> {
  const read = async (name: string) => await readFile(join(PROJECT, 'docs/operator', name), 'utf8')
  let whole = await read(page)
  if (between !== undefined) {
    const parts = whole.split(`\n## ${between.before}\n`)
    is(parts.length, 2, between.before)
    whole = parts.join(`\n${await read(between.page)}\n`)
  }
  const [text = ''] = whole.split(new RegExp(`^##+ ${OWN}$`, 'm'))
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
  const commands = shellBlocks(below(text, heading))
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
function quicker(text: string, install: RegExp, folder = '/etc'): string {
  const edit = `sed -i 's/"listen"/"update":{"probation":"1s"},"listen"/' ${folder}/beacon/config.json`
  ok(install.test(text))
  return text.replaceAll(install, (line) => `${line}\n${edit}\nbeacon stop\nbeacon start`)
}

test.run()
