// The folder of a rehearsal, and its cage: the systemd unit in which the releases run on the copy. systemd starts the cage when a
// request appears in the folder (deploy/host/place/cage.ts writes the units), and empties the folder when the cage has ended.
// Must hold: nothing in the folder is trusted once a release has run in it. This process follows no link there and opens only the
// report. Only systemd empties the folder, inside the cage, where everything else is read-only.
// Power cut: the copy stays in the folder until the next start or rehearsal makes systemd empty it.

import { constants } from 'node:fs'
import { open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Disk, roomIn } from '../../disk/disk.ts'
import type { Receipt } from '../../disk/receipt.ts'
import { isObject, parsedJson } from '../../words/untrusted.ts'
import { foreseeFull } from './filling.ts'

/** Names inside the folder. `find` in the cage's unit spares the report. */
export const REHEARSAL_REQUEST = '.rehearsal-request.json'
export const REHEARSAL_REPORT = '.rehearsal-report.json'

const REPORT_MAX_BYTES = 64 * 1024
const LOOK_EVERY_MS = 50
/** how long systemd may take to start the cage, and to empty the folder behind it */
const [BEGIN_MS, EMPTY_MS] = [15_000, 20_000]
/** how long the conductor (the program in the cage) may take from reading its request to reporting that it has begun */
const SETTLE_MS = 1000

interface NoCage {
  reason: string
  hint?: string
}

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
): Promise<string | NoCage> {
  if (supervisor !== 'systemd')
    return { reason: 'it needs the systemd of the whole host, which does not supervise this install' }
  if (stateDirectory !== `/var/lib/${service}`)
    return { reason: `it needs the state directory /var/lib/${service}, this one is ${stateDirectory}` }
  const folder = rehearsalFolder(stateDirectory)
  const found = await stat(folder).catch(() => null)
  if (found?.isDirectory() === true && found.uid === process.getuid?.()) return folder
  return {
    reason: `there is no ${folder}, so the units are older than rehearsals`,
    hint: 'run `install.sh` of a newer release once, as root: it writes the units',
  }
}

/** The folder with the copy. Its parents are root's: systemd resolves the source of a bind as root, links included. */
export function rehearsalFolder(stateDirectory: string): string {
  return `${stateDirectory}-rehearse`
}

/** The request for the cage. */
export type CageRequest =
  | { do: 'empty' }
  | {
      do: 'rehearse'
      /** absolute path of the executable that is to be tried */
      candidate: string
      /** relative to the state directory; null: the database of the present release */
      database: string | null
      /** name of the copy in the folder, which the conductor moves to the database's path first; absent: it is there already */
      copy?: string
      /** milliseconds that each start of a release may take until it is healthy */
      startMs: number
    }

/** How a request ended. */
export type CageEnd =
  | { is: 'reported'; report: Record<string, unknown> }
  /** systemd has not started it */
  | { is: 'not-begun' }
  /** the disk was about to be full */
  | { is: 'full' }
  /** it took longer than it may */
  | { is: 'late' }

/** Starts the cage, and resolves when it has ended and the folder is empty. `mostMs`: for all of it. */
export async function askCage(
  cage: Cage,
  request: CageRequest,
  { mostMs, signal }: { mostMs: number; signal?: AbortSignal | undefined },
): Promise<CageEnd> {
  const { folder, disk } = cage
  await dropReport(folder, disk)
  await disk.writeNote(join(folder, REHEARSAL_REQUEST), JSON.stringify(request), 0o600)
  const began = performance.now()
  const isFilling = foreseeFull()
  let [hasBegun, isFull, isLate] = [false, false, false]
  while (!(await isEmptied(folder))) {
    hasBegun ||= (await readReport(folder)) !== null
    isFull ||= request.do === 'rehearse' && isFilling(await roomIn(folder))
    isLate ||= performance.now() - began > mostMs
    const isStuck = !hasBegun && performance.now() - began > BEGIN_MS
    if (isFull || isLate || isStuck || signal?.aborted === true) {
      await endCage(cage)
      break
    }
    await sleep(LOOK_EVERY_MS)
  }
  const report = (await readReport(folder)) ?? {}
  await dropReport(folder, disk)
  signal?.throwIfAborted()
  if (isFull || report['phase'] === 'full') return { is: 'full' }
  if (isLate) return { is: 'late' }
  if (hasBegun || report['phase'] !== undefined) return { is: 'reported', report }
  await removeUnused(cage)
  return { is: 'not-begun' }
}

/** Makes the cage empty the folder. False if the folder is not empty afterwards. */
export async function emptyCage(cage: Cage): Promise<boolean> {
  const { folder, disk } = cage
  if (!(await isEmptied(folder))) await endCage(cage) // a process that was killed may have left a cage running
  if (!(await isEmptied(folder))) await askCage(cage, { do: 'empty' }, { mostMs: EMPTY_MS })
  if (!(await isEmptied(folder))) return false
  await dropReport(folder, disk)
  return true
}

/** Removes the request, which ends the cage if it runs, and waits until the folder is empty, at most EMPTY_MS. */
async function endCage({ folder, disk }: Cage): Promise<void> {
  await disk.remove(join(folder, REHEARSAL_REQUEST))
  const deadline = performance.now() + EMPTY_MS
  while (!(await isEmptied(folder)) && performance.now() < deadline && (await readReport(folder)) !== null)
    await sleep(LOOK_EVERY_MS)
}

/** Removes the copy of a cage that has never begun: no release has run there, and none can without the request. */
async function removeUnused({ folder, disk }: Cage): Promise<void> {
  await sleep(SETTLE_MS)
  if ((await readReport(folder)) !== null) return
  for (const name of await readdir(folder)) await disk.removeFolder(join(folder, name))
}

async function isEmptied(folder: string): Promise<boolean> {
  return (await readdir(folder)).every((name) => name === REHEARSAL_REPORT)
}

/** Null if there is none yet, or if it is not a report: anything can be there. */
async function readReport(folder: string): Promise<Record<string, unknown> | null> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
  const file = await open(join(folder, REHEARSAL_REPORT), flags).catch(() => null)
  if (file === null) return null
  try {
    const found = await file.stat()
    if (!found.isFile() || found.size > REPORT_MAX_BYTES) return null
    const report = parsedJson(await file.readFile('utf8'))
    return isObject(report) ? report : null
  } catch {
    return null
  } finally {
    await file.close()
  }
}

async function dropReport(folder: string, disk: Disk): Promise<void> {
  await disk.remove(join(folder, REHEARSAL_REPORT))
}
