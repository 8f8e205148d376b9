// `npm run soak -- --carry [--followers 500] [--switches 20]`: what is in the middle of something, and what only waits, over
// many switches and many deaths. CI has a short form of each part (test/carry-soak.test.ts).

import { carryFaultsOf } from './carry/judge.ts'
import type { Order, Report } from './carry/runs.ts'
import { runCarry } from './carry/start.ts'

export interface CarrySoakOptions {
  clients: number
  times: number
  json: boolean
  /** which parts; default all */
  only: string
}

const [EVERY_MS, EVENT_EVERY_MS] = [20, 100]
const [IDLE_CLIENTS, IDLE_SWITCHES, KILLS, KILL_CLIENTS] = [10_000, 5, 20, 100]

/** Exit code: 1 where a promise was broken. */
export async function soakCarry({ clients, times, json, only }: CarrySoakOptions): Promise<number> {
  const pace = { everyMs: EVERY_MS, eventEveryMs: EVENT_EVERY_MS }
  const orders: Order[] = [
    { what: 'switches', clients, times, fault: '', ...pace },
    { what: 'idle', clients: IDLE_CLIENTS, times: IDLE_SWITCHES },
    { what: 'kills', clients: KILL_CLIENTS, times: KILLS, ...pace },
  ]
  let broken = 0
  for (const order of orders) {
    if (only !== '' && order.what !== only) continue
    const report: Report = await runCarry(order, { echo: !json })
    const faults = carryFaultsOf(report)
    broken += faults.length
    if (json) process.stdout.write(`${JSON.stringify({ ...report, faults })}\n`)
    else
      for (const line of [...linesOf(report), ...faults.map((fault) => `broken: ${fault}`)])
        process.stdout.write(`${line}\n`)
  }
  return broken === 0 ? 0 : 1
}

function linesOf(report: Report): string[] {
  const row = ([what, value]: [string, string]) => `${what.padEnd(52)} ${value}`
  const kernel: [string, string] = ['kernel', JSON.stringify('kernel' in report ? report.kernel : null)]
  if (report.what === 'kills') {
    const { rounds, times } = report
    const sum = (key: 'carried' | 'served' | 'closed' | 'hung' | 'returned' | 'idleServed') =>
      String(rounds.reduce((all, round) => all + round[key], 0))
    const rows: [string, string][] = [
      ['successors killed after carrying', String(times)],
      ['carried: served, closed, hung', `${sum('served')}, ${sum('closed')}, ${sum('hung')} of ${sum('carried')}`],
      ['taken back, and served', `${sum('returned')}, ${sum('idleServed')}`],
      ['messages of another connection', String(report.foreign)],
      ['first answer of the predecessor, longest', `${Math.max(...rounds.map(({ answeredMs }) => answeredMs))} ms`],
    ]
    return rows.map(row)
  }
  if (report.what === 'idle') {
    const rows: [string, string][] = [
      ['idle connections, switches', `${report.clients}, ${report.times}`],
      ['closed, lost, cut', `${report.closed}, ${report.lost}, ${report.cut}`],
      ['requests on them, longest wait', `${report.answers}, ${report.longestMs} ms`],
      ['memory before, after each switch', report.memoryKb.map((kb) => `${Math.round(kb / 1024)} MiB`).join(', ')],
      ['descriptors before, after each switch', report.descriptors.join(', ')],
      kernel,
    ]
    return rows.map(row)
  }
  const { websockets, streams, hops } = report.counting
  const counts = ({ lost, doubled, reordered, foreign, closed }: typeof websockets) =>
    [lost, doubled, reordered, foreign, closed].join(', ')
  const { messagesOut, messagesIn, events } = report.perSecond
  const sorted = report.switchMs.toSorted((a, b) => a - b)
  const rows: [string, string][] = [
    ['switches', `${report.times} in ${Math.round(report.seconds)} s`],
    [
      'WebSockets, messages out, messages in',
      `${websockets.clients}, ${websockets.messages} (${messagesOut}/s), ${websockets.sent} (${messagesIn}/s)`,
    ],
    ['lost, doubled, reordered, foreign, closed', counts(websockets)],
    ['streams, events', `${streams.clients}, ${streams.messages} (${events}/s)`],
    ['lost, doubled, reordered, foreign, closed', counts(streams)],
    ['longest gap of a WebSocket, of a stream', `${websockets.longestGapMs} ms, ${streams.longestGapMs} ms`],
    ['switches that each ledger came through', hops.join(' to ')],
    ['a switch beside its probation, median and longest', `${sorted[sorted.length >> 1]} ms, ${sorted.at(-1)} ms`],
    kernel,
  ]
  return rows.map(row)
}
