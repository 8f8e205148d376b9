// `deploy-npm.sh --adopt`: takes the data of a former install of the same package over into one of Baton. Must hold: without `--yes`
// nothing is done; the former data are copied, never moved; what served before is stopped last and can be started again.

import { lstat, realpath } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { Receipt } from '../agent/install.ts'
import { BatonError, reasonOf } from '../agent/words.ts'
import { findInstalled } from './host/deploy.ts'
import { personOf } from './host/commands/context.ts'
import { layoutOfReceipt } from './host/place/layout.ts'
import { type Former, dataOf, findFormer, wayBack } from './npm/former.ts'
import type { Recipe } from './npm/recipe.ts'
import { formatCommand, run } from './lib/shell.ts'

export interface TakeOver {
  former: Former
  /** a folder */
  data: string
}

/** Throws BatonError refused or invalid_request. */
export async function planTakeOver(
  name: string,
  recipe: Recipe | null,
  { isRoot, typed, yes }: { isRoot: boolean; typed: string | null; yes: boolean },
): Promise<TakeOver> {
  const former = await findFormer(name, isRoot)
  if (former === null)
    throw new BatonError('refused', `expected a unit, pm2 or a global install that runs ${name}, found none`, {
      hint: 'leave out `--adopt`; data from elsewhere go into the state directory by hand',
    })
  const data = dataOf(former, recipe, typed)
  if (yes) return { former, data }
  const does =
    former.back === null
      ? `this copies ${data}; ${former.what} stays installed`
      : `this stops ${former.what}, which stays installed, and copies ${data}`
  throw new BatonError('refused', does, {
    hint: `\`--yes\` does it; to go back, stop the service and ${wayBack(former)}`,
  })
}

/** Root reads nothing itself: the folder is another user's, who may put a link in its place at any time. */
async function copyData(data: string, { scope, user, stateDirectory }: Receipt): Promise<void> {
  if (scope === 'user') return void (await run(['cp', '-a', `${data}/.`, `${stateDirectory}/`]))
  if ((await realpath(data)) !== resolve(data))
    throw new BatonError('refused', `expected a folder at ${data}, and no link on the way to it`)
  const { uid, gid } = await lstat(data)
  const reads = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', 'tar', '-C', data, '-c', '.']
  const writes = ['setpriv', `--reuid=${user}`, `--regid=${user}`, '--init-groups', 'tar', '-C', stateDirectory, '-xo']
  await run(['bash', '-o', 'pipefail', '-c', `${formatCommand(reads)} | ${formatCommand(writes)}`])
}

/** The service is installed and does not run yet. Resolves to sentences. */
export async function takeOver({ former, data }: TakeOver, service: string): Promise<string[]> {
  const receipt = await findInstalled(service)
  if (receipt === null) throw new BatonError('unexpected', `expected an install of ${service}, found none`)
  const { program } = layoutOfReceipt(receipt, personOf(process.env))
  for (const command of former.stop) await run(command)
  try {
    await copyData(data, receipt)
    await run([program, 'install', '-y', '--start', `--${receipt.scope}`])
  } catch (cause) {
    throw new BatonError('service_down', `could not move ${former.what} to ${service}: ${reasonOf(cause)}`, {
      cause,
      hint: `the original data is unchanged; to go back, ${wayBack(former)}`,
    })
  }
  return [
    ...(former.back === null ? [] : [`${former.what} is stopped`]),
    `its data was copied from ${data} to ${receipt.stateDirectory}`,
    `to go back, run \`${formatCommand([service, 'stop'])}\`, then ${wayBack(former)}`,
  ]
}
