// The first code of the kinds `bundle` and `script`. The application is part of the same script, and runs only if the arguments
// ask for it. The build writes the main script: `beginBundle(() => require(<entry>), () => <operator's text>)`.

import { getAsset, isSea } from 'node:sea'
import { realpathSync } from 'node:fs'
import { beginRelease } from './begin.ts'
import type { OwnWords } from './release.ts'

declare const __BATON_RELEASE__: string

export function beginBundle(application: () => unknown, operator: () => string): void {
  const release = JSON.parse(isSea() ? getAsset('release', 'utf8') : __BATON_RELEASE__) as OwnWords
  // the command is a link; the receipt names the file itself
  const executable = isSea() ? process.execPath : realpathSync(process.argv[1] ?? '')
  beginRelease({
    release,
    executable,
    operator,
    prepare: () => 'there is nothing to prepare',
    application: (own) => {
      process.argv = [process.execPath, executable, ...own]
      // `fork` puts these in front of its script: for Node the author's flags; none for an executable, which has them already
      process.execArgv = isSea() ? [] : [...release.nodeFlags]
      void application()
    },
  })
}
