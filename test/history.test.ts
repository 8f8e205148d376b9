// @deadlineMs 600000
// The reference service goes through the history of its schema: each step is rehearsed on a copy, as an author's CI and a host do it.
// What the guide about the data says of each kind of change is what happens here. test/systemd-history.test.ts has the updates.

import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { HISTORY } from '../agent/service/schema.ts'
import { openStore, type Store } from '../agent/service/store.ts'
import { judge } from '../agent/update/rehearsal/judge.ts'
import { performHere } from '../deploy/make/rehearse-here.ts'
import { equal, is, match, ok, throws } from './assert.ts'
import { buildHistory, fillHistory, STEPS, tagAt, unpackHistory } from './lab/history.ts'
import { suite } from './suite.ts'

const test = suite('history', { timeoutMs: 240_000 })
const ROWS = 20_000
const LAST = HISTORY.length
let home: string

test.before(async () => {
  home = await mkdtemp(join(tmpdir(), 'baton-history-'))
  await mkdir(join(home, 'feed'))
  await buildHistory(join(home, 'feed'), STEPS)
  for (const schema of STEPS) await unpackHistory(join(home, 'feed'), schema, executableAt(schema))
})
test.after(async () => await rm(home, { recursive: true, force: true }))

/** What the rehearsal of the step to a schema says, and why. */
const VERDICTS: Record<number, [verdict: string, reason: RegExp]> = {
  2: ['reversible', /^v1\.1\.0 can read and write the data as v1\.2\.0 leaves it$/],
  3: ['reversible', /^v1\.2\.0 can read and write the data as v1\.3\.0 leaves it$/],
  4: ['reversible', /^v1\.3\.0 can read and write the data as v1\.4\.0 leaves it$/],
  5: ['reversible', /^v1\.4\.0 can read and write the data as v1\.5\.0 leaves it$/],
  6: [
    'irreversible',
    /^v1\.5\.0 does not start with the data that v1\.6\.0 leaves behind: .*needs a release that reads schema 6/,
  ],
}

for (const to of STEPS.slice(1)) {
  const [verdict, reason] = VERDICTS[to] ?? ['', /^$/]
  const register = to === STEPS.at(-1) ? test : test.long // the last one has no way back, the jump below has all the others
  register(`from schema ${to - 1} to ${to}: ${verdict}`, async () => {
    const { judged, report, state } = await rehearsed(to - 1, to)
    is(judged.verdict, verdict, JSON.stringify(report))
    match(judged.reason, reason)
    ok((report.rows ?? 0) > ROWS)
    equal(countsIn(state), expectedAt(to))
  })
}

test('from the oldest to the newest but one in one jump the way back is open, to the newest it is not', async () => {
  is((await rehearsed(1, LAST - 1)).judged.verdict, 'reversible')
  const { judged, state } = await rehearsed(1, LAST)
  is(judged.verdict, 'irreversible')
  equal(countsIn(state), expectedAt(LAST))
})

test('two releases that are one schema apart read what the other writes while both are there', async () => {
  for (const newer of STEPS.slice(1, -1)) {
    const path = join(home, `both-${newer}.db`)
    const open = (schema: number) => openStore(path, { schema: HISTORY.slice(0, schema) })
    const old = open(newer - 1)
    await write(old, 'before')
    const both = [old, open(newer)]
    for (const [at, store] of both.entries()) {
      await write(store, `key ${at}`)
      await write(store, 'before', `again by ${at}`) // the same key, written anew
      for (const reader of both) {
        is(reader.completion(`key ${at}`)?.content, `content of key ${at}`, `schema ${newer}`)
        is(reader.completion('before')?.content, `again by ${at}`, `schema ${newer}`)
        is(reader.quota(1, null)[0]?.used, 7, `schema ${newer}`)
        is(reader.logs(1, null)[0]?.message, 'before')
      }
    }
    equal({ ...old.counts() }, { ...both[1]?.counts() })
    for (const store of both) await store.close()
  }
})

test('the contraction takes everything over that the release before has written last', async () => {
  const path = join(home, 'contracted.db')
  const before = openStore(path, { schema: HISTORY.slice(0, 3) })
  await write(before, 'a')
  await before.close()
  const expanded = openStore(path, { schema: HISTORY.slice(0, LAST - 1) })
  const older = openStore(path, { schema: HISTORY.slice(0, 3) }) // a way back, and forth again
  await write(older, 'a', 'by the older one')
  await write(older, 'b')
  for (const store of [older, expanded]) await store.close()
  const contracted = openStore(path, { schema: HISTORY })
  is(contracted.completion('a')?.content, 'by the older one')
  is(contracted.completion('b')?.content, 'content of b')
  equal(
    contracted.quota(9, null).map(({ used }) => used),
    [7, 7, 7],
  )
  await write(contracted, 'c')
  is(contracted.completion('c')?.content, 'content of c')
  await contracted.close()
  throws(() => openStore(path, { schema: HISTORY.slice(0, LAST - 1) }), /needs a release that reads schema 6/)
})

test.run()

async function write(store: Store, key: string, content = `content of ${key}`): Promise<void> {
  await store.putCompletion(key, content, 3600)
  await store.addQuota('token', 7)
  await store.addLog('info', key)
}

async function rehearsed(from: number, to: number) {
  const state = join(home, `copy-${from}-${to}`)
  await mkdir(state)
  const database = 'beacon.db'
  await fillHistory(join(state, database), from, ROWS)
  const [present, candidate] = [executableAt(from), executableAt(to)]
  const report = await performHere({ present, candidate, database, state, startMs: 60_000 })
  return { report, state, judged: judge(report, { from: tagAt(from), to: tagAt(to) }) }
}

/** Every row of before, and what up to three starts were asked to write. */
function expectedAt(schema: number) {
  const starts = schema === LAST ? 2 : 3
  return { tokens: 1, logs: 100 + starts, quota: ROWS + starts, completions: 101, sum: SUM + starts * 7 }
}

const SUM = 1 + ((ROWS - 1) * ROWS) / 2

function countsIn(state: string) {
  const database = new DatabaseSync(join(state, 'beacon.db'))
  try {
    const count = (table: string) => Number(database.prepare(`select count(*) as n from ${table}`).get()?.['n'])
    const columns = database.prepare('select name from pragma_table_info(?)').all('quota')
    const used = columns.some(({ name }) => name === 'used') ? 'used' : 'units'
    const sum = Number(database.prepare(`select sum(${used}) as n from quota`).get()?.['n'])
    const [tokens, logs, quota, completions] = ['tokens', 'logs', 'quota', 'completions'].map(count)
    return { tokens, logs, quota, completions, sum }
  } finally {
    database.close()
  }
}

function executableAt(schema: number): string {
  return join(home, `beacon-${tagAt(schema)}`)
}
