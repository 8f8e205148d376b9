// The door of the publisher: `npm run trust -- init | sign | refresh | rotate | withdraw | verify | show`.

import { runTrust } from './trust/main.ts'

process.exitCode = await runTrust(process.argv.slice(2))
