// Whose program is at the other end of a connection on this host: the kernel's tables name the user of each socket. While a service is
// stopped, any local user can take its port, and would be sent the password.
// Must hold: a connection is asked about after it is open. Nobody can then put another server behind it.

import { stat } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { BatonError } from '../../../agent/words.ts'
import { entryEnd, EVERYWHERE, socketTable, type TableEntry } from '../../lib/socket-table.ts'

const ROOT = 0

/**
 * Throws BatonError refused if the server belongs to another user than root or this process's. `path`: of a unix socket. A server that
 * is not in this host's tables belongs to no local user, such as one behind a rule of root's.
 */
export async function refuseStranger(socket: Socket, path?: string): Promise<void> {
  if (path === undefined && socket.remoteAddress === undefined) return // it has ended already
  const uids = path === undefined ? uidsOf(socket, await socketTable('tcp')) : [(await stat(path)).uid]
  const own = process.geteuid?.() ?? ROOT
  const stranger = uids.find((uid) => uid !== ROOT && uid !== own)
  if (stranger === undefined) return
  const [at, seen] =
    path === undefined
      ? [`${socket.remoteAddress}:${socket.remotePort}`, `ss -ltnp sport = :${socket.remotePort}`]
      : [path, `ss -lxp src ${path}`]
  throw new BatonError('refused', `the program listening on ${at} is not the service: it runs as user ${stranger}`, {
    hint: `the password was not sent; stop that program (\`${seen}\` shows which one it is), then start the service`,
  })
}

/**
 * The users of the other end and of who listens there. A connection that nobody has accepted yet has no user. It belongs to the listener,
 * and ends with it.
 */
function uidsOf(socket: Socket, table: readonly TableEntry[]): number[] {
  const own = entryEnd(socket.localAddress ?? '::', socket.localPort ?? 0)
  const other = entryEnd(socket.remoteAddress ?? '::', socket.remotePort ?? 0)
  const ends = table.filter(({ local, remote }) => local === other && remote === own)
  const listening = table.filter(({ isListening }) => isListening)
  // the kernel prefers the narrower one
  const nearest = [other, ...EVERYWHERE.map((at) => `${at}${other.slice(-5)}`)]
    .map((at) => listening.filter(({ local }) => local === at))
    .find((found) => found.length > 0)
  return [...ends, ...(nearest ?? [])].map(({ uid }) => uid)
}
