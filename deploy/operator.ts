// What an operator's word does inside an executable. Travels as a text that is compiled when such a word is said: a service
// that serves never looks at it.

import { BUILD } from '../agent/service/build.ts'
import { variableName } from '../agent/service/config.ts'

/** The exit code. Each word loads only what it is about. */
export async function runOperator(argv: readonly string[]): Promise<number> {
  const [first = '', ...rest] = argv
  if (first === 'healthcheck') {
    const { healthcheck } = await import('../agent/service/healthcheck.ts')
    return await healthcheck(BUILD, rest, process.env)
  }
  if (first === 'backup' && rest[0] === '--snapshot') {
    const { snapshotHere } = await import('./container/snapshot-here.ts')
    return await snapshotHere(process.env)
  }
  if (first === 'backup') {
    const { backup } = await import('../agent/service/backup.ts')
    return await backup(BUILD, rest, await environmentOfInstall())
  }
  if (first === 'deploy') {
    const { deployContainer } = await import('./container/command.ts')
    return await deployContainer(rest)
  }
  const { runCommand } = await import('./host/tree.ts')
  return await runCommand(argv, BUILD)
}

/** With the configuration that the receipt names, where this is an install: it need not be where the user who asks would have it. */
async function environmentOfInstall(): Promise<NodeJS.ProcessEnv> {
  const { ownExecutable, receiptFor } = await import('../agent/install.ts')
  const receipt = await receiptFor(BUILD.service, ownExecutable() ?? process.execPath).catch(() => null)
  return receipt === null ? process.env : { [variableName(BUILD.service)]: receipt.configPath, ...process.env }
}
