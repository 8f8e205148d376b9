// Checks the service's directories: that its user can write in them, that they and the executable lie where one can replace the other,
// and that there is room for what an install or an update writes. Runs as the service's user, except `checkGiven`.

import { access, constants, lstat, readdir, readFile, realpath } from 'node:fs/promises'
import { basename, join } from 'node:path'
import {
  mebibytes,
  installedTag,
  nearestExisting,
  type Need,
  needsBeside,
  needsOfAsset,
  needsOfExecutable,
  ownDatabase,
  roomFor,
} from '../../../agent/install.ts'
import { reasonOf } from '../../../agent/words.ts'
import { trustIn } from '../../lib/trusted.ts'
import type { Layout } from '../place/layout.ts'
import type { Outside } from '../service/outside.ts'
import { ownFolderOf } from '../service/own-folder.ts'
import { whyNotWritable } from '../service/survey.ts'
import { newest } from './feed.ts'
import { problem, type Finding, ok, type Subject, warning, wrongOf } from './finding.ts'

/** which the system has made, whatever the service is called */
const SHARED = /^\/(usr\/(local\/)?)?[^/]*$/
const ELSEWHERE = 'choose another location with `--prefix` or `--state-dir`'

export interface HostMount {
  path: string
  options: string[]
}

export async function checkDirectories({ layout, given }: Subject): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const [check, path] of directoriesOf(layout)) {
    if (given.includes(path)) continue
    const existing = await nearestExisting(path)
    const found = await lstat(existing)
    if (!found.isDirectory() && !found.isSymbolicLink()) {
      findings.push(problem(check, `${existing} exists, but is not a directory`))
      continue
    }
    const link = await linkFault(check, path)
    if (link !== null) {
      findings.push(link)
      continue
    }
    const reason = await whyNotWritable(existing)
    if (reason === null) findings.push(ok(check, path))
    else findings.push(judge(check, existing, found.uid, reason, layout))
  }
  return findings
}

/** Each release of kind `app` has a folder of its own. */
export async function checkOwnFolder({ receipt }: Subject): Promise<Finding[]> {
  if (receipt === null) return []
  const tag = await installedTag(receipt.executable).catch(() => null)
  const own = tag === null ? null : await ownFolderOf(receipt, tag)
  if (own === null) return []
  return [
    warning(
      'data',
      `${tag} has written files into its own folder, ${own.path}: ${own.files}`,
      'other releases will not have these files: move them to the state directory, and ask the author to keep data there',
    ),
  ]
}

function directoriesOf({ directory, stateDirectory }: Layout) {
  return [['directory', directory] as const, ['state', stateDirectory] as const]
}

/** A later install would find no directory there, and an uninstall could not remove it. Null: it is no link. */
async function linkFault(check: 'directory' | 'state', path: string): Promise<Finding | null> {
  const found = await lstat(path).catch(() => null)
  if (found?.isSymbolicLink() !== true) return null
  const flag = check === 'directory' ? '--prefix' : '--state-dir'
  const hint = `pass the directory that the link points to: \`${flag} ${await realpath(path).catch(() => path)}\``
  return problem(check, `expected a directory at ${path}, found a link`, hint)
}

function judge(check: string, path: string, uid: number, reason: string, layout: Layout): Finding {
  if (reason.includes('EROFS')) return problem(check, `${path} is on a read-only file system`, ELSEWHERE)
  const { user } = layout
  const message = `${user} cannot write to ${path}, which belongs to user id ${uid}`
  return problem(check, message, uid === 0 ? howToGive(path, layout) : ELSEWHERE)
}

/** Only a directory that has the service's name is its own by all appearance: what lies in `/usr/local/bin` is others' too. */
export function howToGive(path: string, { service, user }: Pick<Layout, 'service' | 'user'>): string {
  const isOwn = basename(path).includes(service) && !SHARED.test(path)
  return isOwn ? `to give the directory to ${user}, run \`chown -R ${user}: ${path}\`; or ${ELSEWHERE}` : ELSEWHERE
}

/**
 * Root's check, before all others. `given`: the directories that root will make, or give to the service. Fails for a directory
 * with root's files in it: root does not give those away by itself.
 */
export async function checkGiven(layout: Layout): Promise<{ findings: Finding[]; given: string[] }> {
  const findings: Finding[] = []
  const given: string[] = []
  for (const [check, path] of directoriesOf(layout)) {
    const link = await linkFault(check, path)
    if (link !== null) {
      findings.push(link)
      continue
    }
    const trust = await trustIn(path)
    if (!trust.trusted) continue // it is the service's already, or its user makes it
    const [first] = trust.found?.isDirectory() === true ? await readdir(path) : []
    if (first !== undefined) {
      const message = `expected ${path} to be empty or owned by ${layout.user}, found ${join(path, first)}, which root owns`
      findings.push(problem(check, message, howToGive(path, layout)))
    } else given.push(path)
  }
  return { findings, given }
}

/** An update renames the new executable into place: nothing can be renamed over a mount point, or to another file system. */
export async function checkMounts({ layout: { directory, stateDirectory, executable } }: Subject): Promise<Finding[]> {
  if (process.platform !== 'linux') return []
  const mounts = parseMounts(await readFile('/proc/self/mountinfo', 'utf8'))
  const mount = mountOf(mounts, await nearestExisting(directory))
  const isReadOnly = async (path: string) =>
    (await access(path, constants.W_OK).then(() => '', reasonOf)).includes('EROFS')
  const existing = await Promise.all([directory, stateDirectory].map(nearestExisting))
  const readOnly = await Promise.all(existing.map(isReadOnly))
  // device numbers cannot show another file system: on an overlay a file's and its directory's differ
  const isLink = (await lstat(executable).catch(() => null))?.isSymbolicLink() === true
  return wrongOf(
    [
      ...existing.map(
        (path, at) => readOnly[at] && problem('mount', `${path} is on a read-only file system`, ELSEWHERE),
      ),
      mount?.options.includes('noexec') &&
        problem(
          'mount',
          `${mount.path} is mounted noexec: programs in ${directory} cannot run`,
          'choose another location with `--prefix`',
        ),
      mounts.some(({ path }) => path === executable) &&
        problem(
          'mount',
          `${executable} is itself a mount point, so an update cannot replace it`,
          'mount its directory instead',
        ),
      isLink &&
        problem(
          'mount',
          `${executable} is a link, which may point to another file system`,
          'replace the link with the file itself',
        ),
    ],
    ok('mount', `${mount?.path ?? '/'} allows programs to run`),
  )
}

/** proc(5), mountinfo: field 5 is the mount point, 6 its options. */
export function parseMounts(text: string): HostMount[] {
  const lines = text
    .split('\n')
    .filter(Boolean)
    .map((line) => line.split(' '))
  return lines.map((fields) => ({
    path: (fields[4] ?? '').replaceAll(/\\([0-7]{3})/g, (_all, code: string) =>
      String.fromCharCode(Number.parseInt(code, 8)),
    ),
    options: (fields[5] ?? '').split(','),
  }))
}

/** The mount of the deepest path counts; of several there, the last one. */
export function mountOf(mounts: readonly HostMount[], path: string): HostMount | null {
  let best: HostMount | null = null
  for (const mount of mounts) {
    const holds = mount.path === '/' || path === mount.path || path.startsWith(`${mount.path}/`)
    if (holds && mount.path.length >= (best?.path.length ?? 0)) best = mount
  }
  return best
}

/** For an install of this program. */
export async function checkSpace(subject: Subject): Promise<Finding[]> {
  const { layout, executableBytes, unpackedBytes } = subject
  return await checkRoom(subject, needsOfExecutable(layout.directory, executableBytes, unpackedBytes))
}

/** For an update to the newest release. If the feed has none or cannot be asked, assumes one as large as this program. */
export async function checkUpdateSpace(subject: Subject, outside: Outside): Promise<Finding[]> {
  const found = subject.receipt === null ? null : await newest(subject, outside).catch(() => null)
  const release = found?.release ?? null
  if (release === null) return await checkSpace(subject)
  return await checkRoom(subject, needsOfAsset(subject.layout.directory, release.asset))
}

async function checkRoom({ layout }: Subject, ofExecutable: readonly Need[]): Promise<Finding[]> {
  const { service, stateDirectory } = layout
  const database = ownDatabase(service, stateDirectory)
  const needs = [...ofExecutable, ...(await needsBeside({ database, stateDirectory }))]
  return (await roomFor(needs)).map(({ directory: at, freeBytes, neededBytes, freeInodes, neededInodes, what }) => {
    if (freeInodes < neededInodes) {
      const message = `not enough inodes: ${freeInodes} free in ${at}, ${neededInodes} needed for ${what}`
      return problem('space', message, 'remove some files on that file system; `df -i` shows inode usage')
    }
    const message = `${mebibytes(freeBytes, Math.floor)} free in ${at}, ${mebibytes(neededBytes)} needed for ${what}`
    const hint = 'free up disk space, or choose another location with `--prefix` or `--state-dir`'
    return freeBytes >= neededBytes ? ok('space', message) : problem('space', `not enough space: ${message}`, hint)
  })
}
