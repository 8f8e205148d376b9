// What only one process may do: how its works are told to stop.

import { setTimeout as sleep } from 'node:timers/promises'
import { makeTurn } from '../../agent/handover/turn.ts'
import { TRIAL } from '../../agent/words/wire.ts'
import { equal, ok } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('turn')
const STOP_MS = 1500

test('works that do not stop have `stopMs` together, and each is asked', async () => {
  const asked: string[] = []
  const turn = makeTurn(STOP_MS, () => {})
  for (const name of ['jobs', 'mail', 'clock'])
    turn.singleton(
      name,
      () => {},
      () => {
        asked.push(name)
        return new Promise(() => {})
      },
    )
  await turn.take()
  const began = performance.now()
  await turn.pass()
  equal(asked, ['clock', 'mail', 'jobs'])
  ok(performance.now() - began < 2 * STOP_MS, 'the holder ends a process that takes longer than two of them')
})

/** A turn with one work, which writes down what it is told. */
function written(turn = makeTurn(STOP_MS, () => {})) {
  const told: string[] = []
  const work = (name: string) =>
    turn.singleton(
      name,
      async () => {
        told.push(`${name} starts`)
        await sleep(20)
        told.push(`${name} has started`)
      },
      () => void told.push(`${name} stops`),
    )
  return { turn, told, work }
}

test('who has the turn is given it once, who has not is not asked to stop, and one follows the other', async () => {
  const { turn, told, work } = written()
  work('jobs')
  await turn.pass()
  equal(told, [])
  await Promise.all([turn.take(), turn.take(), turn.pass(), turn.pass()])
  equal(told, ['jobs starts', 'jobs has started', 'jobs stops'])
})

test('a work that comes late starts at once if the turn is here, and waits for it if not', async () => {
  const { turn, told, work } = written()
  work('jobs')
  equal(told, [])
  await turn.take()
  work('mail')
  await turn.pass()
  equal(told.slice(2), ['mail starts', 'mail has started', 'mail stops', 'jobs stops'])
})

test('a process that is only tried never has the turn', async () => {
  process.env[TRIAL] = '1'
  try {
    const { turn, told, work } = written()
    work('jobs')
    await turn.take()
    equal(told, [])
  } finally {
    delete process.env[TRIAL]
  }
})

test.run()
