// The main script of kind `app`: unpacks the application's folder from the executable and becomes `node <entry>` in it.
// Must hold: the application sees what plain Node would show it: argv, execArgv, `import.meta.main`, `require.main`.

import { getAsset, getRawAsset } from 'node:sea'
import { existsSync } from 'node:fs'
import type Module from 'node:module'
import { join, resolve, sep } from 'node:path'
import { INHERITANCE, noteStart, PARENT } from '../../../agent/first.ts'
import { beginRelease } from './begin.ts'
import { afterPreload } from './preload.ts'
import { type OwnWords, refuse } from './release.ts'
import { type Unpacked, unpack } from './unpack.ts'

const release = JSON.parse(getAsset('release', 'utf8')) as OwnWords

beginRelease({
  release,
  executable: process.execPath,
  operator: () => getAsset('operator', 'utf8'),
  prepare: () => {
    const { directory, fresh } = unpacked()
    return `${fresh ? 'unpacked' : 'found'} ${directory}`
  },
  application: (own) => runApplication(unpacked(), own),
  program: () => {
    const folder = join(unpacked().directory, 'app')
    return { folder, command: (file) => [process.execPath, join(folder, file)] }
  },
})

function unpacked(): Unpacked {
  return unpack(release, () => {
    const { fuses = [] } = release.archive ?? {}
    const asset = Buffer.from(getRawAsset('app'))
    if (fuses.length === 0) return asset
    const bytes = Buffer.from(asset) // the asset itself cannot be written to
    for (const at of fuses) bytes.write('N', at)
    return bytes
  })
}

function runApplication({ directory }: Unpacked, own: readonly string[]): void {
  const app = join(directory, 'app')
  const entry = join(app, release.archive?.entry ?? '')
  // `fork(file)`, `cluster` and `spawn(process.execPath, [file])` name a file of the application: act as `node` for them
  const asked = own[0] === undefined ? '' : resolve(own[0])
  const isChild = asked.startsWith(app + sep) && existsSync(asked)
  const isSuccessor = process.env[INHERITANCE] !== undefined
  if (!isChild && !isSuccessor && process.env[PARENT] === String(process.ppid)) {
    refuse(
      `expected an application file to run, got ${JSON.stringify(own.slice(0, 3))}: that would start ${release.service} a second time`,
      '`process.execPath` is this executable, not Node: it can run only application files',
    )
  }
  if (isChild) noteStart({ argv: own, executable: process.execPath, isChild, directory: null, configuration: null })
  process.env[PARENT] = String(process.pid)
  const main = isChild ? asked : entry
  process.argv = [process.execPath, main, ...(isChild ? own.slice(1) : own)]
  process.execArgv = [] // else `fork` would put these flags in front of its script
  if (!isChild && release.archive?.cwd === 'app') process.chdir(app)
  const modules = process.getBuiltinModule('node:module') as typeof Module & { runMain(main: string): void }
  modules.enableCompileCache(join(directory, 'cache'))
  const begin = () => modules.runMain(main)
  if (release.archive?.preload === undefined) begin()
  else afterPreload(join(app, release.archive.preload), begin)
}
