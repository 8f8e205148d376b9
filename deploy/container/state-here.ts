// `<executable> snapshot --for-update` with an order in BATON_STATE_ORDER: what own-data.ts runs inside the container. The words are those of
// the snapshot, since an older release, which does not know the order, then does nothing worse than to make one.
// Prints the answer as JSON, in one line. An order that cannot be carried out ends as a command does.

import {
  COPY_FOLDERS,
  keptCopies,
  makeDisk,
  markContainerRestore,
  markContainers,
  ownDatabase,
  ownExecutable,
  settleContainers,
} from '../../agent/install.ts'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { asBatonError, BatonError, EXIT, MEANINGS } from '../../agent/words.ts'
import { printError, printJson } from '../lib/printer.ts'
import { join } from 'node:path'
import type { StateAnswer, StateOrder } from './state-order.ts'

export async function stateHere(order: string, environment: NodeJS.ProcessEnv): Promise<number> {
  try {
    const answer = await obey(JSON.parse(order) as StateOrder, environment)
    printJson(answer)
    return EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'swap_failed', 'the data of this release')
    printError({ message: error.message, hint: null })
    return MEANINGS[error.code].exit
  }
}

async function obey(order: StateOrder, environment: NodeJS.ProcessEnv): Promise<StateAnswer> {
  const { stateDirectory } = readSettings(BUILD.service, [], environment)
  const database = ownDatabase(BUILD.service, stateDirectory)
  const executable = ownExecutable()
  if (database === null || executable === null)
    throw new BatonError('refused', 'this release has no database of its own to exchange')
  const state = { disk: makeDisk(), stateDirectory, database }
  if (order.do === 'settle') return { moved: await settleContainers(state, executable) }
  if (order.do === 'mark') {
    await markContainers(state, { containers: order.containers, owner: BUILD.tag, next: order.next })
    return { moved: null }
  }
  const copies = (await keptCopies(stateDirectory, database)).filter(({ of }) => of === undefined)
  const copy = copies.find(({ name }) => name === order.name)
  if (copy === undefined) {
    const names = copies.map(({ name }) => name).join(', ') || 'none'
    throw new BatonError('not_found', `expected the name of a copy of the database, which are: ${names}`)
  }
  const path = join(COPY_FOLDERS[copy.kind](stateDirectory), copy.name)
  await markContainerRestore(state, { container: order.container, tag: BUILD.tag, path })
  return { moved: null }
}
