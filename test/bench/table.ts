// The results as a table for the terminal. Pure.

import type { Goal } from './goals.ts'
import { LOADS, type PeerResult } from './handover.ts'
import type { CarryResult } from './carry.ts'
import type { OverheadResult } from './overhead.ts'
import type { PairsResult } from './pairs.ts'
import { mb, mib, type Results, seconds } from './results.ts'
import type { DeltaResult } from './delta.ts'
import type { Transfer } from './transfer.ts'
import type { UpdateResult } from './update.ts'

export function table(results: Results, goals: Goal[]): string {
  const lines: string[] = []
  const { handover, carry, update, overhead } = results
  if (handover !== undefined) {
    const { peers, missing, failed, switches, pairs } = handover.result
    if (peers.length > 0) {
      lines.push('', `handover: ${switches} switches under four loads at once`, ...grid(handoverRows(peers)))
      lines.push('', 'an open loop: the second around each switch, ms', ...grid(waitRows(peers)))
    }
    if (pairs !== undefined) {
      const about = `in turns: ${pairs.rounds} switches each, an open loop of ${pairs.rate} requests/s`
      lines.push('', `${about}, the longest wait around each switch, ms`, ...grid(pairRows(pairs)))
    }
    for (const { title, command } of missing) lines.push(`  missing: ${title}: ${command}`)
    for (const { title, reason } of failed) lines.push(`  failed: ${title}: ${reason}`)
  }
  if (carry !== undefined) lines.push('', 'carry: idle connections in bulk', ...grid(carryRows(carry.result)))
  if (update !== undefined) lines.push('', 'update', ...grid(updateRows(update.result)))
  if (overhead !== undefined) lines.push('', 'overhead', ...grid(overheadRows(overhead.result)))
  if (results.trust !== undefined) lines.push('', 'trust', results.trust.result.markdown)
  if (results.container !== undefined) lines.push('', 'container', results.container.result.markdown)
  if (results.fleet !== undefined) lines.push('', 'fleet', results.fleet.result.markdown)
  if (results.state !== undefined) lines.push('', 'state', results.state.result.markdown)
  if (results.download !== undefined) lines.push('', 'download', results.download.result.markdown)
  if (results.told !== undefined) lines.push('', 'told', results.told.result.markdown)
  if (results.start !== undefined) lines.push('', 'start', results.start.result.markdown)
  if (results.steps !== undefined) lines.push('', 'steps', results.steps.result.markdown)
  lines.push('', 'goals', ...goals.map(({ goal, got, met }) => `  ${met ? 'met   ' : 'MISSED'}  ${goal}: ${got}`))
  return lines.join('\n')
}

function handoverRows(peers: PeerResult[]): string[][] {
  const head = ['', 'lost', '', '', '', 'closed', '', '', '', 'stall', '', 'p99.9', '', 'go -> new', 'x bare']
  const under = 'fresh alive stream ws alive stream ws resets fresh alive fresh alive ms start'.split(' ')
  const rows = peers.map(({ title, loads, kernel, quietSwitchMs, switchOverBareStart }) => [
    title,
    ...LOADS.map((load) => loads[load].lost),
    ...LOADS.slice(1).map((load) => loads[load].closed),
    kernel?.TcpOutRsts ?? '?',
    ...LOADS.slice(0, 2).map((load) => loads[load].longestStallMs),
    ...LOADS.slice(0, 2).map((load) => `x${loads[load].p999Ratio}`),
    quietSwitchMs,
    switchOverBareStart,
  ])
  return [head, ['', ...under], ...rows.map((row) => row.map(String))]
}

function waitRows(peers: PeerResult[]): string[][] {
  const head = ['', 'requests/s', 'lost', 'closed', 'longest', 'worst', 'without', 'p99.9', 'without']
  return [
    head,
    ...peers.flatMap(({ title, waits = [] }) =>
      waits.map((one) =>
        [title, one.rate, one.lost, one.closed, one.switchLongestMs.median, one.switchLongestMs.worst]
          .concat([one.steadyLongestMs.median, one.switchP999Ms, one.steadyP999Ms])
          .map(String),
      ),
    ),
  ]
}

/** Also of docs/about/performance.md. */
export function pairRows({ peers }: PairsResult): string[][] {
  const one = peers[0]?.title ?? ''
  return [
    ['', 'requests', 'lost', 'closed', 'longest wait', 'worst', 'without', 'go → new', `${one}, times this`],
    ...peers.map(({ title, requests, lost, closed, longestMs, steadyLongestMs, switchMs, ratio }) =>
      [title, requests, lost, closed, longestMs.median, longestMs.worst, steadyLongestMs, switchMs, ratio].map(String),
    ),
  ]
}

function carryRows({ clients, routes }: CarryResult): string[][] {
  const titles = { baton: 'Baton, up to 32 descriptors a packet', ipc: 'Node IPC, four at once' }
  return [
    [`${clients.toLocaleString('en')} idle connections`, 'ms', 'processor, ms', 'longest wait, ms', 'lost', 'closed'],
    ...(['baton', 'ipc'] as const).map((route) => {
      const { ms, processorMs, longestWaitMs, lost, closed } = routes[route]
      return [titles[route], ...[ms, processorMs, longestWaitMs, lost, closed].map(String)]
    }),
  ]
}

function updateRows(result: UpdateResult): string[][] {
  const { baton, curl, ratio: speed, ratioFlushed, small, whole, delta } = result
  return [
    ['1 GiB: download, verify, write', seconds(baton.ms), `peak ${mib(baton.peakKb)}`],
    ...(curl === null ? [] : [['1 GiB: curl && sha256sum', seconds(curl.ms), `peak ${mib(curl.peakKb)}`]]),
    ...(curl === null ? [] : [['speed over that', `${speed}`, `${ratioFlushed} when flushed`]]),
    ['128 MiB', '', `peak ${mib(small.peakKb)}`],
    [
      'whole update, request to new version',
      `${whole.answersMs} ms`,
      Object.entries(whole.stagesMs)
        .map(([stage, ms]) => `${stage} ${ms}`)
        .join(', '),
    ],
    ['bytes of it', mb(whole.assetBytes), `executable ${mb(whole.executableBytes)}`],
    ...(delta === undefined ? [] : deltaRows(delta)),
  ]
}

/** Also of docs/about/performance.md. */
export function deltaRows({ assetBytes, changes }: DeltaResult): string[][] {
  const told = ({ ms, peakKb }: Transfer): string => `${seconds(ms)}, ${mib(peakKb)}`
  return changes.flatMap(({ title, deltaBytes, makeMs, lines, patches }) => [
    [`a change of ${title}`, 'by a delta', `by the asset, ${mb(assetBytes)}`],
    ...lines.map(({ megabits, full, delta }) => [
      megabits === null
        ? `${share(deltaBytes, assetBytes)}, made in ${seconds(makeMs)}; from loopback`
        : `${megabits} Mbit/s, 50 ms`,
      told(delta),
      told(full),
    ]),
    ...patches.map(({ title: by, bytes, makeMs: took, apply }) => [
      `${by}: ${share(bytes, assetBytes)}, made in ${seconds(took)}`,
      `applied: ${told(apply)}`,
      '',
    ]),
  ])
}

function share(bytes: number, of: number): string {
  return `${bytes.toLocaleString('en')} bytes, ${((100 * bytes) / of).toFixed(2)} %`
}

function overheadRows(result: OverheadResult): string[][] {
  const { bare, embedded, ratio: throughput, processorRatio, memory, executable, startup } = result
  const rates = ({ requestsPerSecond, p99Ms, processorUs }: OverheadResult['bare']): string[] => [
    `${requestsPerSecond} requests/s`,
    `p99 ${p99Ms} ms`,
    `${processorUs} us of processor`,
  ]
  return [
    ['node:http', ...rates(bare)],
    ['with the agent', ...rates(embedded)],
    ['ratio', `x${throughput}`, '', `x${processorRatio}`],
    [
      'idle memory',
      `bare Node ${mib(memory.bareNodeKb)}`,
      `service ${mib(memory.withoutAgentKb)}`,
      `with agent ${mib(memory.withAgentKb)}, executable ${mib(memory.executableKb)}`,
    ],
    ['executable', mb(executable.bytes), `zstd ${mb(executable.zstdBytes)}`, `gzip ${mb(executable.gzipBytes)}`],
    ['start-up', `${startup.executableMs} ms`, `node bundle.js ${startup.bundleMs} ms`, `x${startup.ratio}`],
  ]
}

/** Columns as wide as they must be; numbers to the right. */
function grid(rows: string[][]): string[] {
  const columns = Math.max(...rows.map((row) => row.length))
  const widths = Array.from({ length: columns }, (_, i) => Math.max(...rows.map((row) => (row[i] ?? '').length)))
  return rows.map((row) =>
    `  ${row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  ')}`.trimEnd(),
  )
}
