// The short form of `npm run soak -- --one`, and the proof that its judge condemns.

import { equal, is } from './assert.ts'
import { ALL_LOSS, clientsLost, lossOf, NO_LOSS, type Steps, totalsOf } from './soak/one/judge.ts'
import { soakRounds } from './soak/one/rounds.ts'
import type { Seen } from './soak/one/traffic.ts'
import { suite } from './suite.ts'

const test = suite('alone soak', { timeoutMs: 100_000 })

const WELL: Seen = {
  requests: 100,
  lost: { fresh: 0, kept: 0 },
  refused: 0,
  hung: 0,
  closed: { idle: 0, busy: 0, announced: 0 },
  sockets: { closed: 0, refused: 0, lost: 0, wrong: 0 },
  longestMs: 100,
  errors: {},
}

test('whoever dies may take what it had, and nobody else anything', () => {
  const steps = (more: Partial<Steps>): Steps => ({ old: [], holder: [], new: [], ...more })
  equal(lossOf('old', steps({ old: ['spawned', 'waiting', 'named'] })), ALL_LOSS)
  equal(lossOf('old', steps({ old: ['spawned', 'quiet'] })), { ...NO_LOSS, sockets: true })
  equal(lossOf('old', steps({ old: ['quiet', 'settled', 'closed'] })), NO_LOSS)
  equal(lossOf('holder', steps({ holder: ['held', 'said waiting'] })), NO_LOSS)
  equal(lossOf('holder', steps({ old: ['quiet'], holder: ['old is gone'] })), ALL_LOSS)
  equal(lossOf('holder', steps({ old: ['quiet'], holder: ['opened', 'passed on'] })), NO_LOSS)
  equal(lossOf('new', steps({ new: ['born', 'bound'] })), NO_LOSS)
  equal(lossOf('new', steps({ new: ['said hello', 'accepting'] })), ALL_LOSS)
})

test('one request that is lost, refused or hangs is a broken promise, and so is one connection that is closed', () => {
  equal(clientsLost(WELL, NO_LOSS), [])
  const bad: Partial<Seen>[] = [
    { lost: { fresh: 1, kept: 0 } },
    { lost: { fresh: 0, kept: 1 } },
    { refused: 1 },
    { hung: 1 },
    { closed: { idle: 1, busy: 0, announced: 0 } },
    { sockets: { ...WELL.sockets, closed: 1 } },
    { sockets: { ...WELL.sockets, lost: 1 } },
    { sockets: { ...WELL.sockets, wrong: 1 } },
  ]
  for (const one of bad) is(clientsLost({ ...WELL, ...one }, NO_LOSS).length, 1, JSON.stringify(one))
  equal(clientsLost({ ...WELL, lost: { fresh: 0, kept: 2 } }, ALL_LOSS), [])
  is(clientsLost({ ...WELL, refused: 1 }, ALL_LOSS).length, 1)
  is(clientsLost({ ...WELL, lost: { fresh: 100, kept: 0 } }, ALL_LOSS).length, 1)
})

test('two switches and two bad releases under a load: nothing is lost, and the totals say so', async () => {
  const report = await soakRounds({ switches: 2, reverts: 2, kills: 0, isSupervised: false, heard: () => {} })
  equal(report.wrong, [])
  equal(
    report.rounds.map(({ part, broken }) => [part, broken]),
    [
      ['switch', []],
      ['switch', []],
      ['revert', []],
      ['revert', []],
    ],
    JSON.stringify(report.rounds),
  )
  const totals = new Map(totalsOf(report.rounds, report.wrong, report.acknowledged))
  is(totals.get('overlaps'), '0')
  is(totals.get('missing of acknowledged rows'), `0 of ${report.acknowledged}`)
})

test.run()
