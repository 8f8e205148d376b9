// Work that belongs to no request: an export, a job of a queue. A switch waits for it, and a stop does within its time limit.
// Must hold: work is never delayed or refused, in whichever process it is begun, and its errors stay its own.

export interface Work {
  /** the author's word for it, for people */
  reason: string
  /** milliseconds of a monotonic clock */
  sinceMs: number
}

export interface WorkCalls {
  /**
   * Says that `work` is under way until it settles, and resolves or rejects as it does. Without `work`: until the returned function is called.
   */
  busy<T>(reason: string, work: PromiseLike<T> | (() => T | PromiseLike<T>)): Promise<T>
  busy(reason: string): () => void
  /** Resolves at once, or, while a switch is asked for, when this process goes on after all. Await it before new work, and a switch comes sooner. */
  whenQuiet(): Promise<void>
}

export interface Works extends WorkCalls {
  /** what a switch waits for */
  underWay(): readonly Work[]
  /** What is under way now is waited for no longer, unless this process serves on. */
  giveUp(): void
  /** A switch is asked for: whoever awaits `whenQuiet` begins nothing. */
  hold(): void
  /** This process serves on. */
  resume(): void
  /** Resolves when nothing is under way, or after `ms`. */
  rest(ms: number): Promise<void>
}

const REASON_MAX = 100
const LOOK_MS = 20
const WORKS = Symbol.for('baton.works')

/** One for each process, even if the package is loaded both as ESM and by require. */
export function ownWorks(): Works {
  return ((globalThis as { [WORKS]?: Works })[WORKS] ??= makeWorks())
}

export function makeWorks(): Works {
  const works = new Set<Work>()
  let givenUp = new Set<Work>()
  const underWay = () => [...works].filter((work) => !givenUp.has(work))
  let held: { promise: Promise<void>; resolve(): void } | null = null
  const begin = (reason: string): (() => void) => {
    const work = { reason: reason.slice(0, REASON_MAX), sinceMs: performance.now() }
    works.add(work)
    return () => void works.delete(work)
  }
  const during = async <T>(end: () => void, work: T | PromiseLike<T> | (() => T | PromiseLike<T>)): Promise<T> => {
    try {
      return await (typeof work === 'function' ? (work as () => T | PromiseLike<T>)() : work)
    } finally {
      end()
    }
  }
  // a function without types may have returned nothing: that is work, and it has ended
  const busy = (reason: string, ...given: [(PromiseLike<unknown> | (() => unknown))?]) => {
    const end = begin(reason)
    return given.length === 0 ? end : during(end, given[0])
  }
  return {
    busy: busy as WorkCalls['busy'],
    whenQuiet: () => held?.promise ?? Promise.resolve(),
    underWay,
    giveUp: () => void (givenUp = new Set(works)),
    hold: () => {
      let resolve = () => {}
      held ??= { promise: new Promise<void>((done) => (resolve = done)), resolve: () => resolve() }
    },
    resume: () => {
      held?.resolve()
      held = null
      givenUp = new Set()
    },
    async rest(ms) {
      const until = performance.now() + ms
      while (underWay().length > 0 && performance.now() < until) await new Promise((done) => setTimeout(done, LOOK_MS))
    },
  }
}
