// @long @deadlineMs 600000
// As faults.test.ts, for processes that stand still for a while (SIGSTOP) and such that are told to end (SIGTERM), in the middle of a handover.

import { half, promise } from './soak/faults/promises.ts'
import { atEachStep, atRandom } from './soak/faults/run.ts'
import { SIDES } from './soak/faults/soak.ts'
import { isLong, suite } from './suite.ts'

/** of each side; `npm run soak -- --faults 20` has many */
const INSTANTS = isLong ? 4 : 1

const test = suite('faults, stopped', { timeoutMs: 580_000 })

for (const [signal, what] of [
  ['SIGSTOP', 'a process that stands still'],
  ['SIGTERM', 'a process that is told to end'],
] as const) {
  const instants = SIDES.flatMap((side) => atRandom(signal, side, INSTANTS))
  const steps = half(atEachStep(signal), 0)
  promise(test, `${what} at a step of a handover stops nobody else`, 'alone', isLong ? steps : half(steps, 0))
  if (isLong) promise(test, `${what}: the same at the other steps`, 'alone', half(atEachStep(signal), 1))
  promise(test, `${what} at any instant of a handover stops nobody else`, 'alone', instants)
}

test.run()
