// The table of the checks, which say what would fail before anything is downloaded, in the order in which they are reported. An install
// runs those of the host and of `place`, and stops at the first problem; `doctor` reports them all. Reads only.
// Must hold: a check that reads the service's files runs as the service's user.

import { reasonOf } from '../../../agent/words.ts'
import type { Outside } from '../service/outside.ts'
import { checkDatabase } from './database.ts'
import { checkClock, checkFeed, checkMirrors } from './feed.ts'
import { problem, type Finding, type Subject } from './finding.ts'
import { checkHost, checkRights, checkSandbox, checkSupervisor } from './host.ts'
import { checkDirectories, checkMounts, checkOwnFolder, checkSpace, checkUpdateSpace } from './places.ts'
import { checkConfiguration, checkCrashes, checkExecutable, checkSwitch } from './service.ts'

/** `More`: what it needs beside the subject. */
export interface Check<More extends [] | [Outside] = [], Of = Subject> {
  /** what is reported if the look itself fails */
  title: string
  /** what it finds: each finding with its advice */
  look: (subject: Of, ...more: More) => Promise<Finding[]>
}

const MOUNTS: Check = { title: 'mount', look: checkMounts }
const SPACE: Check = { title: 'space', look: checkSpace }
const DIRECTORIES: Check = { title: 'directory', look: checkDirectories }

/** These ask only the host and its supervisor. */
export const HOST_CHECKS: readonly Check[] = [
  { title: 'host', look: checkHost },
  { title: 'rights', look: checkRights },
  { title: 'supervisor', look: checkSupervisor },
  { title: 'unit', look: checkSandbox },
]

/** What root looks at for a user who is not there yet. */
export const ROOM_CHECKS: readonly Check[] = [MOUNTS, SPACE]

const CHECKS: Record<'place' | 'all', readonly Check<[Outside]>[]> = {
  /** what an install needs of the service's directories */
  place: [DIRECTORIES, MOUNTS, SPACE],
  /** these, and what else an update needs */
  all: [
    DIRECTORIES,
    MOUNTS,
    { title: 'space', look: checkUpdateSpace },
    { title: 'executable', look: checkExecutable },
    { title: 'configuration', look: checkConfiguration },
    { title: 'service', look: checkCrashes },
    { title: 'switch', look: checkSwitch },
    { title: 'database', look: checkDatabase },
    { title: 'data', look: checkOwnFolder },
    { title: 'feed', look: checkFeed },
    { title: 'mirror', look: checkMirrors },
    { title: 'clock', look: checkClock },
  ],
}

export type Checks = keyof typeof CHECKS

/** Runs the checks that need the service's user. It changes no user itself: `Side` calls it, in a process of that user. */
export async function examine(subject: Subject, checks: Checks, outside: Outside): Promise<Finding[]> {
  return await runChecks(subject, CHECKS[checks], outside)
}

export async function runChecks<Of, More extends [] | [Outside]>(
  subject: Of,
  checks: readonly Check<More, Of>[],
  ...more: More
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const { title, look } of checks) {
    try {
      findings.push(...(await look(subject, ...more)))
    } catch (cause) {
      findings.push(problem(title, reasonOf(cause)))
    }
  }
  return findings
}
