// The last resort of a start behind held sockets. An application may look at its port in a way that nobody foresees, find it taken by these
// very sockets, and end; and so would every later start, until its manager gives up. So a process that ends before it serves has the
// manager let the sockets go, and the next one starts as on day one. Clients are refused for that time.
// Must hold: a process that serves lets nothing go.

import { writeSync } from 'node:fs'
import { sendLetter } from './packets.ts'
import { keyOfName } from './stored-names.ts'

/** one for each process, shared by symbol: the first code of a release and the application have each a copy of this file */
const ARMED = Symbol.for('baton.last-resort')
const shared = globalThis as { [ARMED]?: () => void }

/**
 * From now on the end of this process lets go of what the manager holds for it, until `serves` is called. Call it as early as possible: the
 * application may end in its first line. A second call does nothing. `environment`: the one that names the sockets.
 */
export function letGoUnlessServing(environment: NodeJS.ProcessEnv = process.env): void {
  const { NOTIFY_SOCKET: manager, LISTEN_PID: pid, LISTEN_FDNAMES = '' } = environment
  if (shared[ARMED] !== undefined || !manager || Number(pid) !== process.pid) return
  const names = LISTEN_FDNAMES.split(':').filter((name) => keyOfName(name) !== null)
  if (names.length === 0) return
  const letGo = () => {
    try {
      for (const name of names) sendLetter(manager, `FDSTOREREMOVE=1\nFDNAME=${name}`, null)
      writeSync(
        2,
        `baton: this process exited before serving on ${names.map(keyOfName).join(', ')}: the sockets held for it are released, and the next start binds new ones\n`,
      )
    } catch {
      // the manager is gone too
    }
  }
  process.once('exit', letGo)
  shared[ARMED] = () => void process.off('exit', letGo)
}

/** Call it when this process accepts connections. */
export function serves(): void {
  shared[ARMED]?.()
}
