// How an operation ends: one table, which the operation itself, the holder, the rescue, the start of a service and the next operation
// share. It says the outcome, which executable and whose data belong in place, and what is held against the release. Pure.
// Must hold: `updated` only with the new executable in place, and `reverted` only with the old one; an executable is taken away only
// from a release that does not live, and only if there is another one; what is held against a release needs evidence.

import type { Blame } from '../words/blame.ts'
import type { ErrorCode } from '../words/errors.ts'
import type { Kind, Outcome, Stage } from '../words/state.ts'

/** What has failed, and what that says about the release. */
export interface Failure extends Blame {
  code: ErrorCode
  /** the bytes that were published fail: to download them again would not help */
  isOfBytes?: boolean
}

/**
 * Who has to know. `operation`: the process that carries it out. `holder`: while no process of the application lives. `rescue`: the service
 * has ended in failure. Or nobody is at the operation any more, and a process of the service starts, or the next operation begins.
 */
export type Asker = 'operation' | 'holder' | 'rescue' | 'start' | 'next'

/** The release that the executable's path names. `either`: the two have the same bytes, or cannot be told apart. */
export type InPlace = 'old' | 'new' | 'either' | 'other'

/** All that a decision depends on. */
export interface Situation {
  asks: Asker
  kind: Kind
  stage: Stage
  /** null: nothing, as far as is known */
  failed: Failure | null
  /** how often the service has ended in failure before, with the release on probation; null: none is on probation */
  failures: number | null
  inPlace: InPlace
  /** whether there is a backup executable that can be put in place */
  hasBackup: boolean
  /** whether the two releases have data of their own in this operation (`disk/state-mark.ts`) */
  hasMark: boolean
  /** which release lives; `proved`: the new one, which has passed its probation */
  alive: 'old' | 'new' | 'proved' | 'nobody'
}

export interface Decision {
  /** the line of the table */
  is: string
  /** null: it is not over */
  outcome: Outcome | null
  /** what to do with the executable and its backup: `undo` takes a swap back, `exchange` a rollback */
  disk: 'keep' | 'undo' | 'exchange'
  /** `give`: the release in place gets its own data now, since its start could not do it later */
  data: 'keep' | 'give'
  /** what is remembered against the release; null: nothing */
  blame: Pick<Blame, 'hadMs'> | null
}

/** One line: the first one that fits counts. A member that is absent fits everything. */
interface Ending {
  is: string
  asks: readonly Asker[]
  stage?: readonly Stage[]
  /** `no try`: the switch did not take place */
  failed?: readonly ('not' | 'cancelled' | 'no try' | 'really')[]
  /** failures on probation before this */
  counted?: readonly ('off probation' | 'none' | 'some')[]
  inPlace?: readonly Exclude<InPlace, 'either'>[]
  hasBackup?: boolean
  alive?: readonly Situation['alive'][]
  /** `done`: `updated` or `rolled_back` */
  outcome: Outcome | 'done' | null
  /** the old executable is put back, if the new one is in place */
  goesBack?: true
  blame?: 'by evidence' | 'for its bytes'
}

const BEFORE_SWAP = ['check', 'download', 'verify'] as const
const GONE = ['start', 'next'] as const
const NEW = ['new'] as const

export const ENDINGS: readonly Ending[] = [
  // it goes well, as far as it has come
  {
    is: 'it has proved itself',
    asks: ['operation'],
    failed: ['not'],
    alive: ['proved'],
    inPlace: NEW,
    outcome: 'done',
  },
  { is: 'nothing is newer', asks: ['operation'], failed: ['not'], stage: ['check'], outcome: 'up_to_date' },
  { is: 'it has not proved itself yet', asks: ['operation', 'holder'], failed: ['not'], outcome: null },

  // until the swap nothing has changed
  { is: 'cancelled', asks: ['operation'], stage: BEFORE_SWAP, failed: ['cancelled'], outcome: 'cancelled' },
  { is: 'failed early', asks: ['operation'], stage: BEFORE_SWAP, outcome: 'failed', blame: 'for its bytes' },

  // afterwards the old executable is put back
  {
    is: 'it is still running: end it first',
    asks: ['operation', 'holder', 'rescue'],
    alive: ['new', 'proved'],
    outcome: null,
  },
  { is: 'the start ends it', asks: ['holder'], outcome: null, goesBack: true, blame: 'by evidence' },
  { is: 'no way back', asks: ['operation'], inPlace: NEW, hasBackup: false, outcome: 'failed' },
  { is: 'the swap failed', asks: ['operation'], stage: ['swap'], outcome: 'failed', goesBack: true },
  { is: 'no switch', asks: ['operation'], failed: ['no try', 'cancelled'], outcome: 'failed', goesBack: true },
  { is: 'the release failed', asks: ['operation'], outcome: 'reverted', goesBack: true, blame: 'by evidence' },

  // the service has ended in failure, and its supervisor starts it again: the first time may have been chance
  {
    is: 'it failed again',
    asks: ['rescue'],
    failed: ['really'],
    counted: ['some'],
    inPlace: NEW,
    hasBackup: true,
    outcome: 'reverted',
    goesBack: true,
    blame: 'by evidence',
  },
  { is: 'no rescue needed, or not yet', asks: ['rescue'], outcome: null },

  // nobody is at it any more, and the executable stays as it is
  { is: 'probation goes on', asks: ['start'], counted: ['none', 'some'], inPlace: NEW, outcome: null },
  { is: 'it has not failed', asks: ['next'], counted: ['none'], failed: ['not'], inPlace: NEW, outcome: 'done' },
  { is: 'it stays', asks: GONE, inPlace: NEW, outcome: 'failed', blame: 'by evidence' },
  { is: 'it was put back', asks: GONE, stage: ['restart'], outcome: 'reverted', blame: 'by evidence' },
  { is: 'interrupted early', asks: GONE, outcome: 'failed', blame: 'by evidence' },
]

export function decide(seen: Situation): Decision {
  const found = ENDINGS.find((line) => fits(line, seen))
  if (found === undefined) throw new Error(`no row of the table matches ${JSON.stringify(seen)}`)
  const outcome = found.outcome === 'done' ? (seen.kind === 'update' ? 'updated' : 'rolled_back') : found.outcome
  const goesBack = found.goesBack === true && seen.hasBackup && placeOf(seen) === 'new'
  // the rescue leaves the data to the start that follows, and so does the holder, which ends nothing
  const gives = seen.hasMark && seen.alive === 'nobody' && outcome !== null && seen.asks !== 'rescue'
  return {
    is: found.is,
    outcome,
    disk: !goesBack ? 'keep' : seen.kind === 'update' ? 'undo' : 'exchange',
    data: gives ? 'give' : 'keep',
    blame: heldBy(found, seen),
  }
}

function fits(line: Ending, seen: Situation): boolean {
  const { asks, stage, failures, hasBackup, alive } = seen
  const counted = failures === null ? 'off probation' : failures === 0 ? 'none' : 'some'
  return (
    line.asks.includes(asks) &&
    line.stage?.includes(stage) !== false &&
    line.failed?.includes(howFailed(seen.failed)) !== false &&
    line.counted?.includes(counted) !== false &&
    line.inPlace?.includes(placeOf(seen)) !== false &&
    (line.hasBackup ?? hasBackup) === hasBackup &&
    line.alive?.includes(alive) !== false
  )
}

function howFailed(failed: Failure | null): 'not' | 'cancelled' | 'no try' | 'really' {
  if (failed === null) return 'not'
  if (failed.code === 'cancelled') return 'cancelled'
  return failed.code === 'busy' || failed.code === 'refused' ? 'no try' : 'really'
}

/** Of two releases that cannot be told apart, the old one was put back if a failure was noted: the holder notes it after it has done that. */
function placeOf({ asks, failed, inPlace }: Situation): Exclude<InPlace, 'either'> {
  if (inPlace !== 'either') return inPlace
  return failed !== null && (asks === 'start' || asks === 'next') ? 'old' : 'new'
}

function heldBy({ blame }: Ending, { failed, failures }: Situation): Decision['blame'] {
  if (blame === undefined || failed?.isBlameless === true) return null
  if (blame === 'for its bytes') return failed?.isOfBytes === true ? {} : null
  if (failed === null) return (failures ?? 0) > 0 ? {} : null
  if (howFailed(failed) !== 'really') return null
  return failed.hadMs === undefined ? {} : { hadMs: failed.hadMs }
}
