// `deploy-npm.sh --adopt`: takes the data of a former install of the same package over into one of Baton. Must hold: without `--yes`
// nothing is done; the former data are copied, never moved; what served before is stopped last, can be started again, and is, if
// the new one does not start. A run that was killed is gone on with by the next.

import { existsSync } from 'node:fs'
import { lstat, readdir, realpath } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { Receipt } from '../agent/install.ts'
import { BatonError, reasonOf } from '../agent/words.ts'
import { findInstalled } from './host/deploy.ts'
import { defaultsFrom, personOf } from './host/commands/context.ts'
import { layoutOf, layoutOfReceipt } from './host/place/layout.ts'
import { BATONS } from './make/seen.ts'
import { type Former, dataOf, findFormer, wayBack } from './npm/former.ts'
import type { Recipe } from './npm/recipe.ts'
import type { Adopted } from './npm/workshop.ts'
import { formatCommand, run } from './lib/shell.ts'

export interface TakeOver {
  former: Former
  /** a folder */
  data: string
  isCopied: boolean
}

export interface Adoption {
  package: string
  service: string
  recipe: Recipe | null
  isRoot: boolean
  /** where the data are, if that was typed */
  typed: string | null
  receipt: Receipt | null
  adopted: Adopted | null
}

/** Null: it is done already. Throws BatonError refused or invalid_request. */
export async function planTakeOver(asked: Adoption): Promise<TakeOver | null> {
  const { package: name, service, isRoot, receipt, adopted } = asked
  if (receipt !== null && adopted === 'done') return null
  // whatever has been started since has data of its own
  const isUnfinished = adopted === 'copied' || (adopted === 'begun' && receipt?.options['start'] === false)
  if (receipt !== null && !isUnfinished)
    throw new BatonError(
      'refused',
      `${service} is already installed here, and \`--adopt\` is only for a first install`,
      {
        hint: 'to install another service, use `--name`',
      },
    )
  const former = await findFormer(name, isRoot)
  if (former === null)
    throw new BatonError('refused', `found no unit, pm2 app, process or global install of ${name}`, {
      hint: 'run this command as the user whose pm2 manages the application; or omit `--adopt` and move existing data into the state directory yourself',
    })
  const data = await dataOf(former, asked)
  if (receipt === null) await assertRoom(service, isRoot)
  return { former, data, isCopied: receipt !== null && adopted === 'copied' }
}

/** The names of a service are often those of its former install. */
async function assertRoom(service: string, isRoot: boolean): Promise<void> {
  const choices = { ...defaultsFrom(process.env), scope: isRoot ? 'system' : 'user' } as const
  const { command, unit, stateDirectory } = layoutOf(service, choices, personOf(process.env))
  const kept = (await readdir(stateDirectory).catch(() => [])).filter((name) => !BATONS.includes(name))
  const inTheWay = kept.length > 0 ? stateDirectory : [command, unit].find((path) => existsSync(path))
  if (inTheWay === undefined) return
  throw new BatonError('refused', `${inTheWay} already exists, but ${service} puts its own files there`, {
    hint: `choose another name with \`--name ${service}-baton\`, or move the existing files elsewhere`,
  })
}

/** A sentence: what it does. `listen`: as it was typed; the former address is not known here. */
export function takeOverLine({ former: { what, stop }, data }: TakeOver, listen: string | undefined): string {
  const address = listen ?? `${defaultsFrom({}).listen} (to keep the former address, pass it with \`--listen\`)`
  const copies =
    stop.length === 0
      ? `copy ${data}; ${what} stays installed`
      : `stop ${what}, which stays installed, and copy ${data}`
  return `${copies}; the service will listen on ${address}`
}

/** Goes before a command that root runs as another user. */
const as = (uid: number | string, gid: number | string, groups: string) => [
  'setpriv',
  `--reuid=${uid}`,
  `--regid=${gid}`,
  groups,
]

const asService = ({ scope, user }: Receipt) => (scope === 'user' ? [] : as(user, user, '--init-groups'))

/** The command that removes what was copied, of a run that was killed too. */
function emptyingOf(receipt: Receipt): string[] {
  const others = BATONS.flatMap((name) => ['!', '-name', name])
  const all = [receipt.stateDirectory, '-mindepth', '1', '-maxdepth', '1', ...others]
  return [...asService(receipt), 'find', ...all, '-exec', 'rm', '-rf', '{}', '+']
}

/** Root reads nothing itself: the folder is another user's, who may put a link in its place at any time. */
async function copyData(data: string, receipt: Receipt): Promise<void> {
  const { scope, stateDirectory } = receipt
  await run(emptyingOf(receipt))
  if (scope === 'user') return void (await run(['cp', '-a', `${data}/.`, `${stateDirectory}/`]))
  if ((await realpath(data)) !== resolve(data))
    throw new BatonError('refused', `expected a folder at ${data} with no symbolic links in its path`)
  const { uid, gid } = await lstat(data)
  const reads = [...as(uid, gid, '--clear-groups'), 'tar', '-C', data, '-c', '.']
  const writes = [...asService(receipt), 'tar', '-C', stateDirectory, '-xo']
  await run(['bash', '-o', 'pipefail', '-c', `${formatCommand(reads)} | ${formatCommand(writes)}`])
}

/** The service is installed and does not run yet. Resolves to sentences. */
export async function takeOver(
  { former, data, isCopied }: TakeOver,
  service: string,
  mark: (adopted: Adopted) => Promise<void>,
): Promise<string[]> {
  const receipt = await findInstalled(service)
  if (receipt === null) throw new BatonError('unexpected', `${service} is not installed on this host`)
  const { program } = layoutOfReceipt(receipt, personOf(process.env))
  try {
    for (const command of former.stop) await run(command)
    if (!isCopied) await copyData(data, receipt)
    await mark('copied')
    await run([program, 'start', '-q', `--${receipt.scope}`])
    await run([program, 'install', '-y', '-q', '--start', `--${receipt.scope}`]) // from now on, by every deployment and after a boot
    await mark('done')
  } catch (cause) {
    await mark('begun')
    const own = (...words: string[]) => [program, ...words, `--${receipt.scope}`]
    const undo = [own('stop'), ...(isCopied ? [] : [emptyingOf(receipt)]), own('uninstall', '-y')]
    for (const command of undo) await run(command, { allowFailure: true })
    const isBack = await startAgain(former)
    const what = `${service} did not take over from ${former.what}${isBack ? ', which is running again' : ''}: ${reasonOf(cause)}`
    throw new BatonError(isBack ? 'restart_failed' : 'service_down', what, {
      cause,
      hint: `the original data is unchanged; ${isBack ? 'to try again, use `--adopt`' : `to go back, ${wayBack(former)}`}`,
    })
  }
  return [
    ...(former.stop.length === 0 ? [] : [`${former.what} is stopped`]),
    `the data was copied from ${data} to ${receipt.stateDirectory}`,
    `to go back, run \`${formatCommand([service, 'stop'])}\`, then ${wayBack(former)}`,
  ]
}

async function startAgain({ start }: Former): Promise<boolean> {
  for (const command of start) if ((await run(command, { allowFailure: true })).exitCode !== 0) return false
  return start.length > 0
}
