// What `deploy-npm.sh` believes of the places that it is told, and of what npm says of signatures. No network, no package.

import { spawn } from 'node:child_process'
import { chown, mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../deploy/lib/shell.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { withoutRecipe } from '../deploy/npm/recipe.ts'
import { assertCell } from '../deploy/npm/sandbox.ts'
import { askRegistry, inside, makeLockFile, type NpmTools, signatures } from '../deploy/npm/steps.ts'
import { builderFolder, openWorkshop, pruneWorkshop, workshopOf } from '../deploy/npm/workshop.ts'
import { equal, is, match, not, rejects, withCode } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { onlyLists, suite } from './suite.ts'
import { type Temporary, temporary } from './lab/temporary.ts'

const test = suite('npm place')
const asRoot = suite('npm place: as root', { skip: process.geteuid?.() === 0 ? null : 'needs root' })
const inCells = suite('npm place: in a cell', { skip: onlyLists ? null : await noCells() })

asRoot(
  'root makes no release in a folder that somebody else can write: what lies there would be installed',
  async () => {
    await using it = await temporary('npm-place')
    const feed = join(it.path, 'feed')
    await mkdir(feed)
    await openWorkshop(workshopOf(it.path, 'shop', { isRoot: true, feed }))
    await chown(feed, 1234, 1234)
    const { message } = await rejects(openWorkshop(workshopOf(it.path, 'shop', { isRoot: true, feed })))
    match(message, `but user id 1234 can change ${feed}`)
  },
)

test('the last three releases stay on the disk, npm begins its cache anew when it has grown, and both are said', async () => {
  await using it = await temporary('npm-place')
  const shop = workshopOf(it.path, 'shop', { isRoot: false, feed: null })
  await openWorkshop(shop)
  for (const tag of ['v1.0.0', 'v1.9.0', 'v1.10.0', 'v2.0.0']) {
    await mkdir(join(shop.feed, tag))
    await writeFile(join(shop.folder, 'locks', `${tag.slice(1)}.json`), '{}')
  }
  const cache = await builderFolder(shop, 'npm-cache', true)
  await writeFile(join(cache, 'tarball'), 'x'.repeat(100_000))
  equal(await pruneWorkshop(shop), ['v1.0.0'])
  equal(await readdir(cache), ['tarball'])
  match((await pruneWorkshop(shop, 50_000)).join(), "npm's cache, which was larger than")
  equal((await readdir(shop.feed)).toSorted(), ['v1.10.0', 'v1.9.0', 'v2.0.0'])
  equal((await readdir(join(shop.folder, 'locks'))).toSorted(), ['1.10.0.json', '1.9.0.json', '2.0.0.json'])
  equal(await readdir(await builderFolder(shop, 'npm-cache', true)), [])
})

asRoot('a folder that another builder has left is begun anew: npm could not write in it', async () => {
  await using it = await temporary('npm-place')
  const shop = workshopOf(it.path, 'shop', { isRoot: true, feed: null })
  const folder = await builderFolder(shop, 'npm-cache', true)
  await writeFile(join(folder, 'mine'), '')
  equal(await readdir(await builderFolder(shop, 'npm-cache', true)), ['mine'])
  await chown(folder, 61_500, 61_500)
  equal(await readdir(await builderFolder(shop, 'npm-cache', true)), [])
  is((await stat(folder)).uid, shop.builder)
})

/** A shop, and what npm and this program come to in it, each a script. */
async function shopWith(it: Temporary, script: string) {
  const shop = workshopOf(it.path, 'shop', { isRoot: false, feed: null })
  await openWorkshop(shop)
  const npm = join(it.path, 'npm/bin/npm-cli.js')
  await mkdir(join(it.path, 'npm/bin'), { recursive: true })
  await writeFile(npm, script)
  const tools = { node: process.execPath, npm, program: [process.execPath, npm], sees: [process.execPath], cache: '' }
  return { shop, npm, tools: { ...tools, calm: false } as unknown as NpmTools }
}

inCells('a stop of whoever runs a cell ends what runs there, though it runs as another user', async () => {
  await using it = await temporary('npm-place')
  const sleeper = ['sleep', `600.${process.pid}`]
  const cell = { cwd: '/tmp', sees: [], writes: [], network: false, uid: 61_000, environment: {}, timeoutMs: 600_000 }
  const text = `import { runInCell } from ${JSON.stringify(join(PROJECT, 'deploy/npm/sandbox.ts'))}
await runInCell(${JSON.stringify({ ...cell, calm: true })}, ${JSON.stringify(it.path)}, ${JSON.stringify(sleeper)})`
  const runner = spawn(process.execPath, ['--input-type=module', '-e', text], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const runs = async () => (await run(['pgrep', '-xf', sleeper.join(' ')], { allowFailure: true })).exitCode === 0
  await until('it to run', runs)
  runner.kill('SIGTERM')
  await until('it to end', async () => !(await runs()))
})

inCells('what a package prints in the place of an answer is no code of an error', async () => {
  await using it = await temporary('npm-place')
  for (const failed of [{ code: 'toString', message: 'x' }, { code: 'no_such', message: 7 }, null, 'x']) {
    const script = `console.log(${JSON.stringify(JSON.stringify({ failed }))}); process.exitCode = 3`
    const { shop, tools } = await shopWith(it, script)
    await rejects(inside(shop, tools, { do: 'see', work: it.path }, { uid: null }), withCode('unexpected'))
  }
})

inCells('npm that prints nothing, or no JSON, has told nothing of a package', async () => {
  await using it = await temporary('npm-place')
  for (const text of ['', 'npm notice hello', '{}', '[]']) {
    const { shop, tools } = await shopWith(it, `process.stdout.write(${JSON.stringify(text)})`)
    await rejects(askRegistry(shop, tools, 'shop'), withCode('check_failed'))
  }
})

inCells('a lock file is made once, and anew if a recipe has it need other packages since', async () => {
  await using it = await temporary('npm-place')
  const script = `require('node:fs').writeFileSync('package-lock.json', JSON.stringify({ made: process.hrtime().join() }))`
  const { shop, tools } = await shopWith(it, script)
  const lockOf = async (more: object) =>
    (await makeLockFile(shop, tools, { ...withoutRecipe('shop'), ...more }, '1.0.0', 'https://registry.example/')).text
  const first = await lockOf({})
  is(await lockOf({ args: ['serve'] }), first)
  not.equal(await lockOf({ overrides: { other: '1.0.0' } }), first)
})

inCells('a wrong signature is found among however many, and what npm says otherwise is told', async () => {
  await using it = await temporary('npm-place')
  const { shop, npm, tools } = await shopWith(it, '')
  const said = async (lines: string[], exit: number) => {
    await writeFile(npm, `console.log(${JSON.stringify(lines.join('\n'))}); process.exitCode = ${exit}`)
    return await signatures(shop, tools, it.path).catch((cause: Error) => `refused: ${cause.message}`)
  }
  const names = Array.from({ length: 12 }, (_, at) => `p${at}@1.0.0 (https://registry.example/)`)
  const [audited, end] = ['audited 12 packages in 1s', 'Someone might have tampered with these packages']
  for (const what of ['registry signatures', 'attestations'])
    match(
      await said([audited, '', `12 packages have invalid ${what}:`, '', ...names, '', end], 1),
      /^refused: npm found an invalid signature or attestation: .*12 packages have invalid/s,
    )
  const some = '12 packages have missing registry signatures but the registry is providing signing keys:'
  is(await said([audited, '', some, '', ...names], 1), some.slice(0, -1))
  const all = '12 packages have verified registry signatures'
  is(await said([audited, '', all], 0), all)
  is(await said(['npm error code ENOKEYS', 'npm error no keys'], 1), 'signatures were not checked: no keys')
})

test.run()
asRoot.run()
inCells.run()

/** Why this host has no cells, or null. */
async function noCells(): Promise<string | null> {
  await using it = await temporary('npm-place')
  return await assertCell(it.path, null).then(
    () => null,
    ({ message }: Error) => message,
  )
}
