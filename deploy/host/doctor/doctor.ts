// The checks that say what would fail before anything is downloaded, in the order in which they are reported. An install runs those
// of the host and of `place`, and stops at the first failure; `doctor` reports them all. Reads only.
// Must hold: a check that reads the service's files runs as the service's user.

import { reasonOf } from '../../../agent/words.ts'
import type { Outside } from '../service/outside.ts'
import { checkClock } from './clock.ts'
import { checkConfiguration } from './configuration.ts'
import { checkDatabase } from './database.ts'
import { checkExecutable } from './executable.ts'
import { checkFeed } from './feed.ts'
import { failure, type Finding, type Subject } from './finding.ts'
import { checkHost, checkRights, checkSupervisor } from './host.ts'
import { checkMounts } from './mounts.ts'
import { checkDirectories } from './places.ts'
import { checkSpace, checkUpdateSpace } from './space.ts'
import { checkSwitch } from './switch.ts'
import { checkSandbox } from './unit.ts'

type Check = (subject: Subject, outside: Outside) => Promise<Finding[]>

/** These ask only the host and its supervisor. */
export const HOST_CHECKS: readonly Check[] = [checkHost, checkRights, checkSupervisor, checkSandbox]

const CHECKS = {
  /** what an install needs of the service's directories */
  place: [checkDirectories, checkMounts, checkSpace],
  /** these, and what else an update needs */
  all: [
    checkDirectories,
    checkMounts,
    checkUpdateSpace,
    checkExecutable,
    checkConfiguration,
    checkSwitch,
    checkDatabase,
    checkFeed,
    checkClock,
  ],
} as const satisfies Record<string, readonly Check[]>

export type Checks = keyof typeof CHECKS

/** Runs the checks that need the service's user. It changes no user itself: `Side` calls it, in a process of that user. */
export async function examine(subject: Subject, checks: Checks, outside: Outside): Promise<Finding[]> {
  return await runChecks(subject, CHECKS[checks], outside)
}

export async function runChecks(subject: Subject, checks: readonly Check[], outside: Outside): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const check of checks) {
    try {
      findings.push(...(await check(subject, outside)))
    } catch (cause) {
      findings.push(failure(check.name.replace(/^check/, '').toLowerCase(), reasonOf(cause)))
    }
  }
  return findings
}
