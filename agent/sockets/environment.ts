// The environment for another process of the service: the one that this process was started with. An application may have changed
// its own since, by reading a `.env` or removing secrets. The next process starts as the service manager would start it.

import { readFileSync } from 'node:fs'
import { HOLDING, INHERITANCE } from '../words/wire.ts'

/** how a manager passes a process the sockets that it holds for it: sd_listen_fds(3) */
export const LISTEN_VARIABLES = ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']
/** meant for this process alone: a predecessor, systemd or a forking Node has set them */
const ONLY_FOR_ONE = [
  INHERITANCE,
  HOLDING,
  ...LISTEN_VARIABLES,
  'NODE_CHANNEL_FD',
  'NODE_CHANNEL_SERIALIZATION_MODE',
  'NODE_UNIQUE_ID',
]

/** The environment at the start, without what was meant for this process alone. The present one if /proc does not show it. */
export function environmentAtStart(): NodeJS.ProcessEnv {
  const environment = startedWith() ?? { ...process.env }
  for (const name of ONLY_FOR_ONE) delete environment[name]
  return environment
}

function startedWith(): NodeJS.ProcessEnv | null {
  try {
    const pairs = readFileSync('/proc/self/environ', 'utf8').split('\0')
    return Object.fromEntries(
      pairs.flatMap((pair) => {
        const at = pair.indexOf('=')
        return at > 0 ? [[pair.slice(0, at), pair.slice(at + 1)]] : []
      }),
    )
  } catch {
    return null // no Linux, or a process that may not read its own (PR_SET_DUMPABLE)
  }
}
