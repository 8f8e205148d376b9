// The operator's commands of an executable. A release carries this file as text and compiles it only if such a command runs: a
// process that serves never reads it.

import { BUILD } from '../agent/service/build.ts'
import { variableName } from '../agent/service/config.ts'

/** Runs the command and resolves to its exit code. Each command loads only what it needs. */
export async function runOperator(argv: readonly string[]): Promise<number> {
  const [first = '', ...rest] = argv
  if (first === '(hold)') {
    const { hold } = await import('../agent/install.ts')
    process.exit(await hold())
  }
  if (first === '(fetch)') {
    const { fetchHere } = await import('../agent/install.ts')
    await fetchHere()
    return 0
  }
  if (first === '(owed)') {
    const { payBeforeStart } = await import('../agent/install.ts')
    return await payBeforeStart(rest[0] ?? '')
  }
  if (first === '(word)') {
    const { runWord } = await import('./host/commands/word.ts')
    const { ownRelease } = await import('../agent/install.ts')
    const [word = '', ...more] = rest
    if (word === '--') return await runWord(BUILD.service, more, null)
    // where Baton's own stand behind `baton`, every other word is the application's
    const isTheirs = ownRelease().commands === 'baton'
    return await runWord(BUILD.service, rest, isTheirs ? null : (await import('./host/tree.ts')).commandLike(word))
  }
  if (first === 'as-service' && rest[0] === 'in-cage') {
    const { perform } = await import('../agent/install.ts')
    process.exit(await perform())
  }
  if (first === 'healthcheck') {
    const { healthcheck } = await import('../agent/service/healthcheck.ts')
    return await healthcheck(BUILD, rest, process.env)
  }
  if (first === 'snapshot' && rest[0] === '--for-update') {
    const { snapshotForUpdate } = await import('./container/snapshot-here.ts')
    return await snapshotForUpdate(process.env)
  }
  if (first === 'snapshot' && rest.includes('--try')) {
    const { snapshotAndTry } = await import('./host/commands/try-by-hand.ts')
    return await snapshotAndTry(BUILD, rest, await environmentOfInstall())
  }
  const { asksForHelp } = await import('./lib/flags.ts')
  if (first === 'snapshot' && !asksForHelp(rest)) {
    const { snapshot } = await import('../agent/service/snapshot.ts')
    return await snapshot(BUILD, rest, await environmentOfInstall())
  }
  if (first === 'deploy') {
    const [{ ownWords }, { deployContainer }] = await Promise.all([
      import('../agent/install.ts'),
      import('./container/command.ts'),
    ])
    return await deployContainer(rest, `${BUILD.service} ${ownWords('deploy')}`)
  }
  const { runCommand } = await import('./host/tree.ts')
  return await runCommand(argv, BUILD)
}

/** The environment, with the configuration path of the receipt: the default of the user who asks may be another one. */
async function environmentOfInstall(): Promise<NodeJS.ProcessEnv> {
  const { ownExecutable, receiptFor } = await import('../agent/install.ts')
  const receipt = await receiptFor(BUILD.service, ownExecutable() ?? process.execPath).catch(() => null)
  return receipt === null ? process.env : { [variableName(BUILD.service)]: receipt.configPath, ...process.env }
}
