// The first code of a release that `baton dev` makes: a script that starts a copy of the sources with the Node that runs it.
// The build puts constants in front of it.

import type Module from 'node:module'
import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { beginRelease } from './begin.ts'
import { afterPreload } from './preload.ts'
import type { OwnWords } from './release.ts'

declare const __BATON_RELEASE__: string
declare const __BATON_OPERATOR__: string
/** `app`: the application starts in its own folder; `keep`: where it is started */
declare const __BATON_CWD__: 'keep' | 'app'
/** absolute paths; the last one is empty if nothing is loaded before the application */
declare const __BATON_ENTRY__: string
declare const __BATON_FOLDER__: string
declare const __BATON_PRELOAD__: string

const executable = realpathSync(process.argv[1] ?? '')

const release = JSON.parse(__BATON_RELEASE__) as OwnWords

/** of each process that this one starts as Node */
const flags = [
  ...release.nodeFlags,
  ...(__BATON_PRELOAD__ === '' ? [] : [`--import=${pathToFileURL(__BATON_PRELOAD__).href}`]),
]

beginRelease({
  release,
  executable,
  operator: () => __BATON_OPERATOR__,
  prepare: () => 'there is nothing to prepare',
  application: (own) => {
    process.argv = [process.execPath, __BATON_ENTRY__, ...own]
    process.execArgv = flags // `fork` puts these in front of its script
    const modules = process.getBuiltinModule('node:module') as typeof Module & { runMain(main: string): void }
    if (__BATON_CWD__ === 'app') process.chdir(__BATON_FOLDER__)
    const begin = () => modules.runMain(__BATON_ENTRY__)
    if (__BATON_PRELOAD__ === '') begin()
    else afterPreload(__BATON_PRELOAD__, begin)
  },
  program: () => ({
    folder: __BATON_FOLDER__,
    command: (file) => [process.execPath, ...flags, join(__BATON_FOLDER__, file)],
  }),
})
