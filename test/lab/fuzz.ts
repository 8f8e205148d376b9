// Property tests. The only importer of fast-check; a failure prints the seed and the smallest counterexample.

import fc from 'fast-check'

export { fc }

export interface FuzzOptions {
  runs?: number
  /** of the failure to see again; default: another one each time, printed where it fails */
  seed?: number
}

/** Holds `property` against values of `arbitrary`; `property` throws, or returns false, where it does not hold. */
export async function fuzz<T>(
  arbitrary: fc.Arbitrary<T>,
  property: (value: T) => boolean | void | Promise<boolean | void>,
  { runs = 500, seed }: FuzzOptions = {},
): Promise<void> {
  const parameters = { numRuns: runs, ...(seed === undefined ? {} : { seed }) }
  await fc.assert(
    fc.asyncProperty(arbitrary, async (value) => await property(value)),
    parameters,
  )
}
