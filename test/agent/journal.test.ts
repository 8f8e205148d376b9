// The journal on a real disk.

import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { makeDisk } from '../../agent/disk/disk.ts'
import { finishOperation, type Journal, type JournalState, makeJournal, markBad } from '../../agent/disk/journal.ts'
import { badEntry, HISTORY_MAX, type Operation } from '../../agent/words/state.ts'
import { reportOf } from '../../agent/words/report.ts'
import { newOperation } from '../../agent/update/operation.ts'
import { refuseNewerSchema } from '../../agent/update/own-data.ts'
import { equal, is, match, ok, rejects, throws } from '../assert.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

const EMPTY: JournalState = { format: 1, operation: null, history: [], bad: [], probation: null }

const test = suite('journal')

test('a rollback that says why the release that it leaves is bad marks it, once it is done', () => {
  for (const outcome of ['rolled_back', 'reverted'] as const) {
    const known = {
      id: 'a',
      kind: 'rollback',
      from: 'v1.2.0',
      to: 'v1.1.0',
      startedAt: '2026-11-24T02:00:00Z',
    } as const
    const state = { ...structuredClone(EMPTY), operation: { ...newOperation(known), bad: 'no answer' } }
    finishOperation(state, { outcome, error: null })
    const marked = state.bad.map(({ tag, reason }) => [tag, reason])
    equal(marked, outcome === 'rolled_back' ? [['v1.2.0', 'no answer']] : [])
  }
})

async function inFolder(body: (journal: Journal, folder: string, warnings: string[]) => Promise<void>): Promise<void> {
  await using made = await temporary('journal')
  const folder = made.path
  const warnings: string[] = []
  await body(
    makeJournal(makeDisk(), folder, (message) => void warnings.push(message)),
    folder,
    warnings,
  )
}

function operation(id: string, to: string | null = 'v1.1.0', kind: Operation['kind'] = 'update'): Operation {
  return { ...newOperation({ id, kind, from: 'v1.0.0', to, startedAt: '2026-11-21T09:00:00.000Z' }), stage: 'restart' }
}

test('is empty where there is none, and reading makes none', async () => {
  await inFolder(async (journal, folder) => {
    equal(await journal.read(), EMPTY)
    equal(await readdir(folder), [])
  })
})

test('a change is on the disk when it resolves, for the owner only, and nothing is left beside it', async () => {
  await inFolder(async (journal, folder) => {
    const state = await journal.change((now) => void (now.operation = operation('a')))
    is(state.operation?.id, 'a')
    equal(await makeJournal(makeDisk(), folder).read(), state)
    is((await stat(journal.path)).mode & 0o777, 0o600)
    is((await stat(join(folder, 'update'))).mode & 0o777, 0o700)
    equal(await readdir(join(folder, 'update')), ['journal.json'])
  })
})

test('changes that come at once are made one after the other', async () => {
  await inFolder(async (journal) => {
    await Promise.all(
      Array.from({ length: 40 }, (_, i) => journal.change((now) => markBad(now, `v1.0.${i}`, null, 'one of forty'))),
    )
    is((await journal.read()).bad.length, 40)
  })
})

test('a change that throws changes nothing, and the next one goes on', async () => {
  await inFolder(async (journal) => {
    await rejects(
      journal.change(() => {
        throw new Error('on purpose')
      }),
      'on purpose',
    )
    await journal.change((now) => markBad(now, 'v1.0.1', null, 'x'))
    is((await journal.read()).bad.length, 1)
  })
})

test('keeps the newest of a long history and of many bad releases', async () => {
  await inFolder(async (journal) => {
    const state = await journal.change((now) => {
      for (let i = 0; i < HISTORY_MAX + 20; i++) {
        now.operation = operation(`${i}`, `v1.0.${i}`)
        finishOperation(now, { outcome: 'reverted', error: { code: 'probation_failed', message: 'x' }, blame: {} })
      }
      for (let i = 0; i < 150; i++) markBad(now, `v2.0.${i}`, null, 'x')
    })
    is(state.history.length, HISTORY_MAX)
    is(state.history[0]?.id, `${HISTORY_MAX + 19}`)
    is(state.bad.length, 100)
    is(state.bad.at(-1)?.tag, 'v2.0.149')
  })
})

test('what cannot be read is kept aside, said, and not stood upon', async () => {
  const whole = JSON.stringify({ ...EMPTY, operation: operation('a') })
  const damaged = [
    '',
    'null',
    '[]',
    '{}',
    '"text"',
    whole.slice(0, -10),
    `${whole}}`,
    JSON.stringify({ ...EMPTY, format: 2 }),
    JSON.stringify({ ...EMPTY, history: {} }),
    JSON.stringify({ format: 1, history: [], bad: [] }),
    '\u0000'.repeat(4096),
    `${' '.repeat(5 * 1024 * 1024)}${whole}`,
  ]
  for (const text of damaged) {
    await inFolder(async (journal, _folder, warnings) => {
      await mkdir(join(journal.path, '..'))
      await writeFile(journal.path, text)
      equal(await journal.read(), EMPTY, text.slice(0, 40))
      match(warnings.join(), /cannot read the record of operations/)
      is(await readFile(`${journal.path}.damaged`, 'utf8'), text)
      await journal.change((now) => markBad(now, 'v1.0.1', null, 'x'))
      is((await journal.read()).bad.length, 1)
    })
  }
})

test('the end of an operation goes into the history once, and ends its probation', () => {
  const state = structuredClone(EMPTY)
  finishOperation(state, { outcome: 'updated', error: null })
  equal(state, EMPTY, 'there is nothing to end')
  state.operation = operation('a')
  state.probation = {
    operationId: 'a',
    kind: 'update',
    from: 'v1.0.0',
    to: 'v1.1.0',
    since: '',
    until: null,
    sha256: null,
    failures: 1,
  }
  finishOperation(state, { outcome: 'updated', error: null })
  finishOperation(state, { outcome: 'failed', error: { code: 'unexpected', message: 'too late' } })
  is(state.operation.outcome, 'updated')
  ok(state.operation.finishedAt !== null)
  equal(state.history, [state.operation])
  is(state.probation, null)
})

test('a release is bad from its revert until it has been updated to', () => {
  const state = structuredClone(EMPTY)
  const end = (id: string, outcome: 'reverted' | 'failed' | 'updated', to: string | null = 'v1.1.0') => {
    state.operation = operation(id, to)
    finishOperation(state, {
      outcome,
      error: outcome === 'updated' ? null : { code: 'probation_failed', message: 'it died' },
      blame: outcome === 'reverted' ? {} : null,
    })
    return state.bad.map(({ tag, reason }) => `${tag}: ${reason}`)
  }
  equal(end('1', 'failed'), [], 'a download that fails says nothing about the release')
  equal(end('2', 'reverted'), ['v1.1.0: it died'])
  equal(end('3', 'reverted'), ['v1.1.0: it died'], 'once')
  equal(end('4', 'updated', 'v1.2.0'), ['v1.1.0: it died'], 'another one')
  equal(end('5', 'updated'), [])
  equal(end('6', 'reverted', null), [])
})

test('what leads to an older release is a rollback, whatever brings it there, and clears what was held against that one', () => {
  const state = structuredClone(EMPTY)
  markBad(state, 'v0.9.0', null, 'it died')
  state.operation = operation('1', 'v0.9.0')
  finishOperation(state, { outcome: 'updated', error: null })
  const [last] = state.history
  equal([state.operation.outcome, last?.outcome, last?.kind, state.bad], ['rolled_back', 'rolled_back', 'rollback', []])
  state.operation = operation('2', 'v0.9.0')
  finishOperation(state, { outcome: 'failed', error: { code: 'download_failed', message: 'no room' } })
  equal([state.history[0]?.outcome, state.history[0]?.kind], ['failed', 'rollback'])
})

test('after an update with no way back there is no plain rollback, also if it led to an older release', () => {
  const rehearsal = {
    verdict: 'irreversible',
    reason: 'a column is gone',
    rows: 1,
    copyMs: 1,
    migrationMs: 1,
    tookMs: 3,
  } as const
  for (const [to, outcome] of [
    ['v1.1.0', 'updated'],
    ['v0.9.0', 'rolled_back'],
  ] as const) {
    const state = structuredClone(EMPTY)
    state.operation = { ...operation('1', to), trial: rehearsal }
    finishOperation(state, { outcome: 'updated', error: null })
    is(state.history[0]?.outcome, outcome)
    throws(
      () => refuseNewerSchema({ current: to }, state.history),
      /v1\.0\.0 cannot run on the data that .* has changed: a column is gone/,
    )
    refuseNewerSchema({ current: 'v1.2.0' }, state.history) // somebody has put another one there
    state.operation = operation('2', 'v1.2.0')
    finishOperation(state, { outcome: 'updated', error: null })
    refuseNewerSchema({ current: 'v1.2.0' }, state.history)
  }
})

test('the same tag with other bytes is another release: only what failed here is bad', () => {
  const state = structuredClone(EMPTY)
  markBad(state, 'v1.1.0', 'a'.repeat(64), 'a hostile one')
  is(badEntry(state.bad, 'v1.1.0', 'a'.repeat(64))?.reason, 'a hostile one')
  is(badEntry(state.bad, 'v1.1.0', 'b'.repeat(64)), null)
  is(badEntry(state.bad, 'v1.2.0', 'a'.repeat(64)), null)
  markBad(state, 'v1.1.0', null, 'a rollback to it failed')
  equal(state.bad.length, 1, 'a sum that is not known stands for all of them')
  is(badEntry(state.bad, 'v1.1.0', 'b'.repeat(64))?.reason, 'a rollback to it failed')
})

test('reads what a release wrote that knew fewer members', async () => {
  await inFolder(async (journal) => {
    const { sha256: _s, durations: _d, bytes: _b, ...old } = operation('old')
    const handover = { moved: 3, cut: 1, switchMs: 20 }
    const bad = { tag: 'v1.1.0', reason: 'x', at: '2026-01-01T00:00:00Z' }
    const text = JSON.stringify({ ...EMPTY, operation: { ...old, handover }, bad: [bad] })
    await mkdir(dirname(journal.path), { recursive: true })
    await writeFile(journal.path, text)
    const state = await journal.read()
    equal(state.operation?.handover, { moved: 3, carried: 0, returned: 0, ended: 0, cut: 1, switchMs: 20 })
    is(badEntry(state.bad, 'v1.1.0', 'b'.repeat(64))?.tag, 'v1.1.0', 'its sum was not kept: the tag alone counts')
    const { from, bytes, moved, cut, carried, probationUntil } = reportOf(state.operation ?? operation('none'))
    equal(
      { from, bytes, moved, cut, carried, probationUntil },
      { from: 'v1.0.0', bytes: 0, moved: 3, cut: 1, carried: 0, probationUntil: null },
    )
  })
})

test.run()
