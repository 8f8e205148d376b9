// The table of all endings: what is known of each, and what holds for every situation there can be.

import { type Asker, decide, type Decision, ENDINGS, type Failure, type Situation } from '../../agent/update/decide.ts'
import { OUTCOMES, STAGES } from '../../agent/words/state.ts'
import { equal, is, ok } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('decide')

const bad: Failure = { code: 'restart_failed', isBlameless: false }
const FAILURES: readonly (Failure | null)[] = [
  null,
  bad,
  { code: 'restart_failed', isBlameless: true },
  { code: 'probation_failed', isBlameless: false, hadMs: 1500 },
  { code: 'verify_failed', isBlameless: false, isOfBytes: true },
  { code: 'busy', isBlameless: true },
  { code: 'refused', isBlameless: false },
  { code: 'cancelled', isBlameless: false },
]
const ASKERS: readonly Asker[] = ['operation', 'holder', 'rescue', 'start', 'next']

/** Every situation, those too that no caller can come to. */
function* situations(): Generator<Situation> {
  for (const asks of ASKERS)
    for (const kind of ['update', 'rollback'] as const)
      for (const stage of STAGES)
        for (const failed of FAILURES)
          for (const failures of [null, 0, 1, 2])
            for (const inPlace of ['old', 'new', 'either', 'other'] as const)
              for (const hasBackup of [true, false])
                for (const hasMark of [true, false])
                  for (const alive of ['old', 'new', 'proved', 'nobody'] as const)
                    yield { asks, kind, stage, failed, failures, inPlace, hasBackup, hasMark, alive }
}
const ALL = Array.from(situations(), (seen) => [seen, decide(seen)] as const)

/** Says the first situations in which it does not hold. */
function always(what: string, holds: (seen: Situation, decided: Decision) => boolean): void {
  const broken = ALL.filter(([seen, decided]) => !holds(seen, decided))
  equal(
    broken.slice(0, 3).map(([seen, decided]) => ({ ...seen, ...decided })),
    [],
    `${what}: ${broken.length} of ${ALL.length}`,
  )
}

const isSuccess = ({ outcome }: Decision) => outcome === 'updated' || outcome === 'rolled_back'
const mayBeNew = ({ inPlace }: Situation) => inPlace === 'new' || inPlace === 'either'
const isGone = ({ asks }: Situation) => asks === 'start' || asks === 'next'

const UPDATE = { kind: 'update', failures: 0, hasBackup: true, hasMark: false } as const
const RUNS: Situation = { ...UPDATE, asks: 'operation', stage: 'restart', failed: null, inPlace: 'new', alive: 'old' }
const EARLY: Situation = { ...RUNS, stage: 'verify', failures: null, inPlace: 'old' }
const RESCUED: Situation = { ...RUNS, asks: 'rescue', failed: { ...bad, code: 'probation_failed' }, alive: 'nobody' }
const STARTS: Situation = { ...RUNS, asks: 'start', alive: 'new' }
const BACK: Situation = { ...STARTS, inPlace: 'old', alive: 'old' }
const NEXT: Situation = { ...RUNS, asks: 'next', alive: 'nobody' }
const LATE: Failure = { ...bad, hadMs: 1500 }
const EXCUSED: Failure = { ...bad, isBlameless: true }

type Known = readonly [
  seen: Situation,
  outcome: Decision['outcome'],
  disk?: Decision['disk'],
  blame?: Decision['blame'],
]

/** How each operation is known to end. */
const KNOWN: Record<string, Known> = {
  'no newer release': [{ ...EARLY, stage: 'check' }, 'up_to_date'],
  'a cancelled download': [{ ...EARLY, failed: { ...bad, code: 'cancelled' } }, 'cancelled'],
  'a feed that is down': [{ ...EARLY, stage: 'check', failed: { ...bad, code: 'check_failed' } }, 'failed'],
  'a release whose own bytes fail': [{ ...EARLY, failed: { ...bad, isOfBytes: true } }, 'failed', 'keep', {}],
  'a host that lacks what it needs to verify': [{ ...EARLY, failed: { ...EXCUSED, isOfBytes: true } }, 'failed'],
  'a broken download': [{ ...EARLY, failed: { ...bad, code: 'verify_failed' } }, 'failed'],
  'a swap that failed on the way': [{ ...RUNS, stage: 'swap', inPlace: 'old', failed: bad }, 'failed'],
  'a swap that failed after its last rename': [{ ...RUNS, stage: 'swap', failed: bad }, 'failed', 'undo'],
  'a release that proved itself': [{ ...RUNS, alive: 'proved' }, 'updated'],
  'a rollback that proved itself': [{ ...RUNS, kind: 'rollback', alive: 'proved' }, 'rolled_back'],
  'a service that was stopped in probation': [{ ...RUNS, alive: 'nobody' }, null],
  'a release that did not take over': [{ ...RUNS, failed: bad }, 'reverted', 'undo', {}],
  'a release that was late': [{ ...RUNS, failed: LATE }, 'reverted', 'undo', { hadMs: 1500 }],
  'a release that the host failed': [{ ...RUNS, failed: EXCUSED }, 'reverted', 'undo', null],
  'a rollback that failed': [{ ...RUNS, kind: 'rollback', failed: bad }, 'reverted', 'exchange', {}],
  'requests that did not end': [{ ...RUNS, failed: { ...EXCUSED, code: 'busy' } }, 'failed', 'undo', null],
  'a pause that would be too long': [{ ...RUNS, failed: { ...bad, code: 'refused' } }, 'failed', 'undo', null],
  'a person who cancels while the switch waits for work': [
    { ...RUNS, failed: { ...bad, code: 'cancelled' } },
    'failed',
    'undo',
    null,
  ],
  'a socket that could not be listened on again': [
    { ...RUNS, failed: { ...bad, code: 'undo_failed' } },
    'reverted',
    'undo',
    {},
  ],
  'a backup that could not be put back': [{ ...RUNS, failed: bad, hasBackup: false }, 'failed'],
  'a failure in a stop-first switch': [{ ...RUNS, asks: 'holder', failed: bad, alive: 'nobody' }, null, 'undo', {}],
  'a failed rollback in a stop-first switch': [
    { ...RUNS, asks: 'holder', kind: 'rollback', failed: EXCUSED, alive: 'nobody' },
    null,
    'exchange',
    null,
  ],
  'a first crash on probation': [RESCUED, null],
  'a second crash on probation': [{ ...RESCUED, failures: 1 }, 'reverted', 'undo', {}],
  'a second crash, of a rollback': [{ ...RESCUED, kind: 'rollback', failures: 1 }, 'reverted', 'exchange', {}],
  'a second crash, for want of memory': [{ ...RESCUED, failures: 1, failed: EXCUSED }, 'reverted', 'undo', null],
  'a second crash without a backup': [{ ...RESCUED, failures: 1, hasBackup: false }, null],
  'a crash of the old release before the swap': [{ ...RESCUED, failures: 1, inPlace: 'old' }, null],
  'a crash off probation': [{ ...RESCUED, failures: null }, null],
  'both killed in probation': [STARTS, null],
  'both killed in probation after a crash': [{ ...STARTS, failures: 1 }, null],
  'killed before the first rename': [{ ...BACK, stage: 'swap' }, 'failed'],
  'killed in a download': [{ ...BACK, stage: 'download', failures: null }, 'failed'],
  'killed after the old one was put back': [BACK, 'reverted', 'keep', null],
  'put back by the holder': [{ ...BACK, failed: LATE }, 'reverted', 'keep', { hadMs: 1500 }],
  'put back by the holder, which excuses it': [{ ...BACK, failed: EXCUSED }, 'reverted', 'keep', null],
  'a rescue that was killed after it put the old one back': [{ ...BACK, failures: 1 }, 'reverted', 'keep', {}],
  'one tag, other bytes, put back': [{ ...BACK, kind: 'rollback', failed: bad }, 'reverted', 'keep', {}],
  'the same bytes, put back': [{ ...STARTS, kind: 'rollback', inPlace: 'either', failed: bad }, 'reverted', 'keep', {}],
  'the same bytes, on probation': [{ ...STARTS, kind: 'rollback', inPlace: 'either' }, null],
  'never started': [NEXT, 'updated'],
  'never started, of a rollback': [{ ...NEXT, kind: 'rollback', inPlace: 'either' }, 'rolled_back'],
  'given up by a person after a crash': [{ ...NEXT, failures: 1 }, 'failed', 'keep', {}],
  'put back by a person': [{ ...NEXT, inPlace: 'old' }, 'reverted'],
  'a third executable in its place': [{ ...NEXT, inPlace: 'other' }, 'reverted'],
}

for (const [title, [seen, outcome, disk = 'keep', blame = null]] of Object.entries(KNOWN)) {
  test(title, () => {
    const decided = decide(seen)
    equal([decided.outcome, decided.disk, decided.blame], [outcome, disk, blame], decided.is)
  })
}

test('each situation has one end, and each line of the table is the end of some', () => {
  ok(ALL.length > 100_000)
  const found = new Set(ALL.map(([, decided]) => decided.is))
  equal([...found].toSorted(), ENDINGS.map((line) => line.is).toSorted())
  equal(
    OUTCOMES.filter((outcome) => !ALL.some(([, decided]) => decided.outcome === outcome)),
    [],
  )
})

test('an operation succeeds only with the new executable in place, and with nothing that is known to have failed', () => {
  always('success', (seen, decided) => !isSuccess(decided) || (mayBeNew(seen) && seen.failed === null))
  always('its word', ({ kind }, { outcome }) => outcome !== (kind === 'update' ? 'rolled_back' : 'updated'))
  always(
    'its own word alone is not enough',
    (seen, decided) =>
      !isSuccess(decided) ||
      (seen.asks === 'operation' ? seen.alive === 'proved' : seen.asks === 'next' && seen.failures === 0),
  )
})

test('an operation is reverted only with the old executable in place', () => {
  always('reverted', (seen, { outcome, disk }) => outcome !== 'reverted' || disk !== 'keep' || seen.inPlace !== 'new')
  always('either', (seen, { outcome, disk }) => {
    if (outcome !== 'reverted' || seen.inPlace !== 'either' || disk !== 'keep') return true
    return isGone(seen) && seen.failed !== null
  })
})

test('an executable is taken away only from a release that does not live, and only for another one', () => {
  always('taken away', (seen, { disk }) => {
    if (disk === 'keep') return true
    const isFree = seen.alive === 'old' || seen.alive === 'nobody'
    return (
      isFree &&
      seen.hasBackup &&
      mayBeNew(seen) &&
      (seen.stage === 'swap' || seen.stage === 'restart' || seen.asks !== 'operation')
    )
  })
  always('by whom', (seen, { disk }) => disk === 'keep' || !isGone(seen))
  always('how', ({ kind }, { disk }) => disk !== (kind === 'update' ? 'exchange' : 'undo'))
})

test('what failed is not left in place if there is a way back', () => {
  always('left in place', (seen, { disk }) => {
    const hasFailed = seen.failed !== null && (seen.stage === 'swap' || seen.stage === 'restart')
    const mayGoBack = seen.hasBackup && mayBeNew(seen) && (seen.alive === 'old' || seen.alive === 'nobody')
    const isAsked = seen.asks === 'operation' || seen.asks === 'holder'
    return !(hasFailed && mayGoBack && isAsked) || disk !== 'keep'
  })
})

test('nothing is held against a release without evidence', () => {
  always('evidence', (seen, { blame }) => {
    if (blame === null) return true
    const { failed, failures } = seen
    if (failed === null) return (failures ?? 0) > 0 && isGone(seen)
    return !failed.isBlameless && !['busy', 'refused', 'cancelled'].includes(failed.code)
  })
  always('a host that lacks something', (seen, { blame }) => seen.failed?.isBlameless !== true || blame === null)
  always('before the swap only its bytes count', (seen, { blame }) => {
    const isEarly = seen.asks === 'operation' && seen.stage !== 'swap' && seen.stage !== 'restart'
    return !isEarly || blame === null || seen.failed?.isOfBytes === true
  })
  always(
    'success and cancelling',
    (_, decided) =>
      decided.blame === null ||
      decided.outcome === 'reverted' ||
      decided.outcome === 'failed' ||
      decided.outcome === null,
  )
  always(
    'time',
    (seen, { blame }) => blame === null || blame.hadMs === seen.failed?.hadMs || seen.failed?.isOfBytes === true,
  )
})

test('evidence is not lost: a release that was put back for a failure of its own is remembered', () => {
  always('held', (seen, { outcome, blame }) => {
    const isOwn =
      seen.failed !== null && !seen.failed.isBlameless && !['busy', 'refused', 'cancelled'].includes(seen.failed.code)
    return outcome !== 'reverted' || !isOwn || blame !== null
  })
  always(
    'counted',
    (seen, { outcome, blame }) =>
      outcome !== 'reverted' || seen.failed !== null || (seen.failures ?? 0) === 0 || blame !== null,
  )
})

test('whether a release is to blame changes neither the outcome nor the disk', () => {
  always('blame', (seen, { outcome, disk, data }) => {
    if (seen.failed === null) return true
    const other = decide({ ...seen, failed: { ...seen.failed, isBlameless: !seen.failed.isBlameless } })
    return other.outcome === outcome && other.disk === disk && other.data === data
  })
})

test('the release in place gets its own data at the end, and only while no process can have them open', () => {
  always(
    'given',
    (seen, { data, outcome }) =>
      data === 'keep' || (seen.hasMark && seen.alive === 'nobody' && outcome !== null && seen.asks !== 'rescue'),
  )
  always('not given', (seen, { data, outcome }) => {
    const ends = outcome !== null && seen.asks !== 'rescue'
    return !(seen.hasMark && seen.alive === 'nobody' && ends) || data === 'give'
  })
})

test('only a start, a rescue and a holder leave an operation open, or an operation whose release lives', () => {
  always('open', (seen, { outcome }) => {
    if (outcome !== null || seen.asks === 'rescue' || seen.asks === 'holder') return true
    if (seen.asks === 'start') return mayBeNew(seen) && seen.failures !== null
    return seen.asks === 'operation' && (seen.failed === null || seen.alive === 'new' || seen.alive === 'proved')
  })
  always('the next operation closes it', (seen, { outcome }) => seen.asks !== 'next' || outcome !== null)
  always(
    'what the holder has noted ends it, unless the new executable is surely in place',
    (seen, { outcome }) =>
      !isGone(seen) ||
      seen.failed === null ||
      seen.inPlace === 'new' ||
      outcome === 'reverted' ||
      seen.stage !== 'restart',
  )
  always(
    'a first failure may have been chance',
    (seen, { outcome }) => seen.asks !== 'rescue' || (seen.failures ?? 0) > 0 || outcome === null,
  )
})

test('an operation is cancelled, or has nothing to do, only before anything has changed', () => {
  const isEarly = ({ stage }: Situation) => stage === 'check' || stage === 'download' || stage === 'verify'
  always(
    'cancelled',
    (seen, { outcome, disk }) =>
      outcome !== 'cancelled' || (isEarly(seen) && seen.failed?.code === 'cancelled' && disk === 'keep'),
  )
  always(
    'nothing to do',
    (seen, { outcome }) => outcome !== 'up_to_date' || (seen.stage === 'check' && seen.failed === null),
  )
})

test('whoever is killed after it has put the old executable back: the next start ends the operation the same way, or as interrupted', () => {
  always('killed', (seen, { disk, outcome }) => {
    if (disk === 'keep') return true
    const after: Situation = { ...seen, asks: 'start', inPlace: 'old', alive: 'old', failed: null }
    const then = decide(after)
    return (
      then.disk === 'keep' &&
      (then.outcome === 'reverted' || then.outcome === 'failed') &&
      (outcome !== null || seen.asks === 'holder')
    )
  })
  always('killed before it', (seen, { disk }) => {
    if (disk === 'keep' || seen.failures === null) return true
    return decide({ ...seen, asks: 'start', alive: 'new', inPlace: 'new' }).outcome === null
  })
})

test('who decides again once the old executable is back decides the same, and leaves the disk alone', () => {
  always('again', (seen, { outcome, disk, blame }) => {
    if (disk === 'keep' || seen.asks === 'rescue') return true
    const again = decide({ ...seen, inPlace: 'old' })
    return again.disk === 'keep' && again.outcome === outcome && JSON.stringify(again.blame) === JSON.stringify(blame)
  })
  is(decide({ ...RESCUED, failures: 1, inPlace: 'old' }).outcome, null)
})

test.run()
