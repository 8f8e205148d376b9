// What the service does by itself, decided on an injected clock: a year in a minute, in zones with every kind of clock change.

import { readPolicy, tightened, USUAL, formatPolicy, type Policy } from '../agent/update/schedule/policy.ts'
import { openings } from '../agent/update/schedule/hours.ts'
import { factsOf, leftBehind, leftIn } from '../agent/update/schedule/facts.ts'
import { deedsIn, waitingFor } from '../agent/update/schedule/say.ts'
import {
  askAgainAt,
  corrected,
  type Remembered,
  newMemory,
  parseMemory,
  isOfAnother,
  settled,
} from '../agent/update/schedule/memory.ts'
import { type ScheduleFacts, isWithin, next, type Offered } from '../agent/update/schedule/next.ts'
import { rankOf, turnIn } from '../agent/update/schedule/rank.ts'
import { whyNotAlone } from '../agent/update/schedule/proven.ts'
import { forPerson, type Wait } from '../agent/words/waits.ts'
import { type JournalState, markBad } from '../agent/disk/journal.ts'
import type { Operation, Outcome } from '../agent/words/state.ts'
import { newOperation } from '../agent/update/operation.ts'
import { equal, is, match, ok } from './assert.ts'
import { isLong, suite } from './suite.ts'

const test = suite('schedule', { timeoutMs: 120_000 })
const [MINUTE, HOUR, DAY] = [60_000, 3_600_000, 86_400_000]

function policy(value: object, zone = 'UTC'): Policy {
  const read = readPolicy(value, zone, true)
  equal(read.faults, [])
  return read.policy
}

const OFFER: Offered = { tag: 'v1.0.1', sha256: 'a'.repeat(64), publishedAt: 0, seenAt: 0, rollout: null, bytes: 1 }
const FACTS: ScheduleFacts = {
  running: 'v1.0.0',
  id: 'a'.repeat(32),
  offer: OFFER,
  asks: null,
  left: null,
  problem: null,
  askedAt: 0,
  askAt: 1e15,
  isInFlight: false,
  lastAt: null,
  failures: 0,
  wasReverted: false,
  tookMs: 5 * MINUTE,
}
const NOON = Date.parse('2026-11-23T12:00:00Z') // a Monday

/** Days and hours by another way than the code's: what the clock on the wall shows, from Intl. */
function wallOf(zone: string): (ms: number) => { day: string; minutes: number; date: string } {
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone: zone,
    weekday: 'short',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  })
  return (ms) => {
    const parts = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]))
    return {
      day: String(parts['weekday']).toLowerCase(),
      minutes: Number(parts['hour']) * 60 + Number(parts['minute']),
      date: `${parts['year']}-${parts['month']}-${parts['day']}`,
    }
  }
}

const first = (value: object, from: string, zone: string): string => {
  for (const { start, end } of openings(policy(value, zone).hours, Date.parse(from))) {
    const shown = (ms: number) => Temporal.Instant.fromEpochMilliseconds(ms).toZonedDateTimeISO(zone).toString()
    return `${shown(start).slice(5, 22)} ${shown(end).slice(5, 22)}`
  }
  return 'never'
}

test('hours that a clock change skips move to the next valid minute; hours that come twice count once', () => {
  const berlin = (hours: string, from: string) => first({ hours }, from, 'Europe/Berlin')
  is(berlin('02:00-03:00', '2026-03-28T10:00Z'), '03-29T03:00:00+02 03-29T04:00:00+02')
  is(berlin('02:30-04:00', '2026-03-28T10:00Z'), '03-29T03:00:00+02 03-29T04:00:00+02')
  is(berlin('01:00-02:30', '2026-03-28T10:00Z'), '03-29T01:00:00+01 03-29T03:00:00+02')
  is(berlin('02:10-02:40', '2026-10-24T10:00Z'), '10-25T02:10:00+02 10-25T02:40:00+02')
  is(berlin('02:00-03:00', '2026-10-24T10:00Z'), '10-25T02:00:00+01 10-25T03:00:00+01')
  is(berlin('02:30-04:00', '2026-10-24T10:00Z'), '10-25T02:30:00+01 10-25T04:00:00+01')
  is(berlin('23:00-02:00', '2026-10-24T10:00Z'), '10-24T23:00:00+02 10-25T02:00:00+02')
  is(first({ days: ['fri'] }, '2011-12-29T00:00Z', 'Pacific/Apia').slice(0, 19), '12-31T00:00:00+14 0')
  is(first({ hours: '00:00-01:00' }, '2018-11-03T12:00Z', 'America/Sao_Paulo').slice(0, 17), '11-04T01:00:00-02')
  is(first({ hours: '02:00-02:15' }, '2026-10-03T00:00Z', 'Australia/Lord_Howe').slice(0, 17), '10-04T02:30:00+11')
})

test('a leap day is a day; hours over midnight belong to the day on which they begin', () => {
  is(first({ days: ['tue'], hours: '02:00-03:00' }, '2028-02-28T12:00Z', 'UTC'), '02-29T02:00:00+00 02-29T03:00:00+00')
  is(first({ days: ['fri'], hours: '23:30-00:30' }, '2026-11-28T00:10Z', 'UTC'), '11-27T23:30:00+00 11-28T00:30:00+00')
})

for (const zone of [
  'Europe/Berlin',
  'America/New_York',
  'Australia/Lord_Howe',
  'America/Sao_Paulo',
  'Asia/Kathmandu',
]) {
  test(`no minute of an opening is outside of the hours on the wall: ${zone}`, () => {
    const wall = wallOf(zone)
    const random = randomOf(zone)
    for (let round = 0; round < (isLong ? 20 : 8); round++) {
      const [from, length] = [Math.floor(random() * 1440), 15 + Math.floor(random() * 600)]
      const to = (from + length) % 1440
      const clock = (m: number) => `${String(Math.floor(m / 60)).padStart(2, '0')}:${String(m % 60).padStart(2, '0')}`
      const days = (['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const).filter(() => random() < 0.5)
      const year = zone === 'America/Sao_Paulo' ? 2017 : 2026
      const read = policy({ hours: `${clock(from)}-${clock(to)}`, days: days.length === 0 ? ['sun'] : days }, zone)
      let [seen, last] = [0, -Infinity]
      for (const { start, end } of openings(read.hours, Date.parse(`${year}-01-01T00:00Z`))) {
        if (start > Date.parse(`${year + 1}-01-01T00:00Z`)) break
        ok(start >= last, 'two openings overlap')
        last = end
        seen++
        for (let at = start; at < end; at += 5 * MINUTE) {
          const { minutes } = wall(at)
          const isIn = to > from ? minutes >= from && minutes < to : minutes >= from || minutes < to
          const isMoved = wall(start).minutes !== from || end - start !== length * MINUTE // a clock change moved it
          ok(isIn || isMoved, `${zone} ${clock(from)}-${clock(to)}: ${new Date(at).toISOString()}`)
        }
      }
      const whole = Math.floor((read.hours[0]?.days.length ?? 0) * 52)
      ok(seen >= whole && seen <= whole + 9, `${seen} openings, expected about ${whole}`)
    }
  })
}

/** A sequence that is the same in each run. */
function randomOf(seed: string): () => number {
  let n = 0
  return () => rankOf(seed, String(n++))
}

interface World {
  zone: string
  rules: object
  seed: string
  from: string
  /** how far the clock of this host may jump */
  jumpMs: number
}

interface Done {
  tag: string
  at: number
  outcome: Outcome
  openingStart: number | null
}

/** Lives a year: releases come, some are bad, the host sleeps, its clock jumps, the feed is away. */
function live({ zone, rules, seed, from, jumpMs }: World) {
  const random = randomOf(seed)
  const rule = policy(rules, zone)
  const begin = Date.parse(from)
  const end = begin + 366 * DAY
  // what is published, and what becomes of it here
  const published: { tag: string; at: number; fate: 'good' | 'bad' | 'flaky' }[] = []
  for (let at = begin + DAY, n = 1; at < end - 40 * DAY; at += Math.floor(random() * 20 * DAY), n++) {
    const fate = random() < 0.25 ? 'bad' : random() < 0.3 ? 'flaky' : 'good'
    published.push({ tag: random() < 0.2 ? `v1.${n}.0` : `v1.0.${n}`, at, fate })
  }
  published.push({ tag: 'v1.0.999999', at: end - 39 * DAY, fate: 'good' })
  let [running, now] = ['v1.0.0', begin]
  let memory: Remembered = newMemory(['m'], now)
  const journal: JournalState = { format: 1, operation: null, history: [], bad: [], probation: null }
  const done: Done[] = []
  const asks: number[] = []
  let jumps = 0
  while (now < end) {
    memory = settled(corrected(memory, now), journal, running)
    const decided = next(
      rule,
      factsOf({ memory, running, isInFlight: false, asks: asksOf(memory), left: null, tookMs: 5 * MINUTE }),
      now,
    )
    if (decided.do === 'ask') {
      asks.push(now)
      const isAway = random() < 0.1
      const failures = isAway ? memory.asked.failures + 1 : 0
      memory.asked = { at: now, next: askAgainAt(memory.id, failures, now), problem: isAway ? 'away' : null, failures }
      if (isAway) continue
      const good = published
        .filter(
          ({ tag, at }) =>
            at <= now && isWithin(rule.mode, running, tag) && !memory.never.some((one) => one.tag === tag),
        )
        .filter(({ tag }) => Number(tag.split('.')[2]) > Number(running.split('.')[2]))
        .at(-1)
      const sha256 = good === undefined ? '' : shaOf(good.tag)
      const seenAt = memory.offer?.sha256 === sha256 ? memory.offer.seenAt : now
      memory.offer =
        good === undefined ? null : { tag: good.tag, sha256, publishedAt: good.at, seenAt, rollout: null, bytes: 1 }
      continue
    }
    if (decided.do === 'update' && memory.offer !== null) {
      const { tag, sha256 } = memory.offer
      const id = `op-${done.length}`
      memory.attempt = { id, tag, sha256, at: now, isOpen: true }
      const isCut = random() < 0.05 // a power cut between the note and the operation
      const { fate } = published.find((one) => one.tag === tag) ?? { fate: 'good' }
      const outcome: Outcome = fate === 'bad' ? 'reverted' : fate === 'flaky' && random() < 0.5 ? 'failed' : 'updated'
      const [opening] = openings(rule.hours, now)
      done.push({ tag, at: now, outcome: isCut ? 'failed' : outcome, openingStart: opening?.start ?? null })
      if (!isCut) {
        journal.history.unshift(ended(id, running, tag, outcome, now))
        if (outcome === 'updated') running = tag
        if (outcome === 'reverted') markBad(journal, tag, sha256, 'it exited')
      }
      memory = parseMemory(JSON.stringify(memory)) ?? memory // over the disk
      now += 3 * MINUTE
      continue
    }
    ok(decided.at === null || decided.at >= now, `it looks back: ${JSON.stringify(decided)}`)
    // near the next moment as often as the service looks, else in larger steps, to be quick
    const far = (decided.at ?? now + DAY) - now
    now += far > 2 * HOUR ? HOUR + Math.floor(random() * 50) * MINUTE : Math.max(1000, Math.min(5 * MINUTE, far))
    if (random() < 0.002) now += Math.floor(random() * 10 * DAY) // asleep
    if (jumpMs > 0 && random() < 0.0015 && now < end - 40 * DAY) {
      now = Math.max(begin, now + Math.floor((random() - 0.5) * 2 * jumpMs))
      jumps++
    }
  }
  return { done, asks, running, rule, jumps, published }
}

const asksOf = ({ offer, never }: Remembered): Wait | null =>
  never.find(({ sha256 }) => sha256 === offer?.sha256)?.why ?? null

const shaOf = (tag: string): string => Buffer.from(tag).toString('hex').padEnd(64, '0')

function ended(id: string, from: string, to: string, outcome: Outcome, at: number): Operation {
  const operation = newOperation({ id, kind: 'update', from, to, startedAt: new Date(at).toISOString() })
  const error = outcome === 'updated' ? null : ({ code: 'probation_failed', message: 'it died' } as const)
  return { ...operation, outcome, error, finishedAt: new Date(at).toISOString() }
}

const YEARS: World[] = [
  {
    zone: 'Europe/Berlin',
    rules: { mode: 'patch', hours: '02:00-03:00', jitter: '30m' },
    seed: 'a',
    from: '2026-01-01T00:00Z',
    jumpMs: 0,
  },
  {
    zone: 'America/New_York',
    rules: { mode: 'patch', hours: '01:30-02:30', minAge: '2d' },
    seed: 'b',
    from: '2026-03-01T00:00Z',
    jumpMs: 0,
  },
  {
    zone: 'Australia/Lord_Howe',
    rules: { mode: 'patch', hours: '01:45-02:15', days: ['sun', 'wed'] },
    seed: 'c',
    from: '2026-01-01T00:00Z',
    jumpMs: 0,
  },
  {
    zone: 'UTC',
    rules: { mode: 'patch', days: ['tue'], hours: '23:00-04:00' },
    seed: 'd',
    from: '2028-01-01T00:00Z',
    jumpMs: 0,
  },
  {
    zone: 'Europe/Berlin',
    rules: { mode: 'patch', hours: '02:00-03:00', jitter: '30m' },
    seed: 'e',
    from: '2026-01-01T00:00Z',
    jumpMs: 40 * DAY,
  },
  {
    zone: 'Asia/Kathmandu',
    rules: { mode: 'patch', minAge: '24h', jitter: '600m' },
    seed: 'f',
    from: '2026-01-01T00:00Z',
    jumpMs: 3 * DAY,
  },
]

// each kind of clock change has its test above: CI lives through a year of one zone, and of two with a clock that jumps
for (const world of isLong ? YEARS : YEARS.filter(({ jumpMs, seed }) => jumpMs > 0 || seed === 'a')) {
  const { zone, jumpMs, seed } = world
  test(`a year in ${zone}${jumpMs > 0 ? ' with a clock that jumps' : ''} (${seed}): nothing outside of the hours, nothing twice, nothing forgotten`, () => {
    const { done, asks, running, rule, jumps, published } = live(world)
    ok(done.length > 5, `${done.length} attempts`)
    for (const { at, tag } of done) {
      const isOpen = [...take(openings(rule.hours, at), 1)].some(({ start, end }) => start <= at && at < end)
      ok(isOpen, `${tag} at ${new Date(at).toISOString()}`)
      const { fate } = published.find((one) => one.tag === tag) ?? {}
      const own = done.filter((one) => one.tag === tag && one.outcome !== 'failed')
      ok(own.length <= 1, `${tag} (${fate}) ${own.length} times`)
    }
    if (jumps === 0 && rule.hours.length > 0)
      is(new Set(done.map(({ openingStart }) => openingStart)).size, done.length, 'one attempt in an opening')
    is(running, 'v1.0.999999')
    if (jumps === 0) ok(asks.length < 366 * 8, `${asks.length} questions to the feed`)
    if (jumpMs > 0) ok(jumps > 1, `${jumps} jumps`)
  })
}

function* take<T>(from: Generator<T>, most: number): Generator<T> {
  let n = 0
  for (const one of from) {
    if (n++ >= most) return
    yield one
  }
}

test('in every zone that Node knows the hours open each day of a year, in order, and never for long', () => {
  const zones = Intl.supportedValuesOf('timeZone').filter((_, at) => isLong || at % 4 === 0)
  for (const zone of [...zones, 'UTC', 'Etc/GMT-14']) {
    for (const hours of ['02:30-02:31', '23:30-00:30']) {
      let [last, days] = [-Infinity, 0]
      for (const { start, end } of openings(policy({ hours, zone }).hours, Date.parse('2026-01-01T00:00Z'))) {
        ok(start >= last && end > start && end - start <= 2 * HOUR, `${zone} ${hours} ${new Date(start).toISOString()}`)
        last = end
        days++
      }
      ok(days >= 395, `${zone} ${hours}: ${days}`)
    }
  }
})

test('what it waits for is one sentence with a time, to the minute', () => {
  const go = policy({ mode: 'patch', hours: '02:00-05:00' })
  const said = (facts: Partial<ScheduleFacts>, rule: object = {}, now = NOON) =>
    next({ ...go, ...rule }, { ...FACTS, ...facts }, now)
  const goes = { code: 'goes', says: 'v1.0.1 will be installed automatically', tag: 'v1.0.1', because: [] }
  equal(said({}), { do: 'nothing', at: Date.parse('2026-11-24T02:00Z'), ...goes })
  is(said({}, {}, Date.parse('2026-11-24T02:00Z')).do, 'update')
  is(said({}, { mode: 'off' }).at, null)
  const { says, code, tag } = said({ asks: forPerson('room', 'v1.0.1', 'so') })
  equal([says, code, tag], ['v1.0.1 is waiting for you: so', 'room', 'v1.0.1'])
  is(said({ offer: null }).says, 'there is no newer release')
  is(said({ offer: null, askedAt: null }).code, 'not_asked')
  const left = { code: 'left', says: 'v1.0.1 is newer, but so', tag: 'v1.0.1' } as const
  is(said({ offer: null, left }).says, 'v1.0.1 is newer, but so')
  is(said({ problem: 'it is away' }).says, 'the feed: it is away')
  is(said({ askAt: NOON }).do, 'ask')
  const held = said({}, { pauseUntil: Date.parse('2026-12-24T00:00Z') })
  equal(
    [held.at, held.says],
    [Date.parse('2026-12-24T02:00Z'), 'v1.0.1 will be installed automatically: updates are paused'],
  )
  const far = said({}, { pauseUntil: Date.parse('9999-12-31T23:59:59Z') })
  equal(
    [far.at, far.says],
    [Date.parse('+010000-01-01T02:00Z'), 'v1.0.1 will be installed automatically: updates are paused'],
  )
  const young = said({ offer: { ...OFFER, publishedAt: NOON } }, { minAgeMs: 3 * DAY, hours: [] })
  equal(
    young.because?.map(({ code: one, tag: of, hours }) => [one, of, hours]),
    [['young', 'v1.0.1', 72]],
  )
  equal(
    [young.at, young.says],
    [NOON + 3 * DAY, 'v1.0.1 will be installed automatically: v1.0.1 must be at least 3 days old'],
  )
  const failed = said({ failures: 1, lastAt: NOON, wasReverted: true }, { hours: [] })
  equal([failed.at, failed.says], [NOON + DAY, 'v1.0.1 will be installed automatically: the last attempt failed'])
  is(said({ isInFlight: true }).says, 'an operation is running')
  const never = said({}, { hours: [...go.hours, ...policy({ hours: '06:00-07:00' }).hours] })
  match(
    never.says,
    /will never be installed automatically: the hours allowed by the configuration and by the panel do not overlap/,
  )
  is(never.at, FACTS.askAt)
})

test('a release that somebody went back from, or that failed here, is told until the feed has been asked about it', () => {
  const went = { outcome: 'rolled_back', from: 'v1.1.0', to: 'v1.0.0' } as Operation
  const failed = { tag: 'v1.2.0', sha256: null, reason: 'it exits', at: '' }
  const told = (history: Operation[], bad = [failed], passed: string[] = [], yanked: string[] = []) =>
    leftBehind({
      running: 'v1.0.0',
      journal: { history, bad },
      memory: { passed: passed.map((one) => ({ tag: one, why: forPerson('failed', one, 'so') })) },
      trust: { yanked: yanked.map((tag) => ({ tag, why: '' })) },
    })
  is(told([went], [])?.says, 'v1.1.0 is newer, but it was rolled back here')
  is(told([went])?.says, 'v1.2.0 is newer, but it failed here; v1.1.0 is newer, but it was rolled back here')
  is(told([went], [failed], ['v1.2.0'])?.says, 'v1.1.0 is newer, but it was rolled back here')
  is(told([], [failed], [], ['v1.2.0']), null)
  is(told([{ ...went, from: 'v0.9.0' }], []), null)
})

test('an update does not begin if it could not be over when the hours are', () => {
  const go = policy({ mode: 'patch', hours: '02:00-05:00' })
  const at = (time: string, tookMs: number) => next(go, { ...FACTS, tookMs }, Date.parse(`2026-11-24T${time}Z`))
  is(at('04:50', 5 * MINUTE).do, 'update')
  is(at('04:56', 5 * MINUTE).at, Date.parse('2026-11-25T02:00Z'))
  is(at('03:00', 10 * HOUR).do, 'update', 'one that takes longer than the hours begins in their first half')
  is(at('04:00', 10 * HOUR).do, 'nothing')
})

test('hosts are spread over the jitter, each the same way each time, and another way for another release', () => {
  const rule = policy({ mode: 'all', hours: '02:00-06:00', jitter: '2h' })
  const starts = Array.from({ length: 2000 }, (_, n) => next(rule, { ...FACTS, id: `host ${n}` }, NOON).at ?? 0)
  const offsets = starts.map((at) => (at - Date.parse('2026-11-24T02:00Z')) / MINUTE)
  ok(Math.min(...offsets) >= 0 && Math.max(...offsets) < 120)
  for (let quarter = 0; quarter < 4; quarter++) {
    const share = offsets.filter((one) => one >= quarter * 30 && one < (quarter + 1) * 30).length / offsets.length
    ok(share > 0.2 && share < 0.3, `${share}`)
  }
  is(next(rule, { ...FACTS, id: 'host 7' }, NOON).at, starts[7])
})

test('a staged release: the share is as signed, the same hosts are not first every time, by its time everybody goes', () => {
  const steps = [
    { at: '2026-11-24T00:00:00Z', percent: 5 },
    { at: '2026-11-24T12:00:00Z', percent: 25 },
    { at: '2026-11-25T00:00:00Z', percent: 100 },
  ]
  const hosts = Array.from({ length: 20_000 }, (_, n) => `host ${n}`)
  const early = (tag: string) =>
    hosts.filter((id) => turnIn(steps, rankOf(id, tag)) === Date.parse('2026-11-24T00:00:00Z'))
  const [one, other] = [early('v1.0.1'), new Set(early('v1.0.2'))]
  ok(Math.abs(one.length / hosts.length - 0.05) < 0.006, `${one.length}`)
  ok(one.filter((id) => other.has(id)).length < one.length * 0.15)
  ok(hosts.every((id) => (turnIn(steps, rankOf(id, 'v1.0.1')) ?? Infinity) <= Date.parse('2026-11-25T00:00:00Z')))
  is(turnIn([{ at: '2026-11-24T00:00:00Z', percent: 0 }], 0), null)
  const rule = policy({ mode: 'all' })
  const staged = { ...FACTS, offer: { ...OFFER, rollout: [{ at: '2026-11-24T00:00:00Z', percent: 0 }] } }
  match(next(rule, staged, NOON).says, /is being rolled out in steps, and it is not this host's turn yet/)
})

test('the panel can only tighten: mode, hours, age, pause and skip, never what is allowed', () => {
  const limits = policy({
    mode: 'minor',
    hours: '02:00-05:00',
    minAge: '24h',
    pauseUntil: '2026-12-01',
    skip: 'v1.0.1',
    allow: ['unproven'],
  })
  const own = (value: object) => readPolicy(value, 'UTC', false)
  equal(tightened(limits, own({}).policy), limits)
  const wide = tightened(limits, own({ mode: 'all', minAge: '1h', pauseUntil: '2026-11-01' }).policy)
  equal([wide.mode, wide.minAgeMs, wide.pauseUntil], ['minor', DAY, Date.parse('2026-12-01T00:00Z')])
  const tight = tightened(limits, own({ mode: 'notify', hours: '04:00-08:00', skip: 'v1.0.2' }).policy)
  equal([tight.mode, tight.skip, tight.allow], ['notify', ['v1.0.1', 'v1.0.2'], ['unproven']])
  const [opening] = openings(tight.hours, NOON)
  equal(opening, { start: Date.parse('2026-11-24T04:00Z'), end: Date.parse('2026-11-24T05:00Z') })
  match(own({ allow: ['unsigned'] }).faults.join(), /unknown `allow`/)
  is(
    formatPolicy(limits),
    'minor, every day 02:00-05:00 UTC, 1 day after a release, without v1.0.1, also unproven patches',
  )
  is(
    formatPolicy(policy({ mode: 'all', days: ['mon', 'tue', 'wed'], zone: 'Europe/Berlin' })),
    'all, mon to wed 00:00-24:00 Europe/Berlin',
  )
})

test('a policy of any shape is read without an exception, and one that is not understood lets nothing go alone', () => {
  const shapes: unknown[] = [
    null,
    [],
    'all',
    7,
    { mode: 'ALL' },
    { mode: ['all'] },
    { mode: 'all', hours: '25:00-26:00' },
    { mode: 'all', hours: '02:00-02:00' },
    { mode: 'all', hours: '02:60-03:00' },
    { mode: 'all', hours: 2 },
    { mode: 'all', days: [] },
    { mode: 'all', days: 'mon' },
    { mode: 'all', days: ['mon', 'mun'] },
    { mode: 'all', days: Array.from({ length: 1e5 }, () => 'mon') },
    { mode: 'all', zone: 'Mars/Olympus' },
    { mode: 'all', zone: '+02:00' },
    { mode: 'all', zone: '../../etc/passwd' },
    { mode: 'all', zone: 'x'.repeat(1e5) },
    { mode: 'all', minAge: '-1h' },
    { mode: 'all', minAge: '366d' },
    { mode: 'all', minAge: 1 },
    { mode: 'all', jitter: '0.5m' },
    { mode: 'all', pauseUntil: 'tomorrow' },
    { mode: 'all', pauseUntil: '2026-02-30' },
    { mode: 'all', pauseUntil: {} },
    { mode: 'all', skip: 'v1' },
    { mode: 'all', skip: ['v1.0.0'] },
    { mode: 'all', __proto__: { x: 1 }, constructor: 1 },
    Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`k${n}`, n])),
    { mode: 'all', allow: 'unsigned' },
    { mode: 'all', allow: ['everything'] },
  ]
  for (const shape of shapes) {
    const { policy: read, faults } = readPolicy(shape, 'UTC', true)
    ok(faults.length > 0, JSON.stringify(shape)?.slice(0, 80))
    ok(
      faults.every((fault) => fault.length < 400 && !/\p{Cc}/u.test(fault)),
      faults.join(),
    )
    ok(['off', 'notify'].includes(read.mode), `${read.mode} for ${JSON.stringify(shape)?.slice(0, 80)}`)
  }
  is(readPolicy({}, 'UTC', true).policy.mode, USUAL.mode)
  is(USUAL.mode, 'notify')
})

test('what needs a person never goes alone: irreversible always, unproven and untried only as a patch that is allowed', () => {
  const none = { allow: [], isStateless: false }
  const verdict = (is: 'reversible' | 'irreversible' | 'unproven' | 'untried') => ({ verdict: is, reason: 'so' })
  is(whyNotAlone(none, 'v1.0.0', 'v2.0.0', verdict('reversible')), null)
  const all = { allow: ['unproven', 'untried', 'unsigned'] as const, isStateless: true }
  is(
    whyNotAlone(all, 'v1.0.0', 'v1.0.1', verdict('irreversible'))?.says,
    'v1.0.1 is waiting for you: its migration cannot be undone: so',
  )
  is(whyNotAlone({ ...none, allow: ['unproven'] }, 'v1.0.0', 'v1.0.1', verdict('unproven')), null)
  match(
    whyNotAlone({ ...none, allow: ['unproven'] }, 'v1.0.0', 'v1.1.0', verdict('unproven'))?.says ?? '',
    /a rollback may not work/,
  )
  match(whyNotAlone({ ...none, allow: ['unproven'] }, 'v1.0.0', 'v1.0.1', verdict('untried'))?.says ?? '', /not tried/)
  is(whyNotAlone({ ...none, allow: ['untried'] }, 'v1.0.0', 'v1.0.1', verdict('untried')), null)
  match(whyNotAlone(none, 'v1.0.0', 'v1.0.1', undefined)?.says ?? '', /has not declared the service stateless/)
  is(whyNotAlone({ allow: [], isStateless: true }, 'v1.0.0', 'v2.0.0', undefined), null)
})

test('a memory that is damaged in any member is none, and a clone of a disk is another host', () => {
  const memory = newMemory(['a', 'b'], NOON)
  equal(parseMemory(JSON.stringify(memory)), memory)
  for (const key of Object.keys(memory)) {
    for (const value of [undefined, 7.5, 'x', [7], { a: 1 }, -1])
      if (JSON.stringify(value) !== JSON.stringify(memory[key as keyof Remembered])) {
        const isFine = key === 'told' || key === 'hookProblem' ? value === 'x' : false
        is(parseMemory(JSON.stringify({ ...memory, [key]: value })) !== null, isFine, `${key} ${JSON.stringify(value)}`)
      }
  }
  is(parseMemory('['.repeat(1e6)), null)
  is(isOfAnother(memory, ['b', 'c']), false)
  is(isOfAnother(memory, ['c']), true)
  is(isOfAnother(memory, []), false)
  ok(newMemory([], NOON).id !== newMemory([], NOON).id)
})

test('the way back is offered to who runs a yanked release; what was done by itself ends where somebody asked', () => {
  const rules = { policy: USUAL, limits: {}, own: {}, faults: [], onOutcome: null }
  const journal: JournalState = { format: 1, operation: null, history: [], bad: [], probation: null }
  const trust = { signed: true, yanked: [{ tag: 'v1.0.1', why: 'eats data' }] }
  const known = {
    rules,
    journal,
    trust,
    next: { order: 'start-first', maxPauseMs: 1 } as const,
    memory: newMemory([], NOON),
  }
  equal(
    waitingFor(known, 'v1.0.1', null).map(({ says }) => says),
    ['v1.0.1, the running release, was yanked; run `rollback` to go back. Reason: eats data'],
  )
  equal(waitingFor(known, 'v1.0.0', null), [])
  const own = (id: string) => ({ ...ended(id, 'v1.0.0', 'v1.0.1', 'updated', NOON), by: 'schedule' as const })
  const asked = ended('asked', 'v0.9.0', 'v1.0.0', 'updated', NOON)
  equal(
    deedsIn([own('b'), own('a'), asked, own('before')]).map(({ id }) => id),
    ['b', 'a'],
  )
  const back = { ...ended('back', 'v1.0.1', 'v1.0.0', 'rolled_back', NOON), kind: 'rollback' as const }
  equal(leftIn([back, own('a')]), ['v1.0.1'])
  equal(leftIn([own('again'), back]), ['v1.0.1'])
  equal(leftIn([ended('by hand', 'v1.0.0', 'v1.0.1', 'updated', NOON), back]), [])
  const down = ended('by its tag', 'v1.0.2', 'v1.0.1', 'rolled_back', NOON)
  equal(leftIn([down, back]), ['v1.0.2'], 'to an older release than the one that ran')
})

test.run()
