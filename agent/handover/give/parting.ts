// A stop without a successor, from the signal to the moment in which the process may end.
// Must hold: clients are refused only when there is nothing left to wait for but the requests in flight; work and requests together take
// one and a half times `drainMs` at most, for a supervisor ends by force what takes longer (`sockets/long-stop.ts`).

import type { Log } from '../../log.ts'
import type { Keeper } from '../../sockets/keeper.ts'
import { closeListener, type Listener, uptimeMs } from '../../sockets/listeners.ts'
import type { Carries } from '../carry/carry.ts'
import { ownWorks } from '../works.ts'
import { bidFarewell } from './farewell.ts'

export { allowLongStop } from '../../sockets/long-stop.ts'

export interface ToPart {
  /** those of this moment, and those that the author has closed at the same signal */
  listeners(): Listener[]
  carries: Carries
  keeper: Keeper | null
  drainMs: number
  /** the process ends because it has failed: it serves nobody meanwhile, and the manager keeps the sockets */
  isFailure: boolean
  /** calls the author's `onDrain` */
  drain(): void
}

export async function part({ carries, keeper, drainMs, isFailure, drain, ...its }: ToPart, log: Log): Promise<void> {
  const began = uptimeMs()
  const isHeld = keeper?.ownsQueue === true
  // It serves on while its work ends, since nobody else does. At a holder clients wait, and an engine's patience is short.
  if (!isFailure && !isHeld) {
    await ownWorks().rest(drainMs)
    ownWorks().giveUp()
  }
  const leftMs = Math.max(drainMs - (uptimeMs() - began), drainMs / 2)
  const listeners = its.listeners()
  const farewell = bidFarewell({ listeners, carries, isHeld })
  if (!isFailure) await farewell.announce()
  // an author may end connections in `onDrain`: of a server that does not speak HTTP, nobody else can
  for (const listener of listeners) if (!listener.isHttp) closeListener(listener)
  drain()
  await farewell.endEndless()
  for (const listener of listeners) closeListener(listener)
  const [parted] = await Promise.all([farewell.finish(leftMs), keeper?.leave?.(), ownWorks().rest(leftMs)])
  if (Object.values(parted).some((count) => count > 0)) log({ event: 'parted', ...parted })
}
