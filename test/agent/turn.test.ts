// What only one process may do: how its works are told to stop.

import { makeTurn } from '../../agent/handover/turn.ts'
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

test.run()
