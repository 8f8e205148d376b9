// Fetches something until it is what was published: a feed with several sources leaves out each that has other bytes.

import type { Feed } from '../../words/release.ts'

/** errors of bytes that cannot be the published ones */
const OTHER_BYTES = new WeakSet<object>()

export function noteOther<E extends Error>(error: E): E {
  OTHER_BYTES.add(error)
  return error
}

/** Tries again as long as the feed can leave out whoever has sent other bytes than the published ones. */
export async function fromWhoeverHasIt<T>(
  feed: Pick<Feed, 'leaveOut'>,
  once: (isAgain: boolean) => Promise<T>,
  isPublished: (got: T) => boolean,
): Promise<T> {
  for (let isAgain = false; ; isAgain = true) {
    const got = await once(isAgain).then(
      (value) => ({ value }),
      (cause: unknown) => ({ cause }),
    )
    if ('value' in got && isPublished(got.value)) return got.value
    const isOther = 'value' in got || OTHER_BYTES.has(Object(got.cause))
    if (isOther && ((await feed.leaveOut?.()) ?? false)) continue
    if ('value' in got) return got.value
    throw got.cause
  }
}
