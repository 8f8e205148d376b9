// The folder of a rehearsal, and its cage: the systemd unit in which the releases run on the copy. systemd starts the cage when a
// request appears in the folder (deploy/host/place/cage.ts writes the units).
// Must hold: no release ever writes to the folder: the cage sees it read-only, and the performer, its first process, copies what lies there
// into a file system of the cage's own. The performer reports over a connection that no other process of the cage can have: this
// process accepts one, before a release runs. Its end is the end of the cage; if this side ends it, the performer exits.
// Power cut: the copy stays in the folder until the next start or rehearsal removes it.

import { readdir, stat } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Disk } from '../../disk/disk.ts'
import type { Receipt } from '../../disk/receipt.ts'
import type { Untried } from '../../words/rehearsal.ts'
import { isObject, parsedJson } from '../../words/untrusted.ts'

/** Names inside the folder. The report is a file only where there is no cage of systemd's (a container, a trial by hand). */
export const REHEARSAL_REQUEST = '.trial-request.json'
export const REHEARSAL_REPORT = '.trial-report.json'
export const REHEARSAL_SOCKET = '.trial-socket'
/** In the environment of the cage: the folder. */
export const REHEARSAL_FOLDER = 'BATON_REHEARSAL_FOLDER'

const REPORT_MAX_BYTES = 64 * 1024
/** how long systemd may take to start the cage */
const BEGIN_MS = 15_000

export interface Cage {
  folder: string
  disk: Disk
  service: string
}

/** The folder, or why a rehearsal is not possible here. */
export async function cageOf(
  service: string,
  supervisor: Receipt['supervisor'],
  stateDirectory: string,
): Promise<string | Untried> {
  if (supervisor !== 'systemd')
    return {
      code: 'supervisor',
      reason: 'a trial needs the system-wide systemd, which does not supervise this install',
    }
  if (stateDirectory !== `/var/lib/${service}`)
    return {
      code: 'state_directory',
      reason: `a trial needs the state directory to be /var/lib/${service}, but it is ${stateDirectory}`,
    }
  const folder = rehearsalFolder(stateDirectory)
  const found = await stat(folder).catch(() => null)
  if (found?.isDirectory() === true && found.uid === process.getuid?.()) return folder
  return {
    code: 'old_units',
    reason: `${folder} does not exist or does not belong to the service, so the units are from a release that predates trials on a copy`,
    hint: 'run `install.sh` from a newer release once as root to rewrite the units',
  }
}

/** The folder with the copy. Its parents are root's: systemd resolves the source of a bind as root, links included. */
export function rehearsalFolder(stateDirectory: string): string {
  return `${stateDirectory}-trial`
}

/** The request for the cage. */
export interface CageRequest {
  do: 'rehearse'
  /** absolute path of the executable that is to be tried */
  candidate: string
  /** relative to the state directory; null: the database of the present release */
  database: string | null
  /** name of the copy in the folder, which the performer moves to the database's path first; absent: it is there already */
  copy?: string
  /** the copy is in a scratch database: what tells the releases where it is. Absent: it is in the folder */
  environment?: Record<string, string>
  /** milliseconds that each start of a release may take until it is healthy */
  startMs: number
}

/** How a request ended. `report`: the last that the performer has said. */
export type CageEnd =
  /** the performer has ended */
  | { is: 'reported'; report: Record<string, unknown> }
  /** it took longer than it may */
  | { is: 'late'; report: Record<string, unknown> }
  /** systemd has not started it */
  | { is: 'not-begun' }

/** Starts the cage, and resolves when it has ended. `mostMs`: for all of it. */
export async function askCage(
  { folder, disk }: Cage,
  request: CageRequest,
  { mostMs, signal }: { mostMs: number; signal?: AbortSignal | undefined },
): Promise<CageEnd> {
  const path = join(folder, REHEARSAL_SOCKET)
  await disk.remove(path)
  const server = createServer({ pauseOnConnect: true })
  const met = new Promise<Socket>((resolve, reject) => server.once('connection', resolve).once('error', reject))
  met.catch(() => {})
  try {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
    server.maxConnections = 1
    await disk.writeNote(join(folder, REHEARSAL_REQUEST), JSON.stringify(request), 0o600)
    const performer = await within(met, BEGIN_MS, signal)
    signal?.throwIfAborted()
    if (performer === null) return { is: 'not-begun' }
    server.close() // nobody else can connect from now on, and no release runs yet
    await disk.remove(path)
    return await heard(performer, mostMs, signal)
  } finally {
    server.close()
    void met.then((late) => late.destroy()).catch(() => {})
    await disk.remove(join(folder, REHEARSAL_REQUEST))
    await disk.remove(path)
  }
}

/** Removes everything in the folder: only this service's own processes have ever written there. */
export async function emptyCage({ folder, disk }: Cage): Promise<void> {
  for (const name of await readdir(folder)) await disk.removeFolder(join(folder, name))
}

/** Takes the performer's reports until it has ended; the first word lets it begin. Ends it if that takes too long. */
async function heard(performer: Socket, mostMs: number, signal: AbortSignal | undefined): Promise<CageEnd> {
  let report: Record<string, unknown> = {}
  const ended = new Promise<true>((resolve) => performer.once('close', () => resolve(true)).on('error', () => {}))
  createInterface({ input: performer }).on('line', (line) => {
    const said = line.length <= REPORT_MAX_BYTES ? parsedJson(line) : null
    if (isObject(said)) report = said
  })
  performer.write('begin\n')
  const isEnded = await within(ended, mostMs, signal)
  performer.destroy()
  signal?.throwIfAborted()
  return { is: isEnded === null ? 'late' : 'reported', report }
}

/** Null if it has not come in time, or if the signal came first. */
async function within<T>(promise: Promise<T>, mostMs: number, signal: AbortSignal | undefined): Promise<T | null> {
  const late = Promise.withResolvers<null>()
  const timer = setTimeout(() => late.resolve(null), mostMs)
  const abort = () => late.resolve(null)
  signal?.addEventListener('abort', abort)
  if (signal?.aborted === true) abort()
  try {
    return await Promise.race([promise, late.promise])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}
