// The first code of the executable: looks at the arguments and loads only what they ask for.
// Must never break: `--version` answers at once, whatever else is wrong; the verify stage of an update runs it.

import { BUILD } from '../agent/service/build.ts'

const COMMANDS = ['install', 'upgrade', 'rollback', 'status', 'uninstall', 'doctor', 'start', 'stop', 'rescue']

async function run(argv: readonly string[]): Promise<void> {
  const [first = 'serve'] = argv
  if (first === '--version') {
    process.stdout.write(`${BUILD.service} ${BUILD.tag}\n`)
    return
  }
  if (COMMANDS.includes(first) || first === '--help' || first === '-h' || first === 'help') {
    const { runCommand } = await import('../install.ts')
    process.exitCode = await runCommand([...argv])
    return
  }
  const { serve } = await import('../agent/service/serve.ts')
  await serve(argv)
}

void run(process.argv.slice(2))
