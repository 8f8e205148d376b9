// @long @deadlineMs 900000
// README and the pages of an author, as somebody would follow them: every command read from the page, in order, as root of a systemd host
// with this machine's Node, with the packed package and nothing else of this repository. `baton image` needs an engine: container/release.ts.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../deploy/lib/shell.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { ownRegistry } from './apps/npm.ts'
import { equal, is, match, ok } from './assert.ts'
import { freePort } from './fixtures/install.ts'
import { makeDist } from './lab/dist.ts'
import { put, serveIn } from './lab/managed.ts'
import { commandsOf } from './lab/page.ts'
import { bootHost, type BootOptions, type Host, noHosts } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('author’s pages', { skip: noHosts, timeoutMs: 300_000 })

const [PUBLISHING, SIGNING, PACKAGES] = [
  'docs/author/publishing.md',
  'docs/author/signing.md',
  'docs/author/packages.md',
]
/** where the pages publish to */
const FEED = '/srv/releases'
/** the page names a file of the configuration in a comment, and nothing that writes it */
const SET_ROOT = `sed -i '0,/{/s//{ "root": "root.json",/' baton.config.json`

test('README, then what publishing has of a next release: to a folder, by rsync, to a server like GitHub, with deltas, taken back', async () => {
  await using key = await sshKey()
  const sshd = { prepare: join(import.meta.dirname, 'lab/with-sshd'), env: { LAB_KEY: key.public } }
  await using author = await bootAuthor('shop', sshd)
  await beginShop(author)
  const [readme = ''] = await commandsOf('README.md', 'In your own application')
  const [first = '', upgrade = ''] = readme.split(/^(?=shop upgrade)/m)
  match(await author.answer(first), 'shop v1.0.0 is installed and running')

  const [next = '', delta = ''] = await commandsOf(PUBLISHING)
  await author.obey(`sed -i 's/one/two/' server.js\n${next}`)
  match(await author.obey(upgrade), 'shop v1.1.0 is running and healthy, replacing v1.0.0')
  match(await author.obey('curl -fsS http://127.0.0.1:8080/'), /^two$/m)

  // the other two rows of its table
  const [, publish = ''] = /^(npx baton publish .*) --to \/srv\/releases$/m.exec(next) ?? []
  const page = await readFile(join(PROJECT, PUBLISHING), 'utf8')
  for (const row of ['user@host:/srv/releases', 'github:owner/name']) ok(page.includes(`| \`${row}\``), row)
  await put(author, '/root/.ssh/id_ed25519', key.text)
  await author.obey('chmod 600 ~/.ssh/id_ed25519\nssh-keyscan 127.0.0.1 > ~/.ssh/known_hosts')
  await author.obey(
    `${publish} --to root@127.0.0.1:/srv/mirror\ncmp /srv/mirror/v1.1.0/SHA256SUMS ${FEED}/v1.1.0/SHA256SUMS`,
  )
  await using hub = await makeDist([])
  await using server = await serveIn(await author.network(), { dir: hub.dir, writeToken: 'sesame' })
  await author.obey(`GH_ENTERPRISE_TOKEN=sesame ${publish} --to ${server.feed}`)

  match(await author.obey(delta.replace('github:owner/name', server.feed)), /^done deltas +1 delta, \d+ B/m)
  const last = await author.obey(`${publish.replace('v1.1.0', 'v1.2.0')} --to ${FEED}\nshop upgrade`)
  match(last, /^done download +\d+ B/m)
  const draft = `sed -i 's/"draft": false/"draft": true/' ${FEED}/releases.json`
  const after = await author.obey(`${draft}\n${publish} --to ${FEED}\nshop upgrade v1.0.0 || echo "exit $?"`)
  match(after, /v1\.0\.0 cannot be used: it is a draft[^]*^exit 5$/m)
})

test('signing, from its keys to a stick, then a rollout: a host of the first root sees each change once it is published', async () => {
  await using author = await bootAuthor('shop')
  await beginShop(author)
  const [begin = ''] = await commandsOf(SIGNING, 'Begin')
  // its last line, which has to come again after each change
  const [publish = ''] = /^npx baton publish \S+ --to \S+/m.exec(begin) ?? []
  const release = (tag: string, between = '') =>
    `npx baton build ${tag} --compress fast\nnpx baton trust sign\n${between}${publish.replace('v1.0.0', tag)}`
  const whole = begin.replace(/^cp releases.*$/m, `$&\n${SET_ROOT}`)
  ok(whole !== begin)
  const [image = ''] = await commandsOf('docs/operator/container.md', 'The first release')
  const [init = ''] = /^npx baton init .*$/m.exec(image) ?? []
  await author.obey(`${init}\n${whole}sh ${FEED}/v1.0.0/install.sh -y`)
  await author.obey(release('v1.1.0'))
  match(await author.obey('shop check'), /^latest +v1\.1\.0/m)
  for (const day of [
    'A release is bad',
    'A root key is lost',
    'A root key is stolen',
    'The timestamp or snapshot key is stolen',
    'The key of targets is stolen',
    'Hosts without a network',
  ]) {
    const [commands = ''] = await commandsOf(SIGNING, day)
    await author.obey(`${commands}${publish}`)
    const seen = await author.obey('shop releases\nshop doctor')
    match(seen, /^v1\.1\.0 .*yanked.*loses rows on a full disk/m, day)
    match(seen, /^ok +trust /m, day)
  }
  const rollout = (await commandsOf(PUBLISHING, 'In steps, and taken back')).join('')
  match(await author.obey(release('v1.2.0', rollout)), 'v1.2.0 goes to 5% of hosts')
  match(await author.obey('shop upgrade'), 'shop v1.2.0 is running and healthy')
})

test('packages: a service from npm is what `init` makes of it as the page says, and what it was given stays through an update', async () => {
  await using author = await bootAuthor('wiki', { netns: '.' })
  const commands = (await commandsOf(PACKAGES)).join('')
  await author.answer(`npm init -y > /dev/null\n${commands}`)
  const page = await readFile(join(PROJECT, PACKAGES), 'utf8')
  const fenced = (language: string) =>
    Array.from(page.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, 'gm')), ([, text = '']) => text)
  const read = async (name: string) => await readFile(await author.path(`/root/try/wiki/${name}`), 'utf8')
  const [first = '', copies = ''] = fenced('js')
  is((await read('baton.server.mjs')).replaceAll(/^\/\/.*\n/gm, ''), first.replaceAll(/^\/\/.*\n/gm, ''))
  const [config = '{}'] = fenced('json')
  const { entry, args, healthPath } = JSON.parse(await read('baton.config.json')) as Record<string, unknown>
  equal({ entry, args, healthPath }, JSON.parse(config))

  await put(author, '/root/try/wiki/baton.server.mjs', copies)
  const at = `127.0.0.1:${await freePort()}`
  const build = (tag: string) => `npx baton build ${tag} --compress fast\nnpx baton publish ${tag} --to ${FEED}`
  await author.obey(`${build('v1.0.0')}\nsh ${FEED}/v1.0.0/install.sh --listen ${at} -y`)
  const tiddler = `http://${at}/recipes/default/tiddlers/mine`
  const head = `-H 'x-requested-with: TiddlyWiki' -H 'content-type: application/json'`
  await author.obey(`curl -fsS -X PUT ${head} -d '{"title":"mine","text":"kept"}' ${tiddler}`)
  match(await author.obey(`${build('v1.1.0')}\nwiki upgrade`), 'wiki v1.1.0 is running and healthy')
  match(await author.obey(`curl -fsS ${tiddler}`), '"text":"kept"')
})

test.run()

// ---- parts

interface Author extends Host {
  /** runs the commands in the folder of the application, until the first that fails; resolves to all that they print */
  obey(commands: string): Promise<string>
  /** the same at a terminal, where somebody says yes to each question */
  answer(commands: string): Promise<string>
}

/** A host with the package in ~/try, as the pages have it, and an empty folder for an application beside it. */
async function bootAuthor(application: string, options: BootOptions = {}): Promise<Author> {
  const kit = await packedKit()
  const certificates = process.env['NODE_EXTRA_CA_CERTS']
  const env = {
    BATON_TRUST_PASSPHRASE: 'nobody guesses this',
    npm_config_registry: await ownRegistry(),
    npm_config_audit: 'false',
    ...(certificates === undefined ? {} : { NODE_EXTRA_CA_CERTS: certificates }),
  }
  const host = await bootHost(options)
  const obeyed = async (commands: string, command: readonly string[]) => {
    await put(host, '/root/commands.sh', `exec 2>&1\ncd ~/try/${application}\n${commands}\n`)
    const { code, stdout } = await host.run(command, { env, timeoutMs: 240_000 })
    is(code, 0, stdout.slice(-4000))
    return stdout
  }
  await host.ok('mkdir', '-p', `/root/try/${application}`)
  // the Node to build with, as the page of publishing installs it: a host of its own has no registry
  const node = join(PROJECT, 'node_modules', `node-linux-${process.arch}`)
  await obeyed(`cp ${kit} ..\nnpm install --prefix .. ${node}`, ['sh', '-eu', '/root/commands.sh'])
  const typing = `while sleep 1; do echo y; done | script -qec 'sh -eux /root/commands.sh' /dev/null`
  return {
    ...host,
    obey: (commands) => obeyed(commands, ['sh', '-eux', '/root/commands.sh']),
    answer: (commands) => obeyed(commands, ['sh', '-c', typing]),
  }
}

/** The application of the first page, with the package. */
async function beginShop(author: Author): Promise<void> {
  const [application = ''] = await commandsOf('docs/start.md', 'An application')
  const [first = ''] = await commandsOf('docs/start.md', 'The first release')
  const [install = ''] = /^npm install .*$/m.exec(first) ?? []
  await author.obey(`cd ..\nrmdir shop\n${application}\n${install}`)
}

async function sshKey(): Promise<AsyncDisposable & { text: string; public: string }> {
  const folder = await temporary('author')
  const path = join(folder.path, 'key')
  await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', path])
  const [text, own] = [await readFile(path, 'utf8'), await readFile(`${path}.pub`, 'utf8')]
  return { text, public: own.trim(), [Symbol.asyncDispose]: async () => await folder[Symbol.asyncDispose]() }
}
