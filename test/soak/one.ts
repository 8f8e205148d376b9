// `npm run soak -- --one [--switches 20] [--reverts 8] [--kills 15] [--supervised]`: stop-first switches, of an application that notices a second
// process, under about 200 requests a second. One line for each round, the totals last. The three numbers in a row of the totals
// are those of the switches, the reverts and the kills; where nobody was left to answer, what clients saw is not among them.

import { lineOf, totalsOf } from './one/judge.ts'
import { soakRounds } from './one/rounds.ts'

export interface OneSoakOptions {
  switches: number
  reverts: number
  kills: number
  isSupervised: boolean
  json: boolean
}

/** Exit code: 1 where a promise was broken. */
export async function soakOne({ json, ...counts }: OneSoakOptions): Promise<number> {
  const say = (line: string) => void process[json ? 'stderr' : 'stdout'].write(`${line}\n`)
  const report = await soakRounds({
    ...counts,
    heard(round, log) {
      say(lineOf(round))
      if (round.broken.length === 0) return
      for (const fault of round.broken) say(`  broken: ${fault}`)
      say(`  clients: ${JSON.stringify(round.seen)}`)
      for (const line of log.trim().split('\n')) say(`  | ${line}`)
    },
  })
  const { rounds, wrong, acknowledged } = report
  const rows = totalsOf(rounds, wrong, acknowledged)
  if (json) process.stdout.write(`${JSON.stringify({ ...report, totals: Object.fromEntries(rows) })}\n`)
  for (const [what, value] of rows) say(`${what.padEnd(52)} ${value}`)
  const broken = [...rounds.flatMap((round) => round.broken.map((fault) => `${round.title}: ${fault}`)), ...wrong]
  for (const fault of new Set(broken)) say(`broken: ${fault}`)
  return broken.length === 0 ? 0 : 1
}
