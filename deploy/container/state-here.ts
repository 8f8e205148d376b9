// `<executable> snapshot --for-update` with an order in BATON_STATE_ORDER: what own-data.ts runs inside the container. The words are those of
// the snapshot, since an older release, which does not know the order, then does nothing worse than to make one.
// Prints the answer as JSON, in one line. An order that cannot be carried out ends as a command does.

import {
  COPY_FOLDERS,
  type Disk,
  keptCopies,
  makeDisk,
  markContainerRestore,
  markContainers,
  mostMsOf,
  oweCopies,
  oweRestore,
  ownDatabase,
  ownExecutable,
  settleContainers,
  snapshotPlan,
} from '../../agent/install.ts'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { asBatonError, BatonError, EXIT, MEANINGS, type SnapshotPlan } from '../../agent/words.ts'
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
  const { stateDirectory, configPath } = readSettings(BUILD.service, [], environment)
  const executable = ownExecutable()
  if (executable === null) throw new BatonError('refused', 'this release is no executable')
  const here = { disk: makeDisk(), stateDirectory, executable, plan: async () => await planHere(configPath) }
  const moved = null
  switch (order.do) {
    case 'settle':
      return { moved: await settleContainers(here, executable) }
    case 'mark': {
      const { containers, next } = order
      await markContainers({ ...here, database: databaseIn(here) }, { containers, owner: BUILD.tag, next })
      return { moved }
    }
    case 'owe': {
      const { container, kind } = order
      const what = { container, kind, from: BUILD.tag, plan: await here.plan(), executable }
      await oweCopies(here, what)
      return { moved }
    }
    case 'restore':
      return { moved, mostMs: await orderCopy(order, here) }
    default:
      return order satisfies never
  }
}

interface Here {
  disk: Disk
  stateDirectory: string
  plan: () => Promise<SnapshotPlan>
}

/** At its next start, this container takes the copy. Resolves to how long that may take. */
async function orderCopy(order: Extract<StateOrder, { do: 'restore' }>, here: Here): Promise<number> {
  const { stateDirectory } = here
  const copies = await keptCopies(stateDirectory, ownDatabase(BUILD.service, stateDirectory))
  const copy = copies.find(({ name }) => name === order.name)
  if (copy === undefined) {
    const names = copies.map(({ name }) => name).join(', ') || 'none'
    throw new BatonError('not_found', `expected the name of a copy of the data, which are: ${names}`)
  }
  if (copy.of !== undefined) {
    const plan = await here.plan()
    await oweRestore(here, { container: order.container, name: copy.name, plan })
    return mostMsOf('restore', plan)
  }
  const path = join(COPY_FOLDERS[copy.kind](stateDirectory), copy.name)
  const state = { ...here, database: databaseIn(here) }
  await markContainerRestore(state, { container: order.container, tag: BUILD.tag, path })
  return 0
}

function databaseIn({ stateDirectory }: Pick<Here, 'stateDirectory'>): string {
  const database = ownDatabase(BUILD.service, stateDirectory)
  if (database !== null) return database
  throw new BatonError('refused', 'this release has no database of its own to exchange')
}

async function planHere(configPath: string | null): Promise<SnapshotPlan> {
  const plan = await snapshotPlanIn(configPath)
  if (plan !== null) return plan
  const who = 'neither `snapshot` of the release nor `update.snapshot` of the configuration'
  throw new BatonError('refused', `${who} says how such a copy is made`)
}

/** What the author of this release, or the operator in the file at `configPath`, says of data that are not in SQLite. */
export async function snapshotPlanIn(configPath: string | null): Promise<SnapshotPlan | null> {
  return await snapshotPlan({ receipt: configPath === null ? null : { supervisor: 'none', configPath } })
}
