// `<executable> snapshot --for-update`: what a deployment runs inside the container, if its image names this command.
// Without an order (snapshot.ts) it copies the database into the state directory, and what is not in SQLite, as before every update of a
// managed install. Prints lines of one dot while it is at it, then as JSON what else a rehearsal needs and the other copies, and then the
// path of the database's copy, if there is a database.
// With an order in BATON_STATE_ORDER (own-data.ts) it prints the answer as JSON, in one line. The words are the same, since an older
// release, which does not know the order, then does nothing worse than to make a snapshot.

import {
  clearTemporaries,
  COPY_FOLDERS,
  type Disk,
  keptCopies,
  makeCopies,
  makeDisk,
  markContainerRestore,
  markContainers,
  mostMsOf,
  oweCopies,
  oweRestore,
  ownDatabase,
  ownExecutable,
  ownRelease,
  placesOf,
  refuseAlwaysAlive,
  settleContainers,
  snapshot,
  snapshotDirectory,
  snapshotPlan,
} from '../../agent/install.ts'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { asBatonError, BatonError, EXIT, MEANINGS, type SnapshotPlan } from '../../agent/words.ts'
import { printError, printJson } from '../lib/printer.ts'
import { join } from 'node:path'
import { STATE_ORDER, type StateAnswer, type StateOrder, type TakenHere } from './state-order.ts'

/** an engine hangs up on a command that is silent for long */
const DOT_EVERY_MS = 10_000

export async function snapshotForUpdate(environment: NodeJS.ProcessEnv): Promise<number> {
  const order = environment[STATE_ORDER]
  try {
    if (order === undefined) await takeSnapshot(environment)
    else printJson(await obey(JSON.parse(order) as StateOrder, environment))
    return EXIT.done
  } catch (cause) {
    const doing = order === undefined ? 'copying the data' : 'handling the data of this release'
    const error = asBatonError(cause, 'swap_failed', doing)
    printError({ message: error.message, hint: null })
    return MEANINGS[error.code].exit
  }
}

async function takeSnapshot(environment: NodeJS.ProcessEnv): Promise<void> {
  const dots = setInterval(() => void process.stdout.write('.\n'), DOT_EVERY_MS)
  try {
    const { stateDirectory, configPath } = readSettings(BUILD.service, [], environment)
    const disk = makeDisk()
    const executable = ownExecutable() ?? process.execPath
    await clearTemporaries({ disk, stateDirectory, places: placesOf(executable) }) // of one that was killed
    const database = ownDatabase(BUILD.service, stateDirectory)
    const copier = { executable: null, here: true } // no service runs in this process
    const path = database === null ? null : await snapshot(disk, database, stateDirectory, BUILD.tag, copier)
    const plan = await snapshotPlanIn(configPath)
    refuseAlwaysAlive(plan, ownRelease().order)
    const owesMs = plan?.when === 'stopped' ? mostMsOf('snapshot', plan) : null
    const made =
      plan === null || owesMs !== null
        ? []
        : await makeCopies({ disk, stateDirectory, tag: BUILD.tag, executable, plan })
    const taken: TakenHere = {
      files: path === null ? [] : (ownRelease().rehearse?.files ?? []),
      copies: made.map(({ name, bytes, ms }) => ({ path: join(snapshotDirectory(stateDirectory), name), bytes, ms })),
      owesMs,
    }
    if (path !== null || plan !== null)
      process.stdout.write(`${JSON.stringify(taken)}\n${path === null ? '' : `${path}\n`}`)
  } finally {
    clearInterval(dots)
  }
}

async function obey(order: StateOrder, environment: NodeJS.ProcessEnv): Promise<StateAnswer> {
  const { stateDirectory, configPath } = readSettings(BUILD.service, [], environment)
  const executable = ownExecutable()
  if (executable === null) throw new BatonError('refused', 'this release is not an executable')
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
    case 'find':
      return { moved, ...(await orderCopy(order, here)) }
    default:
      return order satisfies never
  }
}

interface Here {
  disk: Disk
  stateDirectory: string
  plan: () => Promise<SnapshotPlan>
}

/** At its next start, this container takes the copy, if the order is to restore it. */
async function orderCopy(
  order: Extract<StateOrder, { do: 'restore' | 'find' }>,
  here: Here,
): Promise<Omit<StateAnswer, 'moved'>> {
  const { stateDirectory } = here
  const copies = await keptCopies(stateDirectory, ownDatabase(BUILD.service, stateDirectory))
  const copy = copies.find(({ name }) => name === order.name)
  if (copy === undefined) {
    if (copies.length === 0) throw new BatonError('not_found', 'there is no copy of the data yet')
    const names = copies.map(({ name }) => name).join(', ')
    throw new BatonError('not_found', `expected the name of a copy of the data; available copies: ${names}`)
  }
  if (copy.of !== undefined) {
    const plan = await here.plan()
    if (order.do === 'restore') await oweRestore(here, { container: order.container, name: copy.name, plan })
    return { mostMs: mostMsOf('restore', plan), tag: copy.tag }
  }
  const path = join(COPY_FOLDERS[copy.kind](stateDirectory), copy.name)
  const state = { ...here, database: databaseIn(here) }
  if (order.do === 'restore') await markContainerRestore(state, { container: order.container, tag: BUILD.tag, path })
  return { mostMs: 0, tag: copy.tag }
}

function databaseIn({ stateDirectory }: Pick<Here, 'stateDirectory'>): string {
  const database = ownDatabase(BUILD.service, stateDirectory)
  if (database !== null) return database
  throw new BatonError('refused', 'this release declares no database, so there is none to replace')
}

async function planHere(configPath: string | null): Promise<SnapshotPlan> {
  const plan = await snapshotPlanIn(configPath)
  if (plan !== null) return plan
  const who = 'neither `snapshot` in the release nor `update.snapshot` in the configuration'
  throw new BatonError('refused', `${who} specifies how to copy the data`)
}

/** What the author of this release, or the operator in the file at `configPath`, says of data that are not in SQLite. */
async function snapshotPlanIn(configPath: string | null): Promise<SnapshotPlan | null> {
  return await snapshotPlan({ receipt: configPath === null ? null : { supervisor: 'none', configPath } })
}
