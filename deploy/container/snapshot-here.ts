// `<executable> snapshot --for-update`: what snapshot.ts runs inside the container, if its image names this command. Copies the
// database into the state directory, and what is not in SQLite, as before every update of a managed install. Prints lines of one dot while it
// is at it, then as JSON what else a rehearsal needs and the other copies, and then the path of the database's copy, if there is a database.

import {
  clearTemporaries,
  makeCopies,
  makeDisk,
  mostMsOf,
  ownDatabase,
  ownExecutable,
  ownRelease,
  placesOf,
  refuseAlwaysAlive,
  snapshot,
  snapshotDirectory,
} from '../../agent/install.ts'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { asBatonError, EXIT, MEANINGS } from '../../agent/words.ts'
import { printError } from '../lib/printer.ts'
import { join } from 'node:path'
import { snapshotPlanIn } from './state-here.ts'
import type { TakenHere } from './state-order.ts'

/** an engine hangs up on a command that is silent for long */
const DOT_EVERY_MS = 10_000

export async function snapshotHere(environment: NodeJS.ProcessEnv): Promise<number> {
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
    return EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'swap_failed', 'copying the data')
    printError({ message: error.message, hint: null })
    return MEANINGS[error.code].exit
  } finally {
    clearInterval(dots)
  }
}
