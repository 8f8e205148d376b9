// Copies data that are not in SQLite before the new version reaches them: by the command that an author or an operator names, and folders
// as a set. `words/snapshot.ts` has the rules, `restore-copies.ts` the way back.
// Must hold: a copy appears under its name whole and checked, or not at all; a command that hangs, fills the disk, fails or writes
// nothing refuses the update and leaves nothing; nothing is run by a shell.
// Power cut: the next operation removes the temporary file or folder.

import { lstat, readdir } from 'node:fs/promises'
import { basename, delimiter, join } from 'node:path'
import { copyName } from '../../disk/copies.ts'
import { copyFilesBy } from '../../disk/copy-database.ts'
import { type Disk, exists } from '../../disk/disk.ts'
import { roomIn } from '../../disk/reserve.ts'
import { imageOf, type ManagedInstall } from '../../disk/managed-install.ts'
import { snapshotDirectory, temporaryName } from '../../disk/places.ts'
import { assertRoom } from '../../disk/room.ts'
import { ownRelease } from '../../own.ts'
import { runBounded } from '../../sockets/bounded.ts'
import { environmentAtStart } from '../../sockets/environment.ts'
import { blameless } from '../../words/blame.ts'
import { durationText } from '../../words/duration.ts'
import { howEnded } from '../../words/ended.ts'
import { reasonOf } from '../../words/errors.ts'
import type { Order } from '../../words/order.ts'
import { lineOf } from '../../words/said.ts'
import { DUMP, FOLDERS, planOf, type SnapshotPlan } from '../../words/snapshot.ts'
import type { MadeCopy } from '../../words/state.ts'
import { COPY_WORDS, dropOldCopies, keptCopies, removeCopy } from '../kept-copies.ts'
import { operatorsUpdate } from '../operator.ts'

export interface ToCopy {
  disk: Disk
  stateDirectory: string
  /** the release whose data they are */
  tag: string
  /** of that release: it copies folders, among whose files may be a database */
  executable: string
  plan: SnapshotPlan
  onBytes?: (bytes: number, lastBytes: number | null) => void
}

/** What is to be copied; null: nothing. Throws invalid_settings. */
export async function snapshotPlan(install: Pick<ManagedInstall, 'receipt'>): Promise<SnapshotPlan | null> {
  return planOf(ownRelease().snapshot ?? null, (await operatorsUpdate(install))?.['snapshot'])
}

/** That plan, ready for `makeCopies`. */
export async function toCopy(install: ManagedInstall, plan: SnapshotPlan): Promise<ToCopy> {
  const { disk, stateDirectory, current: tag } = install
  return { disk, stateDirectory, tag, plan, executable: await imageOf(install) }
}

/** Throws a blameless refused if the copies are to be made while no process of the application lives, and in this order one always does. */
export function refuseAlwaysAlive(plan: Pick<SnapshotPlan, 'when'> | null, order: Order | null): void {
  if (plan?.when !== 'stopped' || order === 'stop-first') return
  throw refusedCopy(
    'the snapshot must be taken while no application process is running, but in a start-first switch one is always running',
    'set `order: "stop-first"` in `baton.config.json`, or `update.snapshot.when: "before"` in the configuration',
  )
}

/** Makes the copies, all or none, and removes those that are more than are kept. Throws a blameless refused. */
export async function makeCopies(what: ToCopy): Promise<MadeCopy[]> {
  const { disk, stateDirectory } = what
  const made = await copiesInto(what, snapshotDirectory(stateDirectory))
  for (const data of [DUMP, FOLDERS]) await dropOldCopies(disk, 'snapshot', stateDirectory, data)
  return made
}

/** The same in `folder`, and removes none. */
export async function copiesInto(what: ToCopy, folder: string): Promise<MadeCopy[]> {
  const { disk, plan } = what
  const made: MadeCopy[] = []
  await disk.makeDirectory(folder, 0o700)
  try {
    if (plan.command !== null) made.push(await makeDump(what, plan.command, folder))
    if (plan.folders.length > 0) made.push(await copyFolders(what, folder))
    await disk.flushDirectory(folder)
  } catch (cause) {
    for (const { name } of made) await removeCopy(disk, join(folder, name))
    throw cause
  }
  return made
}

async function makeDump(what: ToCopy, command: readonly string[], folder: string): Promise<MadeCopy> {
  const { plan } = what
  return await makeOne(what, folder, DUMP, async (temporary, signal) => {
    await runOnData(command, temporary, { ...what, what: 'copying the data', signal })
    const found = await lstat(temporary).catch(() => null)
    if (found?.isFile() !== true || found.size === 0) {
      const fault =
        found === null ? 'did not create {file}' : found.isFile() ? 'left {file} empty' : '{file} is not a regular file'
      throw refusedCopy(`copying the data: \`${command[0] ?? ''}\` succeeded, but ${fault}`)
    }
    await what.disk.chmod(temporary, 0o600)
    if (plan.check !== null) await runOnData(plan.check, temporary, { ...what, what: 'checking the copy', signal })
    await what.disk.flushPath(temporary)
    return found.size
  })
}

async function copyFolders(what: ToCopy, folder: string): Promise<MadeCopy> {
  const { disk, stateDirectory, executable, plan } = what
  return await makeOne(what, folder, FOLDERS, async (temporary, signal) => {
    const folders: string[] = []
    for (const name of plan.folders) {
      const found = await lstat(join(stateDirectory, name)).catch(() => null)
      if (found?.isDirectory() === false) {
        const kind = found.isSymbolicLink() ? 'a link, and links are not followed' : 'a file'
        throw refusedCopy(`expected \`${name}\` in \`snapshot.folders\` to be a folder, got ${kind}`)
      }
      if (found !== null) folders.push(name)
    }
    await disk.makeDirectory(temporary, 0o700)
    await copyFilesBy(
      executable,
      { from: stateDirectory, to: temporary, files: folders, isWhole: true },
      { mostMs: plan.timeoutMs, signal },
    )
    const bytes = await bytesBelow(temporary)
    await disk.writeWhole(join(temporary, COPY_WORDS), JSON.stringify({ format: 1, folders, bytes }), 0o600)
    return bytes
  })
}

/** Has one copy made under a temporary name, and gives it its own; a failure leaves nothing. `make` resolves to its bytes. */
async function makeOne(
  what: ToCopy,
  folder: string,
  of: typeof DUMP | typeof FOLDERS,
  make: (temporary: string, signal: AbortSignal) => Promise<number>,
): Promise<MadeCopy> {
  const { disk, stateDirectory, tag, onBytes = () => {} } = what
  const began = performance.now()
  const last = (await keptCopies(stateDirectory, null)).find((copy) => copy.of === of)?.bytes ?? null
  await assertRoom([
    { directory: folder, bytes: of === DUMP ? (last ?? 0) : 0, what: 'a copy of the data', isLittle: false },
  ])
  const name = copyName(of, tag, new Date())
  const temporary = temporaryName(join(folder, name))
  const full = new AbortController()
  const watch = setInterval(() => {
    void roomIn(folder)
      .then((room) => void (room < 0 && full.abort()))
      .catch(() => {}) // the command has removed the folder: then it fails
    void lstat(temporary)
      .then(({ size }) => onBytes(size, last))
      .catch(() => {})
  }, WATCH_MS)
  try {
    const bytes = await make(temporary, full.signal)
    await disk.rename(temporary, join(folder, name))
    return { name, bytes, ms: Math.round(performance.now() - began) }
  } catch (cause) {
    if (full.signal.aborted)
      throw refusedCopy(
        `copying the data would have filled the disk that holds ${folder}`,
        'free up space and try again',
      )
    throw cause
  } finally {
    clearInterval(watch)
    // and what the command has put beside it
    for (const entry of await readdir(folder).catch(() => []))
      if (entry.startsWith(basename(temporary))) await disk.removeFolder(join(folder, entry))
  }
}

const WATCH_MS = 50
const SAID_MAX = 2000

interface Running {
  stateDirectory: string
  plan: Pick<SnapshotPlan, 'timeoutMs'>
  /** for a message: `copying the data` */
  what: string
  /** over the service's */
  environment?: Readonly<Record<string, string>>
  signal?: AbortSignal
}

/** Runs a command of the author's or the operator's. Throws a blameless refused with its last lines. */
export async function runOnData(
  words: readonly string[],
  file: string,
  { stateDirectory, plan: { timeoutMs }, what, environment = {}, signal }: Running,
): Promise<void> {
  const env = { ...(await environmentOfService()), ...environment }
  const filled = words.map((word) =>
    word.replaceAll('{file}', () => file).replaceAll('{stateDirectory}', () => stateDirectory),
  )
  const [named = '', ...args] = filled
  const program = await programIn(named, env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin')
  if (program === null) throw refusedCopy(`${what}: program \`${named}\` not found`, "the service's PATH was searched")
  const ran = await runBounded([program, ...args], {
    cwd: stateDirectory,
    env,
    timeMs: timeoutMs,
    said: { last: SAID_MAX },
    group: 'own',
    signal,
  }).catch((cause: unknown) => {
    throw refusedCopy(`${what}: running ${program}: ${reasonOf(cause)}`)
  })
  if (ran.code === 0 && ran.stopped === null) return
  const how =
    ran.stopped === 'late' ? `did not finish within ${durationText(timeoutMs)}` : howEnded(ran.code, ran.signal)
  const said = lineOf(ran.said.split('\n'))
  throw refusedCopy(`${what}: \`${named}\` ${how}${said === null ? '' : `, saying ${JSON.stringify(said)}`}`)
}

export function refusedCopy(
  message: string,
  hint = 'nothing has changed, and no copy was kept',
): ReturnType<typeof blameless> {
  return blameless('refused', message, { hint })
}

let fromCommand: (() => Promise<NodeJS.ProcessEnv>) | null = null

/** For a command of the operator's, whose own environment is a shell's: `find` resolves to what the service is started with. */
export function copyWith(find: () => Promise<NodeJS.ProcessEnv>): void {
  fromCommand = find
}

/** What the service was started with, secrets of its environment file among it, without what is meant for its own process. */
async function environmentOfService(): Promise<NodeJS.ProcessEnv> {
  const own = /^(BATON_.*|NOTIFY_SOCKET|WATCHDOG_.*|NODE_OPTIONS|INVOCATION_ID|MAINPID|FDSTORE)$/
  const all = (await fromCommand?.()) ?? environmentAtStart()
  return Object.fromEntries(Object.entries(all).filter(([name]) => !own.test(name)))
}

/** The path of a program; null: there is none. Nothing that serves forks, and without a fork a program can only be started by its path. */
async function programIn(name: string, path: string): Promise<string | null> {
  if (name.includes('/')) return name
  for (const folder of path.split(delimiter)) {
    const found = folder.startsWith('/') ? join(folder, name) : null
    if (found !== null && (await exists(found))) return found
  }
  return null
}

export async function bytesBelow(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true })
  let sum = 0
  for (const entry of entries) if (entry.isFile()) sum += (await lstat(join(entry.parentPath, entry.name))).size
  return sum
}
