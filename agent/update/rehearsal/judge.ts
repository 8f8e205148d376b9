// Turns the report of the cage into a verdict. Pure.
// Must hold: `reversible` only if the present release has written to the migrated copy; any doubt makes it `unproven` or worse.

import { blameless, hindranceOf, lateBy } from '../../words/blame.ts'
import { BatonError } from '../../words/errors.ts'
import type { Rehearsal, TrialCode, Untried } from '../../words/rehearsal.ts'
import type { Report } from './report.ts'

const UNTOUCHED = 'nothing has changed; the trial used only a copy of the data'

interface Tags {
  from: string
  to: string
}

/** How an operator of the place gives a trial more time, or leaves it out. */
export interface Remedies {
  longer: string
  without: string
}

const ON_HOST: Remedies = { longer: '`update.readyTimeout`', without: '`update.trial: "never"` in the configuration' }

export type Judged = Pick<Rehearsal, 'verdict' | 'code' | 'reason' | 'hint' | 'others'>

/**
 * Throws verify_failed if the candidate fails on the copy: it would fail on the data too; refused if it lacked something there. The hint names databases that a way back
 * leaves as they are.
 */
export function judge(report: Report, tags: Tags, remedies = ON_HOST): Judged {
  const judged = verdictOf(report, tags, remedies)
  const { others } = report
  if (others.length === 0 || judged.hint !== undefined) return judged
  const [are, them] = others.length === 1 ? ['is another database', 'it'] : ['are other databases', 'them']
  return {
    ...judged,
    others: [...others],
    hint: `${others.join(', ')} ${are} of the service; a rollback with \`--restore-state\` leaves ${them} unchanged`,
  }
}

/** The disk was about to be full: that says nothing about the release. */
export function tooFull(to: string): BatonError {
  const why = `trying ${to} on a copy of the data would have filled the disk, so its migration needs more space than is available`
  return blameless('refused', why, { hint: 'nothing has changed; free up space and try again' })
}

/**
 * Throws verify_failed if the time was over while the candidate ran: what is not proved good is never *not tried* then. It is not
 * remembered: a slow host may be the reason.
 */
export function refuseLate({ phase }: Report, to: string, why: string): void {
  if (phase !== 'candidate' && phase !== 'present-again') return
  throw blameless('verify_failed', `${to} fails on a copy of the data: ${why}`, { hint: UNTOUCHED })
}

function verdictOf(report: Report, tags: Tags, remedies: Remedies): Judged {
  const untried = noVerdict(report, tags, remedies)
  if (untried !== null) return { verdict: 'untried', ...untried }
  refuseCandidate(report, tags, remedies)
  const [verdict, code, reason] = wayBack(report, tags)
  return { verdict, code, reason }
}

/** Null: the running release works in the trial, and the candidate was started. Throws what says nothing about a release. */
function noVerdict({ phase, present, candidate }: Report, { from, to }: Tags, { without }: Remedies): Untried | null {
  if (phase === 'full') throw tooFull(to)
  if (phase === 'no-room')
    return {
      code: 'no_room',
      reason: 'there is no room for a trial: it needs its own file system, in memory or on a loop device',
    }
  if (present === null || present.failure !== null || candidate === null) {
    if (phase === 'candidate') throw endedCage(to, without)
    const why = present?.failure ?? 'the trial ended without a report'
    return {
      code: 'running_fails',
      reason: `the running release ${from} does not work in the trial: ${why}`,
      hint: 'the trial has no network and no environment file, and has read-only access to the host',
    }
  }
  if (present.refused === null) return null
  return { code: 'running_fails', reason: `${from} itself does not answer as \`trial\` expects: ${present.refused}` }
}

/** Throws if the candidate fails on the copy, or spoils it. */
function refuseCandidate({ candidate, damage }: Report, { to }: Tags, { longer }: Remedies): void {
  const { failure = null, lateMs } = candidate ?? {}
  if (failure !== null) {
    const hindrance = hindranceOf({ how: failure, said: null, isCaged: true })
    if (hindrance !== null) throw hindered(to, failure, hindrance)
    throw lateMs === undefined ? failed(to, failure) : tooLate(to, failure, { hadMs: lateMs, longer })
  }
  if (damage !== null) throw failed(to, `after its migration, ${damage}`)
}

/** What the running release shows on the data that the candidate has left. */
function wayBack(report: Report, { from, to }: Tags): [Rehearsal['verdict'], TrialCode, string] {
  const { presentAgain, candidate, lost, difference, changed, reversible } = report
  const left = `the data that ${to} leaves behind`
  if (lost !== null) return ['irreversible', 'rows_lost', lost]
  if (presentAgain === null || presentAgain.failure !== null) {
    const why = presentAgain?.failure ?? 'the trial ended'
    return ['irreversible', 'cannot_start', `${from} does not start with ${left}: ${why}`]
  }
  if (presentAgain.refused !== null)
    return ['irreversible', 'cannot_work', `${from} does not work with ${left}: ${presentAgain.refused}`]
  const refused = candidate?.refused ?? null
  if (refused !== null)
    return ['unproven', 'own_trial', `${to} does not answer as its own \`trial\` expects: ${refused}`]
  const otherThanBefore = [difference, changed].filter((why) => why !== null).join('; ')
  if (otherThanBefore !== '' && !reversible) return ['unproven', 'data_differs', otherThanBefore]
  if (presentAgain.writes === 0)
    return [
      'unproven',
      'write_not_tested',
      `${from} starts with ${left}, but whether it can also write to it was not tested`,
    ]
  return ['reversible', 'reads_and_writes', `${from} can read and write the data as ${to} leaves it`]
}

/** The candidate failed for want of something that its trial has less of than a service: that says nothing about the release. */
function hindered(to: string, why: string, hindrance: string): BatonError {
  return blameless('refused', `${to} fails on a copy of the data: ${why}; ${hindrance}`, {
    hint: `nothing has changed, and ${to} is not marked as failed: fix the cause and try again`,
  })
}

/**
 * The cage ended with the candidate in it, so it is not proved good. It had taken all memory or all processes, of which a cage has less than
 * the service, or somebody has ended the cage: that is not held against it.
 */
function endedCage(to: string, without: string): BatonError {
  const why = 'the trial ended: the release hit its memory or process limit'
  return blameless('verify_failed', `${to} fails on a copy of the data: ${why}`, {
    hint: `${UNTOUCHED}; to install the release without a trial, use ${without}`,
  })
}

function tooLate(to: string, why: string, { hadMs, longer }: { hadMs: number; longer: string }): BatonError {
  return lateBy('verify_failed', `${to} fails on a copy of the data: ${why}`, hadMs, {
    hint: `${UNTOUCHED}; if it only needs more time, set a longer ${longer} and try again`,
  })
}

function failed(to: string, why: string): BatonError {
  return new BatonError('verify_failed', `${to} fails on a copy of the data: ${why}`, {
    hint: UNTOUCHED,
  })
}
