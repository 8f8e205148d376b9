// The publisher's entry point: `npm run trust -- init | sign | refresh | rotate | yank | pull | push | verify | show`.

import { IS_PACKAGED } from './make/place.ts'
import { runTrust } from './trust/main.ts'

process.exitCode = await runTrust(process.argv.slice(2), undefined, IS_PACKAGED ? 'baton trust' : 'npm run trust --')
