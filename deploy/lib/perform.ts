// Starts the performer of a release (agent/update/rehearsal/perform.ts) on a copy of the data, without systemd's cage.

import { readFile, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import {
  readReportOf,
  type Report,
  REHEARSAL_REPORT,
  REHEARSAL_REQUEST,
  runBounded,
  wholeMsOf,
} from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'

export interface Performed {
  /** absolute paths of the executables */
  present: string
  candidate: string
  /** relative to the state directory */
  database: string
  /** folder with the copy */
  state: string
  /** milliseconds that each start may take */
  startMs: number
}

/** `command`: the program and the arguments that start the performer in `state`. Throws unexpected if it has not reported. */
export async function performBy(
  command: readonly string[],
  { present, candidate, database, state, startMs }: Performed,
  environment: NodeJS.ProcessEnv,
): Promise<Report> {
  await writeFile(join(state, REHEARSAL_REQUEST), JSON.stringify({ do: 'rehearse', candidate, database, startMs }))
  const { PATH = '/usr/local/bin:/usr/bin:/bin' } = process.env
  const { code, said } = await runBounded(command, {
    cwd: state,
    env: { PATH, ...environment },
    timeMs: wholeMsOf(startMs),
    said: { last: 2000 },
    group: 'shared',
  }).catch((cause: unknown) => {
    throw new BatonError('unexpected', `starting the trial: ${reasonOf(cause)}`, { cause })
  })
  if (code !== 0) {
    throw new BatonError(
      'unexpected',
      `${basename(present)} ${code === null ? 'was killed' : `exited with code ${code}`}; output: ${said.trim() || 'none'}`,
      {
        hint: 'a release built before Baton supported trials cannot be tried',
      },
    )
  }
  return readReportOf(JSON.parse(await readFile(join(state, REHEARSAL_REPORT), 'utf8')) as Record<string, unknown>)
}
