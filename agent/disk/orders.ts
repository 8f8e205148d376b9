// The orders that a Baton executable carries out for another process when it is run with `--version`: copy a database, look at one,
// say what its author wants in rehearsals, or remove what releases have unpacked and none needs.
// Must hold: no application runs in this process; `copy-database.ts` says why.

/** Whoever gives an order or asks for a version sets it: how many executables have started each other. */
export const DEPTH = 'BATON_DEPTH'

let orders: Promise<void> | null = null

/** Carries out the orders of a run with `--version`, once. Rejects if it cannot. `ownRehearse`: the release's `rehearse`. */
export function doAsOrdered(ownRehearse: () => unknown = () => null): Promise<void> {
  if (process.env[DEPTH] === undefined) return Promise.resolve()
  return (orders ??= import('./ordered.ts').then(({ obey }) => obey(ownRehearse)))
}
