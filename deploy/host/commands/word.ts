// Runs a word of the application that an operator has typed, such as `shop create-admin`, as a part of the install: with the service's
// environment, as its user, in its state directory. Else such a tool works on other data than the service, and succeeds. If root types it and
// the service has a unit, it runs within that unit's walls.
// Must hold: root runs no line of the application. It starts a process that has become the service's user, gives it nothing of its own
// environment but the terminal's kind, and no terminal that it controls.

import { access, constants } from 'node:fs/promises'
import { dirname } from 'node:path'
import { isatty } from 'node:tty'
import {
  ownExecutable,
  ownWords,
  readSystemReceipt,
  type Receipt,
  receiptFor,
  systemReceiptPath,
  WORD,
} from '../../../agent/install.ts'
import { asBatonError, BatonError, MEANINGS } from '../../../agent/words.ts'
import { printError, printLine } from '../../lib/printer.ts'
import { run, runInPlace } from '../../lib/shell.ts'
import { END_SIGNALS } from '../../lib/signals.ts'
import { canConfine, confineWord } from '../boundary/confine.ts'
import { environmentBeside, serviceEnvironment } from '../boundary/environment.ts'
import { isCrossing } from '../boundary/open.ts'
import { environmentFileFor } from '../place/environment-file.ts'
import { idOf, isRoot } from '../place/identity.ts'
import { layoutOfReceipt } from '../place/layout.ts'
import { serviceUnit } from '../place/unit.ts'
import { personOf } from './context.ts'

/** `argv`: what was typed; `meant`: the kit's command that it is like, if it is. Resolves to the exit code of the application. */
export async function runWord(service: string, argv: readonly string[], meant: string | null): Promise<number> {
  try {
    const own = ownExecutable() ?? process.execPath
    const isCopy = dirname(own) === dirname(systemReceiptPath(service))
    const receipt = isCopy ? await readSystemReceipt(service) : await receiptFor(service, own)
    if (receipt === null) throw new BatonError('refused', `${service} is not installed on this host`)
    if (meant !== null) refuseMistyped(service, argv, meant)
    return await runIn(receipt, argv)
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', argv[0] ?? service)
    printError(error)
    return MEANINGS[error.code].exit
  }
}

/** The application would get the word, and one that does not know it starts as a service. */
function refuseMistyped(service: string, argv: readonly string[], meant: string): never {
  throw new BatonError('invalid_request', `unknown command \`${argv[0] ?? ''}\``, {
    hint: `did you mean \`${service} ${ownWords(meant)}\`? To pass it to the application, use \`${service} -- ${argv.join(' ')}\``,
  })
}

async function runIn(receipt: Receipt, argv: readonly string[]): Promise<number> {
  const { executable, stateDirectory, configPath, node } = receipt
  const crossing = await isCrossing(receipt)
  if (!crossing) await assertReads(receipt, argv)
  const own = {
    ...(node === undefined ? {} : { BATON_NODE: node }),
    STATE_DIRECTORY: stateDirectory,
    [WORD]: configPath,
  }
  const command = [executable, '--', ...argv]
  if (crossing && receipt.supervisor !== 'none' && (await canConfine())) return await runInWalls(receipt, command, own)
  const options = {
    cwd: stateDirectory,
    env: {
      ...(crossing ? await environmentFromRoot(receipt) : await environmentOfUser(receipt)),
      ...own,
    },
    // a session of its own: what is no longer root's cannot type into root's terminal
    ...(crossing ? { ...(await idOf(receipt.user)), detached: true } : {}),
  }
  return await runInPlace(command, options, END_SIGNALS)
}

async function runInWalls(receipt: Receipt, command: string[], own: Record<string, string>): Promise<number> {
  const { service, user, stateDirectory } = receipt
  const { TERM } = process.env
  const environment = { ...own, ...(TERM === undefined ? {} : { TERM }) }
  const unit = serviceUnit(layoutOfReceipt(receipt, personOf(process.env)))
  const hasTerminal = [0, 1, 2].every((fd) => isatty(fd))
  const { name, words } = await confineWord(command, { service, unit, user, stateDirectory, environment, hasTerminal })
  // without a terminal of its own, systemd-run must not get the keys of ours: the word would outlive it
  const pass = (signal: NodeJS.Signals) =>
    void run(['systemctl', 'kill', `--signal=${signal}`, name], { allowFailure: true }).catch(() => {})
  return await runInPlace(words, { cwd: '/', detached: !hasTerminal }, END_SIGNALS, pass)
}

/** Only the service's user can read what the service is started with. */
async function assertReads({ user, configPath, service }: Receipt, argv: readonly string[]): Promise<void> {
  const { uid } = await idOf(user)
  const reads = await access(configPath, constants.R_OK).then(
    () => true,
    () => false,
  )
  if (process.getuid?.() === uid && reads) return
  throw new BatonError(
    'refused',
    `expected to run as root or as ${user}, because \`${argv[0] ?? ''}\` works on that user's data`,
    {
      hint: `\`sudo ${isRoot() ? `-u ${user} ` : ''}${service} ${argv[0] ?? ''} …\``,
    },
  )
}

async function environmentFromRoot(receipt: Receipt): Promise<NodeJS.ProcessEnv> {
  const isUnit = receipt.supervisor !== 'none'
  const { TERM } = process.env
  const found = await serviceEnvironment(
    receipt.service,
    isUnit,
    environmentFileFor(receipt),
    receipt.user,
    process.env,
  )
  return { ...found, USER: receipt.user, LOGNAME: receipt.user, ...(TERM === undefined ? {} : { TERM }) }
}

async function environmentOfUser(receipt: Receipt): Promise<NodeJS.ProcessEnv> {
  const { service, scope, supervisor } = receipt
  const owner = { service, scope, withUnit: supervisor !== 'none', environmentFile: environmentFileFor(receipt) }
  return await environmentBeside(owner, process.env, (line) => printLine(line, process.stderr))
}
