// Draws a run for a person: the table of the look, the plan, a line for each host as it ends, one redrawn line for the wave.
// Must hold: calls nothing good that the report does not call good.

import { WAY_BACK } from '../../agent/words.ts'
import { printLine } from '../lib/printer.ts'
import { createProgress, formatDuration } from '../lib/progress.ts'
import type { FleetEvent, Plan, HostResult, Row, Seen } from './events.ts'

/** outcomes after which a person has to look at a host */
const LEFT = ['down', 'stuck', 'unknown']
const GOOD = new Set(['updated', 'up_to_date', 'rolled_back'])

/** if nothing is redrawn, people take this much silence for a hang */
const LONG_SOAK_SECONDS = 10

/** `draw` draws one event. `end` ends the drawing; call it even after a failure. */
export function drawer({ quiet }: { quiet: boolean }): { draw(event: FleetEvent): void; end(good: boolean): void } {
  const progress = createProgress({ quiet })
  const seen = new Map<string, Seen>()
  const print = (lines: readonly string[]) => {
    if (!quiet) for (const line of lines) printLine(line)
  }
  let done = 0
  let hosts = 0
  const drawSoak = (wave: number, of: number, seconds: number): void => {
    const soaking = `soaking for ${formatDuration(seconds * 1000)}`
    if (seconds >= LONG_SOAK_SECONDS) progress.note(`wave ${wave}/${of} is ${soaking}`)
    progress.detail(`${hosts} moved, ${soaking}`)
  }
  const draw = (event: FleetEvent): void => {
    switch (event.event) {
      case 'run':
        return progress.stage('look')
      case 'seen':
        seen.set(event.host, event)
        return progress.detail(`${seen.size} seen`)
      case 'plan':
        progress.end(event.stop === null ? 'done' : 'failed', `${seen.size} hosts`)
        return print([...table(seen, event), ...planLines(event)])
      case 'wave':
        if (event.step === 'begin') {
          ;[done, hosts] = [0, event.hosts.length]
          return progress.stage(`wave ${event.wave}/${event.of}`, `0 of ${hosts}`)
        }
        if (event.step === 'good') return progress.detail(`${hosts} good`)
        return drawSoak(event.wave, event.of, event.seconds ?? 0)
      case 'start':
        return
      case 'host':
        progress.detail(`${++done} of ${hosts}`)
        return progress.note(hostLine(event))
      case 'stop':
        progress.end('failed', event.why)
        if (event.back.length > 0) progress.stage('back', event.back.join(', '))
        return
      case 'back':
        return progress.note(hostLine(GOOD.has(event.outcome) ? { ...event, outcome: 'is back' } : event))
      case 'result':
        // the line drawn last is of a good wave, or of going back
        progress.end(LEFT.some((outcome) => (event.counts[outcome] ?? 0) > 0) ? 'failed' : 'done')
        return print(resultLines(event))
    }
  }
  return { draw, end: (good) => progress.end(good ? 'done' : 'failed') }
}

/** `web7       v1.0.0 to v1.1.0   updated   33.2 s` */
function hostLine({ host, from, to, outcome, ms, why }: Row): string {
  const way = from === to || from === null ? (to ?? '') : `${from} to ${to ?? ''}`
  const parts = [
    host.padEnd(12),
    way.padEnd(18),
    outcome.replaceAll('_', ' '),
    ms === null || ms === undefined ? '' : formatDuration(ms),
  ]
  return [...parts, why ?? ''].filter(Boolean).join('  ')
}

function table(seen: ReadonlyMap<string, Seen>, { hosts, waves, first, upToDate, refused, gone }: Plan): string[] {
  const waveOf = new Map(waves.flatMap((wave, i) => wave.map((host) => [host, String(first + i)] as const)))
  const reasons = new Map(refused.map(({ host, why }) => [host, why] as const))
  const rows = hosts.flatMap((host) => {
    const it = seen.get(host)
    return it === undefined
      ? []
      : [
          [
            host,
            it.running ?? '-',
            it.installed ?? '-',
            it.backup || '-',
            waveOf.get(host) ?? '-',
            remark(it, {
              isThere: upToDate.includes(host),
              isGone: gone.includes(host),
              refusal: reasons.get(host) ?? null,
            }),
          ],
        ]
  })
  const all = [['host', 'runs', 'installed', 'backup', 'wave', ''], ...rows]
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

function remark(
  it: Seen,
  { isThere, isGone, refusal }: { isThere: boolean; isGone: boolean; refusal: string | null },
): string {
  if (isGone) return `cannot be reached: ${it.why ?? ''}`
  if (refusal !== null) return `left out: ${refusal}`
  if (it.inFlight)
    return `an operation is in flight: ${it.inFlight.kind} from ${it.inFlight.from} to ${it.inFlight.to ?? 'another release'}`
  if (it.unproven) return `${it.unproven.tag} has yet to prove itself`
  const tried =
    it.rehearsal === null || it.rehearsal === undefined
      ? ''
      : `tried there: ${(WAY_BACK as Record<string, string>)[it.rehearsal.verdict] ?? 'not on a copy of its data'}`
  const alone = it.byItself ? `goes by itself: ${it.byItself}` : ''
  return [isThere ? 'is there already' : tried, it.route === 'container' ? 'container' : '', alone]
    .filter(Boolean)
    .join(', ')
}

function planLines({ waves, first, release, rollback, stop }: Plan): string[] {
  if (stop !== null) return []
  const of = first + waves.length - 1
  const what = rollback ? `back${release === '' ? ' to each backup' : ` to ${release}`}` : `to ${release}`
  return waves.map((wave, i) => `wave ${first + i} of ${of} ${what}: ${wave.join(', ')}`)
}

/** The hosts that a person has to look at, the worst last. */
export function lookLines({ hosts, look }: HostResult): string[] {
  const rows = look.flatMap((name) => hosts.filter(({ host }) => host === name))
  return rows.length === 0
    ? []
    : [rows.length === 1 ? 'to look at:' : `${rows.length} to look at:`, ...rows.map(hostLine)]
}

/** Leaves out why the run stopped, which comes with the error, and the hosts to look at, which come after that. */
function resultLines({ outcome, counts, hosts, look, release }: HostResult): string[] {
  const bad = hosts.filter((row) => !GOOD.has(row.outcome) && row.outcome !== 'untouched' && !look.includes(row.host))
  const count = Object.entries(counts).map(([name, number]) => `${number} ${name.replaceAll('_', ' ')}`)
  const sum = `${outcome}${release === '' ? '' : ` ${release}`}: ${count.join(', ') || 'no host'}`
  return [...bad.map(hostLine), sum]
}
