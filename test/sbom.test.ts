// What `baton build` says that an executable holds: every package once, with what its package.json and the lock file say of it, in the
// same bytes each time; published with the release, and fetched by no host.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ReleaseManifest } from '../agent/words/release.ts'
import { openFeed } from '../agent/install.ts'
import type { BuiltApplication } from '../deploy/make/application.ts'
import { parseProject } from '../deploy/make/project.ts'
import { assetName } from '../deploy/make/release-folder.ts'
import { billName, billOf, packagesBehind } from '../deploy/make/sbom.ts'
import { sendRelease } from '../deploy/make/publish.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { equal, is, match, ok } from './assert.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { isLong, suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('sbom', { timeoutMs: 240_000 })
const QUIET = createProgress({ quiet: true })
const SHA512 = Buffer.alloc(64, 7)
const INTEGRITY = `sha512-${SHA512.toString('base64')}`

interface Bill {
  metadata: { timestamp?: string; component: Record<string, unknown> }
  components: { name: string; version: string; purl: string; licenses?: object[]; hashes?: object[] }[]
}

const parsed = (text: string): Bill => JSON.parse(text) as Bill

test('a licence is an SPDX expression where it is one, else the name of a licence, else absent', () => {
  const licences = {
    MIT: { expression: 'MIT' },
    '(MIT OR Apache-2.0)': { expression: '(MIT OR Apache-2.0)' },
    'GPL-2.0-only WITH Classpath-exception-2.0': { expression: 'GPL-2.0-only WITH Classpath-exception-2.0' },
    UNLICENSED: { license: { name: 'UNLICENSED' } },
    'SEE LICENSE IN LICENSE.txt': { license: { name: 'SEE LICENSE IN LICENSE.txt' } },
  }
  const about = { service: 'shop', tag: 'v1.2.3', licence: null, publishedAt: null, node: null }
  for (const [licence, expected] of Object.entries(licences)) {
    const bill = parsed(billOf({ ...about, packages: [{ name: 'a', version: '1.0.0', licence, integrity: null }] }))
    equal(bill.components[0]?.licenses, [expected])
  }
  const none = parsed(billOf({ ...about, packages: [{ name: 'a', version: '1.0.0', licence: null, integrity: null }] }))
  equal(none.components, [
    { type: 'library', 'bom-ref': 'pkg:npm/a@1.0.0', name: 'a', version: '1.0.0', purl: 'pkg:npm/a@1.0.0' },
  ])
  equal(none.metadata, { component: { type: 'application', 'bom-ref': 'application', name: 'shop', version: '1.2.3' } })
})

test('packages are found by the files that went in: scoped, nested, of pnpm’s folders; the lock file knows their integrity', async () => {
  await using home = await temporary('sbom')
  await application(home.path)
  const files = [
    'server.js',
    'node_modules/dep/index.js',
    'node_modules/dep/lib/deep.js',
    'node_modules/@scope/one/index.js',
    'node_modules/dep/node_modules/nested/index.js',
    'node_modules/.pnpm/far@3.0.0/node_modules/far/index.js',
    'node_modules/nameless/index.js',
  ]
  equal(
    await packagesBehind(
      files.map((path) => join(home.path, path)),
      home.path,
    ),
    [
      { name: '@scope/one', version: '1.0.0', licence: 'ISC', integrity: null },
      { name: 'dep', version: '2.0.0', licence: 'MIT', integrity: INTEGRITY },
      { name: 'far', version: '3.0.0', licence: null, integrity: null },
      { name: 'nested', version: '4.0.0-rc.1+b', licence: 'MIT OR BSD-2-Clause', integrity: null },
    ],
  )
})

test('a release has the list of what is inside, in the same bytes each time; it is published, and no feed offers it', async () => {
  await using home = await temporary('sbom')
  await application(home.path)
  const notes: string[] = []
  const built = await build(home.path, 'app', 'one', notes)
  const name = billName(assetName('shop'))
  const text = await readFile(join(built.directory, name), 'utf8')
  const bill = parsed(text)
  equal(bill.metadata, {
    timestamp: '2026-01-02T03:04:05.000Z',
    component: {
      type: 'application',
      'bom-ref': 'application',
      name: 'shop',
      version: '1.0.0',
      licenses: [{ expression: 'AGPL-3.0-only' }],
    },
  })
  const purls = bill.components.map(({ purl }) => purl)
  is(purls[0], `pkg:generic/node@${process.versions.node}`)
  const wanted = ['pkg:npm/%40scope/one@1.0.0', 'pkg:npm/dep@2.0.0', 'pkg:npm/nested@4.0.0-rc.1%2Bb']
  for (const purl of wanted) ok(purls.includes(purl), purl)
  // what the kit brings along is inside too
  for (const kit of ['baton-kit', 'undici', 'tuf-js', 'marked', 'citty'])
    ok(
      purls.some((purl) => purl.startsWith(`pkg:npm/${kit}@`)),
      kit,
    )
  equal(purls, [...new Set(purls)])
  equal(bill.components.find((one) => one.name === 'dep')?.hashes, [
    { alg: 'SHA-512', content: SHA512.toString('hex') },
  ])
  ok(!purls.some((purl) => /esbuild|typescript|devonly/.test(purl)), 'what only builds need is not inside')

  // the same for people, who are told of packages that name no licence
  equal(
    built.packages.map(({ version, name: one }) => [one, version]),
    bill.components.slice(1).map((one) => [one.name, one.version]),
  )
  match(notes.join('\n'), /^warning: no licence declared by far@3\.0\.0$/m)

  if (isLong) is(await readFile(join((await build(home.path, 'app', 'two')).directory, name), 'utf8'), text)

  const { documents = [] } = JSON.parse(
    await readFile(join(built.directory, 'release.json'), 'utf8'),
  ) as ReleaseManifest
  equal(
    documents.map((one) => one.name),
    [name],
  )
  match(await readFile(join(built.directory, 'SHA256SUMS'), 'utf8'), `${documents[0]?.sha256}  ${name}\n`)
  const to = join(home.path, 'feed')
  await sendRelease({
    from: join(home.path, 'one'),
    tag: 'v1.0.0',
    service: 'shop',
    to,
    signed: false,
    progress: QUIET,
  })
  is(await readFile(join(to, 'v1.0.0', name), 'utf8'), text)
  await using feed = openFeed(to, { service: 'shop', stateDirectory: null })
  const release = await feed.byTag('v1.0.0')
  match(release.asset.name, /^shop-\w+-\w+\.(zst|gz)$/)
  is(release.deltas.length, 0)
})

for (const kind of ['bundle', 'script'] as const) {
  const register = kind === 'script' ? test : test.long // with Node it is an executable, as the one above
  register(`a ${kind} holds what it bundles only${kind === 'script' ? ', and no Node' : ''}`, async () => {
    await using home = await temporary('sbom')
    await application(home.path)
    const { directory } = await build(home.path, kind, kind)
    const [name = ''] = (await readdir(directory)).filter((one) => one.endsWith('.cdx.json'))
    const text = await readFile(join(directory, name), 'utf8')
    const purls = parsed(text).components.map(({ purl }) => purl)
    is(purls.includes('pkg:npm/dep@2.0.0'), true)
    is(purls.includes('pkg:npm/%40scope/one@1.0.0'), false, 'nothing imports it')
    is(purls.includes(`pkg:generic/node@${process.versions.node}`), kind === 'bundle')
    is(
      purls.some((purl) => purl.startsWith('pkg:npm/undici@')),
      true,
    )
    const again = await build(home.path, kind, 'again')
    is(await readFile(join(again.directory, name), 'utf8'), text)
  })
}

async function build(folder: string, kind: string, out: string, notes: string[] = []): Promise<BuiltApplication> {
  return await buildQuietly({
    project: parseProject({ service: 'shop', entry: 'server.js', kind, exclude: ['one', 'two', 'feed'] }, folder),
    out: join(folder, out),
    publishedAt: '2026-01-02T03:04:05.000Z',
    progress: { ...QUIET, note: (line) => void notes.push(line) },
  })
}

/** An application with packages in every place where a package manager puts them. */
async function application(folder: string): Promise<void> {
  const put = async (path: string, manifest: object) => {
    await mkdir(join(folder, path), { recursive: true })
    await writeFile(join(folder, path, 'package.json'), JSON.stringify(manifest))
    await writeFile(join(folder, path, 'index.js'), 'module.exports = 1\n')
  }
  const dependencies = { dep: '*', '@scope/one': '*', far: '*' }
  await put('.', { name: 'shop', license: 'AGPL-3.0-only', dependencies, devDependencies: { devonly: '*' } })
  await put('node_modules/dep', { name: 'dep', version: '2.0.0', license: 'MIT', dependencies: { nested: '*' } })
  const licenses = [{ type: 'MIT' }, { type: 'BSD-2-Clause' }]
  await put('node_modules/dep/node_modules/nested', { name: 'nested', version: '4.0.0-rc.1+b', licenses })
  await put('node_modules/@scope/one', { name: '@scope/one', version: '1.0.0', license: { type: 'ISC' } })
  await put('node_modules/.pnpm/far@3.0.0/node_modules/far', { name: 'far', version: '3.0.0' })
  await put('node_modules/far', { name: 'far', version: '3.0.0' })
  await put('node_modules/nameless', { type: 'commonjs' })
  await put('node_modules/devonly', { name: 'devonly', version: '9.0.0', license: 'MIT' })
  const packages = { 'node_modules/dep': { version: '2.0.0', integrity: INTEGRITY } }
  await writeFile(join(folder, 'package-lock.json'), JSON.stringify({ lockfileVersion: 3, packages }))
  await writeFile(join(folder, 'server.js'), `require(${JSON.stringify('dep')})\n`)
}

test.run()
