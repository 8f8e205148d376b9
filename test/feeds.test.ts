// One behaviour of all kinds of feed, over real sockets and real folders, and each way in which a feed goes wrong.

import { execFile, execFileSync } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { BatonError } from '../agent/words/errors.ts'
import { neighbourhoodOf, reachOf } from '../agent/update/feed/address.ts'
import type { Feed, Skip } from '../agent/words/release.ts'
import { makeCheck } from '../agent/update/steps/check.ts'
import * as assert from './assert.ts'
import { makeCertificate } from './lab/certificate.ts'
import { makeDist } from './lab/dist.ts'
import type { Dist } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import type { LabFeedOptions } from './lab/feed.ts'
import { releaseServer } from './lab/release-server.ts'
import type { ReleaseServer, ReleaseServerOptions } from './lab/release-server.ts'
import { suite } from './suite.ts'

const test = suite('feeds')

const NONE: Skip = () => false

interface Lab extends AsyncDisposable {
  dist: Dist
  server: ReleaseServer
  feed: Feed
}

async function lab(
  kind: 'github' | 'web' | 'folder',
  tags: string[],
  faults: Omit<ReleaseServerOptions, 'dir'> = {},
  options: LabFeedOptions = {},
): Promise<Lab> {
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(tags))
  const server = stack.use(await releaseServer({ dir: dist.dir, ...faults }))
  const setting = { github: server.feed, web: server.staticUrl, folder: dist.dir }[kind]
  const feed = stack.use(labFeed(setting, { timeoutMs: 2_000, ...options }))
  const kept = stack.move()
  return { dist, server, feed, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}

/** The code and the message that `latest` fails with in the check stage of a service that runs v1.0.0. */
async function failure(feed: Feed, tag: string | null = null): Promise<string> {
  const check = makeCheck({ feed, current: () => 'v1.0.0', skip: NONE })
  const error = (await assert.rejects(() => check(tag))) as BatonError
  assert.instance(error, BatonError)
  assert.match(error.message, /^checking /) // every error names its stage
  return `${error.code} ${error.message}`
}

// ---- what all feeds have in common -------------------------------------------------------------------------------

for (const kind of ['github', 'web', 'folder'] as const) {
  test(`${kind}: the latest is the highest version, with all that its papers tell`, async () => {
    await using it = await lab(kind, ['v1.0.0', 'v1.10.0', 'v1.9.0'])
    const { release } = await it.feed.latest(NONE)
    assert.is(release?.tag, 'v1.10.0')
    assert.is(release?.notes, 'What is new in v1.10.0')
    assert.is(release?.publishedAt, '2026-11-01T12:00:00Z')
    assert.is(release?.schema, 1)
    assert.is(release?.asset.name, `beacon-${process.platform}-${process.arch}.zst`)
    const bytes = await readFile(join(it.dist.dir, 'v1.10.0', release?.asset.name ?? ''))
    assert.is(release?.asset.sizeBytes, bytes.length)
    const answer = await it.feed.bytes(
      release?.asset ?? (assert.unreachable() as never),
      0,
      null,
      new AbortController().signal,
    )
    assert.equal(Buffer.concat(await Array.fromAsync(answer.stream)), bytes)
  })

  test(`${kind}: a release that failed here before is not the latest, and can be had by its tag`, async () => {
    await using it = await lab(kind, ['v1.0.0', 'v1.1.0', 'v1.2.0'])
    assert.is((await it.feed.latest(({ tag }) => tag === 'v1.2.0')).release?.tag, 'v1.1.0')
    assert.is((await it.feed.byTag('v1.2.0')).tag, 'v1.2.0')
  })

  test(`${kind}: the notes of what an update passes over are told, newest first, and nothing of what is not published`, async () => {
    await using it = await lab(kind, ['v1.0.0', 'v1.1.0', 'v1.2.0', 'v1.3.0', 'v1.4.0'], { prereleases: ['v1.2.0'] })
    const between = await it.feed.notes({ after: 'v1.0.0', before: 'v1.4.0' })
    // a folder has no flags but those of its releases.json
    const tags = kind === 'folder' ? ['v1.3.0', 'v1.2.0', 'v1.1.0'] : ['v1.3.0', 'v1.1.0']
    assert.equal(
      between.map(({ tag, notes }) => [tag, notes]),
      tags.map((tag) => [tag, `What is new in ${tag}`]),
    )
    assert.ok(between.every(({ url }) => (kind === 'github' ? url?.includes('/releases/tag/') : url === null)))
    assert.equal(await it.feed.notes({ after: 'v1.3.0', before: 'v1.4.0' }), [])
  })

  test(`${kind}: a feed that answers an older release as latest takes nobody back`, async () => {
    await using it = await lab(kind, ['v1.0.0', 'v0.9.0'])
    const check = makeCheck({ feed: it.feed, current: () => 'v1.1.0', skip: NONE })
    assert.is(await check(null), null)
    assert.is((await check('v0.9.0'))?.tag, 'v0.9.0') // somebody wants it
    assert.is(await check('v1.1.0'), null)
  })

  test(`${kind}: a tag that is not there`, async () => {
    await using it = await lab(kind, ['v1.0.0'])
    assert.match(await failure(it.feed, 'v9.9.9'), /^release_not_found checking .*: .* has no release v9\.9\.9/)
    await assert.rejects(() => it.feed.byTag('latest'), assert.withCode('invalid_tag'))
  })

  test(`${kind}: a release without a checksum of our asset is never the latest; by its tag it says why`, async () => {
    await using it = await lab(kind, ['v1.0.0', 'v1.1.0'])
    const sums = join(it.dist.dir, 'v1.1.0', 'SHA256SUMS')
    const text = await readFile(sums, 'utf8')
    await writeFile(sums, text.replace(/.*\.zst\n/, ''))
    assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.0.0')
    // a mirror that keeps it back looks the same: nobody is told to be up to date
    assert.match(await failure(it.feed), /^release_unusable .*v1\.1\.0 cannot be used: SHA256SUMS has no line/)
    assert.match(
      await failure(it.feed, 'v1.1.0'),
      /^release_unusable .*v1\.1\.0 cannot be used: SHA256SUMS has no line for `beacon-/,
    )
    await rm(sums)
    assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.0.0')
    assert.match(await failure(it.feed), /^release_unusable .*v1\.1\.0 cannot be used: it has no SHA256SUMS/)
    // to a good one that is newer than what runs it is a step all the same
    await it.dist.add('v1.0.1')
    assert.is((await makeCheck({ feed: it.feed, current: () => 'v1.0.0', skip: NONE })(null))?.tag, 'v1.0.1')
    assert.match(await failure(it.feed, 'v1.1.0'), /^release_unusable .*v1\.1\.0 cannot be used: it has no SHA256SUMS/)
  })

  test(`${kind}: a release without an asset for this platform says what it has`, async () => {
    await using it = await lab(kind, ['v1.0.0'])
    await it.dist.add('v1.1.0', { os: 'plan9', arch: 'mips' })
    assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.0.0')
    assert.match(await failure(it.feed), /^release_unusable .*v1\.1\.0 cannot be used: it has no asset for/)
    assert.match(
      await failure(it.feed, 'v1.1.0'),
      /^release_unusable .*it has no asset for \w+-\w+ \(.*\); it has .*beacon-plan9-mips.zst/,
    )
  })

  test(`${kind}: where nothing that is published can be used, the latest says why instead of none`, async () => {
    await using it = await lab(kind, [])
    await it.dist.add('v1.1.0', { os: 'plan9', arch: 'mips' })
    assert.match(await failure(it.feed), /^release_unusable .*v1\.1\.0 cannot be used: it has no asset for/)
  })

  test(`${kind}: papers that were changed after they were summed are refused`, async () => {
    await using it = await lab(kind, ['v1.1.0'])
    const manifest = join(it.dist.dir, 'v1.1.0', 'release.json')
    await writeFile(manifest, (await readFile(manifest, 'utf8')).replace('"schema": 1', '"schema": 9'))
    assert.match(await failure(it.feed), /^release_unusable .*sha256 of release\.json: expected [0-9a-f]{12}…, got/)
  })

  test(`${kind}: a release of another service, put in the wrong place, is refused`, async () => {
    await using it = await lab(kind, ['v1.0.0'])
    const other = await makeDist(['v1.1.0'], { service: 'other' })
    await using _other = other
    await mkdir(join(it.dist.dir, 'v1.1.0'))
    for (const name of ['zst', 'gz']) {
      const file = `beacon-${process.platform}-${process.arch}.${name}`
      await writeFile(
        join(it.dist.dir, 'v1.1.0', file),
        await readFile(join(other.dir, 'v1.1.0', file.replace('beacon', 'other'))),
      )
    }
    await writeFile(
      join(it.dist.dir, 'v1.1.0', 'release.json'),
      await readFile(join(other.dir, 'v1.1.0', 'release.json')),
    )
    await it.dist.sum('v1.1.0')
    await rm(join(it.dist.dir, 'releases.json'))
    if (kind !== 'web')
      assert.match(await failure(it.feed, 'v1.1.0'), /^release_unusable .*it is a release of `other`, not of `beacon`/)
  })

  test(`${kind}: an empty feed has no latest`, async () => {
    await using it = await lab(kind, [])
    assert.equal(await it.feed.latest(NONE), { release: null, problem: null })
  })

  test(`${kind}: names that lead out of a folder are refused, whole`, async () => {
    await using it = await lab(kind, ['v1.1.0'])
    const sums = join(it.dist.dir, 'v1.1.0', 'SHA256SUMS')
    await writeFile(sums, `${'0'.repeat(64)}  ../../../etc/cron.d/x\n${await readFile(sums, 'utf8')}`)
    assert.match(
      await failure(it.feed),
      /^release_unusable .*SHA256SUMS line 1: expected a plain file name, got "\.\.\/\.\.\/\.\.\/etc\/cron\.d\/x"/,
    )
  })
}

for (const kind of ['github', 'web'] as const) {
  test(`${kind}: drafts and prereleases are never the latest; by their tag they say so`, async () => {
    await using it = await lab(kind, ['v1.0.0', 'v1.1.0', 'v1.2.0'], { drafts: ['v1.2.0'], prereleases: ['v1.1.0'] })
    assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.0.0')
    assert.match(await failure(it.feed, 'v1.1.0'), /release_unusable .*v1\.1\.0 cannot be used: it is a prerelease$/)
    assert.match(await failure(it.feed, 'v1.2.0'), /release_unusable .*v1\.2\.0 cannot be used: it is a draft$/)
  })

  test(`${kind}: a login page instead of JSON is called one`, async () => {
    await using it = await lab(kind, ['v1.1.0'], { html: true })
    assert.match(
      await failure(it.feed),
      kind === 'github' ? /check_failed .*expected JSON, got an HTML page/ : /check_failed .*got "<!doctype html>/,
    )
  })

  for (const status of [401, 403, 418, 500, 503]) {
    test(`${kind}: status ${status}`, async () => {
      await using it = await lab(kind, ['v1.1.0'], { status })
      assert.match(await failure(it.feed), new RegExp(`^check_failed .*expected 200, got ${status}`))
    })
  }

  test(`${kind}: a JSON that never ends is cut off`, async () => {
    await using it = await lab(kind, ['v1.1.0'], { endlessJson: true })
    assert.match(await failure(it.feed), /^check_failed .*the response is larger than \d+ bytes/)
  })

  test(`${kind}: a server that says nothing has a deadline`, async () => {
    await using it = await lab(kind, ['v1.1.0'], { silent: true }, { timeoutMs: 200 })
    assert.match(await failure(it.feed), /^check_failed .*no answer within 0\.2 s/)
  })

  test(`${kind}: a redirect loop is recognised`, async () => {
    await using it = await lab(kind, ['v1.1.0'], { redirectLoop: true })
    assert.match(await failure(it.feed), /^check_failed .* redirects in a loop/)
    assert.ok(it.server.requests.length <= 3)
  })

  test(`${kind}: nobody listens`, async () => {
    await using it = await lab(kind, ['v1.1.0'])
    await it.server.close()
    assert.match(await failure(it.feed), /^check_failed .*ECONNREFUSED/)
  })
}

// ---- GitHub ------------------------------------------------------------------------------------------------------

test('github: an asset whose digest disagrees with SHA256SUMS is refused; without digests the sums are enough', async () => {
  await using it = await lab('github', ['v1.1.0'], { digest: 'wrong' })
  assert.match(await failure(it.feed), /^release_unusable .*SHA256SUMS does not match its digest in the feed/)
  it.server.faults.digest = 'absent'
  assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.1.0')
})

test('github: a size that disagrees with release.json is refused', async () => {
  await using it = await lab('github', ['v1.1.0'], { announcedDelta: 1 })
  assert.match(
    await failure(it.feed),
    /^release_unusable .*size of `beacon-.*`: release\.json says \d+, the feed says \d+/,
  )
})

test('github: a release whose assets are not there yet is passed over, and told', async () => {
  const passed: string[] = []
  await using it = await lab(
    'github',
    ['v1.0.0', 'v1.1.0'],
    {},
    { onPassedOver: (tag, why) => passed.push(`${tag} ${why}`) },
  )
  for (const name of ['zst', 'gz'])
    await rm(join(it.dist.dir, 'v1.1.0', `beacon-${process.platform}-${process.arch}.${name}`))
  assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.0.0')
  assert.match(passed.join(), /^v1\.1\.0 it has no asset for/)
  assert.match(await failure(it.feed), /^release_unusable .*v1\.1\.0 cannot be used: it has no asset for/)
})

test('github: looks on further pages where the first has nothing to use', async () => {
  const drafts = Array.from({ length: 60 }, (_, i) => `v2.0.${i}`)
  await using it = await lab('github', ['v1.1.0', ...drafts], { drafts })
  assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.1.0')
})

test('github: asks with the ETag it has, and within the minimum age not at all', async () => {
  await using it = await lab('github', ['v1.1.0'])
  await it.feed.latest(NONE)
  await it.feed.latest(NONE)
  const lists = it.server.requests.filter(({ path }) => path.includes('per_page'))
  assert.equal(
    lists.map(({ status }) => status),
    [200, 304],
  )
  await using other = labFeed(it.server.feed, { minAgeMs: 60_000 })
  await other.latest(NONE)
  await it.dist.add('v1.2.0')
  assert.is((await other.latest(NONE)).release?.tag, 'v1.1.0')
  assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.2.0')
})

for (const status of [403, 429] as const) {
  test(`github: a quota that is used up (${status}) tells when it is there again, where the redirect is no help either`, async () => {
    await using it = await lab('github', ['v1.1.0'], {
      rateLimited: { status, resetSeconds: 1_500 },
      missingManifest: true,
    })
    const text = await failure(it.feed)
    assert.match(
      text,
      /^rate_limited .*`127\.0\.0\.1:\d+` will not accept more requests until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(in 25 min\)/,
    )
    assert.match(
      text,
      /releases\/latest, failed too: v1\.1\.0 cannot be used: SHA256SUMS lists release\.json, which is missing/,
    )
    const error = (await assert.rejects(() => it.feed.latest(NONE))) as BatonError
    assert.ok(Math.abs(Number(error.members['retryAfterSeconds']) - 1_500) < 5)
  })

  test(`github: retry-after (${status}) is honoured before the reset`, async () => {
    await using it = await lab('github', ['v1.1.0'], {
      rateLimited: { status, retryAfterSeconds: 7 },
      missingManifest: true,
    })
    assert.match(await failure(it.feed), /^rate_limited .*\(in 7 s\)/)
  })
}

test('github: with the quota used up, the redirect of the web host still finds the latest, and its bytes', async () => {
  await using it = await lab('github', ['v1.0.0', 'v1.1.0'], { quota: 0 })
  const { release } = await it.feed.latest(NONE)
  assert.is(release?.tag, 'v1.1.0')
  assert.is(release?.asset.url, `${it.server.url}/acme/beacon/releases/download/v1.1.0/${release?.asset.name}`)
  assert.is((await it.feed.byTag('v1.1.0')).tag, 'v1.1.0')
  const answer = await it.feed.bytes(
    release?.asset ?? (assert.unreachable() as never),
    0,
    null,
    new AbortController().signal,
  )
  assert.is(Buffer.concat(await Array.fromAsync(answer.stream)).length, release?.asset.sizeBytes)
})

test('github: a renamed repository is followed, by the API and without it, and its new name is told once', async () => {
  for (const quota of [60, 0]) {
    const told: string[] = []
    await using it = await lab('github', ['v1.0.0', 'v1.1.0'], { quota, repo: 'acme/lamp', formerly: 'acme/beacon' })
    const setting = it.server.feed.replace('acme/lamp', 'acme/beacon')
    await using feed = labFeed(setting, { onMoved: (line) => told.push(line) })
    for (const _time of [1, 2]) {
      const { release } = await feed.latest(NONE)
      assert.is(release?.tag, 'v1.1.0')
      assert.match(release?.asset.url ?? '', '/acme/lamp/')
    }
    assert.equal(told, [
      `\`${setting}\` is now named \`${it.server.feed}\`: set the feed to the new name, because whoever takes the old one controls the feed`,
    ])
    // GitHub takes a name in any case
    await using other = labFeed(it.server.feed, { onMoved: (line) => told.push(line) })
    await other.latest(NONE)
    assert.is(told.length, 1)
  }
})

test('github: names that lead to each other are followed a few times, not for ever', async () => {
  await using stack = new AsyncDisposableStack()
  let asked = 0
  const server = createServer((request, response) => {
    if (request.url?.startsWith('/api/v3/')) return void response.writeHead(429).end()
    const to = `/acme/n${++asked}/releases/latest`
    response.writeHead(301, { location: to }).end()
  })
  const { url } = stack.use(await listening(server))
  const feed = stack.use(labFeed(`github:acme/n0@${url}/api/v3`))
  const error = (await assert.rejects(() => feed.latest(NONE))) as BatonError
  assert.match(error.message, /latest, failed too: it does not point to a release$/)
  assert.is(error.hint, 'wait until then, or set GITHUB_ENTERPRISE_TOKEN for a larger quota')
  assert.is(asked, 4)
})

test("github: Forgejo's and Gitea's releases, public and private: one address for each file, which takes the token; nothing else does", async () => {
  const token = 'secret0123456789'
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0']))
  const objects = stack.use(await releaseServer({ dir: dist.dir }))
  for (const needed of [{}, { token }]) {
    const server = stack.use(await releaseServer({ dir: dist.dir, forgejo: true, objectsUrl: objects.url, ...needed }))
    const feed = stack.use(labFeed(server.feed, { environment: { GITHUB_ENTERPRISE_TOKEN: token } }))
    const { release } = await feed.latest(NONE)
    assert.is(release?.tag, 'v1.1.0')
    const asset = release?.asset ?? (assert.unreachable() as never)
    const answer = await feed.bytes(asset, 0, null, new AbortController().signal)
    assert.is(Buffer.concat(await Array.fromAsync(answer.stream)).length, asset.sizeBytes)
  }
  assert.ok(objects.requests.length > 0)
  assert.ok(objects.requests.every(({ headers }) => headers.authorization === undefined))
  const server = stack.use(await releaseServer({ dir: dist.dir, forgejo: true, token }))
  const error = (await assert.rejects(() => stack.use(labFeed(server.feed)).byTag('v1.1.0'))) as BatonError
  assert.is(error.hint, 'if the repository is private, set GITHUB_ENTERPRISE_TOKEN')
})

test('github: with the quota used up, a tag that may be a prerelease for all we know is not taken', async () => {
  await using it = await lab('github', ['v1.0.0', 'v1.1.0'], { quota: 0, prereleases: ['v1.1.0'] })
  assert.match(await failure(it.feed, 'v1.1.0'), /^rate_limited .*failed too: it points to v1\.0\.0/)
  await assert.rejects(
    () => it.feed.latest(({ tag }) => tag === 'v1.0.0'),
    /it points to v1\.0\.0, which failed here before/,
  )
})

test('github: an answer for another tag than the one asked for is refused', async () => {
  await using stack = new AsyncDisposableStack()
  const server = createServer((_, response) => response.end(JSON.stringify({ tag_name: 'v1.2.0', assets: [] })))
  const base = stack.use(await listening(server)).url
  const feed = stack.use(labFeed(`github:a/b@${base}`))
  assert.match(
    await failure(feed, 'v1.1.0'),
    /release_unusable .*v1\.1\.0 cannot be used: the feed answered with v1\.2\.0/,
  )
})

test('github: a private repository works with a token, which the host of the assets never sees', async () => {
  const token = 'ghp_secret0123456789'
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0']))
  const objects = stack.use(await releaseServer({ dir: dist.dir }))
  const server = stack.use(await releaseServer({ dir: dist.dir, token, objectsUrl: objects.url }))
  const environment = { GH_ENTERPRISE_TOKEN: token, GITHUB_TOKEN: 'of-another-host' }
  const feed = stack.use(labFeed(server.feed, { environment }))
  const { release } = await feed.latest(NONE)
  assert.is(release?.tag, 'v1.1.0')
  const answer = await feed.bytes(
    release?.asset ?? (assert.unreachable() as never),
    0,
    null,
    new AbortController().signal,
  )
  assert.is(Buffer.concat(await Array.fromAsync(answer.stream)).length, release?.asset.sizeBytes)
  assert.ok(server.requests.every(({ headers }) => headers.authorization === `Bearer ${token}`))
  assert.ok(objects.requests.length >= 3)
  assert.ok(objects.requests.every(({ headers }) => headers.authorization === undefined))

  const anonymous = stack.use(labFeed(server.feed))
  assert.match(await failure(anonymous, 'v1.1.0'), /^release_not_found/)
  for (const faults of [
    { status: 401 },
    { status: 500 },
    { html: true },
    { rateLimited: { status: 429 } },
    { redirectLoop: true },
  ] as const) {
    Object.assign(server.faults, { status: undefined, html: undefined, rateLimited: undefined }, faults)
    const error = (await assert.rejects(() => feed.byTag('v1.1.0'))) as BatonError
    assert.not.match(JSON.stringify([error.message, error.hint, error.members, String(error.cause)]), /ghp_secret/)
  }
})

test('github: a text in the place of the list is no list of releases', async () => {
  await using stack = new AsyncDisposableStack()
  const server = createServer((_, response) => response.end('"releases"'))
  const base = stack.use(await listening(server)).url
  const feed = stack.use(labFeed(`github:a/b@${base}`))
  assert.match(await failure(feed), /^check_failed .*expected a list of releases, got "releases"$/)
})

// ---- the way there -----------------------------------------------------------------------------------------------

test('https: a redirect to plain http is refused, also to this machine, and nothing is asked there', async () => {
  const certificate = makeCertificate()
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0']))
  const plain = stack.use(await releaseServer({ dir: dist.dir }))
  const secure = stack.use(
    await releaseServer({ dir: dist.dir, tls: certificate, redirectAssetTo: `${plain.staticUrl}v1.1.0/x` }),
  )
  const feed = stack.use(labFeed(secure.feed, { ca: certificate.cert }))
  const { release } = await feed.latest(NONE)
  const asset = release?.asset ?? (assert.unreachable() as never)
  const asking = feed.bytes(asset, 0, null, new AbortController().signal)
  assert.match(
    (await assert.rejects(asking, assert.withCode('download_failed'))).message,
    /redirects from https to plain http/,
  )
  assert.is(plain.requests.length, 0)
})

test('https: a server whose certificate nobody vouches for is refused', async () => {
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0']))
  const server = stack.use(await releaseServer({ dir: dist.dir, tls: makeCertificate() }))
  const feed = stack.use(labFeed(server.staticUrl))
  assert.match(await failure(feed), /^check_failed .*self.signed certificate/i)
  assert.is(server.requests.length, 0)
})

for (const kind of ['web', 'folder'] as const) {
  test(`${kind}: bytes that are given up before anybody reads them end nothing else`, async () => {
    await using it = await lab(kind, ['v1.1.0'], { stallAfter: 10 })
    const { release } = await it.feed.latest(NONE)
    const abort = new AbortController()
    const answer = await it.feed.bytes(release?.asset ?? (assert.unreachable() as never), 0, null, abort.signal)
    abort.abort()
    await new Promise((resolve) => setTimeout(resolve, 20)) // an error that nobody hears would end this process
    await assert.rejects(Array.fromAsync(answer.stream), /abort/i)
  })
}

test('opening a feed loads no HTTP client; the first request does', async () => {
  const program = `
    const { createRequire } = await import('node:module')
    const loaded = () => Object.keys(createRequire(${JSON.stringify(import.meta.url)}).cache).some((path) => path.includes('/undici/'))
    const { openFeed } = await import(${JSON.stringify(new URL('../agent/update/feed/open.ts', import.meta.url).href)})
    const feed = openFeed('http://127.0.0.1:9/', { service: 'beacon' })
    const before = loaded()
    await feed.latest(() => false).catch(() => {})
    console.log(before, loaded())`
  const args = ['--input-type=module', '--eval', program]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  assert.is(stdout, 'false true\n')
})

test('http: a redirect from this machine to plain http on another is refused', async () => {
  await using it = await lab('web', ['v1.1.0'], { redirectAssetTo: 'http://192.0.2.1/x' })
  const { release } = await it.feed.latest(NONE)
  const asking = it.feed.bytes(release?.asset ?? (assert.unreachable() as never), 0, null, new AbortController().signal)
  assert.match(
    (await assert.rejects(asking)).message,
    /plain http is allowed only for addresses on this machine, got `http:\/\/192\.0\.2\.1\/x` \(redirected from/,
  )
})

for (const [where, address] of [
  ['a private range', 'https://10.1.2.3/x'],
  ['a carrier range', 'https://100.64.0.1/x'],
  ['the metadata service of a cloud', 'https://169.254.169.254/latest/meta-data/'],
  ['a link-local address', 'https://[fe80::1]/x'],
  ['a unique local address', 'https://[fd00::1]/x'],
  ['a mapped private address', 'https://[::ffff:10.0.0.1]/x'],
] as const) {
  test(`http: a redirect to ${where} is refused where the feed is not there itself`, async () => {
    await using it = await lab('web', ['v1.1.0'], { redirectAssetTo: address })
    const { release } = await it.feed.latest(NONE)
    const asset = release?.asset ?? (assert.unreachable() as never)
    const asking = it.feed.bytes(asset, 0, null, new AbortController().signal)
    const { message } = await assert.rejects(asking, assert.withCode('download_failed'))
    assert.match(message, /: expected a public address, got a (private|link-local) one$/)
  })
}

test('addresses: a name is judged by what it leads to, each time it is looked up', async () => {
  const lookedUp = (homes: string[], name: string): Promise<string> =>
    new Promise((resolve) => {
      neighbourhoodOf(homes).lookup(name, { all: true }, (error) => resolve(error?.message ?? 'allowed'))
    })
  const refused = 'the feed points to `localhost`: expected a public address, got a loopback one'
  assert.is(await lookedUp(['https://feed.test/'], 'localhost'), refused)
  assert.is(await lookedUp(['https://10.0.0.1/'], 'localhost'), refused)
  assert.is(await lookedUp(['https://127.0.0.1/'], 'localhost'), 'allowed')
  assert.is(await lookedUp(['https://localhost/'], 'localhost'), 'allowed')
})

test('addresses: every range that is not public has its name', () => {
  const expected = {
    '127.9.9.9': 'loopback',
    '0.0.0.0': 'loopback',
    '::1': 'loopback',
    '::ffff:127.0.0.1': 'loopback',
    '169.254.1.1': 'link-local',
    'fe80::1': 'link-local',
    '10.0.0.1': 'private',
    '172.16.0.1': 'private',
    '172.31.255.255': 'private',
    '192.168.1.1': 'private',
    '100.127.0.1': 'private',
    '224.0.0.1': 'private',
    'fd12::1': 'private',
    '64:ff9b::a00:1': 'private',
    '64:ff9b::8c52:7904': 'public',
    '64:ff9b:1::8c52:7904': 'private',
    '::ffff:a00:1': 'private',
    '::7f00:1': 'loopback',
    '::10.0.0.1': 'private',
    '2002:a9fe:a9fe::1': 'link-local',
    '2002:8c52:7904::': 'public',
    '2001:0:1::1': 'private',
    '198.18.0.7': 'public',
    '172.32.0.1': 'public',
    '100.128.0.1': 'public',
    '192.0.2.1': 'public',
    '140.82.121.4': 'public',
    '2606:50c0:8000::153': 'public',
  }
  assert.equal(Object.fromEntries(Object.keys(expected).map((address) => [address, reachOf(address)])), expected)
})

test('https: an API that names an asset on plain http is refused, also on this machine', async () => {
  const certificate = makeCertificate()
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0']))
  const secure = stack.use(await releaseServer({ dir: dist.dir, tls: certificate }))
  const feed = stack.use(labFeed(secure.feed, { ca: certificate.cert }))
  const release = (await feed.latest(NONE)).release ?? (assert.unreachable() as never)
  const asset = { ...release.asset, url: release.asset.url.replace('https:', 'http:') }
  const { message } = await assert.rejects(() => feed.bytes(asset, 0, null, new AbortController().signal))
  assert.match(message, /^the feed uses https but links to a plain http address: `http:/)
})

test('http: at most five redirects, none to anything but http', async () => {
  await using stack = new AsyncDisposableStack()
  const server = createServer((request, response) => {
    const step = Number(/^\/(\d+)$/.exec(request.url ?? '')?.[1] ?? 0)
    const location = request.url === '/file/releases.json' ? 'file:///etc/passwd' : `/${step + 1}`
    response.writeHead(302, { location }).end()
  })
  const { url } = stack.use(await listening(server))
  const far = stack.use(labFeed(`${url}/`))
  assert.match(await failure(far), /redirects more than 5 times/)
  const odd = stack.use(labFeed(`${url}/file/`))
  assert.match(await failure(odd), /expected an https address, got one with `file:`/)
})

test('proxy: HTTPS_PROXY is used, with its credentials, except for NO_PROXY and for this machine', async () => {
  const certificate = makeCertificate(['feed.test', '127.0.0.1'])
  await using stack = new AsyncDisposableStack()
  const dist = stack.use(await makeDist(['v1.1.0']))
  const server = stack.use(await releaseServer({ dir: dist.dir, tls: certificate }))
  const tunnels: string[] = []
  const proxy = createServer().on('connect', (request, client, head) => {
    tunnels.push(`${request.url} ${request.headers['proxy-authorization'] ?? ''}`)
    const upstream = connect(server.port, '127.0.0.1', () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      upstream.write(head)
      upstream.pipe(client).pipe(upstream)
    })
    upstream.on('error', () => client.destroy())
    client.on('error', () => upstream.destroy())
  })
  const { url } = stack.use(await listening(proxy))
  const through = url.replace('//', '//me:hunter2@')
  const open = (setting: string, environment: Record<string, string>): Feed =>
    stack.use(labFeed(setting, { environment, ca: certificate.cert, timeoutMs: 2_000 }))

  for (const name of ['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY']) {
    assert.is((await open('https://feed.test/static/', { [name]: through }).latest(NONE)).release?.tag, 'v1.1.0')
  }
  assert.ok(tunnels.length >= 2)
  assert.is(tunnels[0], `feed.test:443 Basic ${Buffer.from('me:hunter2').toString('base64')}`)

  const bare = through.replace('http://', '')
  assert.is((await open('https://feed.test/static/', { https_proxy: bare }).latest(NONE)).release?.tag, 'v1.1.0')

  tunnels.length = 0
  const passing = await failure(open('https://feed.test/static/', { HTTPS_PROXY: through, no_proxy: '.test' }))
  assert.match(passing, /^check_failed .*(ENOTFOUND|EAI_AGAIN|timeout|within)/) // it asked the name servers itself
  assert.is(
    (await open(server.staticUrl, { HTTPS_PROXY: through, HTTP_PROXY: through }).latest(NONE)).release?.tag,
    'v1.1.0',
  )
  assert.equal(tunnels, [])

  const wrong = await failure(open('https://feed.test/static/', { HTTPS_PROXY: 'socks5://me:hunter2@proxy' }))
  assert.match(wrong, /^invalid_settings .*`HTTPS_PROXY`: expected http:\/\/host:port/)
  assert.not.match(wrong, /hunter2/)
})

// ---- a folder ----------------------------------------------------------------------------------------------------

test('folder: without releases.json its folders tell; a folder that is not there says so', async () => {
  await using it = await lab('folder', ['v1.0.0', 'v1.1.0'])
  await rm(join(it.dist.dir, 'releases.json'))
  assert.is((await it.feed.latest(NONE)).release?.tag, 'v1.1.0')
  const gone = labFeed(join(it.dist.dir, 'gone'))
  assert.match(await failure(gone), /^check_failed checking .*gone: listing .*ENOENT/)
})

test('folder: a pipe in the place of a file is refused and not waited upon', async () => {
  await using it = await lab('folder', ['v1.1.0'])
  const sums = join(it.dist.dir, 'v1.1.0', 'SHA256SUMS')
  await rm(sums)
  execFileSync('mkfifo', [sums])
  assert.match(await failure(it.feed), /^check_failed .*SHA256SUMS`: expected a regular file/)
})

test('folder: papers beyond their bound are refused', async () => {
  await using it = await lab('folder', ['v1.1.0'])
  await writeFile(join(it.dist.dir, 'v1.1.0', 'SHA256SUMS'), Buffer.alloc(1024 * 1024 + 1, 'a'))
  assert.match(await failure(it.feed), /^check_failed .*expected at most 1048576 bytes, got 1048577/)
})

test('a web folder without releases.json says so', async () => {
  await using it = await lab('web', ['v1.1.0'])
  await using feed = labFeed(`${it.server.staticUrl}nothing/`)
  assert.match(await failure(feed), /^check_failed .*nothing\/releases\.json: there is no such file/)
})

async function listening(server: ReturnType<typeof createServer>): Promise<{ url: string } & AsyncDisposable> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    server.closeAllConnections()
    await closed
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, [Symbol.asyncDispose]: close }
}

test.run()
