// The build: what a release holds, that it is the same bytes wherever and by whomever it is built, and that nothing that
// was published is replaced by something else.

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { chown, cp, link, mkdir, readdir, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync, zstdDecompressSync } from 'node:zlib'
import type { ReleaseManifest } from '../agent/words/release.ts'
import { SCHEMA } from '../agent/service/schema.ts'
import { BatonError } from '../agent/words.ts'
import { examineProject } from '../deploy/make/examine.ts'
import { slowTeller } from '../deploy/make/first/unpack.ts'
import { filesOf, linksOut } from '../deploy/make/files.ts'
import { cloneIn, keptBundle } from '../deploy/make/kept-bundle.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { createProgress, formatBytes, formatBytesLine, formatDuration } from '../deploy/lib/progress.ts'
import { assetName, bakeInstaller, publishRelease, type PublishOptions } from '../deploy/make/release-folder.ts'
import { prepareBase } from '../deploy/make/base.ts'
import { findProgram, formatCommand, run } from '../deploy/lib/shell.ts'
import { stripElf } from '../deploy/make/strip.ts'
import { equal, is, match, not, ok, rejects, throws, withCode } from './assert.ts'
import { eventually } from './lab/systemd.ts'
import { type Temporary, temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const QUIET = createProgress({ quiet: true })
const EPOCH = '1767323045' // 2026-01-02T03:04:05Z

// ---- what goes in

const files = suite('build: files')

files('what `exclude` names stays out, in packages too; what a package calls a log does not', async () => {
  await using home = await makeRoom()
  const put = async (path: string) => {
    await mkdir(join(home.path, path, '..'), { recursive: true })
    await writeFile(join(home.path, path), '')
  }
  await writeFile(join(home.path, 'package.json'), '{ "name": "shop", "dependencies": { "dep": "*" } }')
  for (const path of ['main.js', 'own.map', 'own.log', 'data/rows.db']) await put(path)
  for (const path of ['main.js', 'main.js.map', 'a.log', 'data/table.json']) await put(`node_modules/dep/${path}`)
  await writeFile(join(home.path, 'node_modules/dep/package.json'), '{ "name": "dep" }')
  const project = parseProject({ service: 'shop', entry: 'main.js', exclude: ['**/*.map', '*.map', 'data'] }, home.path)
  const paths = (await filesOf(project)).map(({ path }) => path).toSorted()
  const packed = ['a.log', 'data/table.json', 'main.js', 'package.json'].map((path) => `node_modules/dep/${path}`)
  equal(paths, ['main.js', ...packed, 'package.json'])
})

files('a workspace is packed from its root: the packages of the member that the entry is in come with it', async () => {
  await using home = await workspace()
  const project = parseProject({ service: 'shop', entry: 'packages/app/main.js', exclude: ['packages/old'] }, home.path)
  const paths = (await filesOf(project)).map(({ path }) => path).toSorted()
  equal(paths, [
    'node_modules/@shop/lib',
    'node_modules/dep/package.json',
    'package.json',
    'packages/app/main.js',
    'packages/app/package.json',
    'packages/lib/package.json',
  ])
})

files(
  'a member of a workspace alone is refused, with what to write at the root; so is what Yarn keeps in archives',
  async () => {
    await using home = await workspace()
    const app = parseProject({ service: 'shop', entry: 'main.js' }, join(home.path, 'packages/app'))
    const refused = await filesOf(app).catch((error: unknown) => error as BatonError)
    ok(refused instanceof BatonError)
    match(refused.message, /^the package \S+\/packages\/lib must be inside \S+\/packages\/app$/)
    match(refused.hint ?? '', '`"entry": "packages/app/main.js"`')

    await writeFile(join(home.path, '.pnp.cjs'), '')
    await rm(join(home.path, 'node_modules'), { recursive: true })
    await rejects(filesOf(app), /Yarn installed the packages as archives \(Plug'n'Play\)/)
  },
)

files(
  'links of the author that lead out of the release are named; those that stay in it, and those of packages, are not',
  async () => {
    await using home = await workspace()
    const links = {
      'inside.txt': 'packages/app/main.js',
      'outside.txt': '../elsewhere',
      'packages/app/host': '/etc/hosts',
    }
    for (const [at, to] of Object.entries(links)) await symlink(to, join(home.path, at))
    await symlink('/usr/bin/python3', join(home.path, 'node_modules/dep/python3'))
    const project = parseProject({ service: 'shop', entry: 'packages/app/main.js' }, home.path)
    equal((await linksOut(await filesOf(project))).toSorted(), ['outside.txt', 'packages/app/host'])
    const found = (await examineProject(home.path)).find(({ check }) => check === 'links')
    is(found?.level, undefined, 'there is no configuration yet')
    await writeFile(join(home.path, 'baton.config.json'), '{ "service": "shop", "entry": "packages/app/main.js" }')
    const told = (await examineProject(home.path)).find(({ check }) => check === 'links')
    is(told?.level, 'warning')
    const databases = async () => (await examineProject(home.path)).find(({ check }) => check === 'databases')
    is((await databases())?.level, 'ok')
    await writeFile(join(home.path, 'copy.db'), 'SQLite format 3\0 and all rows')
    equal(
      [(await databases())?.level, (await databases())?.message],
      ['warning', 'a database goes into the release, with all the data: copy.db'],
    )
    await rm(join(home.path, 'copy.db'))
    match(
      told?.message ?? '',
      /2 links point outside the release: outside\.txt, packages\/app\/host|packages\/app\/host, outside\.txt/,
    )
  },
)

files('a release so large that its build needs gigabytes of memory is told by the doctor', async () => {
  await using home = await workspace()
  const found = async () => (await examineProject(home.path)).find(({ check }) => check === 'files')
  await writeFile(join(home.path, 'baton.config.json'), '{ "service": "shop", "entry": "packages/app/main.js" }')
  is((await found())?.level, 'ok')
  await writeFile(join(home.path, 'model.bin'), '')
  await truncate(join(home.path, 'model.bin'), 300e6)
  is((await found())?.level, 'warning')
  match(
    (await found())?.message ?? '',
    /^\d files go into the release \(300 MB\): each update includes all of them, and a build takes about 4 GB of memory/,
  )
})

files('an unpacking that takes long says every five seconds how far it is, and a short one says nothing', () => {
  let clock = 0
  const said: string[] = []
  const tell = slowTeller('shop v1.0.0', 691e6, { say: (line) => said.push(line), now: () => clock })
  for (const [at, done] of [
    [0, 0],
    [4900, 100e6],
    [5100, 138.2e6],
    [7000, 200e6],
    [10_200, 345.5e6],
  ] as const) {
    clock = at
    tell(done)
  }
  equal(said, [
    'baton: unpacking shop v1.0.0 (first start only): 20% of 691 MB',
    'baton: unpacking shop v1.0.0 (first start only): 50% of 691 MB',
  ])
})

files('a clone keeps what it has bundled until a source changes, and makes anew what is damaged', async () => {
  await using clone = await temporary('clone')
  const project = clone.path
  for (const name of ['agent', 'deploy']) await mkdir(join(project, name))
  for (const name of ['agent/one.ts', 'deploy/two.ts', 'package.json', 'package-lock.json'])
    await writeFile(join(project, name), name)
  let made = 0
  const sources = new Set([join(project, 'agent/one.ts'), join(project, 'node_modules/zx/index.js')])
  const bundled = async (from = sources) => {
    const make = async () => ({ script: Buffer.from(`${++made}`), sources: from })
    const { script, sources: said } = await keptBundle('own', make, cloneIn(project))
    equal(said, from)
    return Buffer.from(script).toString()
  }
  equal([await bundled(), await bundled()], ['1', '1'])
  await writeFile(join(project, 'deploy/two.ts'), 'changed')
  equal([await bundled(), await bundled()], ['2', '2'])
  const kept = join(project, '.cache/bundles')
  for (const name of await readdir(kept)) await writeFile(join(kept, name), '{"script":')
  equal([await bundled(), await bundled()], ['3', '3'])
  await writeFile(join(project, 'package-lock.json'), 'another')
  const elsewhere = new Set([join(project, 'test/three.ts')])
  equal([await bundled(elsewhere), await bundled(elsewhere)], ['4', '5'], 'of a source whose change nobody would see')
  for (let n = 0; n < 20; n++) {
    await writeFile(join(project, 'agent/one.ts'), `${n}`)
    await bundled()
  }
  is((await readdir(kept)).length, 16)
  await rm(join(project, 'package-lock.json'))
  equal([await bundled(), await bundled()], ['26', '27'], 'nothing says which packages it has')
})

files.run()

// ---- a whole build

const whole = suite('build: a release', { timeoutMs: 300_000 })

whole('is whole, runs, and is the same bytes in another folder and for another user', async () => {
  await using home = await makeRoom()
  const [one, other] = [join(home.path, 'one'), join(home.path, 'other')]
  const notes = join(home.path, 'notes.md')
  await writeFile(notes, 'better than the last\n')
  const args = ['v1.2.0', '--feed', 'github:owner/name', '--notes', notes, '--compress', 'fast', '--json']
  const built = await build([...args, '--out', one])
  is(built.exitCode, 0, built.stderr)

  const elsewhere = join(home.path, 'project')
  await copyProject(elsewhere, other)
  const { stdout, exitCode, stderr } = await build([...args, '--out', other], { folder: elsewhere, anotherUser: true })
  is(exitCode, 0, stderr)
  const sums = (text: string) => (JSON.parse(text) as { files: { name: string; sha256: string }[] }).files
  equal(sums(stdout), sums(built.stdout))
  is(await readFile(join(other, 'releases.json'), 'utf8'), await readFile(join(one, 'releases.json'), 'utf8'))

  await checkContents(join(one, 'v1.2.0'), home.path)
  // publishing the same again changes nothing, not even a time
  const before = await stat(join(one, 'v1.2.0', 'SHA256SUMS'))
  const again = await build([...args, '--out', one])
  is((JSON.parse(again.stdout) as { changed: boolean }).changed, false)
  is((await stat(join(one, 'v1.2.0', 'SHA256SUMS'))).mtimeMs, before.mtimeMs)
  // what was made on the way is gone
  equal((await readdir(one)).toSorted(), ['releases.json', 'v1.2.0'])
})

async function checkContents(folder: string, work: string): Promise<void> {
  const asset = assetName('beacon')
  const names = [`${asset}.gz`, `${asset}.zst`, 'SHA256SUMS', 'install.sh', 'release.json']
  equal((await readdir(folder)).toSorted(), names.toSorted())
  const files = new Map(
    await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name))] as const)),
  )
  const lines = String(files.get('SHA256SUMS')).trimEnd().split('\n')
  equal(
    lines.map((line) => line.slice(66)),
    names.filter((name) => name !== 'SHA256SUMS').toSorted(),
  )
  for (const line of lines) is(line.slice(0, 64), sha256(files.get(line.slice(66)) ?? Buffer.alloc(0)))

  const manifest = JSON.parse(String(files.get('release.json'))) as ReleaseManifest
  const { assets, ...about } = manifest
  equal(about, {
    format: 1,
    service: 'beacon',
    tag: 'v1.2.0',
    schema: SCHEMA.length,
    notes: 'better than the last\n',
    publishedAt: '2026-01-02T03:04:05.000Z',
  })
  is(assets.length, 2)
  const inside = zstdDecompressSync(files.get(`${asset}.zst`) ?? Buffer.alloc(0))
  ok(gunzipSync(files.get(`${asset}.gz`) ?? Buffer.alloc(0)).equals(inside))
  for (const { name, sizeBytes, sha256: sum, executable, os, arch } of assets) {
    is(sizeBytes, files.get(name)?.length)
    is(sum, sha256(files.get(name) ?? Buffer.alloc(0)))
    equal(
      { ...executable, os, arch },
      { sizeBytes: inside.length, sha256: sha256(inside), os: process.platform, arch: process.arch },
    )
  }

  const executable = join(work, 'beacon')
  await writeFile(executable, inside, { mode: 0o755 })
  is((await run([executable, '--version'])).stdout, 'beacon v1.2.0\n')
  for (const trace of [PROJECT, work]) not(inside.includes(trace), `the executable names ${trace}`)

  const installer = String(files.get('install.sh'))
  const platform = `${process.platform}_${process.arch}`.toUpperCase()
  for (const line of [
    "BATON_SERVICE='beacon'",
    "BATON_TAG='v1.2.0'",
    "BATON_FEED='github:owner/name'",
    `BATON_SHA256_${platform}='${sha256(files.get(`${asset}.gz`) ?? Buffer.alloc(0))}'`,
  ]) {
    ok(installer.split('\n').includes(line), line)
  }
  await run(['sh', '-n', join(folder, 'install.sh')])
  ok((await stat(join(folder, 'install.sh'))).mode & 0o111)
}

whole('is refused with exit code 2 where an argument is wrong, and all that is wrong is named', async () => {
  for (const tag of ['1.2.0', 'v1.2', 'v01.2.0', 'v1.2.0-rc-1', 'v1.2.0-01', 'v1.2.0 ', '../v1.2.0', '']) {
    const { exitCode, stderr } = await build([tag])
    is(exitCode, 2, tag)
    match(stderr, /^error: expected a tag of the form vX\.Y\.Z, got "/)
  }
  const wrong = ['x', '--service', 'No Way', '--compress', 'hard', '--entry', '/nonexistent.ts', '--schema', 'two']
  const { stderr } = await build(wrong)
  for (const name of ['vX.Y.Z', '--service', '--compress', '--entry', '--schema']) match(stderr, name)
  is((await build(['--tag', 'v1.0.0'])).exitCode, 2)
  is((await build(['v1.0.0', '-n'], { epoch: 'yesterday' })).exitCode, 2)
})

whole('says what it would do and does nothing with --dry-run', async () => {
  await using home = await makeRoom()
  const { exitCode, stdout } = await build(['v1.2.0', '--out', join(home.path, 'dist'), '-n'])
  is(exitCode, 0)
  match(stdout, `would write ${join(home.path, 'dist', 'v1.2.0', 'release.json')}`)
  equal(await readdir(home.path), [])
})

whole('leaves nothing behind where the entry cannot be bundled or says another version', async () => {
  await using home = await makeRoom()
  const [entry, out] = [join(home.path, 'entry.ts'), join(home.path, 'dist')]
  await writeFile(entry, "import './nowhere.ts'\n")
  const unbundled = await build(['v1.2.0', '--entry', entry, '--out', out])
  is(unbundled.exitCode, 1)
  match(unbundled.stderr, /error: could not bundle .*nowhere/s)
  await writeFile(entry, "process.stdout.write('beacon v9.9.9\\n')\n")
  const lying = await build(['v1.2.0', '--entry', entry, '--out', out])
  is(lying.exitCode, 1)
  match(lying.stderr, /expected `beacon v1\.2\.0`, got .*v9\.9\.9/)
  equal(await readdir(out), [])
})

whole('leaves nothing behind where it is ended in the middle', async () => {
  await using home = await makeRoom()
  const command = [join(PROJECT, 'deploy', 'build.ts'), 'v1.2.0', '--out', home.out]
  const building = spawn(process.execPath, command, { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  const compressing = new Promise<void>((resolve) => {
    building.stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      if (said.includes('done version')) resolve()
    })
  })
  const exited = once(building, 'exit')
  await Promise.race([compressing, exited])
  building.kill('SIGINT')
  equal(await exited, [130, null], said)
  equal(await readdir(home.out), [])
})

whole.run()

// ---- publishing

const publishing = suite('build: publishing')

publishing('refuses to replace a release by a different one, and does it with --force', async () => {
  await using home = await makeRoom()
  const first = await publishRelease(await options(home.path, 'one'))
  is(first.changed, true)
  is((await publishRelease(await options(home.path, 'one'))).changed, false)
  const different = { ...(await options(home.path, 'two')) }
  await rejects(publishRelease(different), withCode('refused'))
  await rejects(publishRelease({ ...(await options(home.path, 'one')), notes: 'other notes' }), withCode('refused'))
  equal(await sumsOf(first.directory), first.files.filter(({ name }) => name !== 'SHA256SUMS').length)
  is((await publishRelease({ ...different, force: true })).changed, true)
  equal((await readdir(home.out)).toSorted(), ['releases.json', 'v1.0.0'])
})

publishing('adds this platform to a release that another machine built', async () => {
  await using home = await makeRoom()
  const { directory } = await publishRelease(await options(home.path, 'one'))
  // what a machine of another kind would have left there
  const [os, arch] = process.platform === 'darwin' ? ['linux', 'arm64'] : ['darwin', 'arm64']
  const [own, foreign] = [`${assetName('beacon')}.gz`, `beacon-${os}-${arch}.gz`]
  await link(join(directory, own), join(directory, foreign))
  const path = join(directory, 'release.json')
  const manifest = JSON.parse(await readFile(path, 'utf8')) as ReleaseManifest
  manifest.assets = manifest.assets
    .filter(({ name }) => name === own)
    .map((asset) => ({ ...asset, name: foreign, os, arch }))
  await writeFile(path, JSON.stringify(manifest))
  const sums = (await readFile(join(directory, 'SHA256SUMS'), 'utf8')).split('\n')
  const line = `${sums.find((one) => one.endsWith(own))?.slice(0, 64)}  ${foreign}\n`
  await writeFile(join(directory, 'SHA256SUMS'), line)

  const merged = await publishRelease(await options(home.path, 'one'))
  ok(merged.files.some(({ name }) => name === foreign))
  const after = JSON.parse(await readFile(path, 'utf8')) as ReleaseManifest
  equal(
    after.assets.map(({ name }) => name),
    [own, `${assetName('beacon')}.zst`, foreign].toSorted(),
  )
  match(await readFile(join(directory, 'SHA256SUMS'), 'utf8'), line)
})

publishing('lists what is in the folders, newest first, and keeps the marks of the maintainer', async () => {
  await using home = await makeRoom()
  for (const tag of ['v1.9.0', 'v1.10.0', 'v1.2.0']) await publishRelease({ ...(await options(home.path, tag)), tag })
  const path = join(home.out, 'releases.json')
  const list = JSON.parse(await readFile(path, 'utf8')) as {
    format: number
    releases: { tag: string; prerelease: boolean }[]
  }
  equal(
    list.releases.map(({ tag }) => tag),
    ['v1.10.0', 'v1.9.0', 'v1.2.0'],
  )
  is(list.format, 1)
  for (const release of list.releases) release.prerelease = release.tag === 'v1.10.0'
  await writeFile(path, JSON.stringify(list))
  await mkdir(join(home.out, 'v7.0.0')) // no release in it
  await rm(join(home.out, 'v1.2.0'), { recursive: true })
  await publishRelease({ ...(await options(home.path, 'new')), tag: 'v1.11.0' })
  equal(JSON.parse(await readFile(path, 'utf8')), {
    format: 1,
    releases: [
      { tag: 'v1.11.0', draft: false, prerelease: false },
      { tag: 'v1.10.0', draft: false, prerelease: true },
      { tag: 'v1.9.0', draft: false, prerelease: false },
    ],
  })
})

publishing('does not mix two services in one folder', async () => {
  await using home = await makeRoom()
  await publishRelease(await options(home.path, 'one'))
  await rejects(
    publishRelease({ ...(await options(home.path, 'one')), service: 'lamp' }),
    'already contains a release of beacon',
  )
})

publishing('puts values into the marked lines of install.sh, whatever characters they have', () => {
  const text = '#!/bin/sh\nBATON_SERVICE=\nBATON_FEED=  # here\nmain "$@"\n'
  const baked = bakeInstaller(text, { BATON_SERVICE: 'beacon', BATON_FEED: "it's $& `x` $(y)" })
  is(baked, `#!/bin/sh\nBATON_SERVICE='beacon'\nBATON_FEED='it'\\''s $& \`x\` $(y)'\nmain "$@"\n`)
  throws(() => bakeInstaller(text, { BATON_TAG: 'v1.0.0' }), 'BATON_TAG')
})

publishing.run()

// ---- stripping

const stripping = suite('build: stripping')

stripping('takes a fifth off Node, changes no byte that is mapped, and it still runs', async () => {
  const base = await prepareBase()
  const node = await readFile(base.node)
  const stripped = stripElf(node)
  if (process.platform !== 'linux') return is(stripped, null)
  ok(stripped !== null && stripped.length < node.length * 0.8, `${stripped?.length} of ${node.length}`)
  if (stripped === null) return
  // all but the header's account of the section table
  const sameUntil = stripped.length - 4096
  ok(Buffer.from(stripped.subarray(64, sameUntil)).equals(node.subarray(64, sameUntil)))
  ok(Buffer.from(stripped).equals(await readFile(base.executable)))
  is((await run([base.executable, '-p', '6 * 7'])).stdout, '42\n')
  is(stripElf(stripped), null) // there is nothing left to take
})

stripping('leaves alone what is no 64-bit little-endian ELF file', () => {
  is(stripElf(Buffer.alloc(0)), null)
  is(stripElf(Buffer.from('#!/bin/sh\n'.repeat(100))), null)
  const elf32 = Buffer.alloc(4096)
  elf32.write('\x7fELF\x01\x01', 'latin1')
  is(stripElf(elf32), null)
})

stripping.run()

// ---- what is drawn

const drawing = suite('build: progress')

function screen(isTTY: boolean): {
  text: () => string
  stream: { isTTY: boolean; columns: number; write: (text: string) => boolean }
} {
  let text = ''
  const write = (more: string) => {
    text += more
    return true
  }
  return { text: () => text, stream: { isTTY, columns: 100, write } }
}

drawing('is one plain line a stage off a terminal, without a control character', () => {
  const { text, stream } = screen(false)
  const progress = createProgress({ stream, environment: {}, now: () => 0 })
  progress.stage('download')
  progress.bytes(10, 100)
  progress.bytes(100, 100)
  progress.note('hint: be patient')
  progress.stage('verify', 'v1.2.0')
  progress.end('failed', 'sha256 differs')
  is(text(), 'hint: be patient\ndone download  100 B in 0 ms\nfailed verify    sha256 differs\n')
})

drawing('redraws one line on a terminal, at most every 80 ms, and colours it unless NO_COLOR is set', () => {
  for (const environment of [{}, { NO_COLOR: '1' }]) {
    const { text, stream } = screen(true)
    let ms = 0
    const progress = createProgress({ stream, environment, now: () => ms })
    progress.stage('download')
    for (ms = 1; ms <= 1000; ms++) progress.bytes(ms * 1000, 1_000_000)
    progress.end('done')
    const redrawn = text().split('\r').length
    ok(redrawn > 10 && redrawn < 20, `${redrawn} times`)
    // oxlint-disable-next-line no-control-regex -- it is what the terminal gets
    is(/\u001b\[3[0-9]m/.test(text()), !('NO_COLOR' in environment))
    match(text(), /✓.* download {2}1\.0 MB in 1\.0 s\n$/)
  }
})

drawing('a long stage without bytes shows how long it has lasted, on a terminal only', async () => {
  for (const isTTY of [true, false]) {
    const { text, stream } = screen(isTTY)
    let ms = 0
    const progress = createProgress({ stream, environment: { NO_COLOR: '1' }, now: () => ms })
    progress.stage('health', 'v1.2.0')
    ms = 1999
    progress.detail('v1.2.0')
    not(text().includes(' s'))
    ms = 12_400
    if (isTTY) await eventually('it is drawn by itself', async () => text().endsWith('› health    v1.2.0  12.0 s'))
    progress.end('done')
    is(text().split('\n').length, 2)
  }
})

drawing('says nothing when it is to be quiet', () => {
  const { text, stream } = screen(true)
  const progress = createProgress({ stream, quiet: true })
  progress.stage('x')
  progress.note('y')
  progress.end('done')
  is(text(), '')
})

drawing('shows the share, the size, the speed and the time left', () => {
  const line = formatBytesLine(15_000_000, 30_000_000, 2000)
  match(line, /^█{12}░{12} {3}50% {2}15\.0 MB\/30\.0 MB {2}7\.5 MB\/s {2}eta 2\.0 s$/)
  is(formatBytesLine(5000, null, 1000), '5.0 kB  5.0 kB/s')
  match(formatBytesLine(200, 100, 1000), '100%') // more than announced: the download stops it, not the drawing
  equal([0, 999, 1000, 1_250_000, 99_960_000, 2e9].map(formatBytes), [
    '0 B',
    '999 B',
    '1.0 kB',
    '1.3 MB',
    '100 MB',
    '2.0 GB',
  ])
  equal([0, 900, 1500, 60_000, 125_000].map(formatDuration), ['0 ms', '900 ms', '1.5 s', '1:00 min', '2:05 min'])
})

drawing.run()

// ---- commands

const commands = suite('build: commands')

commands('run without a shell, whatever their arguments hold', async () => {
  const text = `$(touch /nonexistent) "'; | && > \\ * ~ $HOME`
  is((await run(['printf', '%s', text])).stdout, text)
  is((await run(['cat'], { input: 'hello' })).stdout, 'hello')
  is((await run(['cat'])).stdout, '')
})

commands('fail with what they wrote last', async () => {
  const command = ['sh', '-c', 'echo a fault >&2; exit 3']
  await rejects(run(command), / failed with exit code 3: a fault$/)
  is((await run(command, { allowFailure: true })).exitCode, 3)
  await rejects(run(['/nonexistent/program']), 'not found')
  is((await run(['/nonexistent/program'], { allowFailure: true })).exitCode, 127)
  await rejects(run(['sleep', '10'], { timeoutMs: 200 }), 'SIGTERM')
  is(await findProgram('no-such-program-anywhere'), null)
})

commands('that fail and say so in their output only, as with `--json`, are told by its end', async () => {
  await rejects(run(['sh', '-c', 'echo "{ a fault }"; exit 5']), / failed with exit code 5: \{ a fault \}$/)
  await rejects(run(['sh', '-c', 'echo out; echo why >&2; exit 5']), / failed with exit code 5: why$/)
})

commands('of this kit that fail are told from the error on, however much an application has said in it', async () => {
  const said = [
    'loading',
    'error: it ended with 1; it printed: one',
    '  two',
    '  three',
    '  four',
    '  five',
    '  six',
    'hint: look',
  ]
  const { message } = await rejects(run(['sh', '-c', 'printf "%s\\n" "$@" >&2; exit 5', 'sh', ...said]))
  match(
    message,
    / failed with exit code 5: error: it ended with 1; it printed: one ·   two ·   three ·   four ·   five$/,
  )
})

commands('are shown as a person would type them', () => {
  is(formatCommand(['ssh', 'host', "it's", 'a b', '--x=1']), String.raw`ssh host 'it'\''s' 'a b' --x=1`)
})

commands.run()

// ---- helpers

/** An npm workspace: packages/app needs packages/lib by a link, and `dep`, which is installed at the root. */
async function workspace() {
  const home = await makeRoom()
  const files = {
    'package.json': '{ "name": "shop", "workspaces": ["packages/*"] }',
    'packages/app/package.json': '{ "name": "@shop/app", "dependencies": { "@shop/lib": "*" } }',
    'packages/app/main.js': '',
    'packages/lib/package.json': '{ "name": "@shop/lib", "dependencies": { "dep": "*" } }',
    'node_modules/dep/package.json': '{ "name": "dep" }',
  }
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(home.path, path, '..'), { recursive: true })
    await writeFile(join(home.path, path), text)
  }
  await mkdir(join(home.path, 'node_modules/@shop'))
  await symlink('../../packages/lib', join(home.path, 'node_modules/@shop/lib'))
  return home
}

async function makeRoom(): Promise<Temporary & { out: string }> {
  const made = await temporary('build')
  return { ...made, out: join(made.path, 'dist') }
}

async function options(home: string, content: string): Promise<PublishOptions> {
  const executable = join(home, `executable-${content}`)
  await writeFile(executable, content)
  const about = { tag: 'v1.0.0', service: 'beacon', feed: null, notes: '', schema: null, publishedAt: null }
  return { ...about, executable, out: join(home, 'dist'), effort: 'fast', force: false, progress: QUIET }
}

/** How many lines of SHA256SUMS hold. */
async function sumsOf(folder: string): Promise<number> {
  const lines = (await readFile(join(folder, 'SHA256SUMS'), 'utf8')).trimEnd().split('\n')
  const good = await Promise.all(
    lines.map(async (line) => sha256(await readFile(join(folder, line.slice(66)))) === line.slice(0, 64)),
  )
  return good.filter(Boolean).length
}

interface Surroundings {
  folder?: string
  /** as nobody, where we are root */
  anotherUser?: boolean
  epoch?: string
}

async function build(args: string[], { folder = PROJECT, anotherUser = false, epoch = EPOCH }: Surroundings = {}) {
  const command = [process.execPath, join(folder, 'deploy', 'build.ts'), ...args]
  const drop = anotherUser && process.getuid?.() === 0 && (await findProgram('setpriv')) !== null
  const asNobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
  const env = { SOURCE_DATE_EPOCH: epoch, HOME: undefined, TMPDIR: undefined }
  return await run([...(drop ? asNobody : []), ...command], { cwd: tmpdir(), allowFailure: true, env })
}

/** The sources in another folder, with a cache of their own and somebody else's. */
async function copyProject(to: string, out: string): Promise<void> {
  await mkdir(to)
  for (const name of ['agent', 'deploy', 'install.ts', 'install.sh', 'package.json', 'tsconfig.json']) {
    await cp(join(PROJECT, name), join(to, name), { recursive: true })
  }
  await symlink(join(PROJECT, 'node_modules'), join(to, 'node_modules'))
  await mkdir(out)
  if (process.getuid?.() !== 0) return
  for (const path of [join(to, '..'), to, out]) await chown(path, 65534, 65534)
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
