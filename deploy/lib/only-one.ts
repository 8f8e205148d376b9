// Finds what a running application has that two processes of it cannot have at once: an exclusive flock, a bound UDP port, and more
// listening ports than Baton hands over. Reads /proc only.
// Must hold: it says nothing about what it cannot see, such as a lock in a database or on another host.

import { readdir, readFile, readlink } from 'node:fs/promises'
import { descendantsOf } from '../../agent/install.ts'

const LISTENING = '0A'
const NAMED_MAX = 8

/**
 * Of the process and everything below it; each as a few words. `served`: a port that Baton hands over, and how many there are of
 * those; null: not known, so listening ports are not looked at. Empty elsewhere than on Linux.
 */
export async function onlyOneCanHave(
  pid: number,
  served: { port: number; servers: number } | null = null,
): Promise<string[]> {
  const pids = [pid, ...descendantsOf(pid).map((below) => below.pid)]
  const files = (await Promise.all(pids.map(openFiles))).flat()
  const sockets = new Set(files.flatMap(({ target }) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []))
  const table = async (name: string) =>
    (await read(`/proc/${pid}/net/${name}`))
      .split('\n')
      .slice(1)
      .flatMap((line) => boundIn(line, sockets))
  const [udp, tcp] = await Promise.all([both('udp', table), both('tcp', table)])
  const ports = (name: string, found: Bound[]) => [...new Set(found.map(({ port }) => `${name} port ${port}`))]
  const listening = ports(
    'TCP',
    tcp.filter(({ state }) => state === LISTENING),
  )
  return [
    ...(await locksOf(files)),
    // a socket that is connected only asks somebody, as a resolver does
    ...ports(
      'UDP',
      udp.filter(({ isConnected }) => !isConnected),
    ),
    ...(served === null || listening.length <= served.servers
      ? []
      : listening.filter((name) => name !== `TCP port ${served.port}`)),
  ].slice(0, NAMED_MAX)
}

interface OpenFile {
  pid: number
  descriptor: string
  target: string
}

async function openFiles(pid: number): Promise<OpenFile[]> {
  const names = await readdir(`/proc/${pid}/fd`).catch(() => [])
  return await Promise.all(
    names.map(async (descriptor) => {
      const target = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => '')
      return { pid, descriptor, target }
    }),
  )
}

/** The kernel shows a descriptor's own locks in its fdinfo. */
async function locksOf(files: readonly OpenFile[]): Promise<string[]> {
  const found = await Promise.all(
    files.map(async ({ pid, descriptor, target }) => {
      if (!target.startsWith('/')) return null
      const info = await read(`/proc/${pid}/fdinfo/${descriptor}`)
      return /^lock:\s.*\b(FLOCK|OFDLCK)\b.*\bWRITE\b/m.test(info) ? `the lock on ${target}` : null
    }),
  )
  return [...new Set(found.filter((lock) => lock !== null))]
}

interface Bound {
  port: number
  state: string
  isConnected: boolean
}

/** One line of /proc/net/tcp or udp, if it is one of these sockets. */
function boundIn(line: string, sockets: ReadonlySet<string>): Bound[] {
  const [, local = '', remote = '', state = '', , , , , , inode = ''] = line.trim().split(/\s+/)
  if (!sockets.has(inode)) return []
  return [{ port: Number.parseInt(local.split(':')[1] ?? '', 16), state, isConnected: !remote.endsWith(':0000') }]
}

async function both(name: string, table: (name: string) => Promise<Bound[]>): Promise<Bound[]> {
  return (await Promise.all([table(name), table(`${name}6`)])).flat()
}

async function read(path: string): Promise<string> {
  return await readFile(path, 'utf8').catch(() => '')
}
