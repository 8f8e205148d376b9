// One soak: load on, switch there and back, load off, count. Prints its report as one line of JSON, last.
// Arguments: `baton|naive`, number of switches, probation in milliseconds, `isolated|shared`, clients on a connection of their own.

import { counters, moved, neighbour } from '../lab/netns.ts'
import { spawnLoad } from '../lab/load.ts'
import type { SoakReport } from './judge.ts'
import { baton, descriptorsOf, naive } from './subject.ts'

const [name, count, probationMs, isolated, fresh] = process.argv.slice(2)
if (name !== 'baton' && name !== 'naive') throw new Error(`expected baton or naive, got ${name ?? 'nothing'}`)
const switches = Number(count)
const [QUIET_MS, LOOKS_LEAST] = [2000, 20]

await using clients = isolated === 'isolated' ? await neighbour() : null
await using subject = name === 'baton' ? await baton(Number(probationMs)) : await naive()
const { port, headers, write } = subject
const before = isolated === 'isolated' ? counters() : null
const common = {
  port,
  host: clients?.address ?? '127.0.0.1',
  headers,
  path: '/',
  keepAcknowledgedIds: true,
  write: { every: 20, ...write, method: 'POST', headers: { 'content-type': 'application/json' } },
}
const elsewhere = clients === null ? {} : { prefix: clients.prefix }
const loads = [
  await spawnLoad({ ...common, mode: 'fresh', clients: Number(fresh), thinkMs: [0, 10] }, elsewhere),
  await spawnLoad(
    { ...common, mode: 'keepalive', clients: 4 * Number(fresh), thinkMs: [0, 40], afterClose: 'reopen' },
    elsewhere,
  ),
]
const switchMs: number[] = []
let fdsAfterFirst = 0
for (let done = 0; done < switches; done++) {
  switchMs.push(await subject.switch(done))
  if (done === 0) fdsAfterFirst = await quietDescriptors()
  if (process.stderr.isTTY) process.stderr.write(`\r${done + 1} of ${switches} switches`)
  else if ((done + 1) % 20 === 0) process.stderr.write(`${done + 1} of ${switches} switches\n`)
}
const fdsAtEnd = await quietDescriptors()
const totals = await Promise.all(loads.map((load) => load.stop()))
const after = isolated === 'isolated' ? counters() : null
const { texts, integrity } = await subject.rows()
const found = new Set(texts)
const acknowledged = totals.flatMap((total) => total.writes.ids)
const errors: Record<string, number> = {}
for (const total of totals)
  for (const [error, times] of Object.entries(total.errors)) errors[error] = (errors[error] ?? 0) + times

const report: SoakReport = {
  subject: name,
  switches,
  requests: sum((total) => total.requests),
  lost: sum((total) => total.lost),
  closed: sum((total) => total.closed),
  rowsAcknowledged: acknowledged.length,
  rowsFound: acknowledged.filter((id) => found.has(id)).length,
  integrity,
  fdsAfterFirst,
  fdsAtEnd,
  processesAtEnd: subject.pids().length,
  kernel: before === null || after === null ? null : moved(before, after),
  switchMs,
  longestStallMs: Math.max(...totals.map((total) => total.longestStallMs)),
  errors,
}
process.stdout.write(`${JSON.stringify(report)}\n`)

function sum(of: (total: (typeof totals)[number]) => number): number {
  return totals.reduce((all, total) => all + of(total), 0)
}

/**
 * The fewest descriptors that the serving process has in a while: what comes and goes is not counted, what leaks stays. A look reads
 * each connection of the namespace, of which there are a hundred thousand that have ended.
 */
async function quietDescriptors(): Promise<number> {
  const pid = await subject.pid()
  let fewest = Infinity
  const until = performance.now() + QUIET_MS
  for (let looks = 0; looks < LOOKS_LEAST || performance.now() < until; looks++) {
    fewest = Math.min(fewest, descriptorsOf(pid, port))
    await new Promise((resolve) => setTimeout(resolve, 3))
  }
  return fewest
}
