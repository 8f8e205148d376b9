// Either process of a handover, and both, are killed: at its steps (in CI at every fourth one), and at some instants. The service
// answers again, and executable, backup, journal and running version agree; no acknowledged row is missing, none is there twice,
// nothing is left over. What is stopped and what is told to stop has a file of its own; the long form is `npm run soak -- --faults 100`.

import { half, promise } from './soak/faults/promises.ts'
import { atEachStep, atRandom } from './soak/faults/run.ts'
import { SIDES } from './soak/faults/soak.ts'
import { isLong, suite } from './suite.ts'

const INSTANTS = isLong ? 10 : 2
const steps = atEachStep('SIGKILL')
const some = half(steps, 0)
const instants = SIDES.flatMap((side) => atRandom('SIGKILL', side, INSTANTS))

const test = suite('faults', { timeoutMs: 400_000 })

promise(
  test,
  'kill -9 of either process at a step of a handover leaves one that goes on',
  'alone',
  isLong ? some : half(some, 0),
)
if (isLong) promise(test, 'the same at the other steps', 'alone', half(steps, 1))
promise(
  test,
  'kill -9 of either and of both at any instant, and the next start finds all that it needs',
  'alone',
  half(instants, 0),
)
promise(test, 'the same under a supervision: nobody is refused', 'supervised', half(instants, 1))

test.run()
