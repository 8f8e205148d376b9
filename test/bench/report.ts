// Results as a table for the terminal, as docs/performance.md, and held against the goals. Pure but for `writeDocs`.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/build/place.ts'
import { drawChart } from './chart.ts'
import type { Chart } from './chart.ts'
import { LOADS } from './handover.ts'
import type { HandoverResult, PeerResult } from './handover.ts'
import type { Machine } from './machine.ts'
import type { OverheadResult } from './overhead.ts'
import type { UpdateResult } from './update.ts'

export interface Section<T> {
  machine: Machine
  command: string
  result: T
}

export interface ContainerResult {
  /** for docs/performance.md, below a heading of its own */
  markdown: string
}

/** What docs/performance.json keeps: a run of one part leaves the others as they were. */
export interface Results {
  handover?: Section<HandoverResult>
  update?: Section<UpdateResult>
  overhead?: Section<OverheadResult>
  container?: Section<ContainerResult>
}

export interface Goal {
  goal: string
  got: string
  met: boolean
}

const NAMES = {
  fresh: 'fresh connections',
  keepalive: 'keep-alive',
  stream: 'streams',
  websocket: 'WebSockets',
} as const

const SWITCH_GOAL = 'switch at most 1.15 times the bare start'
const STALL_GOAL = "longest stall not longer than nginx's"

const WHY_MISSED: ReadonlyMap<string, string> = new Map([
  [
    SWITCH_GOAL,
    'The switch counts from the request. The lock, the journal, the snapshot of the database and the exchange of the files come before the new process may start, its probe before it may accept; each takes a few milliseconds, and done beside the start a power cut could find a database that the new version has changed and no snapshot of it.',
  ],
  [
    STALL_GOAL,
    'The stall is not one step of the handover: it is about as long in each part of it (the start, the first requests, the moving, the rest of the probation), and the other peers that start a Node process show it too, because a young process compiles and collects on the processors that its clients use. What was tried and changed nothing that could be told from noise: a lower priority for the process that starts, a predecessor that goes on accepting beside it for 200 to 500 ms, a lower priority for the predecessor that leaves. What helped is in: the probe is made ready before it is needed.',
  ],
])

export function goalsOf({ handover, update, overhead }: Results): Goal[] {
  const goals: Goal[] = []
  const peers = handover?.result.peers ?? []
  const own = peers.find(({ id }) => id === 'baton')
  const nginx = peers.find(({ id }) => id === 'nginx')
  if (own !== undefined) {
    const { fresh, keepalive } = own.loads
    goals.push({
      goal: 'lost 0 and closed 0, fresh connections and keep-alive clients',
      got: `lost ${fresh.lost + keepalive.lost}, closed ${keepalive.closed}, of ${fresh.requests + keepalive.requests} requests in ${own.switches} switches`,
      met: fresh.lost + keepalive.lost + keepalive.closed === 0,
    })
    const stage = own.restartMs === null ? '' : `; the restart stage alone ${ratio(own.restartMs, own.bareStartMs)}`
    goals.push({
      goal: SWITCH_GOAL,
      got: `${own.quietSwitchMs} ms over ${own.bareStartMs} ms = ${own.switchOverBareStart}${stage}`,
      met: own.switchOverBareStart <= 1.15,
    })
    if (nginx !== undefined) {
      const [ours, theirs] = [stallOf(own), stallOf(nginx)]
      goals.push({
        goal: STALL_GOAL,
        got: `${ours} ms, nginx ${theirs} ms`,
        met: ours <= theirs,
      })
    }
  }
  if (overhead !== undefined) {
    const { ratio: throughput, processorRatio } = overhead.result
    goals.push({
      goal: 'overhead of the agent at most 2 %',
      got: `${signed(throughput - 1)} requests a second, ${signed(processorRatio - 1)} processor time a request`,
      met: throughput >= 0.98 || processorRatio <= 1.02,
    })
  }
  if (update !== undefined) {
    const { ratio: speed, ratioFlushed, baton, small } = update.result
    if (speed !== null) {
      goals.push({
        goal: 'download at least 0.9 of `curl` and `sha256sum`',
        got: `${speed} (${ratioFlushed} when they flush to the disk too)`,
        met: speed >= 0.9,
      })
    }
    const growth = baton.peakKb / small.peakKb
    goals.push({
      goal: 'memory does not grow with the asset',
      got: `${mib(baton.peakKb)} at 1 GiB, ${mib(small.peakKb)} at 128 MiB`,
      met: growth <= 1.15,
    })
  }
  return goals
}

export function table(results: Results, goals: Goal[]): string {
  const lines: string[] = []
  const { handover, update, overhead } = results
  if (handover !== undefined) {
    const { peers, missing, failed, switches } = handover.result
    lines.push('', `handover: ${switches} switches under four loads at once`, ...grid(handoverRows(peers)))
    for (const { title, command } of missing) lines.push(`  missing: ${title}: ${command}`)
    for (const { title, reason } of failed) lines.push(`  failed: ${title}: ${reason}`)
  }
  if (update !== undefined) lines.push('', 'update', ...grid(updateRows(update.result)))
  if (overhead !== undefined) lines.push('', 'overhead', ...grid(overheadRows(overhead.result)))
  if (results.container !== undefined) lines.push('', 'container', results.container.result.markdown)
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

function updateRows(result: UpdateResult): string[][] {
  const { baton, curl, ratio: speed, ratioFlushed, small, whole } = result
  const seconds = ({ ms }: { ms: number }): string => `${(ms / 1000).toFixed(2)} s`
  return [
    ['1 GiB: download, verify, write', seconds(baton), `peak ${mib(baton.peakKb)}`],
    ...(curl === null ? [] : [['1 GiB: curl && sha256sum', seconds(curl), `peak ${mib(curl.peakKb)}`]]),
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
  ]
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

// ---- docs/performance.md

export function charts({ handover, update }: Results): Record<string, Chart> {
  const drawn: Record<string, Chart> = {}
  if (handover !== undefined) {
    const { peers, switches } = handover.result
    drawn['losses'] = {
      title: 'Lost requests and closed connections',
      subtitle: `${switches} switches under load, fresh connections and keep-alive clients; logarithmic, less is better`,
      series: ['lost requests', 'closed keep-alive connections'],
      scale: 'log',
      rows: peers.map(({ id, title, loads }) => {
        const lost = loads.fresh.lost + loads.keepalive.lost
        const { closed } = loads.keepalive
        return {
          label: title,
          own: id === 'baton',
          bars: [lost, closed].map((value) => ({ value, text: String(value) })),
        }
      }),
    }
    drawn['stall'] = {
      title: 'Longest wait of a client during a switch',
      subtitle: 'milliseconds, fresh connections and keep-alive clients; less is better',
      series: ['fresh connections', 'keep-alive'],
      scale: 'linear',
      rows: peers.map(({ id, title, loads }) => ({
        label: title,
        own: id === 'baton',
        bars: [loads.fresh, loads.keepalive].map(({ longestStallMs }) => ({
          value: longestStallMs,
          text: `${longestStallMs} ms`,
        })),
      })),
    }
  }
  if (update?.result.curl) {
    const { baton, curl } = update.result
    const bar = ({ ms }: { ms: number }) => [{ value: ms / 1000, text: `${(ms / 1000).toFixed(2)} s` }]
    drawn['download'] = {
      title: 'Download, verify and write 1 GiB',
      subtitle: 'seconds, from loopback; less is better',
      series: ['seconds'],
      scale: 'linear',
      rows: [
        { label: 'Baton', own: true, bars: bar(baton) },
        { label: 'curl && sha256sum', own: false, bars: bar(curl) },
      ],
    }
  }
  return drawn
}

export function markdown(results: Results, goals: Goal[]): string {
  const parts = [
    '# Performance',
    '<!-- Written by `npm run bench`; the numbers are in performance.json. Do not edit. -->',
    'Every number here comes from one command, side by side, in one run, on one machine: `npm run bench`, or one part of it with `npm run bench -- handover|update|overhead|container` (`--long` for at least a million requests a peer, `--json` for one JSON object last). Peers that are not on the machine are fetched into `.cache/bench`; nothing is installed, everything listens on loopback, every process is ended.',
    '## Goals',
    markdownTable([
      ['', 'goal', 'measured'],
      ...goals.map(({ goal, got, met }) => [met ? 'met' : '**missed**', goal, got]),
    ]),
    ...goals.filter(({ met }) => !met).flatMap(({ goal }) => WHY_MISSED.get(goal) ?? []),
  ]
  const { handover, update, overhead, container } = results
  if (handover !== undefined) parts.push(...handoverMarkdown(handover))
  if (update !== undefined) parts.push(...updateMarkdown(update))
  if (overhead !== undefined) parts.push(...overheadMarkdown(overhead))
  if (container !== undefined) parts.push('## Container', container.result.markdown, provenance(container))
  return `${parts.join('\n\n')}\n`
}

function handoverMarkdown(section: Section<HandoverResult>): string[] {
  const { peers, missing, failed, switches, drainMs, clients } = section.result
  const summary = peers.map(
    ({ title, loads, bareStartMs, quietSwitchMs, switchOverBareStart, loadedSwitchMs, kernel }) => [
      title,
      String(loads.fresh.lost),
      `${loads.keepalive.closed} (${loads.keepalive.lost})`,
      `${loads.stream.closed} (${loads.stream.lost})`,
      `${loads.websocket.closed} (${loads.websocket.lost})`,
      kernel === null ? '?' : String(kernel.TcpOutRsts),
      `${quietSwitchMs}`,
      `${bareStartMs}`,
      `${switchOverBareStart}`,
      `${loadedSwitchMs}`,
    ],
  )
  const latencies = peers.map(({ title, loads }) => [
    title,
    ...LOADS.map((load) => `${loads[load].longestStallMs} / ${loads[load].steadyStallMs}`),
    ...LOADS.map((load) => `${loads[load].p999SwitchMs} / ${loads[load].p999SteadyMs}`),
  ])
  const total = peers.map(({ title, loads }) => [title, ...LOADS.map((load) => String(loads[load].requests))])
  return [
    '## Handover',
    `Each peer is switched there and back between two versions, ${switches} times, under four loads at once: ${LOADS.map((load) => `${clients[load]} clients on ${NAMES[load]}`).join(', ')}. The clients are raw sockets that never retry (\`test/lab/load.ts\`): a request without a whole, right answer is *lost*; a connection that the server ends while its client wants to keep it is *closed*, and then replaced, so that every switch meets the same load. A stream is 15 events in 1.5 s. Every peer has ${drainMs} ms to drain.`,
    picture('losses', 'Lost requests and closed connections by peer'),
    markdownTable([
      [
        '',
        'fresh: lost',
        'keep-alive: closed (lost)',
        'streams: closed (lost)',
        'WebSockets: closed (lost)',
        'resets',
        'go → new version, ms',
        'bare start, ms',
        'ratio',
        'go → new version under load, ms',
      ],
      ...summary,
    ]),
    `A WebSocket cannot move to another process: where it is closed, it is with a close frame 1012 (service restart) for the Node services, and cut at the drain deadline by the proxies. Its *lost* messages crossed that close. "Go" is the moment of the order (for Baton: the request), measured without load, like the bare start: one process of the same executable from spawn to its first answer. For Baton the restart stage alone, without the journal, the snapshot of the database and the exchange of the files, which the others have done before "go", takes ${restartOf(peers)}. *Resets* are what the kernel sent under load (\`TcpOutRsts\` of a network namespace in which nothing else runs), by servers and clients together.`,
    picture('stall', 'Longest wait of a client during a switch by peer'),
    '### Waiting',
    'Longest stall: the longest time that one client wanted an answer and had none, lost requests included. Each pair is during the switches / without a switch, ms: clients and servers share the processors, and what the second number says is theirs anyway. For streams both are the gaps between events, which are 100 ms by themselves.',
    markdownTable([
      ['', ...LOADS.map((load) => `stall, ${NAMES[load]}`), ...LOADS.map((load) => `p99.9, ${NAMES[load]}`)],
      ...latencies,
    ]),
    '### Requests',
    markdownTable([['', ...LOADS.map((load) => NAMES[load])], ...total]),
    '### How each peer is configured',
    peers.map(({ title, version, configuration }) => `- **${title}** (${version}). ${configuration}`).join('\n'),
    ...(missing.length === 0
      ? []
      : [missing.map(({ title, command }) => `- missing: ${title}: \`${command}\``).join('\n')]),
    ...(failed.length === 0 ? [] : [failed.map(({ title, reason }) => `- failed: ${title}: ${reason}`).join('\n')]),
    provenance(section),
  ]
}

function restartOf(peers: PeerResult[]): string {
  const own = peers.find(({ restartMs }) => restartMs !== null)
  if (own === undefined) return 'a part of it'
  const ms = own.restartMs ?? 0
  return `${ms} ms, ${ratio(ms, own.bareStartMs)} of the bare start`
}

function updateMarkdown(section: Section<UpdateResult>): string[] {
  const { baton, curl, ratio: speed, ratioFlushed, small, whole, servedBy, rounds } = section.result
  const row = (name: string, { ms, peakKb }: { ms: number; peakKb: number }) => [
    name,
    `${(ms / 1000).toFixed(2)} s`,
    mib(peakKb),
  ]
  return [
    '## Update',
    `1 GiB of random bytes, not compressed, served from loopback by ${servedBy}; ${rounds} interleaved rounds, medians. Baton's download stage sums while it streams, bounds, reports progress and flushes to the disk; against it what a person would type.`,
    ...(curl === null ? [] : [picture('download', 'Time to download, verify and write 1 GiB')]),
    markdownTable([
      ['', 'time', 'peak memory'],
      row('Baton: download, sha256, write, flush', baton),
      ...(curl === null ? [] : [row(`\`curl -o f && sha256sum f\` (${curl.version})`, curl)]),
      ['Baton, 128 MiB', '', mib(small.peakKb)],
    ]),
    ...(curl === null
      ? []
      : [`Baton is **${speed} times** as fast, ${ratioFlushed} times with \`&& sync f\` on the other side.`]),
    `A whole update v1.0.0 → v1.1.0 of the reference service: ${mb(whole.assetBytes)} over the wire (zstd), ${mb(whole.executableBytes)} on the disk. The new version answers ${whole.answersMs} ms after the request (${Object.entries(
      whole.stagesMs,
    )
      .map(([stage, ms]) => `${stage} ${ms}`)
      .join(', ')} ms) and is committed after ${whole.committedMs} ms, with a probation of ${whole.probationMs} ms.`,
    provenance(section),
  ]
}

function overheadMarkdown(section: Section<OverheadResult>): string[] {
  const {
    bare,
    embedded,
    ratio: throughput,
    processorRatio,
    memory,
    executable,
    startup,
    measuredBy,
    rounds,
  } = section.result
  const row = (name: string, one: OverheadResult['bare']) => [
    name,
    String(one.requestsPerSecond),
    String(one.p99Ms),
    String(one.processorUs),
  ]
  return [
    '## Overhead',
    `The handler of the reference service with the agent embedded, over the same handler on bare \`node:http\`: 32 keep-alive connections by ${measuredBy}, ${rounds} interleaved rounds, medians. Processor time of the server a request says the same with less noise.`,
    markdownTable([
      ['', 'requests a second', 'p99, ms', 'processor time a request, µs'],
      row('bare `node:http`', bare),
      row('with the agent', embedded),
      ['ratio (median of pairs)', String(throughput), '', String(processorRatio)],
    ]),
    markdownTable([
      ['idle memory', 'resident'],
      ['Node with an empty server', mib(memory.bareNodeKb)],
      ['the service without the agent, `node bundle.js`', mib(memory.withoutAgentKb)],
      ['the service with the agent, `node bundle.js`', mib(memory.withAgentKb)],
      ['the service as an executable, managed', mib(memory.executableKb)],
    ]),
    `The executable weighs ${mb(executable.bytes)} (Node itself ${mb(executable.nodeBytes)} before it is stripped, the bundle ${mb(executable.bundleBytes)}); as an asset ${mb(executable.zstdBytes)} with zstd and ${mb(executable.gzipBytes)} with gzip. It answers ${startup.executableMs} ms after its start, \`node bundle.js\` after ${startup.bundleMs} ms: ${startup.ratio} (${startup.starts} starts each, interleaved, medians).`,
    provenance(section),
  ]
}

function provenance({ machine, command }: Section<unknown>): string {
  const { processor, processors, memoryGiB, system, kernel, node, date } = machine
  return `<sub>\`${command}\`, ${date}: ${processor}, ${processors} processors, ${memoryGiB} GiB, ${system}, ${kernel}, Node ${node}. Clients and servers share the processors.</sub>`
}

function picture(name: string, alt: string): string {
  return `<picture>
  <source media="(prefers-color-scheme: dark)" srcset="performance-${name}-dark.svg">
  <img alt="${alt}" src="performance-${name}.svg">
</picture>`
}

function markdownTable(rows: string[][]): string {
  const [head = [], ...body] = rows
  const line = (cells: string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...body.map(line)].join('\n')
}

export async function writeDocs(results: Results, goals: Goal[]): Promise<string[]> {
  const files: Record<string, string> = {
    'docs/performance.md': markdown(results, goals),
    'docs/performance.json': `${JSON.stringify(results, null, 2)}\n`,
  }
  for (const [name, chart] of Object.entries(charts(results))) {
    files[`docs/performance-${name}.svg`] = drawChart(chart, 'light')
    files[`docs/performance-${name}-dark.svg`] = drawChart(chart, 'dark')
  }
  const readme = await readFile(join(PROJECT, 'README.md'), 'utf8')
  files['README.md'] = withComparison(readme, results)
  for (const [name, text] of Object.entries(files)) await writeFile(join(PROJECT, name), text)
  return Object.keys(files)
}

const COMPARISON = /(?<=<!-- comparison: written by `npm run bench` -->\n).*(?=<!-- end of the comparison -->)/s

/** The README with its table of the handover's result, where there is one. Pure. */
export function withComparison(readme: string, { handover }: Results): string {
  if (handover === undefined) return readme
  const { peers, switches } = handover.result
  const rows = peers.map((peer) => {
    const { fresh, keepalive, stream } = peer.loads
    const lost = fresh.lost + keepalive.lost + stream.lost
    return [
      peer.title,
      `${lost}`,
      `${keepalive.closed + stream.closed}`,
      `${stallOf(peer)} ms`,
      `${peer.quietSwitchMs} ms`,
    ]
  })
  const least = Math.min(...peers.map(({ loads }) => LOADS.reduce((sum, load) => sum + loads[load].requests, 0)))
  const head = ['', 'requests lost', 'connections closed', 'longest stall', 'new version answers after']
  const about = `${switches} switches under load, at least ${least.toLocaleString('en')} requests each (\`${handover.command}\`):`
  return readme.replace(COMPARISON, () => `\n${about}\n\n${markdownTable([head, ...rows])}\n\n`)
}

function stallOf({ loads }: PeerResult): number {
  return Math.max(loads.fresh.longestStallMs, loads.keepalive.longestStallMs)
}

function ratio(a: number, b: number): number {
  return Math.round((a / b) * 100) / 100
}

function signed(share: number): string {
  return `${share < 0 ? '' : '+'}${(share * 100).toFixed(1)} %`
}

function mib(kb: number): string {
  return `${Math.round(kb / 1024)} MiB`
}

function mb(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`
}
