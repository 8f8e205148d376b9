// The first code of the reference service's executable: looks at the arguments and loads only what they need.
// Must never break: `--version` answers at once, whatever else is wrong. The verify stage of an update runs it; an order in the environment
// is carried out after the answer (`doAsOrdered`).

import { doAsOrdered } from '../agent/first.ts'
import { BUILD } from '../agent/service/build.ts'
import { waitForOldContainer } from './make/first/old-container.ts'

async function main(argv: readonly string[]): Promise<void> {
  const [first = 'serve'] = argv
  if (first === '--version' || first === '-v') {
    process.stdout.write(`${BUILD.service} ${BUILD.tag}\n`)
    await doAsOrdered(undefined, () => runAsOperator(['(fetch)']))
    return
  }
  // a first word is a command, and the operator's tree knows them all; flags alone are for the service
  if ((first !== 'serve' && !first.startsWith('-')) || first === '--help' || first === '-h') {
    return await runAsOperator(argv)
  }
  // a person started it: the installer's starts name a configuration
  if (argv.length === 0) (await import('./make/first/beside.ts')).refuseBeside(BUILD, process.execPath)
  waitForOldContainer(BUILD, () => {})
  const { serve } = await import('../agent/service/serve.ts')
  await serve(argv)
}

async function runAsOperator(argv: readonly string[]): Promise<void> {
  const { runOperator } = await import('./operator.ts')
  process.exitCode = await runOperator(argv)
}

void main(process.argv.slice(2))
