// The last resort of a start behind held sockets. An application may look at its port in a way that nobody foresees, find it taken by these
// very sockets, and end; and so would every later start, until its manager gives up. So a process that ends before it serves has the
// manager let the sockets go, and the next one starts as on day one. Clients are refused for that time.
// Must hold: a process that serves lets nothing go.

import { writeSync } from 'node:fs'
import { sendLetter } from './packets.ts'

/** `keys`: of the sockets that are held for this process; `nameOf`: under which the manager has each. Returns what to call when it serves. */
export function letGoUnlessServing(keys: readonly string[], nameOf: (key: string) => string): () => void {
  const manager = process.env['NOTIFY_SOCKET']
  if (!manager || keys.length === 0) return () => {}
  const letGo = () => {
    try {
      for (const key of keys) sendLetter(manager, `FDSTOREREMOVE=1\nFDNAME=${nameOf(key)}`, null)
      writeSync(
        2,
        `baton: it ended before it served on ${keys.join(', ')}: what was held there is let go, and the next start binds anew\n`,
      )
    } catch {
      // the manager is gone too
    }
  }
  process.once('exit', letGo)
  return () => void process.off('exit', letGo)
}
