// @deadlineMs 420000
// The guides, as somebody would follow them: every command of a page, read from the page, in order, in one shell, on a
// systemd host of its own. Only what no page can know is put in: where the releases and the repository are.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { suite } from './suite.ts'
import { equal, is, match, ok } from './assert.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { bootWithReleases, type FeedHost, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('guides', { skip: noHosts, timeoutMs: 240_000 })

const RELEASES = 'https://releases.example/beacon'
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
