// Downloads over real sockets that break, stall, trickle and lie, onto a real disk; what is left behind is looked at.

import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { readFile, readdir, rm, stat, statfs, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { makeDisk } from '../agent/disk/disk.ts'
import { BatonError } from '../agent/words/errors.ts'
import type { OpenFeed, Release } from '../agent/words/release.ts'
import { cancellation, type Progress } from '../agent/words/state.ts'
import { makeDownload, type DownloadOptions } from '../agent/update/steps/download.ts'
import type { Candidate } from '../agent/update/story.ts'
import * as assert from './assert.ts'
import { makeDist, script, type Dist } from './lab/dist.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { labFeed } from './lab/feed.ts'
import { releaseServer, type Faults, type ReleaseServer, type ReleaseServerOptions } from './lab/release-server.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('download')

const MIB = 1024 ** 2
/** a script with a long tail that does not compress, so that there is something to break off */
const LONG = Buffer.concat([Buffer.from(`${script('beacon', 'v1.1.0')}exit\n`), randomBytes(MIB)])

interface Lab extends AsyncDisposable {
  dist: Dist
  server: ReleaseServer
  feed: OpenFeed
  release: Release
  /** the directory of the executable, which has one called `beacon` */
  directory: string
  progress: Progress[]
  download(options?: Partial<DownloadOptions>): Promise<Candidate>
  /** the message of the download's failure, after which the directory is as it was */
  failure(options?: Partial<DownloadOptions>): Promise<string>
}

interface LabOptions extends Omit<ReleaseServerOptions, 'dir'> {
  kind?: 'github' | 'web' | 'folder'
  executable?: Buffer
}

async function lab({ kind = 'web', executable = LONG, ...faults }: LabOptions = {}): Promise<Lab> {
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0'], { executable: () => executable }))
  const server = stack.use(await releaseServer({ dir: dist.dir, ...faults }))
  const setting = { github: server.feed, web: server.staticUrl, folder: dist.dir }[kind]
  const feed = stack.use(labFeed(setting, { timeoutMs: 5_000 }))
  const release = (await feed.latest(() => false)).release ?? assert.unreachable()
  const directory = stack.use(await temporary('download')).path
  await writeFile(join(directory, 'beacon'), 'the one that runs')
  const progress: Progress[] = []
  const partialPath = join(directory, '.beacon.partial')
  const download: Lab['download'] = (options) =>
    makeDownload({
      feed,
      disk: makeDisk(),
      partialPath,
      stallMs: 2_000,
      reconnectMs: 1,
      onProgress: (now) => progress.push(now),
      ...options,
    })(release as Release)
  const failure: Lab['failure'] = async (options) => {
    const error = (await assert.rejects(download(options))) as BatonError
    assert.instance(error, BatonError)
    assert.match(error.message, /^downloading `beacon-/) // every error names its stage
    assert.equal(await readdir(directory), ['beacon'])
    assert.is(await readFile(join(directory, 'beacon'), 'utf8'), 'the one that runs')
    return `${error.code} ${error.message}`
  }
  server.requests.length = 0
  const kept = stack.move()
  const dispose = (): Promise<void> => kept.disposeAsync()
  return {
    dist,
    server,
    feed,
    release: release as Release,
    directory,
    progress,
    download,
    failure,
    [Symbol.asyncDispose]: dispose,
  }
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** The download has succeeded, and this is really the asset. */
async function isWhole(it: Lab, candidate: Candidate, executable = LONG): Promise<void> {
  assert.is(candidate.path, join(it.directory, '.beacon.partial'))
  assert.is(sha256(await readFile(candidate.path)), sha256(executable))
  assert.is(candidate.assetSha256, it.release.asset.sha256)
}

for (const kind of ['github', 'web', 'folder'] as const) {
  test(`${kind}: unpacks the asset beside the executable, which nobody can run yet, and takes it away again when disposed of`, async () => {
    await using it = await lab({ kind })
    {
      await using candidate = await it.download()
      await isWhole(it, candidate)
      assert.is((await stat(candidate.path)).mode & 0o777, 0o600)
    }
    assert.equal(await readdir(it.directory), ['beacon'])
    const { sizeBytes: totalBytes } = it.release.asset
    assert.equal(it.progress[0], { bytes: 0, totalBytes })
    assert.equal(it.progress.at(-1), { bytes: totalBytes, totalBytes })
  })
}

for (const compression of ['gzip', 'none'] as const) {
  test(`unpacks ${compression}`, async () => {
    await using it = await lab()
    const bytes = compression === 'gzip' ? gzipSync(LONG) : LONG
    const name = it.release.asset.name
    await writeFile(join(it.dist.dir, 'v1.1.0', name), bytes)
    Object.assign(it.release.asset, { compression, sizeBytes: bytes.length, sha256: sha256(bytes) })
    await isWhole(it, await it.download())
  })
}

test('reports progress at most ten times a second, and never backwards', async () => {
  await using it = await lab({ bytesPerSecond: 2 * MIB })
  const started = performance.now()
  await it.download()
  const seconds = (performance.now() - started) / 1000
  assert.ok(it.progress.length >= 4, `${it.progress.length} reports`)
  assert.ok(it.progress.length <= seconds * 10 + 3, `${it.progress.length} reports in ${seconds} s`)
  for (const [at, { bytes }] of it.progress.entries()) assert.ok(bytes >= (it.progress[at - 1]?.bytes ?? 0))
})

test('replaces what an interrupted download has left, also where it is a link', async () => {
  await using it = await lab()
  const partial = join(it.directory, '.beacon.partial')
  await writeFile(partial, 'half of something', { mode: 0o755 })
  await isWhole(it, await it.download())
  await rm(partial)
  await symlink(join(it.directory, 'beacon'), partial)
  await isWhole(it, await it.download())
  assert.is(await readFile(join(it.directory, 'beacon'), 'utf8'), 'the one that runs')
})

// ---- broken connections ------------------------------------------------------------------------------------------

for (const kind of ['github', 'web'] as const) {
  test(`${kind}: goes on where a broken connection left off, in the same file or not at all`, async () => {
    await using it = await lab({ kind, cutAfter: 300_000, cuts: 3 })
    await isWhole(it, await it.download())
    const asked = it.server.requests.filter(({ path, status }) => path.includes('/v1.1.0/beacon-') && status < 300)
    assert.equal(
      asked.map(({ status }) => status),
      [200, 206, 206, 206],
    )
    const [, ...resumed] = asked.map(({ headers }) => headers)
    for (const headers of resumed) {
      assert.match(headers.range ?? '', /^bytes=[1-9]\d+-$/)
      assert.match(String(headers['if-range']), /^"[^"]+"$/)
    }
  })
}

test('reads over what it has where the server cannot resume', async () => {
  await using it = await lab({ cutAfter: 500_000, cuts: 2, ignoreRange: true })
  await isWhole(it, await it.download())
  assert.equal(
    it.server.requests.map(({ status }) => status),
    [200, 200, 200],
  )
  for (const [at, { bytes }] of it.progress.entries()) assert.ok(bytes >= (it.progress[at - 1]?.bytes ?? 0))
})

test('reads over what it has where the server says that the file is another one, and the sum says that it is not', async () => {
  await using it = await lab({ cutAfter: 500_000, cuts: 2, changingEtag: true })
  await isWhole(it, await it.download())
  assert.equal(
    it.server.requests.map(({ status }) => status),
    [200, 200, 200],
  )
})

test('gets over a server that has trouble for a moment', async () => {
  await using it = await lab({ assetStatus: 503 })
  const downloading = it.download()
  while (it.server.requests.length < 2) await new Promise((resolve) => setTimeout(resolve, 1))
  delete it.server.faults.assetStatus
  await isWhole(it, await downloading)
})

test('gives up where connection after connection brings nothing', async () => {
  await using it = await lab({ cutAfter: 100 })
  assert.match(await it.failure(), /^download_failed .*\(\d+ of \d+ bytes over 5 connections\)$/)
  assert.is(it.server.requests.length, 5)
})

test('gives up where nobody answers any more', async () => {
  await using it = await lab()
  await it.server.close()
  assert.match(await it.failure(), /^download_failed .*ECONNREFUSED.*\(0 of \d+ bytes over 5 connections\)$/)
})

test.long('gives up where connection after connection stalls', async () => {
  await using it = await lab({ stallAfter: 1_000 })
  assert.match(
    await it.failure({ stallMs: 100 }),
    /^download_failed .*stalled: expected at least 16384 bytes in 0\.1 s, got \d+/,
  )
  assert.is(it.server.requests.length, 5)
})

test('goes on from a stalled connection in another one', async () => {
  await using it = await lab({ stallAfter: 400_000 })
  const downloading = it.download({ stallMs: 150 })
  while (it.server.requests.length < 2) await new Promise((resolve) => setTimeout(resolve, 1))
  delete it.server.faults.stallAfter
  await isWhole(it, await downloading)
})

test('a connection that trickles is as dead as a silent one', async () => {
  await using it = await lab({ byteEveryMs: 5 })
  assert.match(
    await it.failure({ stallMs: 100 }),
    /^download_failed .*stalled: expected at least 16384 bytes in 0\.1 s, got \d+/,
  )
})

test('a slow connection is not a stalled one', async () => {
  await using it = await lab({ bytesPerSecond: 600_000 })
  await isWhole(it, await it.download({ stallMs: 1_000 }))
  assert.is(it.server.requests.length, 1)
})

test('does not hold its own slowness against the connection', async () => {
  const executable = LONG.subarray(0, 400_000)
  await using it = await lab({ executable })
  const disk = makeDisk()
  const create: typeof disk.create = async (path, mode) => {
    const file = await disk.create(path, mode)
    const write = file.write.bind(file) as (chunk: Uint8Array, at: number) => Promise<{ bytesWritten: number }>
    const slowly = async (chunk: Uint8Array, at: number) => {
      await new Promise((resolve) => setTimeout(resolve, 600))
      return await write(chunk, at)
    }
    return Object.assign(file, { write: slowly })
  }
  await isWhole(it, await it.download({ disk: { ...disk, create }, stallMs: 400 }), executable)
  assert.is(it.server.requests.length, 1)
})

// ---- bytes that are not the asset --------------------------------------------------------------------------------

for (const [title, faults, expected] of [
  ['is longer than announced', { longerBy: 1 }, /expected \d+ bytes, got \d+$/],
  ['is shorter than announced', { shorterBy: 1 }, /expected \d+ bytes, got \d+$/],
  ['never ends', { neverEnding: true }, /expected \d+ bytes, got more$/],
  ['has a content-length that is too long', { contentLengthDelta: 5 }, /expected \d+ bytes, got \d+$/],
  ['has a content-length that is too short', { contentLengthDelta: -5 }, /expected \d+ bytes, got \d+$/],
  ['is not there', { assetStatus: 404 }, /not found \(404\)$/],
  ['is not for us', { assetStatus: 403 }, /expected 200, got 403$/],
  ['is refused for now', { assetStatus: 429 }, /will not accept more requests until/],
  ['is redirected in a loop', { redirectLoop: true }, /redirects in a loop$/],
  [
    'goes on in another place after a break',
    { cutAfter: 300_000, cuts: 1, wrongContentRange: true },
    /expected a range from byte \d+, got one from byte \d+$/,
  ],
] satisfies [string, ReleaseServerOptions | object, RegExp][]) {
  test(`refuses an asset that ${title}, at once`, async () => {
    await using it = await lab()
    Object.assign(it.server.faults, faults)
    assert.match(await it.failure(), expected)
    assert.ok(it.server.requests.length <= 3, `${it.server.requests.length} requests`)
  })
}

test('a page in the place of the asset is refused by its size', async () => {
  await using it = await lab()
  await writeFile(join(it.dist.dir, 'v1.1.0', it.release.asset.name), '<!doctype html><title>Log in</title>')
  assert.match(await it.failure(), /^download_failed .*expected \d+ bytes, got 36$/)
})

for (const kind of ['github', 'web', 'folder'] as const) {
  test(`${kind}: an asset that was replaced since the check is refused by its size, or has another sum`, async () => {
    await using it = await lab({ kind })
    const path = join(it.dist.dir, 'v1.1.0', it.release.asset.name)
    const before = await readFile(path)
    await writeFile(path, Buffer.concat([before, Buffer.from('more')]))
    assert.match(await it.failure(), /^download_failed .*expected \d+ bytes, got \d+$/)

    const other = randomBytes(before.length)
    await writeFile(path, other)
    await using candidate = await it.download() // which unpacks to nothing; verify refuses it by this sum
    assert.is(candidate.assetSha256, sha256(other))
    assert.not.equal(candidate.assetSha256, it.release.asset.sha256)
  })
}

test('an asset that was replaced during the download has another sum', async () => {
  await using it = await lab({ cutAfter: 500_000, cuts: 1 })
  const path = join(it.dist.dir, 'v1.1.0', it.release.asset.name)
  const size = (await stat(path)).size
  const onProgress = ({ bytes }: Progress): void => void (bytes === 0 && (replaced = undefined))
  let replaced: Promise<void> | undefined
  const downloading = it.download({ onProgress, reconnectMs: 200 })
  while (it.server.requests.at(-1)?.status !== 200) await new Promise((resolve) => setTimeout(resolve, 1))
  replaced = writeFile(path, randomBytes(size))
  await replaced
  await using candidate = await downloading
  assert.equal(
    it.server.requests.map(({ status }) => status),
    [200, 200],
  )
  assert.not.equal(candidate.assetSha256, it.release.asset.sha256)
})

test('a wrong last byte is told by the sum, whatever the decompressor makes of it', async () => {
  await using it = await lab({ wrongSha256: true })
  await using candidate = await it.download()
  assert.not.equal(candidate.assetSha256, it.release.asset.sha256)
})

test('an asset with the right sum that does not unpack is refused', async () => {
  await using it = await lab()
  const bytes = randomBytes(1000)
  await writeFile(join(it.dist.dir, 'v1.1.0', it.release.asset.name), bytes)
  Object.assign(it.release.asset, { sizeBytes: bytes.length, sha256: sha256(bytes) })
  assert.match(await it.failure(), /^download_failed .*the asset cannot be unpacked: /)
})

test('an asset that unpacks to more than announced is refused when it does, not when it has', async () => {
  await using it = await lab({ executable: Buffer.alloc(96 * MIB) }) // a few KiB of zstd
  Object.assign(it.release.asset.executable ?? {}, { sizeBytes: MIB })
  const before = process.memoryUsage().rss
  assert.match(await it.failure(), /^download_failed .*the asset unpacks to more than 1048576 bytes$/)
  assert.ok(process.memoryUsage().rss - before < 48 * MIB)
})

test('checks the space before the first byte', async () => {
  await using it = await lab()
  const { bavail, bsize } = await statfs(it.directory)
  Object.assign(it.release.asset.executable ?? {}, { sizeBytes: bavail * bsize + MIB })
  assert.match(await it.failure(), /^refused .*only \d+ MiB free in `.*`, \d+ MiB needed for the executable$/)
  assert.is(it.server.requests.length, 0)
})

test.long(
  'an asset that trickles just fast enough is given up by its size and the least pace, not after a day',
  async () => {
    await using it = await lab({ byteEveryMs: 20 })
    assert.match(
      await it.failure({ deadlineMs: 300, stallMs: 60_000 }),
      /expected the whole asset to arrive within 1 s/,
    )
  },
)

test('is cancelled at once, in the middle of a silence too, and leaves nothing', async () => {
  await using it = await lab({ stallAfter: 5000 })
  const cancel = new AbortController()
  const step = makeDownload({
    feed: it.feed,
    disk: makeDisk(),
    partialPath: join(it.directory, '.beacon.partial'),
    stallMs: 60_000,
    onProgress: () => {},
    onReceived: () => cancel.abort(cancellation('a test')),
  })
  await assert.rejects(step(it.release, cancel.signal), assert.withCode('cancelled'))
  assert.equal(await readdir(it.directory), ['beacon'])
})

// ---- all of it at once -------------------------------------------------------------------------------------------

/** What one connection may do, that a better one makes up for. */
const passing: fc.Arbitrary<Faults> = fc.oneof(
  fc.record({ cutAfter: fc.nat(LONG.length) }),
  fc.record({ stallAfter: fc.nat(LONG.length) }),
  fc.constantFrom<Faults>({ assetStatus: 500 }, { assetStatus: 503 }, {}),
  fc.record({ cutAfter: fc.nat(LONG.length), ignoreRange: fc.constant(true) }),
  fc.record({ cutAfter: fc.nat(LONG.length), changingEtag: fc.constant(true) }),
)
/** What none does. */
const lasting: fc.Arbitrary<Faults> = fc.oneof(
  fc.record({ longerBy: fc.integer({ min: 1, max: 100 }) }),
  fc.record({ shorterBy: fc.integer({ min: 1, max: 100 }) }),
  fc.record({ contentLengthDelta: fc.integer({ min: -10, max: 10 }).filter((delta) => delta !== 0) }),
  fc.constantFrom<Faults>({ neverEnding: true }, { wrongSha256: true }, { assetStatus: 404 }, { assetStatus: 403 }),
)

test('fuzz: whatever connection after connection does, it is the whole asset in the end, or another sum, or an error and nothing left', async () => {
  await using it = await lab()
  await fuzz(
    fc.array(fc.oneof({ weight: 4, arbitrary: passing }, { weight: 1, arbitrary: lasting }), { maxLength: 7 }),
    async (turns) => {
      it.server.heal()
      it.server.faults.turns = turns
      let candidate: Candidate
      try {
        candidate = await it.download({ stallMs: 250, onProgress: () => {} })
      } catch (error) {
        assert.ok(error instanceof BatonError, String(error))
        assert.equal(await readdir(it.directory), ['beacon'])
        return
      }
      if (candidate.assetSha256 === it.release.asset.sha256) await isWhole(it, candidate)
      await candidate[Symbol.asyncDispose]()
      assert.equal(await readdir(it.directory), ['beacon'])
    },
    { runs: 60 },
  )
})

test('fuzz: where each connection fails in a way that passes, it is the whole asset in the end', async () => {
  await using it = await lab()
  await fuzz(
    fc.array(passing, { maxLength: 3 }), // five in a row that bring nothing are the end
    async (turns) => {
      it.server.heal()
      it.server.faults.turns = turns
      await using candidate = await it.download({ stallMs: 250, onProgress: () => {} })
      await isWhole(it, candidate)
    },
    { runs: 60 },
  )
})

// ---- memory, kills -----------------------------------------------------------------------------------------------

test('memory does not grow with the asset', async () => {
  await using it = await lab({ executable: Buffer.alloc(8 * MIB, randomBytes(MIB)) })
  const bytes = randomBytes(160 * MIB)
  await writeFile(join(it.dist.dir, 'v1.1.0', it.release.asset.name), bytes)
  const executable = { sizeBytes: bytes.length, sha256: sha256(bytes) }
  Object.assign(it.release.asset, { compression: 'none', ...executable, executable })
  globalThis.gc?.()
  const before = process.memoryUsage().rss
  let most = 0
  const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss - before)), 5)
  await using candidate = await it.download()
  clearInterval(watch)
  assert.is(candidate.assetSha256, executable.sha256)
  assert.ok(most < 80 * MIB, `${Math.round(most / MIB)} MiB more`)
})

test('killed before and after each change of the disk, it leaves the executable alone and the next download works', async () => {
  await using it = await lab()
  const moments: string[] = []
  const witness = makeDisk((moment, change) => moments.push(`${moment} ${change}`))
  await it.download({ disk: witness })
  assert.equal(moments, [
    'before remove',
    'after remove',
    'before create',
    'after create',
    'before flush',
    'after flush',
  ])
  const program = new URL('fixtures/killed-download.ts', import.meta.url).pathname
  for (const moment of moments) {
    const { code, signal } = await new Promise<{ code: unknown; signal: unknown }>((resolve) => {
      const args = [...process.execArgv, program, it.server.staticUrl, it.directory, moment]
      execFile(process.execPath, args, (error) => resolve({ code: error?.code, signal: error?.signal }))
    })
    assert.is(signal, 'SIGKILL', `${moment}: exit code ${String(code)}`)
    assert.is(await readFile(join(it.directory, 'beacon'), 'utf8'), 'the one that runs')
    const entries = (await readdir(it.directory)).filter((name) => name !== 'beacon')
    assert.ok(entries.length === 0 || (entries.length === 1 && entries[0] === '.beacon.partial'), entries.join())
    await using candidate = await it.download()
    await isWhole(it, candidate)
  }
})

test.run()
