// One switch, from a version that serves to one that has proved itself, or back to the first. It is all here, and only here; how a step
// is done is the ground's: two processes in either order, or two containers.
// Must hold: stop-first, the new version begins nothing before the old one is gone; a version is committed to only after it has proved
// itself; whatever fails, `putBack` or `leave` is called, once, and nothing after it.

import type { Order } from '../words/order.ts'

/** Where two versions live. Each step rejects if it could not be taken; none but `prove` is taken twice. */
export interface Ground<End> {
  /** how whoever conducts this switch may leave it before its end; null: it goes on until something fails */
  leaving: Leave<End> | null
  /** The new version is there, and has begun nothing: a process, at its gate if there is one; a container. Resolves to the order that both allow. */
  start(): Promise<Order>
  /**
   * The old version has ended, and all that it held is free, or kept for the new one. It may never return: the old version can be this
   * process. Start-first it comes last, and does nothing if `commit` has ended the old version.
   */
  retire(): Promise<void>
  /** The new version has begun, is well, and takes what is new. */
  begin(): Promise<void>
  /** The new version is the service, for its manager too; the old one takes nothing new. */
  claim(): Promise<void>
  /** The new version gets what clients have open, or goes on getting it while it proves itself. */
  hand(): Promise<void>
  /** The new version stands its probation. Start-first it is called before and after `hand`; a ground may do all of it in the first call. */
  prove(): Promise<void>
  /** The new version answers for itself. Start-first the old one still lives, so what fails after this can still be put back. */
  commit(): Promise<End>
  /** The old version serves, and the new one is gone. `hasServed`: whether clients may have come to the new one. Rejects if that is an error here. */
  putBack(cause: unknown, hasServed: boolean): Promise<End>
}

export interface Leave<End> {
  /** aborts when whoever conducts this switch must end; a step that waits for a version is then waited for no longer */
  signal: AbortSignal
  /** Called then, in place of `putBack`. */
  leave(hasServed: boolean): Promise<End>
}

/** `claim`, `hand` and `commit` are waited for even by who leaves: half of each would leave nobody, or two, to answer. */
export async function conduct<End>(ground: Ground<End>): Promise<End> {
  const { leaving } = ground
  const step = async <T>(take: () => Promise<T>): Promise<T> =>
    leaving === null ? await take() : await unlessLeft(leaving.signal, take)
  let hasServed = false
  try {
    const order = await step(ground.start)
    if (order === 'stop-first') await step(ground.retire)
    await step(ground.begin)
    hasServed = true
    await ground.claim()
    if (order === 'start-first') await step(ground.prove) // the old version still has all that clients have open
    await ground.hand()
    await step(ground.prove)
    const end = await ground.commit()
    if (order === 'start-first') await ground.retire()
    return end
  } catch (cause) {
    if (leaving !== null && cause instanceof Left) return await leaving.leave(hasServed)
    return await ground.putBack(cause, hasServed)
  }
}

class Left extends Error {}

/** Settles as the step does; throws Left as soon as `leaving` aborts. */
async function unlessLeft<T>(leaving: AbortSignal, take: () => Promise<T>): Promise<T> {
  const left = Promise.withResolvers<never>()
  left.promise.catch(() => {})
  const leave = () => left.reject(new Left())
  leaving.addEventListener('abort', leave, { once: true })
  try {
    if (leaving.aborted) throw new Left()
    return await Promise.race([take(), left.promise])
  } finally {
    leaving.removeEventListener('abort', leave)
  }
}
