// Finds what a running application has that two processes of it cannot have at once: an exclusive flock, and the ports that Baton does
// not hand over. Reads /proc only.
// Must hold: it says nothing about what it cannot see, such as a lock in a database or on another host.

import { type Bound, boundSockets, type OpenFile, openFilesBelow } from './open-files.ts'
import { readProc } from './proc.ts'

const NAMED_MAX = 8

/**
 * What only one process can have, of this process and its descendants; each as a few words. `served`: a port that Baton hands over,
 * and the number of such servers; null if Baton hands all over, or if nobody knows: then no port is named. Empty except on Linux.
 */
export async function onlyOneCanHave(
  pid: number,
  served: { port: number; servers: number } | null = null,
): Promise<string[]> {
  const files = await openFilesBelow(pid)
  const [udp, tcp] = await Promise.all([boundSockets(pid, files, 'udp'), boundSockets(pid, files, 'tcp')])
  const ports = (name: string, found: Bound[]) => [...new Set(found.map(({ port }) => `${name} port ${port}`))]
  const listening = ports(
    'TCP',
    tcp.filter(({ isListening }) => isListening),
  )
  return [
    ...(await locksOf(files)),
    ...(served === null
      ? []
      : ports(
          'UDP',
          udp.filter(({ isConnected }) => !isConnected),
        )),
    ...(served === null || listening.length <= served.servers
      ? []
      : listening.filter((name) => name !== `TCP port ${served.port}`)),
  ].slice(0, NAMED_MAX)
}

/** The kernel shows a descriptor's own locks in its fdinfo. */
async function locksOf(files: readonly OpenFile[]): Promise<string[]> {
  const found = await Promise.all(
    files.map(async ({ pid, descriptor, target }) => {
      if (!target.startsWith('/')) return null
      const info = await readProc(`/proc/${pid}/fdinfo/${descriptor}`)
      return /^lock:\s.*\b(FLOCK|OFDLCK)\b.*\bWRITE\b/m.test(info) ? `the lock on ${target}` : null
    }),
  )
  return [...new Set(found.filter((lock) => lock !== null))]
}
