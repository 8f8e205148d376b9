// Deltas of a release as a build makes them, and as a host of the release before it then downloads them.

import { randomBytes } from 'node:crypto'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeDisk } from '../agent/disk/disk.ts'
import { openFeed } from '../agent/update/feed/open.ts'
import { makeDownload } from '../agent/update/steps/download.ts'
import type { ReleaseManifest } from '../agent/words/release.ts'
import type { ProgressReport } from '../deploy/lib/progress.ts'
import { deltasFrom, type DeltasFrom } from '../deploy/make/deltas.ts'
import { publishRelease } from '../deploy/make/release-folder.ts'
import * as assert from './assert.ts'
import { script } from './lab/dist.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('deltas', { timeoutMs: 120_000 })

const TAIL = randomBytes(2 * 1024 ** 2)

/** Builds of one application in one folder, and what their progress has said. */
async function publisher(home: string) {
  const said: string[] = []
  const progress: ProgressReport = {
    stage: () => {},
    detail: () => {},
    bytes: () => {},
    note: (line) => said.push(line),
    end: (result, detail = '') => said.push(`${result} ${detail}`),
  }
  const out = join(home, 'releases')
  const build = async (tag: string, deltas: DeltasFrom | null = { from: out, most: 5 }): Promise<ReleaseManifest> => {
    const executable = join(home, tag)
    await writeFile(executable, Buffer.concat([Buffer.from(`${script('shop', tag)}exit\n`), TAIL]), { mode: 0o755 })
    const about = { service: 'shop', feed: null, notes: '', effort: 'fast', schema: null, publishedAt: null } as const
    await publishRelease({ ...about, executable, tag, out, force: false, progress, deltas })
    return JSON.parse(await readFile(join(out, tag, 'release.json'), 'utf8')) as ReleaseManifest
  }
  return { out, said, build }
}

test('a release has a delta from each of the releases before it, at most so many, and a host takes the one that begins at what it has', async () => {
  await using home = await temporary('deltas')
  const { out, said, build } = await publisher(home.path)
  assert.is((await build('v1.0.0')).deltas, undefined)
  assert.match(said.join('\n'), /no delta: .* has no release of shop before v1\.0\.0/)
  assert.is((await build('v1.1.0')).deltas?.length, 1)
  assert.is((await build('v1.2.0')).deltas?.length, 2)
  const { deltas = [] } = await build('v1.3.0', { from: out, most: 2 })
  assert.equal(
    said.filter((line) => line.includes('no delta from')),
    [],
  )
  assert.is(deltas.length, 2)
  assert.match(said.join('\n'), /done 2 deltas, [\d.]+ k?B, in [\d.]+ s; the build used at most \d+ MB of memory/)
  const sums = await readFile(join(out, 'v1.3.0', 'SHA256SUMS'), 'utf8')
  for (const { name, sha256, sizeBytes } of deltas) {
    assert.ok(sizeBytes < TAIL.length / 100)
    assert.ok(sums.includes(`${sha256}  ${name}\n`))
  }

  await using feed = openFeed(out, { service: 'shop', stateDirectory: null })
  const bytes: string[] = []
  const counted = {
    bytes: (...asked: Parameters<typeof feed.bytes>) => (bytes.push(asked[0].url), feed.bytes(...asked)),
  }
  const partialPath = join(home.path, '.partial')
  for (const [installed, by] of [
    ['v1.2.0', /\.from-[0-9a-f]{12}\.delta$/],
    ['v1.1.0', /\.from-[0-9a-f]{12}\.delta$/],
    ['v1.0.0', /\.zst$/],
  ] as const) {
    const installedPath = join(home.path, installed)
    const means = { feed: counted, disk: makeDisk(), partialPath, installedPath, stallMs: 5000, onProgress: () => {} }
    bytes.length = 0
    await using candidate = await makeDownload(means)(await feed.byTag('v1.3.0'))
    assert.ok((await readFile(candidate.path)).equals(await readFile(join(home.path, 'v1.3.0'))))
    assert.is(bytes.length, 1)
    assert.match(bytes[0] ?? '', by)
  }
})

test('the same release again keeps its deltas, and gets more of them', async () => {
  await using home = await temporary('deltas')
  const { out, build } = await publisher(home.path)
  await build('v1.0.0', null)
  await build('v1.1.0', null)
  assert.is((await build('v1.2.0', null)).deltas, undefined)
  const one = await build('v1.2.0', { from: out, most: 1 })
  assert.is(one.deltas?.length, 1)
  assert.equal((await build('v1.2.0', null)).deltas, one.deltas)
  assert.is((await build('v1.2.0')).deltas?.length, 2)
  const there = (await readdir(join(out, 'v1.2.0'))).filter((name) => name.endsWith('.delta'))
  assert.is(there.length, 2)
})

test('a feed that does not answer costs the deltas, and the build says so', async () => {
  await using home = await temporary('deltas')
  const { said, build } = await publisher(home.path)
  assert.is((await build('v1.0.0', { from: 'http://127.0.0.1:1/', most: 5 })).deltas, undefined)
  assert.match(said.join('\n'), /warning: no delta: .*ECONNREFUSED/)
})

test('takes a folder by its path from here, and 1 to 10 of them', () => {
  assert.is(deltasFrom(undefined, '5'), null)
  assert.equal(deltasFrom('some', '5'), { from: join(process.cwd(), 'some'), most: 5 })
  assert.equal(deltasFrom('github:acme/shop', '2'), { from: 'github:acme/shop', most: 2 })
  for (const most of ['0', '11', 'x', '1.5']) assert.throws(() => deltasFrom('some', most), 'expected 1 to 10')
})

test.run()
