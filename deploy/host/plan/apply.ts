// Carries out the steps of a plan, one function a step. A failure before the point of no return, such as `start`, undoes the steps
// before it. So an install that fails leaves the host as it was.
// Must never break: it carries out no step that the plan does not show; root touches only what nobody but root can change, and has
// the rest done as the service's user (`Side`).

import { randomBytes } from 'node:crypto'
import { chmod, chown, lstat, mkdir, readdir, readFile, readlink, rm, symlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { exists, makeDisk, writeReceipt } from '../../../agent/install.ts'
import { asBatonError, BatonError } from '../../../agent/words.ts'
import { isRefusal } from '../../lib/refusal.ts'
import { run } from '../../lib/shell.ts'
import { idOf, isRoot } from '../place/identity.ts'
import { assertTrusted, trustIn } from '../../lib/trusted.ts'
import { removeDirectory } from '../service/survey.ts'
import type { Side } from '../service/side.ts'
import { createUser, removeUser } from './user.ts'
import { describe, type Step } from './step.ts'

/** Carries out the steps that are more than changes of files. */
export interface Carrier {
  who: string
  /** called with each step before it is carried out */
  say(step: Step): void
  /** changes files as the service's user, who must exist */
  side(): Promise<Side>
  /** closes `side` for good: no process of the service's user may be left */
  leaveSide(): Promise<void>
  /** removes an empty directory whose parent is not root's, as the service's user */
  removeEmpty(path: string): Promise<void>
  /** has the executable unpack itself, before a failure could leave an install that does not start */
  unpack(path: string): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
  restart(): Promise<void>
  update(to: string | null): Promise<void>
  rollback(to: string | null): Promise<void>
  waitHealthy(tag: string): Promise<void>
  /** reports paths that could not be removed */
  left(paths: readonly string[]): void
}

type Undo = () => Promise<unknown>
type Of<Do extends Step['do']> = Extract<Step, { do: Do }>

/** from these steps on a failure undoes nothing: a person must look at what happened */
const POINT_OF_NO_RETURN: readonly Step['do'][] = [
  'start',
  'stop',
  'restart',
  'update',
  'rollback',
  'wait-healthy',
  'remove',
  'purge',
]
/** release the lock before these: the service takes it itself for an operation, and while it starts */
const TAKE_THE_LOCK: readonly Step['do'][] = ['start', 'restart', 'update', 'rollback', 'purge']

/** What is made for the whole host is read by all and written by its owner, whatever umask the command inherited. */
const OWN_UMASK = 0o022

export async function carryOut(steps: readonly Step[], carrier: Carrier): Promise<void> {
  const undo: Undo[] = []
  let [final, locked] = [false, false]
  const unlock = async () => {
    if (locked) await (await carrier.side()).unlock().catch(() => {})
    locked = false
  }
  const inherited = process.umask()
  try {
    for (const step of steps) {
      // the service itself starts with the umask of whoever starts it
      process.umask(step.do === 'start' || step.do === 'restart' ? inherited : OWN_UMASK)
      // removing an earlier installer's receipt, in the middle of an install, does not keep a failure from undoing the steps before
      final ||= POINT_OF_NO_RETURN.includes(step.do) && !(step.do === 'remove' && step.path.endsWith('receipt.json'))
      if (TAKE_THE_LOCK.includes(step.do)) await unlock()
      carrier.say(step)
      undo.push(await carryOutOne(step, carrier))
      locked ||= step.do === 'lock'
    }
  } catch (cause) {
    await unlock()
    if (!final) for (const back of undo.toReversed()) await back().catch(() => {})
    throw cause
  } finally {
    await unlock()
    process.umask(inherited)
  }
}

type Act<Do extends Step['do']> = (step: Of<Do>, carrier: Carrier) => Promise<Undo>

const nothing = async (): Promise<Undo> => async () => {}

/** One function a step. */
const ACTS: { readonly [Do in Step['do']]: Act<Do> } = {
  'create-user': async ({ user, service, home }, { leaveSide }) => {
    const back = await createUser(user, { service, home })
    return async () => {
      await leaveSide().catch(() => {})
      await back()
    }
  },
  // userdel(8) refuses while a process of the user lives
  'remove-user': async ({ user }, { leaveSide }) => {
    await leaveSide()
    return await removeUser(user).then(nothing)
  },
  'make-directory': makeDirectory,
  lock: async ({ path }, { side, who }) => await (await side()).lock({ stateDirectory: path, who }).then(nothing),
  'write-config': writeConfig,
  'place-executable': placeExecutable,
  'place-program': placeProgram,
  'write-receipt': writeOurReceipt,
  'write-file': writeUnit,
  allow: async () => await nothing(), // the unit that is written gives it
  link: ({ path, target }) => link(path, target),
  remove: async ({ path, of }, { side }) =>
    await (of === 'service' ? (await side()).remove([path]) : rm(path, { force: true })).then(nothing),
  'remove-directory': async ({ path, of }, carrier) =>
    await (of === 'service' ? (await carrier.side()).removeDirectory(path) : removeFromItsParent(path, carrier)).then(
      nothing,
    ),
  purge: async ({ path, of }, { side, left }) => {
    left(of === 'service' ? await (await side()).empty(path) : await removeTree(path))
    return await nothing()
  },
  run: runProgram,
  start: (_step, carrier) => carrier.start().then(nothing),
  stop: (_step, carrier) => carrier.stop().then(nothing),
  restart: (_step, carrier) => carrier.restart().then(nothing),
  update: ({ to }, carrier) => carrier.update(to).then(nothing),
  rollback: ({ to }, carrier) => carrier.rollback(to).then(nothing),
  'wait-healthy': ({ tag }, carrier) => carrier.waitHealthy(tag).then(nothing),
}

async function carryOutOne(step: Step, carrier: Carrier): Promise<Undo> {
  try {
    return await (ACTS[step.do] as Act<Step['do']>)(step, carrier)
  } catch (cause) {
    throw withDoing(cause, step)
  }
}

async function runProgram({ command }: Of<'run'>): Promise<Undo> {
  await run(command, { timeoutMs: 60_000 })
  if (!command.includes('enable')) return await nothing()
  return () => run(command.map((word) => (word === 'enable' ? 'disable' : word)))
}

async function writeConfig({ owner, path, config }: Of<'write-config'>): Promise<Undo> {
  const dashboard = { password: randomBytes(24).toString('base64url') }
  await writeAs(owner, path, `${JSON.stringify({ dashboard, ...config }, null, 2)}\n`, 0o600)
  return () => rm(path, { force: true })
}

async function placeExecutable({ path, stateDirectory, tag }: Of<'place-executable'>, carrier: Carrier): Promise<Undo> {
  const side = await carrier.side()
  await side.place({ path, stateDirectory, tag })
  const back = () => side.remove([path, join(dirname(path), `.${basename(path)}`)])
  try {
    await carrier.unpack(path)
  } catch (cause) {
    await back().catch(() => {})
    throw cause
  }
  return back
}

async function writeUnit({ path, content }: Of<'write-file'>): Promise<Undo> {
  const before = await readFile(path, 'utf8').catch(() => null)
  await mkdir(dirname(path), { recursive: true })
  await writeAs(null, path, content, 0o644)
  return () => (before === null ? rm(path, { force: true }) : writeAs(null, path, before, 0o644))
}

/** Adds the step to the error. A full or read-only disk and missing rights are refusals: nothing has changed. */
function withDoing(cause: unknown, step: Step): BatonError {
  return asBatonError(cause, isRefusal(cause) ? 'refused' : 'unexpected', describe(step))
}

/** If nobody but root can change the path, root makes the directory and gives it away; else the service's user makes it. */
async function makeDirectory(step: Of<'make-directory'>, carrier: Carrier): Promise<Undo> {
  const { path, mode, owner, group } = step
  if (owner === null) return await makeOwn(path, mode, carrier)
  const trust = await trustIn(path)
  if (!trust.trusted) {
    const side = await carrier.side()
    const made = await side.makeDirectory({ path, mode })
    return made ? () => side.removeDirectory(path) : await nothing()
  }
  const first = await mkdir(path, { recursive: true, mode: 0o755 })
  // give root's directory away only if it is empty: files in it could belong to somebody
  if (first === undefined && owner !== 'root' && (await readdir(path)).length > 0) {
    throw new BatonError(
      'refused',
      `expected ${path} to be empty or owned by ${owner}, but root owns it and it is not empty`,
      {
        hint: 'choose another location with `--prefix` or `--state-dir`',
      },
    )
  }
  if (first !== undefined) await chmod(path, mode)
  await chown(path, (await idOf(owner)).uid, (await idOf(group ?? owner)).gid)
  if (first === undefined) return await nothing()
  // only the owner removes what is inside: they may have put a link there
  const empty = async () => (owner === 'root' ? await removeTree(path) : await (await carrier.side()).empty(path))
  return () => removeMade(first, path, empty, carrier)
}

/** Removes the directories that were made, from `path` up to `first`; one that is not empty stays, and is reported. */
async function removeMade(
  first: string,
  path: string,
  empty: () => Promise<unknown>,
  { left }: Carrier,
): Promise<void> {
  await empty().catch(() => {})
  for (let at = path; ; at = dirname(at)) {
    await removeDirectory(at)
    if (at === first) break
  }
  if (await exists(path)) left([path])
}

async function makeOwn(path: string, mode: number, carrier: Carrier): Promise<Undo> {
  const first = await mkdir(path, { recursive: true, mode })
  const found = await lstat(path)
  if (!found.isDirectory()) throw new BatonError('refused', `${path} exists, but is not a directory`)
  if (first === undefined) return await nothing()
  await chmod(path, mode)
  return () => removeMade(first, path, () => removeTree(path), carrier)
}

/** Makes root's own copy of this program, which was verified before it was run. */
async function placeProgram({ from, path }: Of<'place-program'>): Promise<Undo> {
  const directory = dirname(path)
  await assertTrusted(directory, "root's own folder", `make sure that only root can write to ${directory}`)
  const fresh = await mkdir(directory, { recursive: true, mode: 0o755 })
  const disk = makeDisk()
  await disk.replace(path, (temporary) => disk.copy(from, temporary, 0o755))
  await disk.flushDirectory(directory)
  // if there was a folder, keep the newer program: it can operate the existing install; else remove all of it
  return async () => void (fresh === undefined || (await rm(fresh, { recursive: true, force: true })))
}

async function writeOurReceipt({ path, receipt }: Of<'write-receipt'>): Promise<Undo> {
  if (receipt.scope === 'system') {
    await assertTrusted(dirname(path), "root's own folder", `make sure that only root can write to ${dirname(path)}`)
    await mkdir(dirname(path), { recursive: true, mode: 0o755 })
  }
  const before = await readFile(path, 'utf8').catch(() => null)
  await writeReceipt(makeDisk(), receipt)
  return () => (before === null ? rm(path, { force: true }) : writeAs(null, path, before, 0o644))
}

async function link(path: string, target: string): Promise<Undo> {
  await mkdir(dirname(path), { recursive: true })
  const before = await readlink(path).catch(() => null)
  const point = (to: string) => makeDisk().replace(path, (temporary) => symlink(to, temporary))
  await point(target)
  return () => (before === null ? rm(path, { force: true }) : point(before))
}

/** Writes all or nothing, in a folder that nobody else can change. `owner` null: the user of this command. */
async function writeAs(owner: string | null, path: string, text: string, mode: number): Promise<void> {
  const disk = makeDisk()
  await disk.replace(path, async (temporary) => {
    await using file = await disk.create(temporary, mode)
    const { uid, gid } = owner === null ? { uid: 0, gid: 0 } : await idOf(owner)
    if (isRoot()) await file.chown(uid, gid)
    await file.writeFile(text)
    await disk.flush(file, temporary)
  })
}

/** Root removes a directory of the service's if its parent is root's; else the service's user does. */
async function removeFromItsParent(path: string, carrier: Carrier): Promise<void> {
  const parent = await trustIn(dirname(path))
  if (!isRoot() || parent.trusted) await removeDirectory(path)
  else await carrier.removeEmpty(path)
}

/** Root removes only what nobody else can change: the rest could change meanwhile. It stays, and is returned. */
async function removeTree(path: string): Promise<string[]> {
  if (isRoot() && !(await trustIn(path)).trusted) return [`${path}: users other than root can change it`]
  const left: string[] = []
  for (const name of await readdir(path).catch(() => [])) {
    const inner = join(path, name)
    if ((await lstat(inner)).isDirectory()) left.push(...(await removeTree(inner)))
    else await rm(inner, { force: true })
  }
  if (left.length === 0) await removeDirectory(path)
  return left
}
