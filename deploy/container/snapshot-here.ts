// `<executable> snapshot --for-update`: what snapshot.ts runs inside the container, if its image names this command. Copies the
// database into the state directory, as before every update of a managed install. Prints what else a rehearsal needs, as JSON, and then
// the copy's path; nothing if there is no database (yet).

import { makeDisk, ownDatabase, ownRelease, snapshot } from '../../agent/install.ts'
import { BUILD } from '../../agent/service/build.ts'
import { readSettings } from '../../agent/service/config.ts'
import { asBatonError, EXIT, MEANINGS } from '../../agent/words.ts'
import { printError } from '../lib/printer.ts'

export async function snapshotHere(environment: NodeJS.ProcessEnv): Promise<number> {
  try {
    const { stateDirectory } = readSettings(BUILD.service, [], environment)
    const database = ownDatabase(BUILD.service, stateDirectory)
    if (database === null) return EXIT.done
    const copier = { executable: null, here: true } // no service runs in this process
    const path = await snapshot(makeDisk(), database, stateDirectory, BUILD.tag, copier)
    const files = ownRelease().rehearse?.files ?? []
    if (path !== null) process.stdout.write(`${JSON.stringify({ files })}\n${path}\n`)
    return EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'swap_failed', 'copying the database')
    printError({ message: error.message, hint: null })
    return MEANINGS[error.code].exit
  }
}
