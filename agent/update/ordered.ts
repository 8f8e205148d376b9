// What the first code of a release does in a run with `--version`: it carries out the order that another process has given it.

import { obeyLater } from '../disk/as-ordered.ts'
import { FETCH_ORDER } from '../disk/orders.ts'

/** Carries out the orders of a run with `--version`, once. Rejects if it cannot. `ownRehearse`: the release's `trial`. */
export async function doAsOrdered(ownRehearse: () => unknown = () => null): Promise<void> {
  if (process.env[FETCH_ORDER] === undefined) return await obeyLater(ownRehearse)
  await (await import('./fetch-here.ts')).fetchHere()
}
