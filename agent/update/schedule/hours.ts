// The openings: the times at which all hours of a policy are open, each in its own zone. Pure. Needs `Temporal` (Node 26).
// Must hold: no opening outside of the hours; hours that a clock change skips move to the next valid minute, and hours that come twice
// count once.

import { DAY_MS } from '../../words/duration.ts'
import { DAYS } from '../../words/schedule.ts'
import type { OpenHours } from './policy.ts'

/** Epoch milliseconds; `end` is not part of it. */
export interface Opening {
  start: number
  end: number
}

/** how far to look ahead: two plans that never overlap would make this endless, and a year has every clock change of a zone */
const AHEAD_MS = 400 * DAY_MS

/** The openings that end after `from`, in order. None: these hours have no minute in common. */
export function* openings(hours: readonly OpenHours[], from: number): Generator<Opening> {
  const [first, ...others] = hours
  if (first === undefined) return yield { start: -Infinity, end: Infinity }
  const own = openingsOf(first, from)
  if (others.length === 0) return yield* own
  yield* common(own, openings(others, from))
}

function* common(one: Generator<Opening>, other: Generator<Opening>): Generator<Opening> {
  let [a, b] = [one.next(), other.next()]
  while (a.done !== true && b.done !== true) {
    const [start, end] = [Math.max(a.value.start, b.value.start), Math.min(a.value.end, b.value.end)]
    if (start < end) yield { start, end }
    if (a.value.end <= b.value.end) a = one.next()
    else b = other.next()
  }
}

function* openingsOf({ days, from, to, zone }: OpenHours, since: number): Generator<Opening> {
  const zoned = Temporal.Instant.fromEpochMilliseconds(Math.floor(since)).toZonedDateTimeISO(zone)
  let last = -Infinity
  // begin earlier: an opening may last over midnight, and a clock change may have moved it
  for (let day = zoned.toPlainDate().subtract({ days: 2 }), ahead = 0; ahead < AHEAD_MS; day = day.add({ days: 1 })) {
    ahead += DAY_MS
    const name = DAYS[day.dayOfWeek - 1]
    if (name === undefined || !days.includes(name)) continue
    const { start, end } = openingOn(day, from, to, zone)
    const own = { start: Math.max(start, last), end } // do not count the overlap twice if a clock change makes two openings overlap
    last = Math.max(last, end)
    if (own.start < own.end && own.end > since) yield own
  }
}

function openingOn(day: Temporal.PlainDate, from: number, to: number, zone: string): Opening {
  const lengthMs = 60_000 * (to > from ? to - from : to + 1440 - from)
  const ends = to > from ? day : day.add({ days: 1 })
  const [begin, finish] = [instants(day, from, zone), instants(ends, to, zone)]
  // inside the hours by both readings of an ambiguous clock; if that leaves nothing, by the first reading
  const [start, end] = [begin.later, finish.earlier]
  if (start < end) return { start, end }
  if (begin.earlier < end) return { start: begin.earlier, end }
  return { start, end: start + lengthMs } // the clock change skips the whole opening
}

/** The two moments at which the clock shows this time; the same one twice if there is one; the end of the gap if there is none. */
function instants(date: Temporal.PlainDate, minutes: number, zone: string): { earlier: number; later: number } {
  const [day, left] = minutes === 1440 ? [date.add({ days: 1 }), 0] : [date, minutes]
  const wanted = day.toPlainDateTime({ hour: Math.floor(left / 60), minute: left % 60 })
  const earlier = wanted.toZonedDateTime(zone, { disambiguation: 'earlier' })
  if (!earlier.toPlainDateTime().equals(wanted)) {
    const after = earlier.getTimeZoneTransition('next')
    const moment = (after ?? earlier).epochMilliseconds
    return { earlier: moment, later: moment }
  }
  const later = wanted.toZonedDateTime(zone, { disambiguation: 'later' })
  return { earlier: earlier.epochMilliseconds, later: later.epochMilliseconds }
}
