// The first code of a release that `baton dev` makes: a script that starts a copy of the sources with the Node that runs it.
// The build puts three constants in front of it.

import type Module from 'node:module'
import { realpathSync } from 'node:fs'
import { beginRelease } from './begin.ts'
import type { OwnWords } from './release.ts'

declare const __BATON_RELEASE__: string
declare const __BATON_OPERATOR__: string
/** absolute path */
declare const __BATON_ENTRY__: string

const executable = realpathSync(process.argv[1] ?? '')

const release = JSON.parse(__BATON_RELEASE__) as OwnWords

beginRelease({
  release,
  executable,
  operator: () => __BATON_OPERATOR__,
  prepare: () => 'there is nothing to prepare',
  application: (own) => {
    process.argv = [process.execPath, __BATON_ENTRY__, ...own]
    process.execArgv = [...release.nodeFlags] // `fork` puts these in front of its script
    const modules = process.getBuiltinModule('node:module') as typeof Module & { runMain(main: string): void }
    modules.runMain(__BATON_ENTRY__)
  },
})
