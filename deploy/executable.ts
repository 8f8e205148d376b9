// The first code of the executable: looks at the arguments and loads only what they ask for.
// Must never break: `--version` answers at once, whatever else is wrong; the verify stage of an update runs it.

import { BUILD } from '../agent/service/build.ts'

async function run(argv: readonly string[]): Promise<void> {
  const [first = 'serve'] = argv
  if (first === '--version') {
    process.stdout.write(`${BUILD.service} ${BUILD.tag}\n`)
    return
  }
  if (first === 'healthcheck') {
    const { healthcheck } = await import('../agent/service/healthcheck.ts')
    process.exitCode = await healthcheck(BUILD, argv.slice(1), process.env)
    return
  }
  if (first === 'backup') {
    const { backup } = await import('../agent/service/backup.ts')
    process.exitCode = await backup(BUILD, argv.slice(1), process.env)
    return
  }
  // a word is a command, and install.ts knows which there are; flags alone are for the service
  if ((first !== 'serve' && !first.startsWith('-')) || first === '--help' || first === '-h') {
    const { runCommand } = await import('./host/tree.ts')
    process.exitCode = await runCommand([...argv])
    return
  }
  const { serve } = await import('../agent/service/serve.ts')
  await serve(argv)
}

void run(process.argv.slice(2))
