// Prereleases, the channel that takes them, barriers, and releases that mend a hole: in every kind of feed and every program that
// knows a tag.

import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { compare } from 'semver'
import { copyName, newestCopy, tagOfCopy } from '../agent/disk/copies.ts'
import { makeCheck } from '../agent/update/steps/check.ts'
import { askFeed } from '../agent/update/schedule/ask.ts'
import { newMemory } from '../agent/update/schedule/memory.ts'
import { USUAL } from '../agent/update/schedule/policy.ts'
import type { ReleaseChannel } from '../agent/words/feed-choice.ts'
import { compareTags, isTag, type Skip } from '../agent/words/release.ts'
import { barrierIn, isPrerelease } from '../agent/words/which-release.ts'
import { resolveRelease } from '../deploy/container/target.ts'
import { buildCommand } from '../deploy/image.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { merged } from '../deploy/make/publish.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match, ok, rejects, throws } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { makeDist } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { noPython } from './lab/python.ts'
import { releaseServer } from './lab/release-server.ts'
import { makeSignedDist } from './lab/signed-dist.ts'
import { suite } from './suite.ts'

const test = suite('channels', { timeoutMs: 60_000 })
const withPython = suite('channels: a fleet', { skip: noPython })
const NONE: Skip = () => false
const OFFER = join(PROJECT, 'agent/web/settings/offer.js')

const number = fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 999_999_999 })).map(String)
const word = fc.constantFrom('beta', 'alpha', 'rc', 'b', 'B', 'x1', '1x', 'deploy', 'holder')
const tags = fc
  .tuple(number, number, number, fc.array(fc.oneof(number, word), { maxLength: 3 }))
  .map(([major, minor, patch, rest]) => `v${major}.${minor}.${patch}${rest.length === 0 ? '' : `-${rest.join('.')}`}`)
  .filter(isTag)

/** What is a tag, and what is none, for every program that knows one. */
const GOOD = [
  'v1.2.0-beta.1',
  'v1.2.0-beta',
  'v1.2.0-0',
  'v1.2.0-rc.1.2',
  'v0.0.0-a1',
  'v1.2.0-1a',
  'v1.0.0',
  'v1.0.0-deploy.1',
]
const BAD = [
  'v1.2.0-',
  'v1.2.0-beta.01',
  'v1.2.0-beta..1',
  'v1.2.0-beta_1',
  'v1.2.0+1',
  'v1.2.0-be-ta',
  'v1.2.0-a.b.c.d',
  'v1.2-beta.1',
].concat([
  'v1.2.0-deploy',
  'v1.2.0-holder',
  'v1.2.0-beta.1\n',
  'v1.2.0-beta/1',
  '1.2.0-beta.1',
  'v1.2.0-bêta',
  `v1.2.0-${'a'.repeat(40)}`,
])

test('fuzz: the order of tags is that of semver, and total', async () => {
  const panel = (await import(OFFER)) as { compareTags: typeof compareTags }
  await fuzz(fc.tuple(tags, tags, tags), ([a, b, c]) => {
    is(compareTags(a, b), compare(a.slice(1), b.slice(1)), `${a} ${b}`)
    is(Math.sign(panel.compareTags(a, b)), compareTags(a, b), `the panel: ${a} ${b}`)
    is(panel.compareTags(a, a), 0, `the panel: ${a}`)
    is(compareTags(a, b), 0 - compareTags(b, a))
    is(compareTags(a, b) === 0, a === b)
    if (compareTags(a, b) <= 0 && compareTags(b, c) <= 0) ok(compareTags(a, c) <= 0)
  })
})

withPython('install.sh and the fleet know the same tags, and the fleet the same order', async () => {
  const shell = (tag: string) => {
    const text = execFileSync('sed', ['-n', '/^is_tag()/,/^}/p', join(PROJECT, 'install.sh')], { encoding: 'utf8' })
    return spawnSync('sh', ['-c', `${text}\nis_tag "$1"`, 'sh', tag]).status === 0
  }
  const python = (body: string, given: unknown) => {
    const folder = join(PROJECT, 'deploy/fleet/plugins/module_utils')
    const program = `import sys, json; sys.path.insert(0, ${JSON.stringify(folder)}); import schema; given = json.load(sys.stdin); print(json.dumps(${body}))`
    return JSON.parse(
      execFileSync('python3', ['-c', program], { input: JSON.stringify(given), encoding: 'utf8' }),
    ) as unknown
  }
  for (const tag of GOOD) equal([tag, isTag(tag), shell(tag)], [tag, true, true])
  for (const tag of BAD) equal([tag, isTag(tag), shell(tag)], [tag, false, false])
  equal(python('[bool(schema.TAG.match(it)) for it in given]', [...GOOD, ...BAD]), [
    ...GOOD.map(() => true),
    ...BAD.map(() => false),
  ])
  const some = fc.sample(tags, 60)
  equal(python('sorted(given, key=schema.order)', some), some.toSorted(compareTags))
})

test('install.sh takes no prerelease as the latest, and one that is named', () => {
  const text = execFileSync('sed', ['-n', '/^newest_tag()/,/^}/p', join(PROJECT, 'install.sh')], { encoding: 'utf8' })
  const releases = ['v1.2.0-beta.1', 'v1.1.0', 'v1.0.0'].map((tag) => ({ tag, draft: false, prerelease: false }))
  const input = JSON.stringify({ format: 1, releases }, null, 2)
  is(execFileSync('sh', ['-c', `${text}\nnewest_tag`], { input, encoding: 'utf8' }).trim(), 'v1.1.0')
})

test('a copy of the database names the prerelease that it belongs to, and is told from those of its release', () => {
  const at = new Date('2026-11-28T10:11:12.345Z')
  for (const tag of GOOD) is(tagOfCopy(copyName('/x/a.db', tag, at), '/y/a.db'), tag)
  const names = ['v1.2.0', 'v1.2.0-beta.1', 'v1.2.0-beta.1.2'].map((tag) => copyName('a.db', tag, at))
  is(newestCopy(names, 'a.db', 'v1.2.0-beta.1'), names[1])
  is(tagOfCopy('a.db.v1.2.0-beta.1.20261128T101112Z', 'a.db'), 'v1.2.0-beta.1', 'without milliseconds')
  for (const name of ['a.db.v1.2.0-beta.1', 'a.db.v1.2.0-beta..20261128T101112Z', `${names[1]}-wal`])
    is(tagOfCopy(name, 'a.db'), null)
})

for (const kind of ['github', 'web', 'folder'] as const) {
  test(`${kind}: stable takes no prerelease, beta the newest of all, and the newer release after it; by its tag everybody gets one`, async () => {
    await using dist = await makeDist(['v1.0.0', 'v1.1.0', 'v1.2.0-beta.2', 'v1.2.0-beta.10', 'v1.2.0-alpha.11'])
    // as `publish` marks them
    const prereleases = ['v1.2.0-beta.2', 'v1.2.0-beta.10', 'v1.2.0-alpha.11']
    await using server = await releaseServer({ dir: dist.dir, prereleases })
    const feed = { github: server.feed, web: server.staticUrl, folder: dist.dir }[kind]
    const latest = async (channel?: ReleaseChannel) => {
      await using open = labFeed(channel === undefined ? { feed } : { feed, channel })
      return (await open.latest(NONE)).release?.tag
    }
    equal([await latest(), await latest('stable'), await latest('beta')], ['v1.1.0', 'v1.1.0', 'v1.2.0-beta.10'])
    await using stable = labFeed({ feed })
    is((await stable.byTag('v1.2.0-beta.2')).tag, 'v1.2.0-beta.2')
    await using beta = labFeed({ feed, channel: 'beta' })
    const between = await beta.notes({ after: 'v1.0.0', before: 'v1.2.0' })
    equal(
      between.map(({ tag }) => tag),
      ['v1.2.0-beta.10', 'v1.2.0-beta.2', 'v1.2.0-alpha.11', 'v1.1.0'],
    )
    equal(
      (await stable.notes({ after: 'v1.0.0', before: 'v1.2.0' })).map(({ tag }) => tag),
      ['v1.1.0'],
    )
    await dist.add('v1.2.0')
    equal([await latest(), await latest('beta')], ['v1.2.0', 'v1.2.0'])
    // who runs a prerelease, and asks for stable ones only, is not taken back
    const check = makeCheck({ feed: stable, current: () => 'v1.3.0-beta.1', skip: NONE })
    is(await check(null), null)
  })

  test(`${kind}: a host goes through the newest release that it may go to; if none leads on, it is told`, async () => {
    await using dist = await makeDist(['v1.0.0', 'v1.4.0', 'v1.5.0'])
    await dist.add('v2.0.0', { about: { from: '>=1.4.0' } })
    await using server = await releaseServer({ dir: dist.dir })
    await using feed = labFeed({ github: server.feed, web: server.staticUrl, folder: dist.dir }[kind])
    const from = async (tag: string) => await feed.latest(Object.assign(() => false, { from: tag }))
    const first = await from('v1.0.0')
    equal([first.release?.tag, first.problem, first.beyond], ['v1.5.0', null, { tag: 'v2.0.0', from: 'v1.4.0' }])
    const second = await from('v1.5.0')
    equal([second.release?.tag, second.beyond], ['v2.0.0', undefined])
    is((await feed.latest(NONE)).release?.tag, 'v2.0.0', 'a first install')
    await dist.add('v2.0.0', { about: { from: '>=1.6.0' } })
    await using again = labFeed({ github: server.feed, web: server.staticUrl, folder: dist.dir }[kind])
    const check = makeCheck({ feed: again, current: () => 'v1.5.0', skip: NONE })
    const told = await rejects(check(null))
    match(
      told.message,
      /v2\.0\.0 can be installed only on top of v1\.6\.0 or later, but this host runs v1\.5\.0, and the feed has no usable release in between/,
    )
    is((await check('v1.4.0'))?.tag, 'v1.4.0', 'the way back stays open')
  })
}

test('with the quota of GitHub used up, a host on beta is told rather than taken for up to date', async () => {
  await using dist = await makeDist(['v1.0.0', 'v1.1.0-beta.1'])
  await using server = await releaseServer({ dir: dist.dir, quota: 0 })
  await using feed = labFeed({ feed: server.feed, channel: 'beta' })
  match((await rejects(feed.latest(NONE))).message, 'it never points to a prerelease')
})

test('a barrier is of one form; one that is not understood makes the release unusable, and is refused in the configuration', async () => {
  equal([barrierIn('>=1.4.0'), barrierIn('>=1.4.0-beta.1')], ['v1.4.0', 'v1.4.0-beta.1'])
  for (const text of ['1.4.0', '>1.4.0', '>=v1.4.0', '>=1.4', '>= 1.4.0', '^1.4.0', '', 3, null])
    is(barrierIn(text), null, String(text))
  const parse = (from: unknown) => parseProject({ service: 'shop', entry: 'a.js', from }, '/x')
  equal([parse('>=1.4.0').from, parse(null).from], ['>=1.4.0', null])
  for (const from of ['1.4.0', '>=1.4', '>=1.4.0 <2', 3])
    throws(() => parse(from), /expected a range such as `>=1\.4\.0`.* in `from`/)
  await using dist = await makeDist(['v1.0.0'])
  for (const from of ['^1.4.0', '>=1', { toString: '1' } as never, 7 as never]) {
    await dist.add('v2.0.0', { about: { from } })
    await using feed = labFeed(dist.dir)
    match(
      (await feed.latest(NONE)).problem?.message ?? '',
      /v2\.0\.0 cannot be used: release\.json: `from`: expected a range such as >=1\.4\.0/,
    )
  }
})

test('signed: prereleases and barriers count; a release that mends a hole skips the minimum age, one that only says so in an unsigned feed does not', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0-beta.1'])
  await it.dist.add('v1.0.1', { about: { security: true }, publishedAt: new Date().toISOString() })
  await it.dist.add('v2.0.0-rc.1', { about: { from: '>=1.0.1' } })
  await it.publish()
  await using beta = labFeed({ feed: it.dist.dir, channel: 'beta' }, { trust: it.anchor })
  is((await beta.latest(NONE)).release?.tag, 'v2.0.0-rc.1')
  const barred = await beta.latest(Object.assign(() => false, { from: 'v1.0.0' }))
  equal([barred.release?.tag, barred.beyond?.tag], ['v1.1.0-beta.1', 'v2.0.0-rc.1'])
  const policy = { ...USUAL, mode: 'all' as const, minAgeMs: 7 * 86_400_000 }
  const asking = { running: 'v1.0.0', policy, bad: [], readyMs: 60_000, left: [] }
  for (const [trust, security] of [
    [it.anchor, true],
    [null, undefined],
  ] as const) {
    await using feed = labFeed(it.dist.dir, { trust })
    const { offer } = await askFeed(feed, newMemory([], Date.now()), asking, Date.now())
    equal([offer?.tag, offer?.security], ['v1.0.1', security])
  }
  // the barrier is signed with all that release.json says
  const path = join(it.dist.dir, 'v2.0.0-rc.1/release.json')
  await writeFile(path, (await readFile(path, 'utf8')).replace('>=1.0.1', '>=1.0.0'))
  await using after = labFeed({ feed: it.dist.dir, channel: 'beta' }, { trust: it.anchor })
  match(
    (await after.latest(NONE)).problem?.message ?? '',
    /v2\.0\.0-rc\.1 cannot be used: sha256 of release\.json: expected \w+… \(as signed\)/,
  )
})

test('an image says from which release a container may come; an older one stays as it is', async () => {
  const manifest = { service: 'shop', from: '>=1.4.0' }
  const built = {
    manifest,
    waits: true,
    target: 'service',
    reference: 'r',
    tag: 'v2.0.0',
    repository: 'r',
    base: null,
    revision: '',
    source: '',
  }
  ok(buildCommand('docker', built as never, '.').includes('OLDEST=>=1.4.0'))
  const imageOf = (tag: string, from = '') => ({
    Id: `sha256:${tag}`,
    Architecture: 'amd64',
    Os: 'linux',
    RepoDigests: [],
    Config: { Labels: { 'org.opencontainers.image.version': tag, 'baton.from': from } },
  })
  const engine = { kind: 'podman', architecture: 'x86_64', image: async () => imageOf('v2.0.0', '>=1.4.0') }
  const tools = { engine, report: async () => {}, credentials: async () => null, stop: new AbortController().signal }
  const container = { Id: 'c', Name: '/shop', Config: { Image: 'r:latest', Labels: {} } }
  const request = { release: 'v2.0.0', repository: 'r', signedBy: null, digest: null, pull: 'missing' }
  const from = async (tag: string) =>
    await resolveRelease(container as never, imageOf(tag) as never, request as never, tools as never)
  match(
    (await rejects(from('v1.3.0'))).message,
    'v2.0.0 can only replace v1.4.0 or later, but this container runs v1.3.0',
  )
  for (const tag of ['v1.4.0', 'v2.1.0', '']) is((await from(tag)).version, 'v2.0.0')
})

test('what is published is marked: a prerelease in the list of a folder', () => {
  equal(merged({ format: 1, releases: [] }, 'v1.0.0-beta.1').releases, [
    { tag: 'v1.0.0-beta.1', draft: false, prerelease: true },
  ])
  equal([isPrerelease('v1.0.0'), isPrerelease('v1.0.0-0')], [false, true])
})

test('a managed install: POST takes a prerelease by its tag, what is no semver is 400; the snapshot has its tag, and a barrier refuses at once', async () => {
  const text = `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
    import { createServer } from 'node:http'
    import { DatabaseSync } from 'node:sqlite'
    new DatabaseSync(process.env.STATE_DIRECTORY + '/shop.db').exec('CREATE TABLE IF NOT EXISTS note (id INTEGER)')
    createServer((request, response) => response.end('ok')).listen(Number(process.env.PORT), process.env.HOST)`
  await using it = await adopted(
    text,
    { database: 'shop.db', environment: { PORT: '{port}', HOST: '{host}', STATE_DIRECTORY: '{stateDirectory}' } },
    { update: { trial: 'never' } },
  )
  await it.release('v1.2.0-beta.1', text)
  for (const tag of BAD) is((await ask(it.port, 'POST', '/admin/update', it.password, { tag })).status, 400, tag)
  equal(await it.operate('/admin/update', { tag: 'v1.2.0-beta.1' }).then(({ outcome, to }) => [outcome, to]), [
    'updated',
    'v1.2.0-beta.1',
  ])
  match((await it.word('status')).stdout, /^shop v1\.2\.0-beta\.1 is running/)
  // stable: there is nothing newer; then its release is
  is((await it.operate('/admin/update')).outcome, 'up_to_date')
  await it.release('v1.2.0', text)
  equal(await it.operate('/admin/update').then(({ outcome, to }) => [outcome, to]), ['updated', 'v1.2.0'])
  match((await it.word('state', 'list')).stdout, /v1\.2\.0-beta\.1/)
  is((await it.operate('/admin/update/rollback')).to, 'v1.2.0-beta.1')
  // a barrier
  await it.release('v2.0.0', text)
  const feed = join(it.configPath, '../../../feed/v2.0.0')
  const manifest = JSON.parse(await readFile(join(feed, 'release.json'), 'utf8')) as object
  const changed = JSON.stringify({ ...manifest, from: '>=1.9.0' })
  const sums = (await readFile(join(feed, 'SHA256SUMS'), 'utf8')).replace(
    /^[0-9a-f]{64}(?= {2}release\.json$)/m,
    createHash('sha256').update(changed).digest('hex'),
  )
  await writeFile(join(feed, 'release.json'), changed)
  await writeFile(join(feed, 'SHA256SUMS'), sums)
  const refused = await ask(it.port, 'POST', '/admin/update', it.password, { tag: 'v2.0.0' })
  equal([refused.status, (refused.body as { code: string }).code], [409, 'refused'])
  match(
    (refused.body as { detail: string }).detail,
    'v2.0.0 can be installed only on top of v1.9.0 or later, but this host runs v1.2.0-beta.1',
  )
  is((await it.word('upgrade', 'v2.0.0', '--dry-run')).exitCode, 7)
  match(
    (await it.word('check')).stdout,
    /^latest {5}v1\.2\.0; .*\nthen {7}v2\.0\.0, once v1\.9\.0 or later is installed$/m,
  )
})

test.run()
withPython.run()
