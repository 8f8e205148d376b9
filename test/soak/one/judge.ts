// What a soak of stop-first switches must find. Pure.
// Must hold: while the release is sound, and while a bad one is not ready, clients lose nothing. Whoever dies takes with it what it
// had received, and no more.

import { CLIENTS, type Seen } from './traffic.ts'

export type Part = 'switch' | 'revert' | 'kill'

export interface Round {
  part: Part
  title: string
  outcome: string
  /** as the holder counts it; null if nobody was able to */
  pauseMs: number | null
  /** nobody was left, so the soak has started the service again: what clients saw then is not judged */
  isNobodyLeft: boolean
  seen: Seen
  /** broken promises, in words */
  broken: string[]
}

/** What may be lost: that of one process, which has died. */
export interface Loss {
  /** requests on fresh connections */
  fresh: boolean
  /** requests on kept connections, and these connections */
  kept: boolean
  sockets: boolean
}

export const NO_LOSS: Loss = { fresh: false, kept: false, sockets: false }
export const ALL_LOSS: Loss = { fresh: true, kept: true, sockets: true }

/** The steps that each process had taken when one of them was hit. */
export interface Steps {
  old: readonly string[]
  holder: readonly string[]
  new: readonly string[]
}

/** What the process that was hit can have had. */
export function lossOf(hit: keyof Steps, steps: Steps): Loss {
  const isQuiet = steps.old.includes('quiet') // the holder has what was not on its way
  if (hit === 'old') {
    if (!isQuiet) return ALL_LOSS
    return { ...NO_LOSS, sockets: !steps.old.includes('settled') }
  }
  if (hit === 'holder') {
    const isHolding = isQuiet && !steps.holder.includes('passed on')
    return isHolding ? ALL_LOSS : NO_LOSS // it may also hold a fresh connection that had not sent a byte
  }
  return steps.new.includes('said hello') ? ALL_LOSS : NO_LOSS // it accepts a moment later
}

/** Every broken promise to clients, in words. */
export function clientsLost(seen: Seen, may: Loss): string[] {
  const broken: string[] = []
  const most = (what: string, got: number, bound: number) => {
    if (got > bound) broken.push(`${what}: expected ${bound === 0 ? 'none' : `at most ${bound}`}, got ${got}`)
  }
  const kept = may.kept ? CLIENTS.kept + CLIENTS.writing : 0
  const { idle, busy, announced } = seen.closed
  most('requests refused', seen.refused, 0)
  most('requests that hung', seen.hung, 0)
  most('requests lost on fresh connections', seen.lost.fresh, may.fresh ? CLIENTS.fresh : 0)
  most('requests lost on kept connections', seen.lost.kept, kept)
  most('connections closed', idle + busy + announced, kept)
  most('WebSockets closed', seen.sockets.closed, may.sockets ? CLIENTS.sockets : 0)
  most('WebSockets refused', seen.sockets.refused, 0)
  most('messages that came twice or in another order', seen.sockets.wrong, 0)
  if (!may.sockets) most('messages lost', seen.sockets.lost, 0)
  return broken
}

/** One line for people. */
export function lineOf({ part, title, outcome, pauseMs, isNobodyLeft, seen }: Round): string {
  const { lost, refused, closed, sockets, longestMs, requests } = seen
  const pause = pauseMs === null ? '' : `pause ${pauseMs} ms, `
  const again = isNobodyLeft ? ', started again' : ''
  return `${part} ${title}: ${outcome}${again}; ${pause}longest wait ${Math.round(longestMs)} ms, ${requests} requests, lost ${lost.fresh + lost.kept}, refused ${refused}, closed ${closed.idle}+${closed.busy}+${closed.announced}, WebSockets closed ${sockets.closed}, lost ${sockets.lost}`
}

/** The end of the report: a name and a value in each row. `wrong`: as `World.wrong` gives it. */
export function totalsOf(rounds: readonly Round[], wrong: readonly string[], acknowledged: number): [string, string][] {
  const judged = rounds.filter(({ isNobodyLeft }) => !isNobodyLeft)
  const of = (part: Part) => judged.filter((round) => round.part === part)
  const sum = (some: readonly Round[], count: (seen: Seen) => number) =>
    some.reduce((total, { seen }) => total + count(seen), 0)
  const each = (count: (seen: Seen) => number) =>
    (['switch', 'revert', 'kill'] as const).map((part) => sum(of(part), count)).join(', ')
  const pauses = rounds
    .filter(({ part }) => part === 'switch')
    .flatMap(({ pauseMs }) => (pauseMs === null ? [] : [pauseMs]))
    .toSorted((a, b) => a - b)
  const waits = of('switch').map(({ seen }) => seen.longestMs)
  const how = (pattern: RegExp) => wrong.filter((line) => pattern.test(line)).length
  const missing = wrong.map((line) => /^(\d+) of \d+ acknowledged/.exec(line)?.[1] ?? '0')
  return [
    [
      'switches, reverts, kills',
      (['switch', 'revert', 'kill'] as const)
        .map((part) => rounds.filter((round) => round.part === part).length)
        .join(', '),
    ],
    ['requests', each(({ requests }) => requests)],
    ['lost', each(({ lost }) => lost.fresh + lost.kept)],
    ['refused', each(({ refused }) => refused)],
    ['closed idle', each(({ closed }) => closed.idle)],
    [
      'closed in a request, closed with an announcement',
      `${each(({ closed }) => closed.busy)}; ${each(({ closed }) => closed.announced)}`,
    ],
    ['WebSockets closed', each(({ sockets }) => sockets.closed)],
    ['messages lost, wrong', `${each(({ sockets }) => sockets.lost)}; ${each(({ sockets }) => sockets.wrong)}`],
    ['nobody was left, and the soak started it again', String(rounds.length - judged.length)],
    ['overlaps', String(how(/worked at once/))],
    ['lock, name or database not had at the first try', String(how(/held|EADDRINUSE/))],
    ['missing of acknowledged rows', `${missing.reduce((total, one) => total + Number(one), 0)} of ${acknowledged}`],
    ['pause, median and longest', `${pauses[pauses.length >> 1] ?? '?'} ms, ${pauses.at(-1) ?? '?'} ms`],
    ['longest wait of a client in a switch', `${Math.round(Math.max(0, ...waits))} ms`],
    ['rounds with a broken promise', String(rounds.filter(({ broken }) => broken.length > 0).length)],
  ]
}
