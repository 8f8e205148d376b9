// What the test services share: the agent with the settings of the service's configuration file, run as a script.

import { join } from 'node:path'
import { type Agent, embed, type EmbedOptions } from '../../agent/index.ts'
import { BUILD } from '../../agent/service/build.ts'
import type { Settings } from '../../agent/service/config.ts'

export function databasePath(stateDirectory: string): string {
  return join(stateDirectory, `${BUILD.service}.db`)
}

/** `own`: the hooks of the service, and its order if that is not start-first. */
export async function embedAgent(
  { password, feed, stateDirectory, update }: Settings,
  own: Pick<EmbedOptions, 'onDrain' | 'onStop' | 'order'>,
): Promise<Agent> {
  return await embed({
    ...BUILD,
    executable: process.argv[1] ?? null, // a script's process.execPath is Node
    password,
    feed,
    stateDirectory,
    update,
    database: databasePath(stateDirectory),
    healthPath: '/healthz',
    order: 'start-first',
    ...own,
  })
}
