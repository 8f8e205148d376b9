// Downloads by a delta: over real sockets, onto a real disk. Whatever is wrong with the delta, the executable is the right one in the end.

import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { zstdCompressSync } from 'node:zlib'
import { makeDisk } from '../agent/disk/disk.ts'
import { makeDownload, type DownloadOptions } from '../agent/update/steps/download.ts'
import type { Candidate } from '../agent/update/story.ts'
import { parseManifest } from '../agent/update/trust/release-texts.ts'
import { assessSigned } from '../agent/update/trust/usable.ts'
import type { Delta, OpenFeed, Release } from '../agent/words/release.ts'
import { cancellation, type Progress } from '../agent/words/state.ts'
import { makeDelta } from '../deploy/make/delta.ts'
import * as assert from './assert.ts'
import { inMemory } from './fixtures/in-memory.ts'
import { makeDist, script, type Dist } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { releaseServer, type ReleaseServer } from './lab/release-server.ts'
import { temporary } from './lab/temporary.ts'
import { isLong, suite } from './suite.ts'

const test = suite('download-delta', { timeoutMs: 120_000 })

const MIB = 1024 ** 2
/** two segments */
const TAIL = randomBytes(1.2 * MIB)
const OLD = Buffer.concat([Buffer.from(`${script('beacon', 'v1.0.0')}exit\n`), TAIL])
const NEW = Buffer.concat([Buffer.from(`${script('beacon', 'v1.1.0')}exit\n`), randomBytes(100), TAIL])

function sum(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

interface Lab extends AsyncDisposable {
  dist: Dist
  server: ReleaseServer
  feed: OpenFeed
  directory: string
  progress: Progress[]
  /** why the asset was downloaded although there was a delta */
  said: string[]
  /** names of what was fetched since the last look */
  fetched(): string[]
  release(): Promise<Release>
  download(options?: Partial<DownloadOptions>, signal?: AbortSignal): Promise<Candidate>
  /** replaces the bytes of the delta; release.json knows them */
  put(bytes: Buffer): Promise<void>
}

const NAME = 'beacon.delta'
const asDelta = async (bytes: Buffer) => ({ name: NAME, from: sum(OLD), to: sum(NEW), ...sizeOf(bytes) })
const sizeOf = (bytes: Buffer) => ({ sizeBytes: bytes.length, sha256: sum(bytes) })

async function lab(kind: 'github' | 'web' | 'folder' = 'web', bytesPerSecond?: number): Promise<Lab> {
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0'], { executable: () => NEW }))
  const rate = bytesPerSecond === undefined ? {} : { bytesPerSecond }
  const server = stack.use(await releaseServer({ dir: dist.dir, ...rate }))
  const setting = { github: server.feed, web: server.staticUrl, folder: dist.dir }[kind]
  const feed = stack.use(labFeed(setting, { timeoutMs: 5_000, minAgeMs: 0 }))
  const directory = stack.use(await temporary('download-delta')).path
  await writeFile(join(directory, 'beacon'), OLD)
  const [progress, said]: [Progress[], string[]] = [[], []]
  const put: Lab['put'] = async (bytes) => {
    const path = join(dist.dir, 'v1.1.0', 'release.json')
    const manifest = JSON.parse(await readFile(path, 'utf8')) as object
    await writeFile(join(dist.dir, 'v1.1.0', NAME), bytes)
    await writeFile(path, JSON.stringify({ ...manifest, deltas: [await asDelta(bytes)] }))
    await dist.sum('v1.1.0')
  }
  await put(await makeDelta(inMemory(OLD), inMemory(NEW)))
  const release = async () => (await feed.latest(() => false)).release ?? assert.unreachable()
  const kept = stack.move()
  return {
    dist,
    server,
    feed,
    directory,
    progress,
    said,
    fetched() {
      const paths = server.requests.filter(({ status }) => status < 300).map(({ path }) => path)
      server.requests.length = 0
      return paths.flatMap((path) => /[^/]+\.(?:delta|zst|gz)$/.exec(path) ?? [])
    },
    release: async () => (await release()) as Release,
    download: async (options, signal) =>
      await makeDownload({
        feed,
        disk: makeDisk(),
        partialPath: join(directory, '.beacon.partial'),
        installedPath: join(directory, 'beacon'),
        stallMs: 2_000,
        reconnectMs: 1,
        onProgress: (now) => progress.push(now),
        onDeltaFailed: (line) => said.push(line),
        ...options,
      })((await release()) as Release, signal),
    put,
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  }
}

async function isRight(it: Lab, candidate: Candidate): Promise<void> {
  assert.is(sum(await readFile(candidate.path)), sum(NEW))
  assert.is(candidate.assetSha256, (await it.release()).asset.sha256)
  assert.is(sum(await readFile(join(it.directory, 'beacon'))), sum(OLD))
}

for (const kind of ['github', 'web', 'folder'] as const) {
  test(`${kind}: fetches the delta alone, and counts its bytes`, async () => {
    await using it = await lab(kind)
    const [delta] = (await it.release()).deltas
    {
      await using candidate = await it.download()
      await isRight(it, candidate)
      assert.is((await stat(candidate.path)).mode & 0o777, 0o600)
    }
    assert.equal(await readdir(it.directory), ['beacon'])
    if (kind !== 'folder') assert.equal(it.fetched(), [NAME])
    const totalBytes = delta?.sizeBytes ?? 0
    assert.ok(totalBytes < NEW.length / 100)
    assert.equal(it.progress.at(-1), { bytes: totalBytes, totalBytes })
    assert.equal(it.said, [])
  })
}

test('fetches the asset where another executable is installed, where none is known, and where the installed one is there already', async () => {
  await using it = await lab()
  it.fetched()
  await writeFile(join(it.directory, 'beacon'), 'another')
  await (await it.download())[Symbol.asyncDispose]()
  assert.match(it.fetched().join(), /^beacon-[^,]*$/)
  const partialPath = join(it.directory, '.beacon.partial')
  const means = { feed: it.feed, disk: makeDisk(), partialPath, stallMs: 2000, onProgress: () => {} }
  await makeDownload(means)(await it.release())
  assert.match(it.fetched().join(), /^beacon-[^,]*$/)
  await writeFile(join(it.directory, 'beacon'), NEW)
  await it.download()
  assert.equal(it.fetched(), [])
  assert.equal(it.said, [])
})

test('goes on in a delta where a connection broke off', async () => {
  await using it = await lab()
  await it.put(await makeDelta(inMemory(OLD.subarray(0, 300_000)), inMemory(NEW))) // a large one
  Object.assign(it.server.faults, { cutAfter: 400_000, cuts: 2 })
  it.server.requests.length = 0
  await isRight(it, await it.download())
  const statuses = it.server.requests.filter(({ path }) => path.endsWith(NAME)).map(({ status }) => status)
  assert.equal(statuses, [200, 206, 206])
  assert.equal(it.said, [])
})

// ---- what may be wrong with a delta ------------------------------------------------------------------------------

/** The update ends with the right executable, by the asset, and says why. */
async function fallsBack(it: Lab, why: RegExp, options?: Partial<DownloadOptions>): Promise<void> {
  it.said.length = 0
  await using candidate = await it.download(options)
  await isRight(it, candidate)
  assert.is(it.said.length, 1)
  assert.match(it.said[0] ?? '', why)
}

test('a delta that is missing, longer or shorter than announced is no failed update', async () => {
  await using it = await lab()
  for (const bytes of [(await readFile(join(it.dist.dir, 'v1.1.0', NAME))).subarray(1), randomBytes(9000)]) {
    await writeFile(join(it.dist.dir, 'v1.1.0', NAME), bytes)
    await fallsBack(it, /cannot be used, so the whole asset is downloaded: .*expected \d+ bytes, got \d+/)
  }
  await rm(join(it.dist.dir, 'v1.1.0', NAME))
  await it.dist.sum('v1.1.0')
  await (await it.download())[Symbol.asyncDispose]()
  await it.put(randomBytes(100))
  it.server.heal()
  it.server.faults.turns = [{ assetStatus: 404 }]
  await fallsBack(it, /cannot be used.*(404|no such)/)
})

/** of so many bytes one: each flip costs two downloads */
const FLIPPED = isLong ? 1 : 11

test(
  `${isLong ? 'every byte' : 'bytes'} of a delta flipped on the way, and in a delta that is signed so: the right executable, by the asset`,
  async () => {
    await using it = await lab('folder')
    const path = join(it.dist.dir, 'v1.1.0', NAME)
    const good = await readFile(path)
    assert.ok(good.length < 2000, `${good.length} bytes`)
    for (let at = 0; at < good.length; at += FLIPPED) {
      const bad = Buffer.from(good)
      bad[at] = (bad[at] ?? 0) ^ 0x11
      await writeFile(path, bad)
      await fallsBack(it, /sha256 of the delta: expected/)
      await it.put(bad)
      it.said.length = 0
      await using candidate = await it.download()
      await isRight(it, candidate) // some bytes do not matter to zstd
      await it.put(good)
    }
  },
  { timeoutMs: 240_000 },
)

test('cut at each segment, of another base with a forged header, a bomb, and one that makes another executable', async () => {
  await using it = await lab('folder')
  const far = randomBytes(3 * MIB)
  const good = await makeDelta(inMemory(OLD), inMemory(NEW))
  const end = good.indexOf('\n') + 1
  const { segments } = JSON.parse(good.toString('latin1', 0, end)) as { segments: number[][] }
  let at = end
  for (const one of segments) {
    await it.put(good.subarray(0, at))
    await fallsBack(it, /is not valid/)
    at += one[4] ?? 0
  }
  await it.put(
    await makeDelta(inMemory(far), inMemory(Buffer.concat([Buffer.from('x'), far.subarray(0, NEW.length - 1)]))),
  )
  await fallsBack(it, /cannot be used/)
  const bomb = zstdCompressSync(Buffer.alloc(128 * MIB))
  await it.put(Buffer.concat([Buffer.from(`{"format":1,"segments":[[0,${MIB},0,0,${bomb.length}]]}\n`), bomb]))
  const before = process.memoryUsage().rss
  await fallsBack(it, /cannot be used/)
  assert.ok(process.memoryUsage().rss - before < 64 * MIB)
  const other = Buffer.from(NEW)
  other[0] = 0
  await it.put(await makeDelta(inMemory(OLD), inMemory(other)))
  await fallsBack(it, /the resulting executable has the wrong sha256/)
})

test('no room while it is applied: what was written is removed, and the asset is tried', async () => {
  await using it = await lab()
  const disk = makeDisk()
  let created = 0
  const create: typeof disk.create = async (path, mode) => {
    const file = await disk.create(path, mode)
    const full = () => Promise.reject(new Error('ENOSPC: no space left on device'))
    return created++ === 0 ? Object.assign(file, { write: full }) : file
  }
  await fallsBack(it, /ENOSPC/, { disk: { ...disk, create } })
})

test('two that make each other, and a list of nonsense: one step, or none', async () => {
  await using it = await lab()
  const path = join(it.dist.dir, 'v1.1.0', 'release.json')
  const manifest = JSON.parse(await readFile(path, 'utf8')) as { deltas: Omit<Delta, 'url'>[] }
  const [delta] = manifest.deltas
  const back = { ...delta, name: 'back.delta', from: sum(NEW), to: sum(OLD) }
  await writeFile(
    path,
    JSON.stringify({ ...manifest, deltas: [back, delta, delta, { ...delta, name: '../x' }, 7, null] }),
  )
  await it.dist.sum('v1.1.0')
  assert.equal(
    (await it.release()).deltas.map(({ name }) => name),
    [NAME],
  )
  it.fetched()
  await isRight(it, await it.download())
  assert.equal(
    it.fetched().filter((name) => name !== 'release.json'),
    [NAME],
  )
})

test('is cancelled in the middle of a delta, and does not begin the asset then', async () => {
  await using it = await lab('web', 1000)
  const cancel = new AbortController()
  const options = { onReceived: () => cancel.abort(cancellation('a test')) }
  await assert.rejects(it.download(options, cancel.signal), assert.withCode('cancelled'))
  assert.equal(await readdir(it.directory), ['beacon'])
  assert.equal(it.said, [])
})

test('a signed release names its deltas in the release.json that is signed', async () => {
  await using it = await lab()
  const text = await readFile(join(it.dist.dir, 'v1.1.0', 'release.json'), 'utf8')
  const signed = {
    tag: 'v1.1.0',
    sizeBytes: text.length,
    sha256: sum(Buffer.from(text)),
    service: 'beacon',
    yanked: null,
    image: null,
    rollout: null,
  }
  const target = { service: 'beacon', os: process.platform, arch: process.arch }
  const verdict = assessSigned(signed, text, target, (name) => `https://example.org/${name}`)
  if ('why' in verdict) return assert.unreachable(verdict.why)
  assert.equal(
    verdict.release.deltas.map(({ url }) => url),
    [`https://example.org/${NAME}`],
  )
  assert.equal('manifest' in parseManifest(text), true)
})

test('killed before and after each change of the disk, it leaves the executable alone and the next download works', async () => {
  await using it = await lab()
  const moments: string[] = []
  const witness = makeDisk((moment, change) => moments.push(`${moment} ${change}`))
  await (await it.download({ disk: witness }))[Symbol.asyncDispose]()
  const all = moments.slice(0, -2) // the end of the test's own candidate
  assert.equal(all, ['before remove', 'after remove', 'before create', 'after create', 'before flush', 'after flush'])
  const program = new URL('fixtures/killed-download.ts', import.meta.url).pathname
  for (const moment of all) {
    const signal = await new Promise<unknown>((resolve) => {
      const args = [...process.execArgv, program, it.server.staticUrl, it.directory, moment]
      execFile(process.execPath, args, (error) => resolve(error?.signal))
    })
    assert.is(signal, 'SIGKILL', moment)
    const entries = (await readdir(it.directory)).filter((name) => name !== 'beacon')
    assert.ok(entries.length === 0 || (entries.length === 1 && entries[0] === '.beacon.partial'), entries.join())
    await using candidate = await it.download()
    await isRight(it, candidate)
  }
  assert.equal(it.said, [])
})

test.run()
