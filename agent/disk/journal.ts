// The journal: the current operation, the finished ones, the bad releases, the release on probation. A change is on disk before
// any process acts on it, so that every serving process gives the same answer. One file, replaced whole: a power cut leaves the state
// before or after a change, never a torn one. Only the holder of the lock writes.

import { type Disk, readSmall } from './disk.ts'
import { BatonError, codeOf, type ErrorCode, reasonOf } from '../words/errors.ts'
import { JOURNAL_MAX_BYTES, wholeJournal } from './journal-text.ts'
import { journalPath, updateDirectory } from './places.ts'
import { withReserve } from './reserve.ts'
import { badEntry, type BadRelease, HISTORY_MAX, isDone, type Operation, type Probation } from '../words/state.ts'
import { NO_HANDOVER } from '../words/report.ts'
import type { Blame } from '../words/blame.ts'
import type { TriedRelease } from '../words/rehearsal.ts'
import { compareTags, isTag } from '../words/release.ts'
import type { ProcessName } from '../words/wire.ts'

export interface JournalState {
  format: 1
  operation: Operation | null
  /** finished ones, newest first */
  history: Operation[]
  bad: BadRelease[]
  probation: Probation | null
  /** the holder of a stop-first switch, which owns the operation and its lock while no process of the service does; absent: none */
  holder?: ProcessName
  /** the last rehearsals that took place, newest first; absent: none */
  tried?: TriedRelease[]
}

export interface Journal {
  readonly path: string
  read(): Promise<JournalState>
  /** Reads the journal, applies `edit`, writes it durably, and returns what is now on the disk. */
  change(edit: (state: JournalState) => void): Promise<JournalState>
}

const [BAD_MAX, TRIED_MAX] = [100, 8]
const EMPTY: JournalState = { format: 1, operation: null, history: [], bad: [], probation: null }

/** The holder that owns the operation in the journal; null if there is none, or no journal. */
export async function holderIn(stateDirectory: string): Promise<ProcessName | null> {
  const text = await readSmall(journalPath(stateDirectory), JOURNAL_MAX_BYTES).catch(() => null)
  return (text === null ? null : parse(text))?.holder ?? null
}

export function makeJournal(disk: Disk, stateDirectory: string, warn: (message: string) => void = () => {}): Journal {
  const directory = updateDirectory(stateDirectory)
  const path = journalPath(stateDirectory)
  let last: Promise<unknown> = Promise.resolve()

  const read = async (): Promise<JournalState> => {
    let text: string | null
    try {
      text = await readSmall(path, JOURNAL_MAX_BYTES)
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return structuredClone(EMPTY)
      throw new BatonError('unexpected', `reading the record of operations ${path}: ${reasonOf(error)}`, {
        cause: error,
      })
    }
    const state = text === null ? null : parse(text)
    if (state !== null) return state
    // Do not delete it: a person may want to look at it. The next change writes a fresh one.
    warn(
      `cannot read the record of operations ${path}: started a new one, and kept the old one as journal.json.damaged`,
    )
    await disk.rename(path, `${path}.damaged`).catch(() => {})
    return structuredClone(EMPTY)
  }

  const change = async (edit: (state: JournalState) => void): Promise<JournalState> => {
    const state = await read()
    edit(state)
    state.history.splice(HISTORY_MAX)
    state.tried?.splice(TRIED_MAX)
    state.bad.splice(0, Math.max(0, state.bad.length - BAD_MAX))
    await disk.makeDirectory(directory, 0o700)
    await withReserve(disk, directory, () => disk.writeWhole(path, `${JSON.stringify(state, null, 2)}\n`, 0o600))
    return state
  }

  return {
    path,
    read,
    // one after the other: of two changes at once, one would be lost
    change(edit) {
      const next = last.then(() => change(edit))
      last = next.catch(() => {})
      return next
    },
  }
}

/** Closes the operation in flight: adds it to the history, and its release to the bad ones if something is held against it. */
export function finishOperation(
  state: JournalState,
  end: Pick<Operation, 'outcome' | 'error'> & {
    to?: string | null
    handover?: Operation['handover']
    /** what is held against the release; absent or null: nothing */
    blame?: Pick<Blame, 'hadMs'> | null
  },
): void {
  const operation = state.operation
  if (operation === null || operation.outcome !== null) return
  if (end.to !== undefined && end.to !== null) operation.to = end.to
  operation.outcome = isDone(end.outcome) ? doneAs(operation) : end.outcome
  const isDownload = operation.kind === 'update'
  if (goesBack(operation)) operation.kind = 'rollback'
  operation.error = end.error
  if (end.handover !== undefined) operation.handover = end.handover
  operation.finishedAt = new Date().toISOString()
  state.history.unshift(structuredClone(operation))
  state.probation = null
  delete state.holder
  if (operation.to === null) return
  if (end.blame !== undefined && end.blame !== null) {
    const { message = `${end.outcome}`, code } = operation.error ?? {}
    markBad(state, operation.to, operation.sha256, message, { ...end.blame, code })
  } else if (operation.bad !== undefined && isDone(end.outcome)) {
    markBad(state, operation.from, null, operation.bad)
  } else if (isDownload && isDone(end.outcome)) {
    state.bad = without(state.bad, operation.to, operation.sha256)
  }
}

type Way = Pick<Operation, 'kind'> & { from: string | null; to: string | null }

/** The outcome of an operation that is done. */
export function doneAs(way: Way): 'updated' | 'rolled_back' {
  return goesBack(way) ? 'rolled_back' : 'updated'
}

/** Whatever leads to an older release is a rollback for a person, also one that is downloaded by its tag. */
function goesBack({ kind, from, to }: Way): boolean {
  return kind === 'rollback' || (isTag(from) && isTag(to) && compareTags(to, from) < 0)
}

/** Notes that the release on probation serves from now on. */
export function beginsProbation({ probation }: JournalState, probationMs: number): void {
  if (probation === null) return
  const since = new Date()
  const until = new Date(since.getTime() + probationMs)
  Object.assign(probation, { since: since.toISOString(), until: until.toISOString() })
}

/** `sha256`: of the asset; null if not known. */
export function markBad(
  state: JournalState,
  tag: string,
  sha256: string | null,
  reason: string,
  { hadMs, code }: Partial<Blame> & { code?: ErrorCode | undefined } = {},
): void {
  const entry: BadRelease = {
    tag,
    sha256,
    reason,
    ...(code !== undefined && { code }),
    at: new Date().toISOString(),
    ...(hadMs !== undefined && { hadMs }),
  }
  state.bad = [...without(state.bad, tag, sha256), entry]
}

function without(bad: BadRelease[], tag: string, sha256: string | null): BadRelease[] {
  return bad.filter((entry) => badEntry([entry], tag, sha256) === null)
}

function parse(text: string): JournalState | null {
  const state = wholeJournal(text)
  return state === null ? null : filledIn(state as unknown as JournalState)
}

const UNKNOWN_SUM = { sha256: null }
const UNKNOWN = { ...UNKNOWN_SUM, durations: {}, bytes: 0 }
const NOT_SERVING = { until: null, ...UNKNOWN_SUM }

/** Fills in the members that an older release did not write. */
function filledIn(state: JournalState): JournalState {
  const operation = (one: Operation): Operation => ({
    ...UNKNOWN,
    ...one,
    handover: one.handover === null ? null : { ...NO_HANDOVER, ...one.handover },
  })
  return {
    ...state,
    operation: state.operation === null ? null : operation(state.operation),
    history: state.history.map(operation),
    bad: state.bad.map((entry) => ({ ...UNKNOWN_SUM, ...entry })),
    probation: state.probation === null ? null : { ...NOT_SERVING, ...state.probation },
  }
}
