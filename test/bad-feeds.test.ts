// Issue 2, "bad feeds": the first half of the story, whole, against a server that is wrong in each of the ways listed there.
// Nothing is changed on the disk, and the error names the stage.

import { lstat, readFile, readdir, writeFile } from 'node:fs/promises'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { makeDisk } from '../agent/disk/disk.ts'
import { BatonError } from '../agent/words/errors.ts'
import { openHttp } from '../agent/update/feed/http.ts'
import { webSource } from '../agent/update/feed/source.ts'
import { makeCheck } from '../agent/update/steps/check.ts'
import { makeDownload } from '../agent/update/steps/download.ts'
import { makeVerify } from '../agent/update/steps/verify.ts'
import { update } from '../agent/update/story.ts'
import type { Steps } from '../agent/update/story.ts'
import * as assert from './assert.ts'
import type { Status, VersionReport } from '../agent/words/state.ts'
import { install } from './fixtures/install.ts'
import { scriptRelease } from './fixtures/releases.ts'
import { makeCertificate } from './lab/certificate.ts'
import { makeDist, script } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { releaseServer } from './lab/release-server.ts'
import type { ReleaseServer, ReleaseServerOptions } from './lab/release-server.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('bad feeds')

type Faults = Omit<ReleaseServerOptions, 'dir'>

interface Attempt {
  faults?: Faults
  /** null: the latest */
  tag?: string | null
  current?: string
  releases?: string[]
  executable?: (tag: string) => string
  /** most milliseconds without a byte of an asset; an answer may take ten times as long */
  stallMs?: number
  /** between the stages named */
  afterCheck?: (server: ReleaseServer, dir: string) => Promise<void>
}

/** The story up to the commit line, in a directory with an executable, its backup and its receipt. */
async function attempt(
  kind: 'github' | 'web',
  options: Attempt,
): Promise<{ result: string | null; error: BatonError | null; swapped: boolean }> {
  const { faults = {}, tag = null, current = 'v1.0.0', releases = ['v1.0.0', 'v1.1.0'], executable } = options
  const { stallMs = 100 } = options
  const certificate = makeCertificate()
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(releases, executable === undefined ? {} : { executable }))
  const server = stack.use(await releaseServer({ dir: dist.dir, tls: certificate, ...faults }))
  const setting = kind === 'github' ? server.feed : server.staticUrl
  const feed = stack.use(labFeed(setting, { timeoutMs: 10 * stallMs, ca: certificate.cert }))
  const directory = stack.use(await temporary('bad')).path
  for (const name of ['beacon', 'beacon.backup', 'receipt.json']) await writeFile(join(directory, name), name)
  const before = await picture(directory)

  const disk = makeDisk()
  const check = makeCheck({ feed, current: () => current, skip: () => false })
  const partialPath = join(directory, '.beacon.partial')
  let swapped = false
  const steps: Steps = {
    async check(wanted) {
      const release = await check(wanted)
      await options.afterCheck?.(server, dist.dir)
      return release
    },
    download: makeDownload({ feed, disk, partialPath, stallMs, reconnectMs: 1, onProgress: () => {} }),
    verify: makeVerify({ service: 'beacon', disk, timeoutMs: 5_000 }),
    rest: () => Promise.resolve(),
    swap: () => {
      swapped = true
      return Promise.resolve()
    },
    restore: () => assert.unreachable() as never,
    restart: () => Promise.resolve(),
  }
  let result: string | null = null
  let error: BatonError | null = null
  try {
    result = await update(tag, steps, new AbortController().signal)
  } catch (cause) {
    assert.instance(cause, BatonError)
    error = cause as BatonError
  }
  assert.equal(await picture(directory), before)
  return { result, error, swapped }
}

/** Every file with its inode, its times, its mode and its content. */
async function picture(directory: string): Promise<unknown[]> {
  const names = (await readdir(directory)).toSorted()
  return await Promise.all(
    names.map(async (name) => {
      const { ino, mode, mtimeMs, size } = await lstat(join(directory, name))
      return { name, ino, mode, mtimeMs, size, content: await readFile(join(directory, name), 'utf8') }
    }),
  )
}

test('a good feed gets as far as the swap, so that what follows means something', async () => {
  for (const kind of ['github', 'web'] as const) {
    const { result, swapped } = await attempt(kind, { stallMs: 3000 })
    assert.is(result, 'v1.1.0')
    assert.ok(swapped)
  }
})

const swap = async (_: ReleaseServer, dir: string): Promise<void> => {
  const name = `beacon-${process.platform}-${process.arch}.zst`
  const [old, other] = await Promise.all(['v1.1.0', 'v1.0.0'].map((tag) => readFile(join(dir, tag, name))))
  assert.is(old?.length, other?.length) // so that the size does not tell
  await writeFile(join(dir, 'v1.1.0', name), other ?? '')
}

for (const [title, options, expected] of [
  [
    'wrong sha256',
    { faults: { wrongSha256: true } },
    /^verify_failed verifying v1\.1\.0: sha256 of `beacon-.*`: expected [0-9a-f]{64}, got [0-9a-f]{64}$/,
  ],
  [
    'missing checksum',
    { faults: { missingChecksum: 'line' }, tag: 'v1.1.0' },
    /^release_unusable checking .*: v1\.1\.0 cannot be used: SHA256SUMS has no line for/,
  ],
  [
    'missing checksums',
    { faults: { missingChecksum: 'file' }, tag: 'v1.1.0' },
    /^release_unusable checking .*: v1\.1\.0 cannot be used: it has no SHA256SUMS/,
  ],
  [
    'missing checksums of the latest',
    { faults: { missingChecksum: 'file' } },
    /^release_unusable checking .*: v1\.1\.0 cannot be used: it has no SHA256SUMS/,
  ],
  [
    'longer than announced',
    { faults: { longerBy: 100 } },
    /^download_failed downloading .*: expected \d+ bytes, got \d+$/,
  ],
  ['never-ending', { faults: { neverEnding: true } }, /^download_failed downloading .*: expected \d+ bytes, got more$/],
  [
    'stalled',
    { faults: { stallAfter: 3 } },
    /^download_failed downloading .*: stalled: expected at least \d+ bytes in 0\.1 s/,
  ],
  ['slow-loris', { faults: { byteEveryMs: 40 } }, /^download_failed downloading .*: stalled/],
  ['cut off', { faults: { cutAfter: 3 } }, /^download_failed downloading .* of \d+ bytes over 5 connections\)$/],
  ['HTML instead of JSON', { faults: { html: true } }, /^check_failed checking .*: .*(HTML page|<!doctype)/],
  [
    '429 with a reset time',
    { faults: { rateLimited: { status: 429, resetSeconds: 90 }, missingManifest: true } },
    /^rate_limited checking .*until 20\d\d-.*Z \(in (89|90) s\)/,
  ],
  [
    '403 with a reset time',
    { faults: { rateLimited: { status: 403, resetSeconds: 90 }, missingManifest: true } },
    /^rate_limited checking .*until 20\d\d-.*Z \(in (89|90) s\)/,
  ],
  ['404 of the release', { tag: 'v9.9.9' }, /^release_not_found checking .*has no release v9\.9\.9$/],
  ['404 of the asset', { faults: { assetStatus: 404 } }, /^release_not_found downloading .*not found \(404\)$/],
  ['redirect loop', { faults: { redirectLoop: true } }, /^check_failed checking .*redirects in a loop$/],
  [
    'redirect loop of the asset',
    { afterCheck: (server) => Promise.resolve(void (server.faults.redirectLoop = true)) },
    /^download_failed downloading .*redirects in a loop$/,
  ],
  [
    'redirect from https to plain http',
    { faults: { redirectAssetTo: 'http://127.0.0.1:9/asset' } },
    /^download_failed downloading .*redirects from https to plain http: `http:\/\/127\.0\.0\.1:9\/asset`$/,
  ],
  ['asset replaced between check and download', { afterCheck: swap }, /^verify_failed verifying v1\.1\.0: sha256 of/],
  [
    'names that lead out of the folder',
    { faults: { extraNames: ['../../../../etc/cron.d/x'] } },
    /^release_unusable checking .*expected a plain file name, got "\.\.\//,
  ],
  [
    'another service at this address',
    { executable: (tag) => script('other', tag) },
    /^verify_failed verifying v1\.1\.0: .*expected the service `beacon`, got `other`$/,
  ],
  [
    'another version inside',
    { executable: () => script('beacon', 'v1.0.9') },
    /^verify_failed verifying v1\.1\.0: .*expected v1\.1\.0, got v1\.0\.9$/,
  ],
  ['nobody answers', { faults: { silent: true } }, /^check_failed checking .*no answer within 1 s$/],
] satisfies [string, Attempt, RegExp][]) {
  for (const kind of ['github', 'web'] as const) {
    if (kind === 'web' && title.includes('reset time')) continue // only an API has a quota
    test(`${kind}: ${title}: nothing is changed, and the error names the stage`, async () => {
      const { error, swapped } = await attempt(kind, options)
      assert.match(`${error?.code} ${error?.message}`, expected)
      assert.is(swapped, false)
    })
  }
}

for (const kind of ['github', 'web'] as const) {
  test(`${kind}: an older release as the latest: up to date, and nothing is changed`, async () => {
    const { result, error, swapped } = await attempt(kind, { current: 'v2.0.0', faults: { onlyTags: ['v1.0.0'] } })
    assert.equal([result, error], [null, null])
    assert.is(swapped, false)
  })
}

test('a file that is unchanged, and larger than what is asked for now, is too large and not missing', async () => {
  let unchanged = 0
  const server = createServer((request, response) => {
    if (request.headers['if-none-match'] === '"1"') unchanged++
    const isKnown = request.headers['if-none-match'] === '"1"'
    response.writeHead(isKnown ? 304 : 200, { etag: '"1"' }).end(isKnown ? undefined : 'x'.repeat(100))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const http = openHttp({ homes: [base], environment: {} })
  try {
    const source = webSource(base, http)
    for (const bound of [1000, 100])
      assert.is((await source.file('releases.json', bound, undefined))?.length, 100, String(bound))
    assert.is(unchanged, 1)
    await assert.rejects(() => source.file('releases.json', 99, undefined), /is larger than 99 bytes/)
  } finally {
    await http.close()
    server.close()
  }
})

test('a setting that names no feed keeps no service from serving: check, status and update say what is wrong with it', async () => {
  await using home = await install({ release: await scriptRelease('v1.0.0'), feed: 'ftp://releases.test/' })
  await home.start()
  const check = await home.api('POST', '/admin/update/check')
  const { latest, problem } = check.body as VersionReport
  assert.equal([check.status, latest, problem?.code], [200, null, 'invalid_settings'])
  const status = await home.api('GET', '/admin/update/status')
  assert.is(status.status, 200)
  assert.match((status.body as Status).trust.warning?.message ?? '', /ftp:.*not a feed address/)
  const update = await home.api('POST', '/admin/update')
  assert.equal([update.status, (update.body as { code: string }).code], [500, 'invalid_settings'])
  assert.is((await home.api('GET', '/healthz')).status, 200)
})

test.run()
