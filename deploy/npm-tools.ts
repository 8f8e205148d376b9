// The tools that a release of a package from npm is made with: this host's npm, the Node that Baton brings, and this kit itself.
// Must hold: of this kit's clone only what its programs read is seen where a package's code runs.

import { existsSync } from 'node:fs'
import { readdir, realpath, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { BatonError } from '../agent/words.ts'
import { prepareBase } from './make/base.ts'
import { cloneIn } from './make/kept-bundle.ts'
import { cacheFolder, provideHeaders, provideNode } from './make/node.ts'
import { IS_PACKAGED, PROJECT } from './make/place.ts'
import { temporaryDirectory } from './make/temporary.ts'
import { assertCell } from './npm/sandbox.ts'
import type { NpmTools } from './npm/steps.ts'
import type { Workshop } from './npm/workshop.ts'
import { findProgram, run } from './lib/shell.ts'

/** `packed`: the file that `npm run pack` has made; null: it is made if it is needed. `whole`: what a build needs too. */
export async function toolsFor(shop: Workshop, packed: string | null, whole: boolean): Promise<NpmTools> {
  const found = await findProgram('npm')
  if (found === null)
    throw new BatonError('unsupported_host', '`npm` was not found on PATH', {
      hint: 'install Node 20 or newer, with npm',
    })
  const npm = await realpath(found)
  await assertCell(join(shop.folder, 'empty'), shop.builder)
  const node = await provideNode()
  const kit = whole ? await ownKit(join(shop.folder, 'kit'), packed) : ''
  if (whole) await prepareBase()
  const cache = cacheFolder()
  const own = IS_PACKAGED
    ? [PROJECT]
    : [...CLONE.map((name) => join(PROJECT, name)), await realpath(join(PROJECT, 'node_modules'))]
  const headers = whole ? await provideHeaders() : null
  const program = [
    node,
    '--disable-warning=ExperimentalWarning',
    join(import.meta.dirname, IS_PACKAGED ? 'deploy-npm.js' : 'deploy-npm.ts'),
  ]
  const nodes = [dirname(dirname(await realpath(node))), join(cache, 'node')]
  const sees = [...own, ...nodes, ...(headers === null ? [] : [headers])]
  return { node, npm, program, sees, cache, kit, calm: false }
}

/** of this clone, what its programs read; nothing else of it is seen by what packages do */
const CLONE = [
  'agent',
  'deploy',
  'node_modules',
  'package.json',
  'package-lock.json',
  'config.schema.json',
  'settings.schema.json',
  'install.sh',
  'tsconfig.json',
]

/**
 * This kit as a package that an application can have in its node_modules: the installed package itself, or what a clone packs of its sources,
 * once for each state of them. Resolves to a folder. `packed`: the file that `npm run pack` has made; null: it is made if it is
 * needed.
 */
async function ownKit(place: string, packed: string | null): Promise<string> {
  if (IS_PACKAGED && packed === null) return PROJECT
  const key = packed === null ? ((await cloneIn(PROJECT).hash) ?? 'now') : 'given'
  const folder = join(place, key)
  if (existsSync(folder) && key !== 'now' && key !== 'given') return folder
  await using work = await temporaryDirectory(place)
  const file = packed ?? (await pack(work.path))
  await run(['tar', '-xzf', file, '-C', work.path, '--no-same-owner'])
  for (const name of await readdir(place))
    if (!name.startsWith('.')) await rm(join(place, name), { recursive: true, force: true })
  await rename(join(work.path, 'package'), folder)
  return folder
}

async function pack(to: string): Promise<string> {
  const program = join(PROJECT, 'deploy', 'package.ts')
  const { stdout } = await run([process.execPath, '--disable-warning=ExperimentalWarning', program, '--out', to])
  return join(to, stdout.trim().split('\n').at(-1) ?? '')
}
