// docs/about/performance.md, written from the results. Pure.

import { type Goal, WHY_MISSED } from './goals.ts'
import { type HandoverResult, LOADS, type PeerResult } from './handover.ts'
import type { CarryResult } from './carry.ts'
import type { OverheadResult } from './overhead.ts'
import type { PairsResult } from './pairs.ts'
import { carryRows, pairRows } from './table.ts'
import type { Waits } from './waits.ts'
import { mb, mib, NAMES, ratio, type Results, type Section } from './results.ts'
import type { UpdateResult } from './update.ts'

export function markdown(results: Results, goals: Goal[]): string {
  const parts = [
    '# Performance',
    '<!-- Written by `npm run bench -- --docs`; the numbers are in performance.json. Do not edit. -->',
    'Every section is one run of the command below it (`--long`: at least a million requests a peer). Missing peers are fetched into `.cache/bench`; nothing is installed.',
    ...machines(results),
    '## Goals',
    ...goalsMarkdown(goals),
  ]
  const { handover, carry, update, overhead, trust, container, fleet, state, told, start } = results
  if (handover !== undefined) parts.push(...handoverMarkdown(handover))
  if (carry !== undefined) parts.push(...carryMarkdown(carry))
  if (update !== undefined) parts.push(...updateMarkdown(update))
  if (overhead !== undefined) parts.push(...overheadMarkdown(overhead))
  if (trust !== undefined) parts.push('## Signed feeds', trust.result.markdown, provenance(trust))
  if (container !== undefined) parts.push('## Container', container.result.markdown, provenance(container))
  if (fleet !== undefined) parts.push('## Fleet', fleet.result.markdown, provenance(fleet))
  if (state !== undefined) parts.push('## Changes to the data', state.result.markdown, provenance(state))
  if (told !== undefined) parts.push('## The operator’s program', told.result.markdown, provenance(told))
  if (start !== undefined) parts.push('## A start', start.result.markdown, provenance(start))
  return `${parts.join('\n\n')}\n`
}

/** What the met ones measure stands below, each in its section. */
function goalsMarkdown(goals: Goal[]): string[] {
  const missed = goals.filter(({ met }) => !met)
  const why = missed.flatMap(({ goal }) => WHY_MISSED.get(goal) ?? [])
  const rows = missed.map(({ goal, got }) => `- Missed: ${goal}. Measured: ${got}.`)
  return [
    `${goals.length - missed.length} of ${goals.length} goals are met; \`npm run bench\` prints each.`,
    ...(rows.length === 0 ? [] : [rows.join('\n')]),
    ...why,
  ]
}

function handoverMarkdown(section: Section<HandoverResult>): string[] {
  const { peers, missing, failed, switches, drainMs, clients, carried = false, pairs } = section.result
  const summary = peers.map(({ title, loads, quietSwitchMs, loadedSwitchMs }) => [
    title,
    String(loads.fresh.lost),
    `${loads.keepalive.closed} (${loads.keepalive.lost})`,
    `${loads.stream.closed} (${loads.stream.lost})`,
    `${loads.websocket.closed} (${loads.websocket.lost})`,
    `${quietSwitchMs}`,
    `${loadedSwitchMs}`,
  ])
  return [
    '## Handover',
    `Each peer is switched between two versions, ${switches} times, under four loads at once: ${LOADS.map((load) => `${clients[load]} clients on ${NAMES[load]}`).join(', ')}. Clients and servers share the processors. The clients never retry: a request without a whole, right answer is *lost*; a connection that the server ends against its client's will is *closed*. Every peer has ${drainMs} ms to drain.`,
    picture('losses', 'Lost requests and closed connections by peer'),
    markdownTable([
      [
        '',
        'fresh: lost',
        'keep-alive: closed (lost)',
        'streams: closed (lost)',
        'WebSockets: closed (lost)',
        'go → new version, ms',
        'go → new version under load, ms',
      ],
      ...summary,
    ]),
    `${carried ? 'Baton carries a WebSocket if its author registers it. ' : ''}The Node services close a WebSocket with 1012, the proxies cut it at the drain deadline. *Go* is the order to switch (for Baton: the request, with check, download and verify). Baton's restart stage alone takes ${restartOf(peers)}.`,
    ...waitsMarkdown(peers),
    ...(pairs === undefined ? [] : pairsMarkdown(pairs)),
    '[performance.json](performance.json) has the version and the configuration of each peer.',
    ...(missing.length === 0
      ? []
      : [missing.map(({ title, command }) => `- missing: ${title}: \`${command}\``).join('\n')]),
    ...(failed.length === 0 ? [] : [failed.map(({ title, reason }) => `- failed: ${title}: ${reason}`).join('\n')]),
    provenance(section),
  ]
}

/** Requests a second of the row that the page shows for each peer. */
const SHOWN_RATE = 2000

/** The waits of clients that ask at a steady rate, whatever the service does. */
function waitsMarkdown(peers: PeerResult[]): string[] {
  if (!peers.some(({ waits = [] }) => waits.length > 0)) return []
  const pair = (during: number, without: number) => `${during}/${without}`
  const row = (title: string, one: Waits) => [
    title,
    String(one.lost),
    String(one.closed),
    pair(one.switchLongestMs.median, one.steadyLongestMs.median),
    pair(one.switchLongestMs.worst, one.steadyLongestMs.worst),
    pair(one.switchP999Ms, one.steadyP999Ms),
  ]
  return [
    '### Waiting',
    `32 keep-alive connections ask ${SHOWN_RATE} times a second (an open loop). A wait counts from when its request was due. Each pair is the second around a switch, and one without, ms: the longest wait (median and worst of all switches), and p99.9. \`performance.json\` has other rates.`,
    picture('stall', 'Longest wait of a client during a switch by peer'),
    markdownTable([
      ['', 'lost', 'closed', 'longest wait', 'worst', 'p99.9'],
      ...peers.flatMap(({ title, waits = [] }) =>
        waits.filter(({ rate }) => rate === SHOWN_RATE).map((one) => row(title, one)),
      ),
    ]),
  ]
}

/** Both kinds of switch, and what else never has two processes. */
function pairsMarkdown(pairs: PairsResult): string[] {
  const { rounds, rate } = pairs
  return [
    '### Stop-first',
    `The same service, switched start-first and stop-first, and its peer without the agent behind a socket that systemd holds: ${rounds} switches each, in turns, under an open loop of ${rate} requests/s. The longest wait is that of each second around a switch (its median and its worst), beside that of a second without one. The last column is the median of the ratios of each round. *Go* is the request to Baton, and the command to systemd. ms:`,
    markdownTable(pairRows(pairs)),
  ]
}

function restartOf(peers: PeerResult[]): string {
  const own = peers.find(({ restartMs }) => restartMs !== null)
  if (own === undefined) return 'a part of it'
  const ms = own.restartMs ?? 0
  return `${ms} ms, ${ratio(ms, own.bareStartMs)} of a bare start of its executable`
}

function carryMarkdown(section: Section<CarryResult>): string[] {
  const { perSecond, rounds } = section.result
  return [
    '## Connections in bulk',
    `Idle keep-alive connections from one process to another, with ${perSecond} requests a second on them meanwhile; ${rounds} interleaved rounds, medians. Both sides confirm each connection.`,
    markdownTable(carryRows(section.result)),
    provenance(section),
  ]
}

function updateMarkdown(section: Section<UpdateResult>): string[] {
  const { baton, curl, ratio: speed, ratioFlushed, small, whole, delta, servedBy, rounds } = section.result
  const row = (name: string, { ms, peakKb }: { ms: number; peakKb: number }) => [
    name,
    `${(ms / 1000).toFixed(2)} s`,
    mib(peakKb),
  ]
  return [
    '## Update',
    `1 GiB of random bytes from loopback, by ${servedBy}; ${rounds} interleaved rounds, medians. Baton also sums, reports progress and flushes to the disk.`,
    ...(curl === null ? [] : [picture('download', 'Time to download, verify and write 1 GiB')]),
    markdownTable([
      ['', 'time', 'peak memory'],
      row('Baton: download, sha256, write, flush', baton),
      ...(curl === null ? [] : [row(`\`curl -o f && sha256sum f\` (${curl.version})`, curl)]),
      ['Baton, 128 MiB', '', mib(small.peakKb)],
    ]),
    ...(curl === null
      ? []
      : [`Baton is **${speed} times** as fast, ${ratioFlushed} times if the other side flushes (\`&& sync f\`).`]),
    `A whole update of the reference service: ${mb(whole.assetBytes)} over the wire (zstd), ${mb(whole.executableBytes)} on the disk. The new version answers ${whole.answersMs} ms after the request (${Object.entries(
      whole.stagesMs,
    )
      .map(([stage, ms]) => `${stage} ${ms}`)
      .join(', ')} ms).`,
    ...(delta === undefined
      ? []
      : [
          'The download of that update, by its asset and by a delta ([why](../decisions/0048-an-update-weighs-its-change.md)):',
          markdownTable([
            ['', 'bytes', 'time', 'peak memory'],
            ['asset', `${delta.assetBytes}`, `${(delta.full.ms / 1000).toFixed(2)} s`, mib(delta.full.peakKb)],
            [
              `delta, made in ${delta.makeMs} ms`,
              `${delta.deltaBytes}`,
              `${(delta.delta.ms / 1000).toFixed(2)} s`,
              mib(delta.delta.peakKb),
            ],
          ]),
        ]),
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
    `The reference service's handler with the agent, and on bare \`node:http\`: 32 keep-alive connections by ${measuredBy}, ${rounds} interleaved rounds, medians.`,
    markdownTable([
      ['', 'requests a second', 'p99, ms', 'processor time a request, µs'],
      row('bare `node:http`', bare),
      row('with the agent', embedded),
      ['ratio (median of pairs)', String(throughput), '', String(processorRatio)],
    ]),
    `Resident when idle: Node with an empty server ${mib(memory.bareNodeKb)}, the service without the agent ${mib(memory.withoutAgentKb)}, with it ${mib(memory.withAgentKb)}, as a managed executable ${mib(memory.executableKb)}.`,
    `The executable has ${mb(executable.bytes)}, of which the bundle is ${mb(executable.bundleBytes)}; its asset ${mb(executable.zstdBytes)} with zstd, ${mb(executable.gzipBytes)} with gzip. It answers ${startup.executableMs} ms after its start, \`node bundle.js\` after ${startup.bundleMs} ms: ${startup.ratio}.`,
    provenance(section),
  ]
}

function provenance({ machine, command }: Section<unknown>): string {
  return `<sub>\`${command}\`, ${machine.date}.</sub>`
}

/** Of each machine that was measured on, once. */
function machines(results: Results): string[] {
  const sections = Object.values(results).filter((section) => section !== undefined) as Section<unknown>[]
  const told = sections.map(({ machine }) => {
    const { processor, processors, memoryGiB, system, kernel, node } = machine
    return `Measured on ${processor}, ${processors} processors, ${memoryGiB} GiB, ${system}, ${kernel}, Node ${node}.`
  })
  return [...new Set(told)]
}

function picture(name: string, alt: string): string {
  return `<picture>
  <source media="(prefers-color-scheme: dark)" srcset="performance-${name}-dark.svg">
  <img alt="${alt}" src="performance-${name}.svg">
</picture>`
}

export function markdownTable(rows: string[][]): string {
  const [head = [], ...body] = rows
  const line = (cells: string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...body.map(line)].join('\n')
}
