// `baton publish`: a folder, a host by rsync, GitHub by its API. Must hold everywhere: no reader ever sees half of a release, and
// what was published is never replaced.

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { publishToGitHub } from '../deploy/make/github.ts'
import { sendRelease } from '../deploy/make/publish.ts'
import { publicUrl } from '../deploy/image.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { findProgram, run } from '../deploy/lib/shell.ts'
import { equal, is, match, not, ok, rejects, withCode } from './assert.ts'
import { type Dist, makeDist } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { releaseServer } from './lab/release-server.ts'
import { makeSignedDist } from './lab/signed-dist.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('publish', { timeoutMs: 60_000 })
const progress = createProgress({ quiet: true })
const TAGS = ['v1.0.0', 'v1.1.0', 'v1.2.0'] as const

test('into a folder: a reader that looks all the time sees whole releases only, and nothing is left beside them', async () => {
  await using dist = await makeDist([...TAGS])
  await using place = await temporary('publish')
  const feed = join(place.path, 'feed')
  await mkdir(feed)
  let [reading, looks] = [true, 0]
  const reader = (async () => {
    for (; reading; looks++) for (const tag of await listedIn(feed)) await assertWhole(feed, tag)
  })()
  for (const tag of TAGS) {
    await publish(dist, tag, feed)
    for (const before = looks; looks < before + 2;) await nextTurn() // the reader has seen this one too
  }
  reading = false
  await reader
  equal(await listedIn(feed), TAGS.toReversed())
  equal((await readdir(feed)).toSorted(), ['releases.json', ...TAGS])
})

test('into a folder: the same again changes nothing, another release of the tag is refused', async () => {
  await using dist = await makeDist(['v1.0.0'])
  await using place = await temporary('publish')
  await publish(dist, 'v1.0.0', place.path)
  await publish(dist, 'v1.0.0', place.path)
  const before = await readFile(join(place.path, 'v1.0.0', 'SHA256SUMS'), 'utf8')
  await dist.add('v1.0.0', { notes: 'different' })
  await rejects(() => publish(dist, 'v1.0.0', place.path), withCode('refused'))
  is(await readFile(join(place.path, 'v1.0.0', 'SHA256SUMS'), 'utf8'), before)
  await rejects(() => publish(dist, 'v9.9.9', place.path), withCode('release_not_found'))
})

test('where hosts take only what is signed, nothing else is published; what is signed arrives whole, timestamp.json last', async () => {
  await using unsigned = await makeDist(['v1.0.0'])
  await using it = await makeSignedDist(['v1.0.0'])
  await using place = await temporary('publish')
  await rejects(() => publish(unsigned, 'v1.0.0', place.path, true), withCode('refused'))
  equal(await readdir(place.path), [])
  let reading = true
  const reader = (async () => {
    for (; reading; await nextTurn()) {
      const timestamp = await readFile(join(place.path, 'verified', 'timestamp.json'), 'utf8').catch(() => null)
      if (timestamp === null) continue
      const { signed } = JSON.parse(timestamp) as { signed: { version: number } }
      for (const role of ['snapshot', 'targets'])
        await readFile(join(place.path, 'verified', `${signed.version}.${role}.json`))
    }
  })()
  await publish(it.dist, 'v1.0.0', place.path, true)
  await it.dist.add('v1.1.0')
  await rejects(() => publish(it.dist, 'v1.1.0', place.path, true), withCode('refused'))
  const timestamp = await readFile(join(it.folder, 'timestamp.json'))
  await it.publish()
  // cut short: the newest targets are there, and no host is led to them
  const whole = await readFile(join(it.folder, 'timestamp.json'))
  await writeFile(join(it.folder, 'timestamp.json'), timestamp)
  await rejects(() => publish(it.dist, 'v1.1.0', place.path, true), withCode('refused'))
  await writeFile(join(it.folder, 'timestamp.json'), whole)
  await publish(it.dist, 'v1.1.0', place.path, true)
  reading = false
  await reader
  equal((await readdir(join(place.path, 'verified'))).toSorted(), (await readdir(it.folder)).toSorted())
  await it.dist.add('v1.1.0', { notes: 'changed since' })
  await rejects(() => publish(it.dist, 'v1.1.0', place.path, true), withCode('refused'))
})

test('by rsync: a real server gets the files, then the list; another release of the tag is refused', async () => {
  if ((await findProgram('rsync')) === null) return
  await using dist = await makeDist(['v1.0.0'])
  await using host = await rsyncHost()
  await publish(dist, 'v1.0.0', host.target)
  await assertWhole(host.path, 'v1.0.0')
  await dist.add('v1.1.0')
  await publish(dist, 'v1.1.0', host.target)
  equal(await listedIn(host.path), ['v1.1.0', 'v1.0.0'])
  await publish(dist, 'v1.1.0', host.target)
  await dist.add('v1.1.0', { notes: 'different' })
  await rejects(() => publish(dist, 'v1.1.0', host.target), withCode('refused'))
  await assertWhole(host.path, 'v1.1.0')
})

test('on GitHub: a draft until every asset is there; hosts find it then, and not before', async () => {
  await using dist = await makeDist(['v1.0.0'])
  await using hub = await makeDist([])
  await using server = await releaseServer({ dir: hub.dir, writeToken: 'sesame', quota: 1000 })
  await using feed = labFeed(server.feed)
  equal(await feed.latest(() => false), { release: null, problem: null })
  match(await toHub(dist, 'v1.0.0', server.feed), /\/releases\/tag\/v1\.0\.0$/)
  const writes = server.requests.filter(({ method }) => method !== 'GET').map(({ method }) => method)
  const files = (await readdir(join(dist.dir, 'v1.0.0'))).length
  equal(writes, ['POST', ...Array.from({ length: files }, () => 'POST'), 'PATCH'])
  await assertWhole(hub.dir, 'v1.0.0')
  is((await feed.byTag('v1.0.0')).tag, 'v1.0.0')
})

test('on GitHub: a draft that was left half is finished, what is published is never replaced, the token is in no message', async () => {
  await using dist = await makeDist(['v1.0.0'])
  await using hub = await makeDist([])
  await using server = await releaseServer({ dir: hub.dir, writeToken: 'sesame', quota: 1000 })
  await mkdir(join(hub.dir, 'v1.0.0'))
  await writeFile(join(hub.dir, 'v1.0.0', 'SHA256SUMS'), 'half of i')
  const list = { format: 1, releases: [{ tag: 'v1.0.0', draft: true, prerelease: false }] }
  await writeFile(join(hub.dir, 'releases.json'), JSON.stringify(list))
  await toHub(dist, 'v1.0.0', server.feed)
  await assertWhole(hub.dir, 'v1.0.0')
  await toHub(dist, 'v1.0.0', server.feed) // the same: nothing to do
  await dist.add('v1.0.0', { notes: 'different' })
  await rejects(() => toHub(dist, 'v1.0.0', server.feed), withCode('refused'))
  await assertWhole(hub.dir, 'v1.0.0')
  await dist.add('v1.1.0')
  await rejects(
    () => toHub(dist, 'v1.1.0', server.feed, 'a-wrong-one'),
    (error: Error) => {
      not(`${error.message} ${String(error.cause)}`.includes('a-wrong-one'))
      return withCode('check_failed')(error)
    },
  )
  await rejects(() => toHub(dist, 'v1.1.0', server.feed, ''), withCode('refused'))
})

test('puts no password of a remote into a label', () => {
  equal(publicUrl('https://user:token@git.example/a/b.git'), 'https://git.example/a/b.git')
  equal([publicUrl('git@git.example:a/b'), publicUrl('')], ['', ''])
})

test('an image of a release that nobody has built is refused in a sentence', async () => {
  const { exitCode, stderr } = await run(
    [
      process.execPath,
      join(import.meta.dirname, '../deploy/image.ts'),
      'v9.9.9',
      '--repository',
      'x',
      '--out',
      tmpdir(),
    ],
    { allowFailure: true },
  )
  equal([exitCode, stderr.includes('ENOENT')], [4, false], stderr)
  match(
    stderr,
    /^error: there is no release v9\.9\.9 in .*\nhint: build it first: `npm run build -- v9\.9\.9`\ncode: release_not_found .*\n$/m,
  )
})

test.run()

// ---- parts

const publish = ({ dir }: Dist, tag: string, to: string, signed = false) =>
  sendRelease({ from: dir, tag, service: 'beacon', to, signed, progress })

function toHub({ dir }: Dist, tag: string, to: string, token = 'sesame'): Promise<string> {
  return publishToGitHub({ folder: join(dir, tag), tag, to, progress, environment: { GH_ENTERPRISE_TOKEN: token } })
}

async function listedIn(feed: string): Promise<string[]> {
  const text = await readFile(join(feed, 'releases.json'), 'utf8').catch(() => '{"releases":[]}')
  return (JSON.parse(text) as { releases: { tag: string }[] }).releases.map(({ tag }) => tag)
}

async function assertWhole(feed: string, tag: string): Promise<void> {
  const sums = await readFile(join(feed, tag, 'SHA256SUMS'), 'utf8')
  const lines = sums.split('\n').filter(Boolean)
  ok(lines.length >= 3, sums)
  for (const line of lines) {
    const bytes = await readFile(join(feed, tag, line.slice(66)))
    is(createHash('sha256').update(bytes).digest('hex'), line.slice(0, 64), line)
  }
}

/** A real rsync server on this machine's loopback. */
async function rsyncHost(): Promise<AsyncDisposable & { path: string; target: string }> {
  const place = await temporary('publish')
  const path = join(place.path, 'feed')
  await mkdir(path)
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  await new Promise((closed) => server.close(closed))
  const config = join(place.path, 'rsyncd.conf')
  const own = process.getuid?.() === 0 ? 'uid = 0\ngid = 0\n' : '' // another user's server cannot become anybody, itself included
  await writeFile(config, `use chroot = no\n${own}[feed]\npath = ${path}\nread only = no\n`)
  const flags = ['--daemon', '--no-detach', '--address=127.0.0.1', `--port=${port}`, `--config=${config}`]
  const child = spawn('rsync', flags, { stdio: 'ignore' })
  const gone = once(child, 'exit')
  const target = `rsync://127.0.0.1:${port}/feed`
  await eventually(
    'the rsync server',
    async () =>
      (await fetch(`http://127.0.0.1:${port}`).catch(
        (error: Error & { cause?: { code?: string } }) => error.cause?.code !== 'ECONNREFUSED',
      )) !== false,
  )
  return {
    path,
    target,
    async [Symbol.asyncDispose]() {
      child.kill()
      await gone
      await place[Symbol.asyncDispose]()
    },
  }
}
