// The publisher: what it writes is what hosts accept; what it must not do it refuses, with nothing written; and the guide's own
// commands for each day that a maintainer may have.

import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runTrust } from '../deploy/trust/main.ts'
import { makeKey, unlock } from '../deploy/trust/keys.ts'
import { publish, readRepository } from '../deploy/trust/repository.ts'
import * as assert from './assert.ts'
import { makeDist } from './lab/dist.ts'
import { labFeed } from './lab/feed.ts'
import { releaseServer } from './lab/release-server.ts'
import { stateFolder } from './lab/signed-dist.ts'
import { suite } from './suite.ts'

const test = suite('trust, the publisher')

const PASSPHRASE = 'correct horse battery staple'

interface Maintainer extends AsyncDisposable {
  home: string
  dist: string
  add(tag: string): Promise<unknown>
  /** Runs `trust WORD…` as on a command line; what it wrote, and `exit N` where it is not 0. */
  run(line: string, environment?: NodeJS.ProcessEnv): Promise<string>
  /** What a host says that was built with this root. */
  host(root: string, state?: string): Promise<string>
}

async function maintainer(tags: string[] = []): Promise<Maintainer> {
  const dist = await makeDist(tags)
  const home = await mkdtemp(join(tmpdir(), 'baton-maintainer-'))
  return {
    home,
    dist: dist.dir,
    add: (tag) => dist.add(tag),
    async run(line, environment = {}) {
      let said = ''
      const write = (text: string): void => void (said += text)
      const exit = await runTrust(words(line), {
        environment: {
          HOME: home,
          XDG_CONFIG_HOME: join(home, '.config'),
          BATON_TRUST_PASSPHRASE: PASSPHRASE,
          ...environment,
        },
        cwd: join(dist.dir, '..'),
        write,
        complain: write,
        work: 2 ** 10,
      })
      return exit === 0 ? said : `${said}exit ${exit}`
    },
    async host(root, state) {
      await using feed = labFeed(dist.dir, { trust: { root, builtAt: null }, stateDirectory: state ?? null })
      try {
        const { release, problem } = await feed.latest(() => false)
        return problem?.code ?? release?.tag ?? 'none'
      } catch (error) {
        return (error as { code: string }).code
      }
    },
    async [Symbol.asyncDispose]() {
      await dist[Symbol.asyncDispose]()
      await rm(home, { recursive: true, force: true })
    },
  }
}

/** As a shell would, with double quotes. */
function words(line: string): string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
}

const rootOf = (it: Maintainer, version = 1): Promise<string> =>
  readFile(join(it.dist, 'verified', `${version}.root.json`), 'utf8')

test('the folder that the help names is the one that is taken: `releases` for the program of an application, `dist` in a clone', async () => {
  await using it = await maintainer(['v1.0.0'])
  const cwd = join(it.dist, '..')
  const said = async (...typed: string[]) => {
    let text = ''
    const write = (more: string): void => void (text += more)
    const io = { environment: {}, cwd, write, complain: write, work: 2 ** 10 }
    await runTrust(typed, io, { name: 'baton trust', folder: 'releases' })
    return text
  }
  assert.match(await said('show', '--help'), /--dir=<dir> .*\(Default: releases\)/)
  assert.match(await said('show'), join(cwd, 'releases'))
  assert.match(await it.run('show --help'), /--dir=<dir> .*\(Default: dist\)/)
  assert.match(await it.run('show'), join(cwd, 'dist'))
})

test('init, sign, verify: from no keys to a host that finds the latest', async () => {
  await using it = await maintainer(['v1.0.0', 'v1.1.0'])
  const made = await it.run(`init --service beacon --dir ${it.dist}`)
  assert.match(made, /made .*root-1\.json\n.*root-2\.json\n.*root-3\.json\n.*targets-1\.json\n/)
  const keys = join(it.home, '.config', 'baton', 'keys', 'beacon')
  assert.is((await readdir(keys)).length, 6)
  for (const name of await readdir(keys)) assert.is((await stat(join(keys, name))).mode & 0o777, 0o600)
  assert.is(await it.host(await rootOf(it)), 'none')
  assert.match(await it.run(`sign --dir ${it.dist}`), /^signed v1\.[01]\.0, v1\.[01]\.0\n$/)
  assert.is(await it.host(await rootOf(it)), 'v1.1.0')
  const said = await it.run(`verify --dir ${it.dist}`)
  assert.match(said, /root {7}version 1, expires 20\d\d-/)
  assert.match(said, /latest {5}v1\.1\.0/)
  assert.match(
    await it.run(`show --dir ${it.dist}`),
    /root {7}version 1, expires .*, 2 of 3 must sign: [0-9a-f]{12} \(root-1\)/,
  )
})

test('nothing that is secret is said or written in the clear', async () => {
  await using it = await maintainer(['v1.0.0'])
  const said = [await it.run(`init --service beacon --dir ${it.dist}`), await it.run(`sign --dir ${it.dist}`)].join('')
  assert.not.match(said, new RegExp(PASSPHRASE))
  const keys = join(it.home, '.config', 'baton', 'keys', 'beacon')
  for (const name of await readdir(keys)) {
    const text = await readFile(join(keys, name), 'utf8')
    assert.not.match(text, /PRIVATE KEY/)
    assert.not.match(text, new RegExp(PASSPHRASE))
    // PKCS 8 of Ed25519 begins so, whatever the key
    assert.not.match(text, /302e020100300506032b6570/)
  }
  const wrong = await it.run(`refresh --dir ${it.dist}`, { BATON_TRUST_PASSPHRASE: 'not the one' })
  assert.match(wrong, /^error: the key `(snapshot|timestamp)-1` .* cannot be decrypted with this passphrase\nexit 7$/)
})

test('a key opens with its passphrase and with no other, and not where its file was changed', () => {
  const { file, signer } = makeKey('root-1', PASSPHRASE, Buffer.alloc(16, 1), 2 ** 10)
  assert.is(unlock(file, PASSPHRASE).keyid, signer.keyid)
  const other = makeKey('root-2', PASSPHRASE, Buffer.alloc(16, 1), 2 ** 10).file
  for (const bad of [
    { ...file, keyid: other.keyid },
    { ...file, secret: other.secret },
    { ...file, tag: other.tag },
  ]) {
    assert.throws(() => unlock(bad, PASSPHRASE), /cannot be decrypted/)
  }
  assert.throws(() => unlock(file, 'another one'), /cannot be decrypted/)
})

test('refused with nothing written: too few keys, no keys, a release that is not what its release.json says', async () => {
  await using it = await maintainer(['v1.0.0'])
  assert.match(
    await it.run(`sign --dir ${it.dist}`),
    /has no root\.json: this feed is not signed\nhint: .*init.*\nexit 7$/,
  )
  await it.run(`init --service beacon --dir ${it.dist}`)
  const before = (await readdir(join(it.dist, 'verified'))).toSorted()
  assert.match(await it.run(`init --service beacon --dir ${it.dist}`), /already has signatures/)
  const away = join(it.home, 'away')
  await mkdir(away)
  assert.match(
    await it.run(`sign --dir ${it.dist} --keys ${away}`),
    /1 more key for the role `targets` is needed, but the key folders contain none\nhint: .*\nexit 5$/,
  )
  const name = `beacon-${process.platform}-${process.arch}.zst`
  const bytes = await readFile(join(it.dist, 'v1.0.0', name))
  await writeFile(join(it.dist, 'v1.0.0', name), Buffer.from(bytes).fill(0, 4, 5))
  assert.match(await it.run(`sign --dir ${it.dist}`), /v1\.0\.0 cannot be signed: sha256 of beacon-.*\nexit 5$/)
  assert.equal((await readdir(join(it.dist, 'verified'))).toSorted(), before)
})

test('new keys are left only where a root names them: refused, in the way of another file or not published, none is', async () => {
  await using it = await maintainer(['v1.0.0'])
  const [keys, verified] = [join(it.home, '.config/baton/keys/beacon'), join(it.dist, 'verified')]
  const all = async (folder: string) => (await readdir(folder).catch(() => [])).toSorted()
  await mkdir(keys, { recursive: true })
  await writeFile(join(keys, 'snapshot-1.json'), 'of somebody else')
  assert.match(await it.run(`init --service beacon --dir ${it.dist}`), /writing the key .*snapshot-1\.json.*\nexit 7$/)
  assert.equal(await all(keys), ['snapshot-1.json'])
  await rm(join(keys, 'snapshot-1.json'))
  await it.run(`init --service beacon --dir ${it.dist}`)
  const before = [await all(keys), await all(verified)]
  const refused = async (line: string, says: RegExp) => {
    assert.match(await it.run(`${line} --dir ${it.dist}`), says)
    assert.equal([await all(keys), await all(verified)], before, line)
  }
  await refused('rotate targets --threshold 3', /exit 5$/)
  await refused('rotate root --replace nobody', /no root key matches "nobody"/)
  await mkdir(join(it.home, 'away'))
  for (const role of ['timestamp', 'snapshot']) {
    const path = join(keys, `${role}-1.json`)
    await rename(path, join(it.home, 'away', role)) // root and targets are here, what depends on them cannot be signed
    before[0] = await all(keys)
    await refused('rotate targets', /1 more key for the role `\w+` is needed, but the key folders contain none/)
    await rename(join(it.home, 'away', role), path)
    before[0] = await all(keys)
  }
  await mkdir(join(verified, '.2.root.json.tmp'))
  before[1] = await all(verified)
  await refused('rotate targets', /writing .*2\.root\.json/)
  await rm(join(verified, '.2.root.json.tmp'), { recursive: true })
  await mkdir(join(verified, '.timestamp.json.tmp')) // the root is there already when this fails: its keys have to stay
  assert.match(await it.run(`rotate targets --dir ${it.dist}`), /writing .*timestamp\.json/)
  assert.ok((await all(keys)).includes('targets-2.json'))
  await rm(join(verified, '.timestamp.json.tmp'), { recursive: true })
  assert.match(await it.run(`sign --dir ${it.dist}`), /^signed v1\.0\.0\n$/)
  assert.is(await it.host(await rootOf(it)), 'v1.0.0')
  assert.match(await it.run(`rotate snapshot --dir ${it.dist}`), /keys that no longer sign anything, .*: snapshot-1/)
})

test('a release that was signed and has changed is signed again only when that is said', async () => {
  await using it = await maintainer(['v1.0.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const path = join(it.dist, 'v1.0.0', 'release.json')
  await writeFile(path, (await readFile(path, 'utf8')).replace('What is new', 'What was new'))
  assert.match(
    await it.run(`sign --dir ${it.dist}`),
    /the release\.json of v1\.0\.0 has changed since it was signed\nhint: .*--again\nexit 7$/,
  )
  assert.is(await it.host(await rootOf(it)), 'release_unusable')
  assert.match(await it.run(`sign --dir ${it.dist} --again`), /signed v1\.0\.0/)
  assert.is(await it.host(await rootOf(it)), 'v1.0.0')
})

test('a release that releases.json marks as a draft is not signed, and that is said', async () => {
  await using it = await maintainer(['v1.0.0', 'v1.1.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  const list = { format: 1, releases: [{ tag: 'v1.1.0', draft: true }, { tag: 'v1.0.0' }] }
  await writeFile(join(it.dist, 'releases.json'), JSON.stringify(list))
  assert.is(
    await it.run(`sign --dir ${it.dist}`),
    'not signed, since releases.json marks them as drafts: v1.1.0\nsigned v1.0.0\n',
  )
  assert.is(await it.host(await rootOf(it)), 'v1.0.0')
})

test('yank and its undo; the reason reaches the host', async () => {
  await using it = await maintainer(['v1.0.0', 'v1.1.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  await it.run(`yank v1.1.0 --why "eats data" --dir ${it.dist}`)
  assert.is(await it.host(await rootOf(it)), 'v1.0.0')
  assert.match(await it.run(`verify --dir ${it.dist}`), /yanked v1\.1\.0: eats data/)
  await it.run(`yank v1.1.0 --undo --dir ${it.dist}`)
  assert.is(await it.host(await rootOf(it)), 'v1.1.0')
  assert.match(await it.run(`yank v9.9.9 --why "never was" --dir ${it.dist}`), /exit 4$/)
})

test('a rollout is signed once, as times and shares; whoever asks by hand gets the release at once', async () => {
  await using it = await maintainer(['v1.0.0', 'v1.1.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const began = Date.now()
  const said = await it.run(`rollout v1.1.0 --percent 5,25,100 --every 12h --dir ${it.dist}`)
  assert.match(said, /v1\.1\.0 goes to 5% of hosts from .*Z, 25% of hosts from .*Z, 100% of hosts from .*Z/)
  assert.match(await it.run(`show --dir ${it.dist}`), /v1\.1\.0, 5% from /)
  assert.is(await it.host(await rootOf(it)), 'v1.1.0')
  await using feed = labFeed(it.dist, { trust: { root: await rootOf(it), builtAt: null } })
  const { rollout = [] } = await feed.byTag('v1.1.0')
  assert.equal(
    rollout.map(({ percent }) => percent),
    [5, 25, 100],
  )
  const times = rollout.map(({ at }) => Date.parse(at))
  assert.ok(Math.abs((times[0] ?? 0) - began) < 60_000)
  assert.equal([(times[1] ?? 0) - (times[0] ?? 0), (times[2] ?? 0) - (times[1] ?? 0)], [43_200_000, 43_200_000])
  assert.match(
    await it.run(`rollout v1.1.0 --percent 50 --dir ${it.dist}`),
    /for the other hosts, run `trust rollout` again/,
  )
  await it.run(`rollout v1.1.0 --all --dir ${it.dist}`)
  await using after = labFeed(it.dist, { trust: { root: await rootOf(it), builtAt: null } })
  assert.is((await after.byTag('v1.1.0')).rollout, undefined)
  for (const wrong of [
    '--percent 25,5',
    '--percent 5,200',
    '--percent 5,5,100 --every 12h',
    '--percent 0,100 --every 12h',
    '--percent 5,,100 --every 12h',
    '--percent 5,100 --every 0h',
    '--percent 5,100 --every -1h',
    '--percent 5,25',
    '--percent x',
    '',
    '--all --percent 5',
    '--percent 5,100 --every 12',
  ])
    assert.match(await it.run(`rollout v1.1.0 ${wrong} --dir ${it.dist}`), /exit 2$/, wrong)
  assert.match(await it.run(`rollout v9.9.9 --percent 5 --dir ${it.dist}`), /exit 4$/)
})

test('keys from the environment, as CI has them: snapshot and timestamp are enough for a refresh', async () => {
  await using it = await maintainer(['v1.0.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const keys = join(it.home, '.config', 'baton', 'keys', 'beacon')
  const secret = (
    await Promise.all(['snapshot-1', 'timestamp-1'].map((one) => readFile(join(keys, `${one}.json`), 'utf8')))
  ).join('')
  const nowhere = join(it.home, 'nowhere')
  const said = await it.run(`refresh --dir ${it.dist} --keys ${nowhere}`, { BATON_TRUST_KEYS: secret })
  assert.is(said, 'signed snapshot and timestamp\n')
  assert.is(await it.host(await rootOf(it)), 'v1.0.0')
})

test('for hosts without a network: what is signed holds as long as is said', async () => {
  await using it = await maintainer(['v1.0.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist} --offline 400d`)
  const { timestamp, snapshot, targets } = await readRepository(it.dist)
  for (const { expires } of [timestamp, snapshot, targets])
    assert.ok(Date.parse(expires) > Date.now() + 399 * 86_400_000)
})

test('every moment of publishing is whole for a reader: timestamp.json comes last', async () => {
  await using it = await maintainer(['v1.0.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const root = await rootOf(it)
  const folder = join(it.dist, 'verified')
  const before = new Map<string, Buffer>()
  for (const name of await readdir(folder)) before.set(name, await readFile(join(folder, name)))
  await it.add('v1.1.0')
  await it.run(`sign --dir ${it.dist}`)
  const fresh = (await readdir(folder)).filter((name) => !before.has(name)).toSorted()
  const timestamp = await readFile(join(folder, 'timestamp.json'))
  const all = new Map<string, Buffer>()
  for (const name of fresh) all.set(name, await readFile(join(folder, name)))
  await rm(folder, { recursive: true })
  await publish(
    folder,
    [...before].map(([name, bytes]) => ({ name, bytes })),
  )
  // in the order of a plain copy: by name
  for (const [name, bytes] of all) {
    await publish(folder, [{ name, bytes }])
    assert.is(await it.host(root), 'v1.0.0')
  }
  await publish(folder, [{ name: 'timestamp.json', bytes: timestamp }])
  assert.is(await it.host(root), 'v1.1.0')
  assert.ok(['v1.0.0', 'v999.9.9', 'verified'].toSorted().at(-1) === 'verified') // and the folder is the last of all
})

test('old files go, and those that a reader may still ask for stay', async () => {
  await using it = await maintainer(['v1.0.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  for (let turn = 0; turn < 10; turn++) await it.run(`refresh --dir ${it.dist}`)
  const names = await readdir(join(it.dist, 'verified'))
  assert.is(names.filter((name) => name.endsWith('.snapshot.json')).length, 8)
  assert.is(await it.host(await rootOf(it)), 'v1.0.0')
})

/** A maintainer of a signed release, and a GitHub without its metadata. */
async function signedForGitHub() {
  await using all = new AsyncDisposableStack()
  const it = all.use(await maintainer(['v1.0.0']))
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const hub = all.use(await makeDist(['v1.0.0']))
  const server = all.use(await releaseServer({ dir: hub.dir, writeToken: 'sesame', quota: 0, token: 'sesame' }))
  const environment = { GH_ENTERPRISE_TOKEN: 'sesame' }
  const kept = all.move()
  return { it, hub, server, environment, root: await rootOf(it), [Symbol.asyncDispose]: () => kept.disposeAsync() }
}

test('GitHub: pushed and pulled through the API, timestamp.json replaced last; hosts follow', async () => {
  await using at = await signedForGitHub()
  const { it, root, server, environment } = at
  assert.match(
    await it.run(`push ${server.feed} --dir ${it.dist}`, environment),
    /published .*1\.root\.json.*, timestamp\.json\n$/,
  )
  await using feed = labFeed(server.feed, { trust: { root, builtAt: null }, environment })
  assert.is((await feed.latest(() => false)).release?.tag, 'v1.0.0')
  await it.run(`yank v1.0.0 --why "eats data" --dir ${it.dist}`)
  server.requests.length = 0
  await it.run(`push ${server.feed} --dir ${it.dist}`, environment)
  const writes = server.requests
    .filter(({ method }) => method !== 'GET')
    .map(({ method, path }) => `${method} ${path.split(/[?/]/).at(-1)}`)
  assert.equal(
    writes.map((line) => line.replace(/\d+/, 'N')),
    ['POST name=N.snapshot.json', 'POST name=N.targets.json', 'POST name=timestamp.json.next', 'DELETE N', 'PATCH N'],
  )
  await assert.rejects(() => feed.byTag('v1.0.0'), assert.withCode('yanked'))
  const other = join(it.home, 'pulled')
  assert.match(await it.run(`pull ${server.feed} --dir ${other}`, environment), /^fetched /)
  assert.equal(
    (await readdir(join(other, 'verified'))).toSorted(),
    (await readdir(join(it.dist, 'verified'))).toSorted(),
  )
  assert.match(await it.run(`push ${server.feed} --dir ${it.dist}`, { GH_ENTERPRISE_TOKEN: 'wrong' }), /exit 4$/)
  const [latest] = (await (
    await fetch(`${server.apiUrl}/repos/acme/beacon/releases`, { headers: { authorization: 'Bearer sesame' } })
  ).json()) as { tag_name: string; prerelease: boolean }[]
  assert.is(latest?.tag_name, 'v1.0.0')
})

test('GitHub: what the API says of a refused write is told', async () => {
  await using at = await signedForGitHub()
  const { it, server, environment } = at
  server.faults.refusedWrites = /name=timestamp/
  assert.match(
    await it.run(`push ${server.feed} --dir ${it.dist}`, environment),
    /failed with HTTP status 502: Bad Gateway/,
  )
})

/** A maintainer and hosts of one root, with the branch of the metadata on GitHub. `token`: the repository is private. */
async function branched({ token = null as string | null, before = true } = {}) {
  await using all = new AsyncDisposableStack()
  const it = all.use(await maintainer(['v1.0.0', 'v1.1.0']))
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const hub = all.use(await makeDist(['v1.0.0', 'v1.1.0']))
  const quota = token === null ? 1000 : 0
  const options = { dir: hub.dir, writeToken: 'sesame', quota, ...(token === null ? {} : { token }) }
  const server = all.use(await releaseServer(options))
  const environment = { GH_ENTERPRISE_TOKEN: 'sesame' }
  const push = async () => await it.run(`push ${server.feed} --dir ${it.dist}`, environment)
  if (before) await push()
  server.faults.immutable = true
  const anchor = { root: await rootOf(it), builtAt: null }
  const host = (state: string | null = null) =>
    labFeed(server.feed, {
      trust: anchor,
      stateDirectory: state,
      patienceMs: 0,
      environment: token === null ? {} : environment,
    })
  const latest = async (state?: string): Promise<string> => {
    await using feed = host(state)
    try {
      const { release, problem } = await feed.latest(() => false)
      return problem?.code ?? release?.tag ?? 'none'
    } catch (error) {
      return (error as { code: string }).code
    }
  }
  const kept = all.move()
  return { it, hub, server, environment, push, host, latest, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}

for (const [what, token] of [
  ['a repository', null],
  ['a private repository', 'sesame'],
] as const)
  test(`GitHub: immutable releases: ${what} has the metadata on a branch, and what is signed anew reaches a host that knew the release`, async () => {
    await using at = await branched({ token })
    const { it, server, push, latest } = at
    await using state = await stateFolder()
    assert.is(await latest(state.path), 'v1.1.0')
    await it.run(`yank v1.1.0 --why "loses rows" --dir ${it.dist}`)
    server.requests.length = 0
    const said = await push()
    assert.match(said, /published .*1\.root\.json.*, timestamp\.json\n$/)
    const writes = server.requests.filter(({ method }) => method !== 'GET')
    assert.equal(
      writes.map(({ method, path }) => `${method} ${path.split('/git/')[1]}`),
      ['POST trees', 'POST commits', 'POST refs'],
    )
    assert.is(await latest(state.path), 'v1.0.0')
    assert.is(await latest(), 'v1.0.0', 'a host that has seen nothing')
    await it.run(`refresh --dir ${it.dist}`)
    const root = await readFile(join(it.dist, 'verified', '1.root.json'))
    await rm(join(it.dist, 'verified', '1.root.json')) // what is on the branch only stays there
    server.requests.length = 0
    assert.match(await push(), /published \d+\.snapshot\.json, timestamp\.json\n$/)
    await writeFile(join(it.dist, 'verified', '1.root.json'), root)
    assert.match(server.requests.at(-1)?.path ?? '', /git\/refs\/heads\/verified$/)
    assert.is(await latest(state.path), 'v1.0.0')
    assert.is(server.branches.history('verified').length, 2)
    const pulled = join(it.home, 'pulled')
    await it.run(`pull ${server.feed} --dir ${pulled}`, at.environment)
    for (const name of await readdir(join(it.dist, 'verified')))
      assert.equal(
        await readFile(join(pulled, 'verified', name)),
        await readFile(join(it.dist, 'verified', name)),
        name,
      )
  })

test('GitHub: immutable releases and none for the metadata yet: none is made, the branch is', async () => {
  await using at = await branched({ before: false })
  const { hub, server, push, latest } = at
  assert.match(await push(), /published .*timestamp\.json\n$/)
  assert.is((await readdir(hub.dir)).includes('verified'), false)
  assert.is(await latest(), 'v1.1.0')
  assert.is(server.branches.history('verified').length, 1)
})

test('GitHub: an older branch is no way back, and a branch that does not answer is told only if it could have helped', async () => {
  await using at = await branched()
  const { it, server, push, latest } = at
  await using state = await stateFolder()
  assert.match(await push(), /published/) // the branch, as old as the release
  server.faults.immutable = false
  await it.run(`yank v1.1.0 --why "loses rows" --dir ${it.dist}`)
  // beside the releases, by hand
  for (const name of await readdir(join(it.dist, 'verified')))
    await writeFile(join(at.hub.dir, 'verified', name), await readFile(join(it.dist, 'verified', name)))
  assert.is(await latest(state.path), 'v1.0.0', 'the newer one counts')
  server.faults.branchStatus = 429
  assert.is(await latest(state.path), 'v1.0.0', 'the branch is not needed')
  delete server.faults.branchStatus
  await it.run(`refresh --dir ${it.dist}`)
  assert.match(await push(), /published/)
  assert.is(await latest(state.path), 'v1.0.0')
  server.faults.branchStatus = 429
  assert.is(
    await latest(state.path),
    'rate_limited',
    'what is beside the releases is older than what this host has seen',
  )
})

test('GitHub: of two pushes at once to the branch the later one is refused, and nothing of it is seen', async () => {
  await using at = await branched()
  const { it, server, push, latest } = at
  await push()
  const there = server.branches.history('verified')[0] ?? ''
  await it.run(`refresh --dir ${it.dist}`)
  const write = server.branches.write.bind(server.branches)
  server.branches.write = (method, path, body) => {
    // somebody else is first
    if (method === 'PATCH') {
      const { sha } = write('POST', 'commits', { tree: treeOf(write), parents: [there], message: 'first' }).body as {
        sha: string
      }
      write('PATCH', path, { sha, force: false })
    }
    return write(method, path, body)
  }
  assert.match(await push(), /Update is not a fast forward[\s\S]*exit 4$/)
  server.branches.write = write
  assert.match(await push(), /published/)
  assert.is(await latest(), 'v1.1.0')
})

function treeOf(write: (method: string, path: string, body: Record<string, unknown>) => { body: object | string }) {
  const files = [{ path: 'other', mode: '100644', type: 'blob', content: 'x' }]
  return (write('POST', 'trees', { tree: files }).body as { sha: string }).sha
}

test('GitHub: a push that fails at any write leaves the timestamp of before, or the next push puts it there', async () => {
  await using at = await signedForGitHub()
  const { it, root, hub, server, environment } = at
  const push = async () => await it.run(`push ${server.feed} --dir ${it.dist}`, environment)
  const timestamp = async () =>
    (await readdir(join(hub.dir, 'verified'))).filter((name) => name.startsWith('timestamp'))
  await push()
  await using feed = labFeed(server.feed, { trust: { root, builtAt: null }, environment })
  for (const [refusedWrites, left] of [
    [/POST .*snapshot/, ['timestamp.json']],
    [/POST .*next/, ['timestamp.json']],
    [/DELETE/, ['timestamp.json', 'timestamp.json.next']],
    [/PATCH/, ['timestamp.json.next']],
  ] as const) {
    await it.run(`refresh --dir ${it.dist}`)
    server.faults.refusedWrites = refusedWrites
    assert.match(await push(), /exit 4$/)
    assert.equal((await timestamp()).toSorted(), [...left])
    if (left[0] === 'timestamp.json') assert.is((await feed.latest(() => false)).release?.tag, 'v1.0.0')
    delete server.faults.refusedWrites
    assert.match(await push(), /published .*timestamp\.json\n$/)
    assert.equal(await timestamp(), ['timestamp.json'])
    assert.is((await feed.latest(() => false)).release?.tag, 'v1.0.0')
  }
})

test('GitHub: a host that asks in the moment between deleting and uploading waits', async () => {
  await using it = await maintainer(['v1.0.0'])
  await it.run(`init --service beacon --dir ${it.dist}`)
  await it.run(`sign --dir ${it.dist}`)
  const root = await rootOf(it)
  await using server = await releaseServer({ dir: it.dist })
  const timestamp = await readFile(join(it.dist, 'verified', 'timestamp.json'))
  await rm(join(it.dist, 'verified', 'timestamp.json'))
  await using feed = labFeed(server.feed, { trust: { root, builtAt: null }, patienceMs: 20_000 })
  const asking = feed.latest(() => false)
  await until(() => server.requests.some(({ path, status }) => path.endsWith('timestamp.json') && status === 404))
  await writeFile(join(it.dist, 'verified', 'timestamp.json'), timestamp)
  assert.is((await asking).release?.tag, 'v1.0.0')
})

test('a wrong command line ends with 2, and says what there is', async () => {
  await using it = await maintainer()
  for (const line of ['', 'help']) assert.match(await it.run(line), /init[\s\S]*rotate[\s\S]*verify/)
  for (const line of [
    'bless',
    'rotate all',
    'yank v1.0.0',
    'sign --image nginx:latest',
    'init --service x --root-keys 1',
  ])
    assert.match(await it.run(line), /exit 2$/)
})

// ---- the guide: each of its days, by its own commands ----------------------------------------------------------------

/** The `trust` commands of a section of the guide. */
async function commandsOf(title: string): Promise<string[]> {
  const guide = await readFile(join(import.meta.dirname, '..', 'docs', 'author', 'signing.md'), 'utf8')
  const section = guide.split('\n## ').find((one) => one.startsWith(`${title}\n`)) ?? ''
  const [, block = ''] = /```sh\n([\s\S]*?)```/.exec(section) ?? []
  return block.split('\n').flatMap((line) => /^npx baton trust (.*)$/.exec(line)?.[1] ?? [])
}

for (const [title, expected] of [
  ['A release is bad', 'v1.0.0'],
  ['A root key is lost', 'v1.1.0'],
  ['A root key is stolen', 'v1.1.0'],
  ['The timestamp or snapshot key is stolen', 'v1.1.0'],
  ['The key of targets is stolen', 'v1.1.0'],
  ['Hosts without a network', 'v1.1.0'],
] as const) {
  test(`the guide: ${title.toLowerCase()}; hosts of the first root follow`, async () => {
    await using it = await maintainer(['v1.0.0', 'v1.1.0'])
    const here = (line: string): string => `${line}${line === 'init' ? ' --service beacon' : ''} --dir ${it.dist}`
    for (const line of await commandsOf('Begin')) assert.not.match(await it.run(here(line)), /exit \d/)
    const root = await rootOf(it)
    await using state = await stateFolder()
    assert.is(await it.host(root, state.path), 'v1.1.0')
    const lines = await commandsOf(title)
    assert.ok(lines.length > 0)
    for (const line of lines) assert.not.match(await it.run(here(line)), /exit \d/)
    assert.is(await it.host(root, state.path), expected)
    assert.is(await it.host(root), expected) // and one that was off all the time
  })
}

test.run()

async function until(holds: () => boolean): Promise<void> {
  const deadline = Date.now() + 15_000
  while (!holds()) {
    if (Date.now() > deadline) throw new Error('it did not happen in time')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
