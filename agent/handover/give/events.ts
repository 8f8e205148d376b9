// Where a stream of server-sent events may end: behind the empty line that ends an event. An event that is cut never reaches the
// client's code, and not every service can send it again. What was written before `followEvents` is not known, but whoever writes one
// event in several pieces writes the next one soon.

import type { ServerResponse } from 'node:http'
import { uptimeMs } from '../../sockets/listeners.ts'

/** a stream that is silent for so long is between two events; one that stays inside of an event ends all the same */
const [SILENT_MS, INSIDE_MAX_MS] = [50, 1000]
const END_OF_EVENT = /(\n\n|\r\r|\r\n\r\n)$/

interface Followed {
  /** in `uptimeMs()` */
  since: number
  /** the last four characters that were written since */
  last: string
}

const followed = new WeakMap<ServerResponse, Followed>()

/** From now on looks at what the author writes. */
export function followEvents(response: ServerResponse): void {
  if (followed.has(response)) return
  const own: Followed = { since: uptimeMs(), last: '' }
  followed.set(response, own)
  const { write } = response
  response.write = ((...args: Parameters<typeof write>) => {
    const [data] = args as unknown[]
    if (typeof data === 'string' || data instanceof Uint8Array)
      own.last = (
        own.last + (typeof data === 'string' ? data.slice(-4) : Buffer.from(data.slice(-4)).toString('latin1'))
      ).slice(-4)
    return Reflect.apply(write, response, args)
  }) as typeof write
}

/** Whether it can end now without cutting an event. */
export function isBetweenEvents(response: ServerResponse): boolean {
  const own = followed.get(response)
  if (own === undefined) {
    followEvents(response)
    return false
  }
  if (END_OF_EVENT.test(own.last)) return true
  return uptimeMs() - own.since >= (own.last === '' ? SILENT_MS : INSIDE_MAX_MS)
}
