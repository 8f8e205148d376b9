// Checks that the service's user can write in its directories. Runs as that user, except `checkGiven`.

import { lstat, readdir, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { nearestExisting } from '../../../agent/install.ts'
import type { Layout } from '../place/layout.ts'
import { trustIn } from '../../lib/trusted.ts'
import { whyNotWritable } from '../service/survey.ts'
import { failure, type Finding, ok, type Subject } from './finding.ts'

const ELSEWHERE = 'choose another place with `--prefix` or `--state-dir`'

export async function checkDirectories({ layout, given }: Subject): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const [check, path] of [
    ['directory', layout.directory],
    ['state', layout.stateDirectory],
  ] as const) {
    if (given.includes(path)) continue
    const existing = await nearestExisting(path)
    const found = await lstat(existing)
    if (!found.isDirectory() && !found.isSymbolicLink()) {
      findings.push(failure(check, `expected a directory at ${existing}, found another file`))
      continue
    }
    const link = await linkFault(check, path)
    if (link !== null) {
      findings.push(link)
      continue
    }
    const reason = await whyNotWritable(existing)
    if (reason === null) findings.push(ok(check, path))
    else findings.push(judge(check, existing, found.uid, reason, layout.user))
  }
  return findings
}

/** A later install would find no directory there, and an uninstall could not remove it. Null: it is no link. */
async function linkFault(check: 'directory' | 'state', path: string): Promise<Finding | null> {
  const found = await lstat(path).catch(() => null)
  if (found?.isSymbolicLink() !== true) return null
  const flag = check === 'directory' ? '--prefix' : '--state-dir'
  const hint = `name the directory that it leads to: \`${flag} ${await realpath(path).catch(() => path)}\``
  return failure(check, `expected a directory at ${path}, found a link`, hint)
}

function judge(check: string, path: string, uid: number, reason: string, user: string): Finding {
  if (reason.includes('EROFS')) return failure(check, `${path} is on a read-only file system`, ELSEWHERE)
  const give = uid === 0 ? `\`chown -R ${user}: ${path}\` gives it to ${user}, or ` : ''
  return failure(
    check,
    `expected ${user} to be able to write in ${path}, which belongs to user id ${uid}`,
    `${give}${ELSEWHERE}`,
  )
}

/**
 * Root's check, before all others. `given`: the directories that root will make, or give to the service. Fails for a directory
 * with root's files in it: root does not give those away by itself.
 */
export async function checkGiven(layout: Layout): Promise<{ findings: Finding[]; given: string[] }> {
  const findings: Finding[] = []
  const given: string[] = []
  for (const [check, path] of [
    ['directory', layout.directory],
    ['state', layout.stateDirectory],
  ] as const) {
    const link = await linkFault(check, path)
    if (link !== null) {
      findings.push(link)
      continue
    }
    const trust = await trustIn(path)
    if (!trust.trusted) continue // it is the service's already, or its user makes it
    const [first] = trust.found?.isDirectory() === true ? await readdir(path) : []
    if (first !== undefined) {
      const hint = `\`chown -R ${layout.user}: ${path}\` gives it to ${layout.user}, or ${ELSEWHERE}`
      findings.push(
        failure(
          check,
          `expected ${path} to be empty or ${layout.user}'s, found ${join(path, first)}, which is root's`,
          hint,
        ),
      )
    } else given.push(path)
  }
  return { findings, given }
}
