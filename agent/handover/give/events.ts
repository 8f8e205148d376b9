// Where a stream of server-sent events may end: behind the empty line that ends an event. An event that is cut never reaches the
// client's code, and not every service can send it again. What was written before `followEvents` is not known, but whoever writes one
// event in several pieces writes the next one soon.

import type { ServerResponse } from 'node:http'
import { uptimeMs } from '../../sockets/listeners.ts'

/**
 * A stream that is silent for so many turns of this length is between two events: turns, because on a busy machine the author's timers are late
 * too. One that stays inside of an event ends all the same.
 */
const [SILENT_TURNS, TURN_MS, INSIDE_MAX_MS] = [5, 10, 1000]
const END_OF_EVENT = /(\n\n|\r\r|\r\n\r\n)$/

interface Followed {
  /** since when its end is wanted, in `uptimeMs()`; null: not yet */
  wantedAt: number | null
  turns: number
  /** the last four characters that were written since */
  last: string
}

const followed = new WeakMap<ServerResponse, Followed>()

/** From now on looks at what the author writes. */
export function followEvents(response: ServerResponse): void {
  if (followed.has(response)) return
  const own: Followed = { wantedAt: null, turns: 0, last: '' }
  followed.set(response, own)
  const turn = () => void (++own.turns < SILENT_TURNS && setTimeout(turn, TURN_MS))
  setTimeout(turn, TURN_MS)
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

/** Whether it was looked at for long enough to know where it is. */
export function isKnown(response: ServerResponse): boolean {
  const own = followed.get(response)
  return own !== undefined && (own.last !== '' || own.turns >= SILENT_TURNS)
}

/** Whether it may end now: call it until it may. */
export function mayEndNow(response: ServerResponse): boolean {
  followEvents(response)
  const own = followed.get(response)
  if (own === undefined || !isKnown(response)) return false
  own.wantedAt ??= uptimeMs()
  return own.last === '' || END_OF_EVENT.test(own.last) || uptimeMs() - own.wantedAt >= INSIDE_MAX_MS
}
