// A feed with several sources: the first says what is published, the bytes come from whichever answers, over real sockets that lie,
// break off and hold their tongue. Nothing of a lie is left, and no mirror sees a token.

import { createHash, randomBytes } from 'node:crypto'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { makeDisk } from '../agent/disk/disk.ts'
import { fromWhoeverHasIt, withMirrors } from '../agent/update/feed/mirrors.ts'
import { makeDownload } from '../agent/update/steps/download.ts'
import { readConfiguration } from '../agent/words/configuration.ts'
import { BatonError } from '../agent/words/errors.ts'
import type { FeedChoice } from '../agent/words/feed-choice.ts'
import type { Bytes, Feed, OpenFeed, Release } from '../agent/words/release.ts'
import { equal, is, match, ok, rejects, throws } from './assert.ts'
import { type Dist, makeDist, script } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { type Faults, type ReleaseServer, releaseServer } from './lab/release-server.ts'
import { checkMirrors } from '../deploy/host/doctor/feed.ts'
import type { Subject } from '../deploy/host/doctor/finding.ts'
import type { Outside } from '../deploy/host/service/outside.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('mirrors', { timeoutMs: 60_000 })
const LONG = Buffer.concat([Buffer.from(`${script('beacon', 'v1.1.0')}exit\n`), randomBytes(1024 ** 2)])

interface Lab extends AsyncDisposable {
  dist: Dist
  servers: ReleaseServer[]
  feed: OpenFeed
  told: string[]
  directory: string
  /** sha256 of the asset that has come */
  download(): Promise<string>
  /** which of the servers have sent bytes of the asset, in their order */
  asked(): number[]
}

/** One server for each of `faults`, the first of which is the feed. */
async function lab(faults: Faults[], choice: Partial<FeedChoice> = {}, environment = {}): Promise<Lab> {
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0'], { executable: () => LONG }))
  const servers: ReleaseServer[] = []
  for (const one of faults) servers.push(stack.use(await releaseServer({ dir: dist.dir, ...one })))
  const told: string[] = []
  const feed = servers.map(({ staticUrl }) => staticUrl)
  const onLeftOut = (line: string) => void told.push(line)
  const open = stack.use(labFeed({ feed, ...choice }, { timeoutMs: 2_000, onLeftOut, environment }))
  const { release } = await open.latest(() => false)
  const directory = stack.use(await temporary('mirrors')).path
  const kept = stack.move()
  return {
    dist,
    servers,
    feed: open,
    told,
    directory,
    async download() {
      const partialPath = join(directory, '.beacon.partial')
      const [disk, onProgress] = [makeDisk(), () => {}]
      const options = { feed: open, disk, partialPath, stallMs: 1_000, reconnectMs: 1, onProgress }
      await using got = await makeDownload(options)(release as Release)
      is(got.path, partialPath)
      if (got.assetSha256 === release?.asset.sha256) equal(sum(await readFile(got.path)), sum(LONG))
      return got.assetSha256 === release?.asset.sha256 ? 'published' : 'other bytes'
    },
    asked: () =>
      servers.flatMap(({ requests }, at) => (requests.some(({ path }) => path.endsWith('.zst')) ? [at] : [])),
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  }
}

const sum = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')

test('the first source is enough if it answers; if it has no bytes, they come from the next that has them', async () => {
  await using whole = await lab([{}, {}])
  equal([await whole.download(), whole.asked()], ['published', [0]])
  for (const out of [{ assetStatus: 404 }, { assetStatus: 503 }, { assetStatus: 403 }]) {
    await using it = await lab([out, out, {}])
    equal([await it.download(), it.told], ['published', []])
    equal(it.asked(), [0, 1, 2])
    equal(await readdir(it.directory), [])
  }
})

test('sums come from the first source alone: a mirror is asked for nothing but the asset', async () => {
  await using it = await lab([{ assetStatus: 404 }, { missingChecksum: 'file', missingManifest: true }])
  is(await it.download(), 'published')
  equal(new Set(it.servers[1]?.requests.map(({ path }) => path.split('/').at(-1)?.includes('.zst'))), new Set([true]))
})

for (const [what, lie] of [
  ['another last byte', { wrongSha256: true }],
  ['more bytes', { longerBy: 10 }],
  ['fewer bytes', { shorterBy: 10 }],
  ['no end', { neverEnding: true }],
  ['a page of a portal', { redirectAssetTo: 'portal' }],
] as [string, Faults][]) {
  test(`a source that lies (${what}) is named and left out for this operation; the next one brings what was published`, async () => {
    await using portal = await serving((_path, send) => send('<html>please log in</html>'))
    const fault = lie.redirectAssetTo === undefined ? lie : { redirectAssetTo: `${portal.url}/` }
    await using it = await lab([{ assetStatus: 404 }, fault, {}])
    equal([await it.download(), it.told.length], ['published', 1])
    match(it.told[0] ?? '', `${it.servers[1]?.staticUrl} sent data that differs from what was published`)
    equal(await readdir(it.directory), [])
    const before = it.servers[1]?.requests.length
    is(await it.download(), 'published')
    is(it.servers[1]?.requests.length, before, 'in the same operation it is not asked again')
    await it.feed.close()
    it.servers[1]?.heal()
    is(await it.download(), 'published')
    ok((it.servers[1]?.requests.length ?? 0) > (before ?? 0), 'in the next operation it is')
  })
}

test('what breaks off goes on at the next source, from where it stopped; parts of a liar among them are found out', async () => {
  const cutAfter = 300_000
  await using it = await lab([{ cutAfter, cuts: 1 }, {}])
  equal([await it.download(), it.asked(), it.told], ['published', [0, 1], []])
  is(it.servers[1]?.requests.find(({ path }) => path.endsWith('.zst'))?.headers.range, `bytes=${cutAfter}-`)
  // the second one sends the rest, with another last byte: each is then taken alone
  await using mixed = await lab([{ cutAfter, cuts: 1 }, { wrongSha256: true }, {}])
  equal([await mixed.download(), await readdir(mixed.directory)], ['published', []])
  ok(
    mixed.told.every((line) => line.startsWith(mixed.servers[1]?.staticUrl ?? '?')),
    mixed.told.join(),
  )
})

test('doctor asks each source: it tells who has the newest release, who does not answer, and who lies', async () => {
  await using dist = await makeDist(['v1.1.0'], { executable: () => LONG })
  await using servers = new AsyncDisposableStack()
  const faults: Faults[] = [
    {},
    {},
    { wrongSha256: true },
    { longerBy: 10 },
    { neverEnding: true },
    { assetStatus: 503 },
  ]
  const urls: string[] = []
  for (const one of faults) urls.push(servers.use(await releaseServer({ dir: dist.dir, ...one })).staticUrl)
  urls.push('http://127.0.0.1:1/')
  const configPath = join(dist.dir, 'config.json')
  const found = async (feed: readonly string[]) => {
    await writeFile(configPath, JSON.stringify({ service: 'beacon', feed }))
    const subject = { layout: { service: 'beacon' }, receipt: { configPath, feed: urls[0] } } as unknown as Subject
    return await checkMirrors(subject, { feedAt: (choice: FeedChoice) => choice } as unknown as Outside)
  }
  const said = await found(urls)
  equal(
    said.map(({ level }) => level),
    ['ok', 'ok', 'warning', 'warning', 'warning', 'warning', 'warning'],
  )
  for (const [at, url] of urls.entries()) {
    const begins = at < 5 ? `${url} ` : `v1.1.0 is currently not available from ${url}: `
    ok(said[at]?.message.startsWith(begins), said[at]?.message)
  }
  for (const { message } of said.slice(0, 2)) match(message, /has v1\.1\.0 exactly as published$/)
  for (const { message } of said.slice(2, 5))
    match(message, / serves a `beacon-.* that differs from the published file$/)
  equal(await found(urls.slice(0, 1)), [])
  match(
    (await found(['http://127.0.0.1:1/', ...urls.slice(0, 1)]))[0]?.message ?? '',
    /the newest release is not known/,
  )
})

test('if all lie, each is named once, and the bytes are not taken for the published ones; nothing is left on the disk', async () => {
  await using it = await lab([{ wrongSha256: true }, { wrongSha256: true }])
  equal([await it.download(), it.told.length], ['other bytes', 2])
  equal(await readdir(it.directory), [])
  await using dead = await lab([{ assetStatus: 404 }, { assetStatus: 404 }])
  const { message } = await rejects(dead.download())
  for (const { staticUrl } of dead.servers) match(message, staticUrl)
})

test('a delta that is damaged at every source keeps none of them out: the whole asset comes from the same ones', async () => {
  const bytesOf = (source: string) => async (asked: { url: string } | string) => {
    const body = Buffer.from(
      (typeof asked === 'string' ? asked : asked.url).endsWith('delta') ? 'damaged' : `published, of ${source}`,
    )
    return { stream: Readable.from([body]), from: 0, totalBytes: body.length, validator: null } as unknown as Bytes
  }
  const [asset, delta] = [
    { url: 'asset', name: 'asset' },
    { url: 'delta', name: 'delta' },
  ]
  const release = { tag: 'v1.0.0', asset, deltas: [delta] } as unknown as Release
  const first = { description: 'first', byTag: async () => release, bytes: bytesOf('first') } as unknown as Feed
  const mirror = { name: 'mirror', source: { url: (path: string) => path, bytes: bytesOf('mirror') } }
  const told: string[] = []
  const all = withMirrors(first, [{ ...mirror, close: async () => {} }], 0, (line) => void told.push(line))
  await all.byTag('v1.0.0')
  const get = async (one: { url: string }) => {
    const { stream } = await all.bytes(one, 0, null, new AbortController().signal)
    return Buffer.concat(await Array.fromAsync(stream)).toString()
  }
  is(
    await fromWhoeverHasIt(
      all,
      async () => await get(delta),
      (text) => text.startsWith('published'),
    ),
    'damaged',
  )
  is(told.length, 2)
  is(await get(asset), 'published, of first')
})

test('no mirror and no prefix sees a token, and the prefix stands before the address of the download', async () => {
  const token = 'ghp_secret'
  await using dist = await makeDist(['v1.1.0'], { executable: () => LONG })
  await using server = await releaseServer({ dir: dist.dir, token })
  await using mirror = await releaseServer({ dir: dist.dir })
  const seen: { path: string; headers: IncomingHttpHeaders }[] = []
  const name = `beacon-${process.platform}-${process.arch}.zst`
  const bytes = await readFile(join(dist.dir, 'v1.1.0', name))
  await using prefix = await serving((path, send, headers) => {
    seen.push({ path, headers })
    send(bytes)
  })
  const environment = { GH_ENTERPRISE_TOKEN: token }
  const partialPath = join(dist.dir, '.partial')
  for (const more of [{ downloadPrefix: `${prefix.url}/` }, {}] as Partial<FeedChoice>[]) {
    await using feed = labFeed({ feed: [server.feed, mirror.staticUrl], ...more }, { environment })
    const { release } = await feed.latest(() => false)
    if (more.downloadPrefix === undefined) server.faults.assetStatus = 404
    const download = makeDownload({ feed, disk: makeDisk(), partialPath, stallMs: 1_000, onProgress: () => {} })
    await using got = await download(release as Release)
    is(got.assetSha256, sum(bytes))
  }
  equal(
    seen.map(({ path }) => path),
    [`/${server.url}/acme/beacon/releases/download/v1.1.0/${name}`],
  )
  ok(mirror.requests.length > 0)
  for (const { headers } of [...seen, ...mirror.requests]) is(headers.authorization, undefined)
  ok(!JSON.stringify([seen, mirror.requests]).includes(token))
})

test('settings that cannot be: a prefix without GitHub, by plain http, with credentials; a source that is none', () => {
  const open = (choice: FeedChoice) => () => labFeed(choice)
  throws(
    open({ feed: 'github:a/b', downloadPrefix: 'http://127.0.0.1:1/' }),
    /`downloadPrefix`: expected an address that begins with https/,
  )
  throws(
    open({ feed: 'github:a/b', downloadPrefix: 'http://mirror.example/' }),
    /plain http is allowed only for addresses on this machine/,
  )
  throws(open({ feed: 'github:a/b', downloadPrefix: 'https://u:p@mirror.example/' }), /credentials/)
  throws(open({ feed: 'github:a/b', downloadPrefix: '/srv' }), /`downloadPrefix`: expected an address/)
  throws(
    open({ feed: 'https://a.example/', downloadPrefix: 'https://mirror.example/' }),
    /`downloadPrefix` works only with a GitHub `feed`/,
  )
  throws(open({ feed: ['github:a/b', 'ftp://x/'] }), /not a feed address/)
  throws(open({ feed: [] }), /not a feed address/)
  const read = (value: object) => readConfiguration(JSON.stringify(value))
  equal(read({ feed: '/srv' }).configuration.feed, ['/srv'])
  equal(read({ feed: ['/srv', 'https://a/'], channel: 'beta' }).configuration.feed, ['/srv', 'https://a/'])
  match(read({ feed: 3 }).faults[0] ?? '', /in `feed`, got 3/)
  match(read({ feed: [] }).faults[0] ?? '', /a list of 1 to 8 items in `feed`/)
  match(read({ feed: ['/srv', 3] }).faults[0] ?? '', /in `feed\[1\]`/)
  match(read({ channel: 'nightly' }).faults[0] ?? '', /expected `stable` or `beta` in `channel`/)
})

test('a feed in a folder may stand behind one on the web: the stick in the host has the bytes', async () => {
  await using it = await lab([{ assetStatus: 404 }])
  await using feed = labFeed({ feed: [it.servers[0]?.staticUrl ?? '', it.dist.dir] })
  const { release } = await feed.latest(() => false)
  const partialPath = join(it.directory, '.beacon.partial')
  await writeFile(join(it.directory, 'kept'), '')
  await using got = await makeDownload({ feed, disk: makeDisk(), partialPath, stallMs: 1_000, onProgress: () => {} })(
    release as Release,
  )
  is(got.assetSha256, release?.asset.sha256)
})

test('fuzz: whichever sources lie, are gone or break off, an end comes: the published bytes if one honest source answers', async () => {
  const PUBLISHED = 'published bytes'
  const kind = fc.constantFrom('honest', 'liar', 'gone', 'breaks')
  await fuzz(
    fc.tuple(kind, fc.array(kind, { maxLength: 4 }), fc.integer({ min: 0, max: 2 })),
    async ([first, others, ahead]) => {
      const bytesOf =
        (what: string) =>
        async (_asset: unknown, from: number): Promise<Bytes> => {
          if (what === 'gone') throw new BatonError('download_failed', 'gone')
          const text = what === 'liar' ? PUBLISHED.toUpperCase() : PUBLISHED
          const stream = (async function* () {
            const whole = Buffer.from(text.slice(from))
            yield what === 'breaks' ? whole.subarray(0, 4) : whole
          })()
          return { stream, from, totalBytes: text.length, validator: null }
        }
      const asset = { url: 'a', name: 'a' }
      const release = { tag: 'v1.0.0', asset, deltas: [] } as unknown as Release
      const feed = { description: 'first', byTag: async () => release, bytes: bytesOf(first) } as unknown as Feed
      const source = (what: string) => ({ url: (path: string) => path, bytes: bytesOf(what) })
      const mirrors = others.map((what, at) => ({ name: `${at}`, source: source(what), close: async () => {} }))
      const told: string[] = []
      const all = withMirrors(feed, mirrors, ahead, (line) => void told.push(line))
      await all.byTag('v1.0.0')
      let tries = 0
      const once = async () => {
        ok(++tries <= 2 * (mirrors.length + 1), 'bounded')
        let got = ''
        for (let connection = 0; got.length < PUBLISHED.length; connection++) {
          if (connection === 20) throw new BatonError('download_failed', 'it breaks off each time')
          const { stream } = await all.bytes(asset, got.length, null, new AbortController().signal)
          for await (const part of stream) got += Buffer.from(part).toString()
        }
        return got
      }
      const got = await fromWhoeverHasIt(all, once, (text) => text === PUBLISHED).catch(() => null)
      const kinds = [first, ...others]
      if (!kinds.includes('liar') && kinds.some((one) => one === 'honest' || one === 'breaks')) is(got, PUBLISHED)
      if (kinds.every((one) => one === 'honest' || one === 'liar') && kinds.includes('honest')) is(got, PUBLISHED)
      is(new Set(told).size, told.length, 'named once')
    },
  )
})

async function serving(
  answer: (path: string, send: (body: string | Buffer) => void, headers: IncomingHttpHeaders) => void,
) {
  const server = createServer((request, response) =>
    answer(request.url ?? '', (body) => void response.end(body), request.headers),
  )
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => void server.close(resolve))
    },
  }
}

test.run()
