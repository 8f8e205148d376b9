// The package, judged from the packed file.

import { existsSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { run } from '../deploy/lib/shell.ts'
import { equal, is, match, ok } from './assert.ts'
import { checkPack, packedKit } from './pack/main.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('pack', { timeoutMs: 300_000 })
/** calls chdir with its own folder, which `init` says too */
const SERVER =
  "process.chdir(import.meta.dirname)\nimport { createServer } from 'node:http'\ncreateServer().listen(process.env.PORT)\n"

test('loads everywhere, by import and by require, with the types that it has, and needs no other package', async () => {
  await using made = await temporary('pack')
  const folder = made.path
  const { faults, imported, sizeBytes } = await checkPack(folder)
  equal(faults, [])
  const kit = join(folder, 'app/node_modules/baton-kit/lib')
  const fleet = await run([process.execPath, join(kit, 'esm/baton.js'), 'deploy', 'fleet', '--help'])
  match(fleet.stdout, /baton deploy fleet \[OPTIONS\] \[TAG\]/)
  ok(existsSync(join(kit, 'fleet/playbooks/waves.yml')))
  ok(imported.length >= 28, imported.join('\n'))
  ok(imported.some((line) => line.endsWith(' import baton-kit'))) // the main export is that of an author
  ok(sizeBytes < 4_000_000, `${sizeBytes} bytes`)
  for (const name of ['app', 'source']) {
    const first = (await readFile(join(kit, 'first', `${name}.cjs`))).length // each start of an adopted application reads it
    ok(first < 80_000, `${name}.cjs: ${first} bytes`)
  }
  const manifest = JSON.parse(await readFile(join(PROJECT, 'package.json'), 'utf8')) as Record<string, unknown>
  is(manifest['dependencies'], undefined)
  is(manifest['optionalDependencies'], undefined)
})

test('the pages that `baton init` names are in the project of whoever reads it', async () => {
  await using made = await temporary('pack-init')
  const cwd = made.path
  const manifest = { name: 'shop', type: 'module', scripts: { start: 'node server.js --data data/shop.db' } }
  await writeFile(join(cwd, 'package.json'), JSON.stringify(manifest))
  await writeFile(join(cwd, 'server.js'), SERVER)
  await writeFile(join(cwd, '.env'), 'TOKEN=secret\n')
  await run(['npm', 'install', '--no-audit', '--no-fund', '--offline', await packedKit()], { cwd })
  const { stdout, stderr } = await run(['npx', 'baton', 'init', '--dry-run'], { cwd })
  const named = Array.from((stdout + stderr).matchAll(/[\w./-]*\bdocs\/[\w./-]+\.md/g), ([path]) => path)
  equal(
    named.filter((path) => !existsSync(join(cwd, path))),
    [],
  )
  ok(new Set(named).size >= 3, stdout + stderr)
})

test('`npm pack` and `npm publish` in a clone are refused: what they would take has no lib', async () => {
  await using made = await temporary('pack')
  const folder = made.path
  const inClone = { cwd: PROJECT, allowFailure: true }
  const { exitCode, stderr } = await run(['npm', 'pack', '--pack-destination', folder], inClone)
  is(exitCode === 0, false)
  match(stderr, /must have name and version/)
  is((await run(['npm', 'publish', '--dry-run'], inClone)).exitCode === 0, false)
  equal(await readdir(folder), [])
})

test('`npm run pack -- --help` prints its usage, and a flag that it does not know ends it before it makes anything', async () => {
  const pack = (...flags: string[]) =>
    run(['npm', 'run', '--silent', 'pack', '--', ...flags], { cwd: PROJECT, allowFailure: true })
  const help = await pack('--help')
  is(help.exitCode, 0)
  match(help.stdout, '--out')
  is(help.stderr, '')
  const unknown = await pack('--where', 'x')
  is(unknown.exitCode, 2)
  is(unknown.stderr, 'error: unknown flag `--where`\nhint: only --out is accepted here; see --help\n')
})

test.run()
