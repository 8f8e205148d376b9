// This kit as a package that an application can have in its node_modules: the installed package itself, or what a clone packs of its
// sources, once for each state of them.

import { existsSync } from 'node:fs'
import { readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../lib/shell.ts'
import { cloneIn } from './kept-bundle.ts'
import { IS_PACKAGED, PROJECT } from './place.ts'
import { temporaryDirectory } from './temporary.ts'

/** Resolves to a folder. `packed`: the file that `npm run pack` has made; null: it is made if it is needed. */
export async function ownKit(place: string, packed: string | null): Promise<string> {
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
