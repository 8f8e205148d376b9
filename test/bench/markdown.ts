// docs/about/performance.md, written from the results. Pure.

import { type Goal, WHY_MISSED } from './goals.ts'
import { type HandoverResult, LOADS, type PeerResult } from './handover.ts'
import type { OverheadResult } from './overhead.ts'
import type { PairsResult } from './pairs.ts'
import { deltaRows, pairRows } from './table.ts'
import { mb, mib, NAMES, ratio, type Results, seconds, type Section } from './results.ts'
import type { UpdateResult } from './update.ts'

export function markdown(results: Results, goals: Goal[]): string {
  const parts = [
    '# Performance',
    '<!-- Written by `npm run bench -- --docs`; the numbers are in performance.json. Do not edit. -->',
    'Each section is one run of the command below it; `npm run bench` prints more, and `performance.json` has it all.',
    machinesOf(results),
    '## Goals',
    ...goalsMarkdown(goals),
  ]
  const { handover, update, overhead, trust, container, fleet, state, told, download } = results
  if (handover !== undefined) parts.push(...handoverMarkdown(handover))
  if (update !== undefined) parts.push(...updateMarkdown(update))
  if (overhead !== undefined) parts.push(...overheadMarkdown(overhead))
  if (trust !== undefined) parts.push('## Signed feeds', trust.result.markdown, provenance(trust))
  if (container !== undefined) parts.push('## Container', container.result.markdown, provenance(container))
  if (fleet !== undefined) parts.push('## Fleet', fleet.result.markdown, provenance(fleet))
  if (state !== undefined) parts.push('## Changes to the data', state.result.markdown, provenance(state))
  if (download !== undefined) parts.push('## Beside a download', download.result.markdown, provenance(download))
  if (told !== undefined) parts.push('## The operator’s program', told.result.markdown, provenance(told))
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

/** Requests a second of the waits that the page shows for each peer. */
const SHOWN_RATE = 2000

function handoverMarkdown(section: Section<HandoverResult>): string[] {
  const { peers, missing, failed, switches, clients, carried = false, pairs } = section.result
  return [
    '## Handover',
    `Each peer is switched between two versions, ${switches} times, under four loads at once: ${LOADS.map((load) => `${clients[load]} clients on ${NAMES[load]}`).join(', ')}. *Lost*: a request without a whole, right answer; *closed*: a connection that the server ended against its client's will. The waits, in ms around a switch/without one, are those of ${SHOWN_RATE} requests a second, each counted from when it was due.`,
    picture('losses', 'Lost requests and closed connections by peer'),
    picture('stall', 'Longest wait of a client during a switch by peer'),
    markdownTable([['', 'lost', 'closed', 'WebSockets closed', 'longest wait', 'p99.9'], ...peers.map(handoverRow)]),
    `${carried ? 'Baton carries a WebSocket if its author registers it. ' : ''}Its switch alone takes ${restartOf(peers)}.`,
    ...(pairs === undefined ? [] : pairsMarkdown(pairs)),
    ...(missing.length === 0
      ? []
      : [missing.map(({ title, command }) => `- missing: ${title}: \`${command}\``).join('\n')]),
    ...(failed.length === 0 ? [] : [failed.map(({ title, reason }) => `- failed: ${title}: ${reason}`).join('\n')]),
    provenance(section),
  ]
}

/** Over HTTP; WebSockets are told apart. */
export function lossesOf({ fresh, keepalive, stream }: PeerResult['loads']): { lost: number; closed: number } {
  return { lost: fresh.lost + keepalive.lost + stream.lost, closed: keepalive.closed + stream.closed }
}

function handoverRow({ title, loads, waits = [] }: PeerResult): string[] {
  const { lost, closed } = lossesOf(loads)
  const at = waits.find(({ rate }) => rate === SHOWN_RATE)
  return [
    title,
    String(lost),
    String(closed),
    String(loads.websocket.closed),
    at === undefined ? '' : `${at.switchLongestMs.median}/${at.steadyLongestMs.median}`,
    at === undefined ? '' : `${at.switchP999Ms}/${at.steadyP999Ms}`,
  ]
}

/** Both kinds of switch, and what else never has two processes. */
function pairsMarkdown(pairs: PairsResult): string[] {
  const { rounds, rate } = pairs
  return [
    '### Stop-first',
    `The same service, switched start-first and stop-first, and its peer without the agent behind a socket that systemd holds: ${rounds} switches each, in turns, under an open loop of ${rate} requests/s. The last column is the median of the ratios of each round. ms:`,
    markdownTable(pairRows(pairs)),
  ]
}

function restartOf(peers: PeerResult[]): string {
  const own = peers.find(({ restartMs }) => restartMs !== null)
  if (own === undefined) return 'a part of it'
  const ms = own.restartMs ?? 0
  return `${ms} ms, ${ratio(ms, own.bareStartMs)} of a bare start of its executable`
}

function updateMarkdown(section: Section<UpdateResult>): string[] {
  const { baton, curl, ratio: speed, ratioFlushed, small, whole, delta, servedBy } = section.result
  return [
    '## Update',
    `1 GiB from loopback (${servedBy}), with its sum, written and flushed, takes ${seconds(baton.ms)} and at most ${mib(baton.peakKb)} of memory (128 MiB: ${mib(small.peakKb)}).${curl === null ? '' : ` \`curl -o f && sha256sum f\` (${curl.version}) takes ${seconds(curl.ms)}: Baton is **${speed} times** as fast, ${ratioFlushed} times if that flushes too.`}`,
    ...(curl === null ? [] : [picture('download', 'Time to download, verify and write 1 GiB')]),
    `A whole update of the reference service: ${mb(whole.assetBytes)} over the wire (zstd), ${mb(whole.executableBytes)} on the disk. The new version answers ${whole.answersMs} ms after the request (${Object.entries(
      whole.stagesMs,
    )
      .map(([stage, ms]) => `${stage} ${ms}`)
      .join(', ')} ms).`,
    ...(delta === undefined
      ? []
      : [
          'The download stage, flushed, and the peak of its process ([why](../decisions/0048-an-update-weighs-its-change.md)):',
          markdownTable([['', '', ''], ...deltaRows(delta)]),
        ]),
    provenance(section),
  ]
}

function overheadMarkdown(section: Section<OverheadResult>): string[] {
  const { bare, embedded, ratio: throughput, processorRatio, memory, executable, startup, measuredBy } = section.result
  const told = (one: OverheadResult['bare']) =>
    `${one.requestsPerSecond} requests a second, p99 ${one.p99Ms} ms, ${one.processorUs} µs of processor time a request`
  return [
    '## Overhead',
    `By ${measuredBy} on 32 keep-alive connections, medians. Bare \`node:http\`: ${told(bare)}. With the agent: ${told(embedded)}; ratio ${throughput} and ${processorRatio}.`,
    `Memory when idle: the reference service without the agent ${mib(memory.withoutAgentKb)}, with it ${mib(memory.withAgentKb)}, as a managed executable ${mib(memory.executableKb)}. That has ${mb(executable.bytes)}, its asset ${mb(executable.zstdBytes)}, and answers ${startup.executableMs} ms after its start, \`node bundle.js\` after ${startup.bundleMs} ms: ${startup.ratio}.`,
    provenance(section),
  ]
}

function provenance({ machine, command }: Section<unknown>): string {
  return `<sub>\`${command}\`, ${machine.date}.</sub>`
}

/** Of each machine that was measured on, once. */
function machinesOf(results: Results): string {
  const sections = Object.values(results).filter((section) => section !== undefined) as Section<unknown>[]
  const on = new Set(sections.map(({ machine }) => machine.processor))
  const about = new Set(
    sections.map(
      ({ machine: { processors, memoryGiB, system, kernel, node } }) =>
        `${processors} processors, ${memoryGiB} GiB, ${system}, ${kernel}, Node ${node}`,
    ),
  )
  return `Measured on ${[...on].join(' or ')}, ${[...about].join(' or ')}. Clients and servers share the processors.`
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
