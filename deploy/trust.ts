// The publisher's entry point: `npm run trust -- init | sign | refresh | rotate | yank | pull | push | verify | show`.

import { IS_PACKAGED } from './make/place.ts'
import { RELEASES_FOLDER } from './make/project.ts'
import { runTrust } from './trust/main.ts'

const program = IS_PACKAGED
  ? { name: 'baton trust', folder: RELEASES_FOLDER }
  : { name: 'npm run trust --', folder: 'dist' }
process.exitCode = await runTrust(process.argv.slice(2), undefined, program)
