// Whose program is at the other end of a connection on this host: the kernel's tables name the user of each socket. While a service is
// stopped, any local user can take its port, and would be sent the password.
// Must hold: a connection is asked about after it is open. Nobody can then put another server behind it.

import { stat } from 'node:fs/promises'
import { isIPv4, type Socket } from 'node:net'
import { BatonError } from '../../../agent/words.ts'
import { isListening, readProc } from '../../lib/open-files.ts'

/** A line of /proc/net/tcp or tcp6. */
interface Entry {
  local: string
  remote: string
  state: string
  uid: number
}

const ROOT = 0
/** IPv4 addresses in tcp6, as the kernel prints them on the processors that Node is built for */
const MAPPED = '0000000000000000FFFF0000'
const ANY = '0'.repeat(32)

/**
 * Throws BatonError refused if the server belongs to another user than root or this process's. `path`: of a unix socket. A server that
 * is not in this host's tables belongs to no local user, such as one behind a rule of root's.
 */
export async function refuseStranger(socket: Socket, path?: string): Promise<void> {
  if (path === undefined && socket.remoteAddress === undefined) return // it has ended already
  const uids = path === undefined ? uidsOf(socket, await readTables()) : [(await stat(path)).uid]
  const own = process.geteuid?.() ?? ROOT
  const stranger = uids.find((uid) => uid !== ROOT && uid !== own)
  if (stranger === undefined) return
  const [at, seen] =
    path === undefined
      ? [`${socket.remoteAddress}:${socket.remotePort}`, `ss -ltnp sport = :${socket.remotePort}`]
      : [path, `ss -lxp src ${path}`]
  throw new BatonError('refused', `expected the service at ${at}, found a program of user ${stranger} there`, {
    hint: `the password was not sent: end that program (\`${seen}\` names it) and start the service`,
  })
}

/**
 * The users of the other end and of who listens there. A connection that nobody has accepted yet has no user. It belongs to the listener,
 * and ends with it.
 */
function uidsOf(socket: Socket, entries: readonly Entry[]): number[] {
  const [own, other] = [endOf(socket.localAddress, socket.localPort), endOf(socket.remoteAddress, socket.remotePort)]
  const listening = entries.filter(({ state }) => isListening(state))
  // the kernel prefers the narrower one
  const nearest = [other, `${MAPPED}00000000${other.slice(-5)}`, `${ANY}${other.slice(-5)}`]
    .map((local) => listening.filter((entry) => entry.local === local))
    .find((found) => found.length > 0)
  const ends = entries.filter(({ local, remote }) => local === other && remote === own)
  return [...ends, ...(nearest ?? [])].map(({ uid }) => uid)
}

async function readTables(): Promise<Entry[]> {
  const tables = await Promise.all(['tcp', 'tcp6'].map((name) => readProc(`/proc/net/${name}`)))
  return tables.flatMap((table) => table.split('\n').slice(1, -1).map(entryOf))
}

function entryOf(line: string): Entry {
  const [, local = '', remote = '', state = '', , , , uid = ''] = line.trim().split(/\s+/)
  return { local: wide(local), remote: wide(remote), state, uid: Number(uid) }
}

const wide = (end: string) => (end.length > 32 ? end : MAPPED + end)

/** As the tables name it: in 32-bit words, each with its last byte first. */
function endOf(address = '', port = 0): string {
  const bytes = Buffer.from(isIPv4(address) ? ipv4(address) : ipv6(address))
  const words = bytes.swap32().toString('hex').toUpperCase()
  return wide(`${words}:${port.toString(16).toUpperCase().padStart(4, '0')}`)
}

const ipv4 = (address: string) => address.split('.').map(Number)

function ipv6(address: string): number[] {
  // `URL` writes one form for each address
  const [head = '', tail] = new URL(`http://[${address.split('%')[0]}]`).hostname.slice(1, -1).split('::')
  const groups = (part: string) => part.split(':').filter((group) => group !== '')
  const [left, right] = [groups(head), groups(tail ?? '')]
  const all = [...left, ...Array<string>(8 - left.length - right.length).fill('0'), ...right]
  return all.flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 255])
}
