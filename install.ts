// The commands of a managed install, run from a clone: `tsx install.ts …`. Inside the executable, `deploy/executable.ts` runs the
// same commands.

import { BUILD } from './agent/service/build.ts'
import { runCommand } from './deploy/host/tree.ts'

process.exitCode = await runCommand(process.argv.slice(2), BUILD)
