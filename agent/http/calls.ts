// The endpoints as functions, for an application that has pages and commands of its own.

import { reasonOf } from '../words/errors.ts'
import { parseTag } from '../words/release.ts'
import type { Allowed, AllowedBack, Operation, Status, VersionReport } from '../words/state.ts'
import type { Updater } from './routes.ts'

/** Each throws BatonError with the code that the endpoint would answer. Whom to allow it is the caller's to decide. */
export interface Calls {
  status(): Promise<Status>
  check(): Promise<VersionReport>
  /** Resolves once the operation has begun. `tag`: default the newest release */
  update(tag?: string | null, allowed?: Partial<Allowed>): Promise<Operation>
  rollback(allowed?: Partial<AllowedBack>): Promise<Operation>
  /** Calls `heard` with each status that is new from now on, until the returned function is called. An install that is not managed has none. */
  on(event: 'change', heard: (status: Status) => void): () => void
}

const NOTHING: Allowed = { allowIrreversible: false, restoreState: false, now: false }

/** `warn`: told what a listener has thrown. */
export function makeCalls(open: () => Promise<Updater>, leaving: AbortSignal, warn: (message: string) => void): Calls {
  const listeners = new Set<(status: Status) => void>()
  let isFollowing = false
  const follow = async (): Promise<void> => {
    if (isFollowing) return
    isFollowing = true
    const isLeft = await import('./changes.ts')
      .then(async ({ tellChanges }) => tellChanges(await open(), listeners, leaving, warn))
      .catch((cause: unknown) => warn(`a \`change\` listener failed: ${reasonOf(cause)}`))
    isFollowing = false
    if (isLeft === true && listeners.size > 0) void follow() // somebody has come in this very moment
  }
  return {
    status: async () => (await open()).status(null),
    check: async () => (await open()).check(),
    update: async (tag = null, allowed = {}) =>
      (await open()).update(tag === null ? null : parseTag(tag), { ...NOTHING, ...allowed }),
    rollback: async (allowed = {}) => (await open()).rollback({ ...NOTHING, ...allowed }),
    on(_event, heard) {
      const own = (status: Status) => heard(status) // one function may be given twice
      listeners.add(own)
      void follow()
      return () => void listeners.delete(own)
    },
  }
}
