// The command line of a managed install, from a clone: `tsx install.ts …`. Inside the executable the same tree is started by
// `deploy/executable.ts`.

import { BUILD } from './agent/service/build.ts'
import { runCommand } from './deploy/host/tree.ts'

process.exitCode = await runCommand(process.argv.slice(2), BUILD)
