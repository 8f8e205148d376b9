// Checks the mounts: read-only, noexec, and an executable that is a mount point itself.

import { access, constants, lstat, readFile } from 'node:fs/promises'
import { nearestExisting } from '../../../agent/install.ts'
import { reasonOf } from '../../../agent/words.ts'
import { failure, type Finding, ok, type Subject } from './finding.ts'

export interface HostMount {
  path: string
  options: string[]
}

/** An update renames the new executable into place: nothing can be renamed over a mount point, or to another file system. */
export async function checkMounts({ layout }: Subject): Promise<Finding[]> {
  if (process.platform !== 'linux') return []
  const mounts = parseMounts(await readFile('/proc/self/mountinfo', 'utf8'))
  const directory = await nearestExisting(layout.directory)
  const mount = mountOf(mounts, directory)
  const findings: Finding[] = []
  for (const path of [layout.directory, layout.stateDirectory]) {
    const existing = await nearestExisting(path)
    const reason = await access(existing, constants.W_OK).then(() => '', reasonOf)
    if (!reason.includes('EROFS')) continue
    const hint = 'choose another place with `--prefix` or `--state-dir`'
    findings.push(failure('mount', `${existing} is on a read-only file system`, hint))
  }
  if (mount?.options.includes('noexec')) {
    findings.push(
      failure(
        'mount',
        `${mount.path} is mounted noexec: nothing in ${layout.directory} would run`,
        'choose another place with `--prefix`',
      ),
    )
  }
  if (mounts.some(({ path }) => path === layout.executable)) {
    findings.push(
      failure(
        'mount',
        `${layout.executable} is itself a mount point: nothing can be renamed over it`,
        'mount its directory instead',
      ),
    )
  }
  // device numbers cannot show another file system: on an overlay a file's and its directory's differ
  if ((await lstat(layout.executable).catch(() => null))?.isSymbolicLink()) {
    findings.push(
      failure(
        'mount',
        `${layout.executable} is a link, it may lead to another file system`,
        'put the file itself there',
      ),
    )
  }
  return findings.length > 0 ? findings : [ok('mount', `${mount?.path ?? '/'} allows programs`)]
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
