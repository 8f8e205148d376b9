// Property tests. A failure prints the seed and the smallest counterexample.

import { fc } from './fast-check.ts'
import { isLong } from '../suite.ts'

export { fc }

export interface FuzzOptions {
  runs?: number
  /** seed of a failure to repeat; default: another one each time, which a failure prints */
  seed?: number
}

/** Tests `property` with values of `arbitrary`; `property` throws, or returns false, if it does not hold. */
export async function fuzz<T>(
  arbitrary: fc.Arbitrary<T>,
  property: (value: T) => boolean | void | Promise<boolean | void>,
  { runs = isLong ? 500 : 150, seed }: FuzzOptions = {},
): Promise<void> {
  const parameters = { numRuns: runs, ...(seed === undefined ? {} : { seed }) }
  await fc.assert(
    fc.asyncProperty(arbitrary, async (value) => await property(value)),
    parameters,
  )
}
