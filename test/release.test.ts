// What a release is, as pure functions: tags, sums, manifests and verdicts, with examples and fuzzed.

import { MANIFEST_NAME, SUMS_NAME, parseManifest, parseSums, sha256Of } from '../agent/update/trust/release-texts.ts'
import type { ReleaseTexts } from '../agent/update/trust/release-texts.ts'
import { compareTags, isService, isTag, latestFor, parseTag, serviceName } from '../agent/words/release.ts'
import type { Listing, ReleaseManifest, Target } from '../agent/words/release.ts'
import { isFileName, quoted } from '../agent/words/untrusted.ts'
import { assess, listingOf, newestFirst, ruledOut } from '../agent/update/trust/usable.ts'
import { newestUsable } from '../agent/update/feed/newest.ts'
import { parseListing } from '../agent/update/feed/github-feed.ts'
import { parseFeedSetting } from '../agent/update/feed/setting.ts'
import { parseReleases } from '../agent/update/feed/static-feed.ts'
import { BatonError } from '../agent/words/errors.ts'
import * as assert from './assert.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { suite } from './suite.ts'

const test = suite('release')

const TARGET: Target = { service: 'beacon', os: 'linux', arch: 'x64' }
const [A, B, C] = ['a', 'b', 'c'].map((digit) => digit.repeat(64)) as [string, string, string]

const MANIFEST: ReleaseManifest = {
  format: 1,
  service: 'beacon',
  tag: 'v1.1.0',
  schema: 3,
  notes: 'better',
  publishedAt: '2026-11-01T12:00:00Z',
  assets: [
    asset('beacon-linux-x64.zst', 'zstd', 30, A),
    asset('beacon-linux-x64.gz', 'gzip', 40, B),
    asset('beacon-darwin-arm64.zst', 'zstd', 31, C),
  ],
}

function asset(name: string, compression: 'gzip' | 'zstd', sizeBytes: number, sha256: string) {
  const [, os = '', arch = ''] = /-(\w+)-(\w+)\./.exec(name) ?? []
  return { name, os, arch, compression, sizeBytes, sha256, executable: { sizeBytes: 150, sha256: C } }
}

/** A good release, with one thing changed. */
function release(change: {
  listing?: Partial<Listing>
  manifest?: Partial<ReleaseManifest> | null
  sums?: (sums: Map<string, string>) => void
  digest?: string
  sizeBytes?: number
}): { listing: Listing; texts: ReleaseTexts } {
  const manifest = change.manifest === null ? null : JSON.stringify({ ...MANIFEST, ...change.manifest })
  const sums = new Map(MANIFEST.assets.map(({ name, sha256 }) => [name, sha256]))
  if (manifest !== null) sums.set(MANIFEST_NAME, sha256Of(manifest))
  change.sums?.(sums)
  const texts = { sums: [...sums].map(([name, sha256]) => `${sha256}  ${name}\n`).join(''), manifest }
  const names = [...MANIFEST.assets.map(({ name }) => name), SUMS_NAME, ...(manifest === null ? [] : [MANIFEST_NAME])]
  const files = names.map((name) => ({
    name,
    url: `https://x/${name}`,
    sizeBytes: name === 'beacon-linux-x64.zst' ? (change.sizeBytes ?? 30) : null,
    sha256: name === 'beacon-linux-x64.zst' ? (change.digest ?? A) : null,
  }))
  const listing = {
    tag: 'v1.1.0',
    draft: false,
    prerelease: false,
    notes: '',
    publishedAt: null,
    url: null,
    files,
    ...change.listing,
  }
  return { listing, texts }
}

function why(change: Parameters<typeof release>[0]): string {
  const { listing, texts } = release(change)
  const verdict = assess(listing, texts, TARGET)
  return 'why' in verdict ? verdict.why : 'usable'
}

test('takes the zstd asset with everything that the later stages need', () => {
  const { listing, texts } = release({})
  assert.equal(assess(listing, texts, TARGET), {
    release: {
      tag: 'v1.1.0',
      notes: 'better',
      publishedAt: '2026-11-01T12:00:00Z',
      url: null,
      schema: 3,
      asset: {
        name: 'beacon-linux-x64.zst',
        url: 'https://x/beacon-linux-x64.zst',
        sizeBytes: 30,
        sha256: A,
        compression: 'zstd',
        executable: { sizeBytes: 150, sha256: C },
      },
      deltas: [],
      image: null,
    },
  })
})

test('what an executable unpacks beside itself is announced by release.json, and bounded', () => {
  const announcing = (unpackedBytes: unknown) => MANIFEST.assets.map((one) => ({ ...one, unpackedBytes }) as typeof one)
  const { listing, texts } = release({ manifest: { assets: announcing(4096) } })
  const verdict = assess(listing, texts, TARGET)
  assert.is('release' in verdict && verdict.release.asset.unpackedBytes, 4096)
  for (const wrong of [-1, 1.5, '4096', 2 ** 40])
    assert.match(
      why({ manifest: { assets: announcing(wrong) } }),
      /asset 1: `unpackedBytes`: expected a number of bytes, got/,
    )
})

test('takes the gzip asset where there is no zstd', () => {
  const { listing, texts } = release({})
  const files = listing.files.filter(({ name }) => name !== 'beacon-linux-x64.zst')
  const verdict = assess({ ...listing, files }, texts, TARGET)
  assert.is('release' in verdict && verdict.release.asset.compression, 'gzip')
  assert.is('release' in verdict && verdict.release.asset.sizeBytes, 40) // as release.json announces it
})

test('takes a release without release.json, of whose executable nothing is known', () => {
  const { listing, texts } = release({ manifest: null })
  const verdict = assess(listing, texts, TARGET)
  assert.is('release' in verdict && verdict.release.asset.executable, null)
  assert.is('release' in verdict && verdict.release.schema, null)
})

for (const [title, expected, change] of [
  ['a draft', 'it is a draft', { listing: { draft: true } }],
  ['a prerelease', 'it is a prerelease', { listing: { prerelease: true } }],
  [
    'a release without files',
    'it has no asset for linux-x64 (`beacon-linux-x64.zst` or `beacon-linux-x64.gz`); it has no files at all',
    { listing: { files: [] } },
  ],
  [
    'an asset without a checksum, even where another asset has one',
    'SHA256SUMS has no line for `beacon-linux-x64.zst`',
    { sums: (sums) => sums.delete('beacon-linux-x64.zst') },
  ],
  [
    'sums without release.json',
    'SHA256SUMS has no line for release.json',
    { sums: (sums) => sums.delete(MANIFEST_NAME) },
  ],
  [
    'another release.json',
    /^sha256 of release\.json: expected aaaaaaaaaaaa…, got [0-9a-f]{12}…$/,
    { sums: (sums) => sums.set(MANIFEST_NAME, A) },
  ],
  [
    'a release.json that was taken away',
    'SHA256SUMS lists release.json, which is missing',
    { manifest: null, sums: (sums) => sums.set(MANIFEST_NAME, A) },
  ],
  [
    'a digest that says otherwise',
    /^sha256 of `beacon-linux-x64.zst`: SHA256SUMS says aaa.*, the feed's digest says bbb/,
    { digest: B },
  ],
  [
    'a manifest that says otherwise',
    /^sha256 of `beacon-linux-x64.zst`: SHA256SUMS says aaa.*, release\.json says bbb/,
    { manifest: { assets: [asset('beacon-linux-x64.zst', 'zstd', 30, B)] } },
  ],
  ['sizes that disagree', 'size of `beacon-linux-x64.zst`: release.json says 30, the feed says 31', { sizeBytes: 31 }],
  [
    'a size of nothing',
    /^size of `beacon-linux-x64.zst`: expected 1 to \d+ bytes, got 0/,
    { manifest: null, sizeBytes: 0 },
  ],
  ['a size that is none', /^size of `beacon-linux-x64.zst`/, { manifest: null, sizeBytes: Number.NaN }],
  ['a monstrous size', /^size of `beacon-linux-x64.zst`/, { manifest: null, sizeBytes: 1e15 }],
  ['a release of another service', 'it is a release of `other`, not of `beacon`', { manifest: { service: 'other' } }],
  ['the texts of another release', 'release.json is for v1.0.0, not for v1.1.0', { manifest: { tag: 'v1.0.0' } }],
  ['a manifest without our asset', 'release.json does not list `beacon-linux-x64.zst`', { manifest: { assets: [] } }],
  ['a manifest of another format', 'release.json: expected format 1, got 2', { manifest: { format: 2 as 1 } }],
  [
    'a manifest that takes one compression for another',
    'release.json lists `beacon-linux-x64.zst` as gzip',
    { manifest: { assets: [asset('beacon-linux-x64.zst', 'gzip', 30, A)] } },
  ],
  [
    'a name that leads elsewhere',
    /^SHA256SUMS line \d: expected a plain file name, got "\.\.\/\.\.\/etc\/cron\.d\/x"$/,
    { sums: (sums) => sums.set('../../etc/cron.d/x', A) },
  ],
] satisfies [string, string | RegExp, Parameters<typeof release>[0]][]) {
  test(`refuses ${title}, and says so`, () => {
    if (typeof expected === 'string') assert.is(why(change), expected)
    else assert.match(why(change), expected)
  })
}

test('refuses a file that is listed twice', () => {
  const { listing } = release({})
  assert.is(
    ruledOut({ ...listing, files: [...listing.files, ...listing.files] }, TARGET),
    'it lists "beacon-linux-x64.zst" twice',
  )
})

test('names the files that a release has instead of ours, a few of them', () => {
  const { listing } = release({})
  assert.match(
    ruledOut(listing, { ...TARGET, arch: 'riscv64' }) ?? '',
    /it has "beacon-linux-x64.zst", "beacon-linux-x64.gz"/,
  )
})

for (const [title, text, expected] of [
  ['nothing', '', 'SHA256SUMS is empty'],
  ['a page', '<!doctype html>\n', /line 1: expected `<sha256> {2}<file>`, got "<!doctype html>"/],
  ['upper case', `${'A'.repeat(64)}  x\n`, /line 1/],
  ['a short sum', `${'a'.repeat(63)}  x\n`, /line 1/],
  ['sha512', `${'a'.repeat(128)}  x\n`, /line 1/],
  ['one blank', `${A} x\n`, /line 1/],
  ['an absolute path', `${A}  /etc/passwd\n`, /plain file name, got "\/etc\/passwd"/],
  ['a folder', `${A}  a/b\n`, /plain file name/],
  ['a folder of Windows', `${A}  a\\b\n`, /plain file name/],
  ['up', `${A}  ..\n`, /plain file name/],
  ['a hidden file', `${A}  .bashrc\n`, /plain file name/],
  ['NUL', `${A}  a\0b\n`, /plain file name, got "a\\u0000b"/],
  ['an escape sequence', `${A}  a\u001b[2J\n`, /plain file name, got "a\\u001b\[2J"/],
  ['a carriage return', `${A}  a\r\n`, /plain file name/],
  ['two sums for one name', `${A}  x\n${B}  x\n`, 'SHA256SUMS has two different sums for `x`'],
  ['no end', `${A}  x\n`.repeat(1_001), 'SHA256SUMS has more than 1000 lines'],
] as const) {
  test(`refuses SHA256SUMS with ${title}`, () => {
    const parsed = parseSums(text)
    assert.ok('why' in parsed)
    if (typeof expected === 'string') assert.is(parsed.why, expected)
    else assert.match(parsed.why, expected)
  })
}

test('reads SHA256SUMS of text and binary mode, with the same sum twice, without a last newline', () => {
  assert.equal(parseSums(`${A}  x\n${B} *y\n${A}  x`), {
    sums: new Map([
      ['x', A],
      ['y', B],
    ]),
  })
})

test('leaves out members of release.json that it does not know, and fills in those that may be absent', () => {
  const { service, tag, format } = MANIFEST
  const parsed = parseManifest(JSON.stringify({ format, service, tag, assets: [], more: { things: 1 } }))
  assert.equal(parsed, { manifest: { format, service, tag, schema: null, notes: '', publishedAt: null, assets: [] } })
})

test('orders tags by their numbers', () => {
  const tags = ['v1.9.0', 'v1.10.0', 'v0.99.99', 'v2.0.0', 'v1.9.10', 'v1.9.9']
  assert.equal(
    newestFirst(tags.map((tag) => ({ tag }))).map(({ tag }) => tag),
    ['v2.0.0', 'v1.10.0', 'v1.9.10', 'v1.9.9', 'v1.9.0', 'v0.99.99'],
  )
})

for (const value of [
  '1.0.0',
  'v1.0',
  'v1.0.0.0',
  'v01.0.0',
  'v1.00.0',
  'v1.0.0-rc_1',
  'v1.0.0 ',
  ' v1.0.0',
  'v1.0.0\n',
  'V1.0.0',
  'v-1.0.0',
  'v1.0.1e3',
  'v1234567890.0.0',
  'latest',
  '',
  'v１.0.0',
  '../v1.0.0',
  7,
  null,
  true,
  [],
  ['v1.0.0'],
  {},
  undefined,
]) {
  test(`refuses the tag ${JSON.stringify(value)} of type ${Array.isArray(value) ? 'array' : typeof value}`, () => {
    assert.throws(() => parseTag(value), assert.withCode('invalid_tag'))
  })
}

test('chooses the highest that can be used, tells of those passed over, and skips those that failed here', async () => {
  const passed: string[] = []
  const listed = ['v1.0.0', 'v1.3.0', 'v1.1.0', 'v1.2.0', 'v1.4.0'].map((tag) => ({
    tag,
    draft: tag === 'v1.4.0',
    prerelease: false,
  }))
  const { listing, texts } = release({})
  const judge = ({ tag }: { tag: string }) =>
    Promise.resolve(
      tag === 'v1.2.0'
        ? { why: 'no' }
        : assess({ ...listing, tag }, { ...texts, manifest: null, sums: `${A}  beacon-linux-x64.zst\n` }, TARGET),
    )
  const chosen = await newestUsable(
    listed,
    ({ tag }) => tag === 'v1.3.0',
    judge,
    (tag, because) => passed.push(`${tag}: ${because}`),
    'stable',
  )
  assert.is(chosen.release?.tag, 'v1.1.0')
  assert.is(chosen.problem?.message, 'v1.2.0 cannot be used: no')
  assert.is(latestFor(chosen, 'v1.0.0')?.tag, 'v1.1.0') // a step forward all the same
  for (const current of ['v1.1.0', 'v1.3.0', null]) assert.is(latestFor(chosen, current), null)
  assert.equal(passed, ['v1.3.0: it failed here before', 'v1.2.0: no'])
})

test('where nothing but drafts and prereleases is published there is no latest, and that is no error', async () => {
  const listed = [
    { tag: 'v1.0.0', draft: true, prerelease: false },
    { tag: 'v1.1.0', draft: false, prerelease: true },
  ]
  const passed: string[] = []
  const judge = () => Promise.resolve({ why: 'it is a prerelease' })
  const chosen = await newestUsable(
    listed,
    () => false,
    judge,
    (tag) => passed.push(tag),
    'stable',
  )
  assert.equal(chosen, { release: null, problem: null, beyond: null })
  assert.equal(passed, [])
})

test('says why where releases are published and none can be used, rather than that all is up to date', async () => {
  const listed = ['v1.0.0', 'v1.1.0'].map((tag) => ({ tag, draft: false, prerelease: false }))
  const asked = (listings: typeof listed, verdict: { why: string; yanked?: true }) =>
    newestUsable(
      listings,
      () => false,
      () => Promise.resolve(verdict),
      () => {},
      'stable',
    )
  const { release, problem } = await asked(listed, { why: 'it has no SHA256SUMS' })
  assert.equal([release, problem?.code], [null, 'release_unusable'])
  assert.is(problem?.message, 'v1.1.0 cannot be used: it has no SHA256SUMS (1 other release cannot be used either)')
  assert.match((await asked(listed, { why: 'it was yanked', yanked: true })).problem?.message ?? '', 'yanked')
  assert.equal(await asked([], { why: '' }), { release: null, problem: null, beyond: null })
})

for (const [setting, expected] of [
  [
    'github:acme/beacon',
    { kind: 'github', repository: 'acme/beacon', api: 'https://api.github.com', web: 'https://github.com' },
  ],
  [
    'github:acme/b.c@https://ghe.acme.com/api/v3/',
    { kind: 'github', repository: 'acme/b.c', api: 'https://ghe.acme.com/api/v3', web: 'https://ghe.acme.com' },
  ],
  [
    'github:a/b@https://api.acme.ghe.com',
    { kind: 'github', repository: 'a/b', api: 'https://api.acme.ghe.com', web: 'https://acme.ghe.com' },
  ],
  [
    'github:a/b@http://127.0.0.1:81/api/v3',
    { kind: 'github', repository: 'a/b', api: 'http://127.0.0.1:81/api/v3', web: 'http://127.0.0.1:81' },
  ],
  ['https://x.org/releases', { kind: 'web', base: 'https://x.org/releases/' }],
  ['https://x.org', { kind: 'web', base: 'https://x.org/' }],
  ['http://[::1]:80/d/', { kind: 'web', base: 'http://[::1]/d/' }],
  ['http://localhost:8080/', { kind: 'web', base: 'http://localhost:8080/' }],
  ['/media/usb', { kind: 'folder', folder: '/media/usb' }],
  ['file:///media/usb%20stick', { kind: 'folder', folder: '/media/usb stick' }],
] as const) {
  test(`reads the feed ${setting}`, () => assert.equal(parseFeedSetting(setting), expected))
}

for (const [setting, expected] of [
  ['', /not a feed address/],
  ['dist', /not a feed address/],
  ['./dist', /must be absolute/],
  ['../dist', /must be absolute/],
  ['http://example.com/', /plain http is allowed only for addresses on this machine/],
  ['http://127.0.0.1.example.com/', /plain http is allowed only for addresses on this machine/],
  ['http://localhost.example.com/', /plain http is allowed only for addresses on this machine/],
  ['https://', /is not a URL/],
  ['https://x.org/?a=1', /a folder URL cannot contain/],
  ['ftp://x.org/', /not a feed address/],
  ['github:acme', /expected a repository `owner\/name`, got "acme"/],
  ['github:acme/beacon/more', /expected a repository/],
  ['github:acme/..', /expected a repository/],
  ['github:acme/beacon@ftp://x', /expected an https address, got one with `ftp:`/],
  ['github:acme/beacon@http://ghe.acme.com', /plain http/],
  ['file://server/share', /host/i],
] as const) {
  test(`refuses the feed ${JSON.stringify(setting)}`, () => {
    assert.throws(() => parseFeedSetting(setting), assert.withCode('invalid_settings'))
    assert.throws(() => parseFeedSetting(setting), expected)
  })
}

test('never shows a password that somebody has put into the feed', () => {
  for (const setting of [
    'https://me:hunter2@x.org/',
    'github:a/b@https://me:hunter2@x.org',
    'https://hunter2@x.org/',
  ]) {
    const error = assert.throws(() => parseFeedSetting(setting), assert.withCode('invalid_settings'))
    assert.not.match(`${error.message}${(error as BatonError).hint}`, /hunter2/)
  }
})

// ---- fuzz --------------------------------------------------------------------------------------------------------

const anyTag = fc
  .tuple(fc.nat(999_999_999), fc.nat(999_999_999), fc.nat(999_999_999))
  .map((numbers) => `v${numbers.join('.')}`)
const anyText = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme' }))

test('fuzz: the order of tags is total, and what isTag takes is written one way only', async () => {
  await fuzz(fc.tuple(anyTag, anyTag, anyTag), ([a, b, c]) => {
    assert.is(compareTags(a, b), 0 - compareTags(b, a))
    assert.is(compareTags(a, b) === 0, a === b)
    if (compareTags(a, b) <= 0 && compareTags(b, c) <= 0) assert.ok(compareTags(a, c) <= 0)
    assert.ok(isTag(a))
  })
  await fuzz(
    anyText,
    (text) =>
      isTag(text) === (/^v\d+\.\d+\.\d+$/.test(text) && text === `v${text.slice(1).split('.').map(Number).join('.')}`),
  )
})

test('fuzz: a file name that is taken stays in its folder', async () => {
  const pieces = fc.array(
    fc.constantFrom('a', 'B', '.', '..', '/', '\\', '\0', '-', '~', ' ', '\n', '%2e', 'é', '$', '`'),
    { maxLength: 8 },
  )
  await fuzz(
    fc.oneof(
      anyText,
      pieces.map((list) => list.join('')),
    ),
    (name) => {
      if (!isFileName(name)) return
      assert.is(new URL(name, 'https://x.org/folder/').href, `https://x.org/folder/${name}`)
      assert.not.match(name, /[^!-~]|\.\.|[/\\]/)
    },
  )
})

test('fuzz: what sha256sum writes is read back; any other text is refused, never thrown upon', async () => {
  const name = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9_+-]{0,20}(\.[a-z]{1,4})?$/)
  const sum = fc.stringMatching(/^[0-9a-f]{64}$/)
  await fuzz(fc.uniqueArray(fc.tuple(name, sum), { selector: ([key]) => key, minLength: 1 }), (lines) => {
    const parsed = parseSums(lines.map(([file, sha256]) => `${sha256}  ${file}\n`).join(''))
    assert.equal(parsed, { sums: new Map(lines) })
  })
  await fuzz(anyText, (text) => 'why' in parseSums(text))
})

test('fuzz: no JSON makes a parser throw, and what it takes is within bounds', async () => {
  const likeManifest = fc.record(
    {
      format: fc.oneof(fc.constant(1), fc.jsonValue()),
      service: fc.oneof(fc.constant('beacon'), fc.jsonValue()),
      tag: fc.oneof(anyTag, fc.jsonValue()),
      schema: fc.oneof(fc.nat(), fc.jsonValue()),
      notes: fc.oneof(fc.string(), fc.jsonValue()),
      publishedAt: fc.oneof(fc.constant('2026-11-01T12:00:00Z'), fc.jsonValue()),
      assets: fc.oneof(
        fc.array(
          fc.record({
            name: fc.oneof(fc.constantFrom('a', '../a'), fc.string()),
            os: fc.string(),
            arch: fc.string(),
            compression: fc.constantFrom('gzip', 'zstd', 'xz'),
            sizeBytes: fc.oneof(fc.integer(), fc.double()),
            sha256: fc.constantFrom(A, 'x'),
            executable: fc.constantFrom({ sizeBytes: 1, sha256: A }, null),
          }),
        ),
        fc.jsonValue(),
      ),
    },
    { requiredKeys: [] },
  )
  await fuzz(
    fc.oneof(likeManifest, fc.jsonValue()),
    (value) => {
      const parsed = parseManifest(JSON.stringify(value))
      if ('why' in parsed) return assert.match(parsed.why, /^release\.json: [ -~…]{1,200}$/)
      for (const entry of parsed.manifest.assets) {
        assert.ok(isFileName(entry.name))
        assert.ok(Number.isSafeInteger(entry.sizeBytes) && entry.sizeBytes > 0)
      }
    },
    { runs: 2_000 },
  )
  const likeRelease = fc.record({
    tag_name: fc.oneof(anyTag, fc.jsonValue()),
    draft: fc.jsonValue(),
    prerelease: fc.jsonValue(),
    body: fc.jsonValue(),
    assets: fc.oneof(
      fc.array(
        fc.record({
          name: fc.string(),
          size: fc.jsonValue(),
          state: fc.jsonValue(),
          digest: fc.jsonValue(),
          url: fc.jsonValue(),
          browser_download_url: fc.string(),
        }),
      ),
      fc.jsonValue(),
    ),
  })
  await fuzz(
    fc.oneof(likeRelease, fc.jsonValue()),
    (value) => {
      const listing = parseListing(value, false)
      if (listing === null) return
      assert.ok(isTag(listing.tag))
      assess(listing, { sums: `${A}  x\n`, manifest: JSON.stringify(value) }, TARGET) // whatever it says, it says it
    },
    { runs: 1_000 },
  )
  await fuzz(fc.oneof(fc.json(), anyText), (text) => {
    try {
      for (const { tag } of parseReleases(text)) assert.ok(isTag(tag))
    } catch (error) {
      assert.ok(error instanceof BatonError && error.code === 'check_failed')
    }
  })
})

test('fuzz: any texts give a verdict, and a usable one is backed by a sum', async () => {
  const line = fc.tuple(
    fc.constantFrom(A, B),
    fc.constantFrom('beacon-linux-x64.zst', 'beacon-linux-x64.gz', MANIFEST_NAME, '../x'),
  )
  const lines = fc.array(line, { maxLength: 4 })
  await fuzz(
    fc.tuple(lines, fc.boolean(), fc.boolean(), fc.constantFrom(undefined, A, B)),
    ([sums, draft, withManifest, digest]) => {
      const { listing, texts } = release({
        listing: { draft },
        ...(withManifest ? {} : { manifest: null }),
        ...(digest === undefined ? {} : { digest }),
      })
      const verdict = assess(listing, { ...texts, sums: sums.map((pair) => `${pair.join('  ')}\n`).join('') }, TARGET)
      if ('why' in verdict) return assert.ok(verdict.why.length > 0)
      assert.is(draft, false)
      assert.ok(
        sums.some(([sha256, name]) => name === verdict.release.asset.name && sha256 === verdict.release.asset.sha256),
      )
      if (verdict.release.asset.name.endsWith('zst')) assert.is(verdict.release.asset.sha256, digest ?? A)
    },
  )
})

test('fuzz: a listing made of texts alone holds what the texts name and nothing else', async () => {
  await fuzz(anyText, (text) => {
    const { texts } = release({})
    const flags = { tag: 'v1.1.0', draft: false, prerelease: false }
    for (const mixed of [
      { ...texts, sums: text },
      { ...texts, manifest: text },
      { sums: text, manifest: text },
    ]) {
      for (const { name } of listingOf(flags, mixed, (name) => name).files) assert.ok(isFileName(name))
    }
  })
})

test('fuzz: a feed setting is read or refused, and what is read never reaches beyond this machine in the clear', async () => {
  const host = fc.constantFrom('127.0.0.1', 'localhost', '[::1]', 'x.org', '127.0.0.1.x.org', '1.2.3.4')
  const address = fc
    .tuple(fc.constantFrom('http', 'https', 'HTTP', 'ftp'), host, anyText)
    .map(([scheme, name, path]) => `${scheme}://${name}/${path}`)
  await fuzz(
    fc.oneof(
      anyText,
      address,
      address.map((text) => `github:a/b@${text}`),
    ),
    (setting) => {
      try {
        const parsed = parseFeedSetting(setting)
        if (parsed.kind === 'folder') return
        const url = new URL(parsed.kind === 'web' ? parsed.base : parsed.api)
        assert.ok(url.protocol === 'https:' || ['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname))
      } catch (error) {
        if (!(error instanceof BatonError)) throw error
        assert.is(error.code, 'invalid_settings')
      }
    },
    { runs: 2_000 },
  )
})

test('fuzz: what a stranger wrote is quoted on one line, short, in plain characters', async () => {
  await fuzz(fc.anything(), (value) => /^[ -~]{0,60}…?$/.test(quoted(value)))
})

test('no service has a name that the units and folders of another one have', () => {
  const names = ['shop', 'shop-rescue', 'shop-trial', 'rescue', 'shop-rescued']
  assert.equal(names.map(isService), [true, false, false, true, true])
  assert.equal(['@x/shop-rescue', 'shop-trial-'].map(serviceName), ['shop', 'shop'])
})

test.run()
