// Writes what was measured into the docs: docs/about/performance.md with its numbers and charts, and the comparison in the README.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { drawChart } from './chart.ts'
import type { Chart } from './chart.ts'
import type { Goal } from './goals.ts'
import { LOADS } from './handover.ts'
import { lossesOf, markdown, markdownTable } from './markdown.ts'
import type { Results } from './results.ts'
import type { Waits } from './waits.ts'

export async function writeDocs(results: Results, goals: Goal[]): Promise<string[]> {
  const files: Record<string, string> = {
    'docs/about/performance.md': markdown(results, goals),
    'docs/about/performance.json': `${JSON.stringify(results, null, 2)}\n`,
  }
  for (const [name, chart] of Object.entries(charts(results))) {
    files[`docs/about/performance-${name}.svg`] = drawChart(chart, 'light')
    files[`docs/about/performance-${name}-dark.svg`] = drawChart(chart, 'dark')
  }
  const readme = await readFile(join(PROJECT, 'README.md'), 'utf8')
  files['README.md'] = withComparison(readme, results)
  for (const [name, text] of Object.entries(files)) await writeFile(join(PROJECT, name), text)
  return Object.keys(files)
}

const COMPARISON = /(?<=<!-- comparison: written by `npm run bench` -->\n).*(?=<!-- end of the comparison -->)/s

/** Those of the README; the page of the performance has all. */
const COMPARED: ReadonlySet<string> = new Set(['baton', 'pm2', 'nginx', 'haproxy', 'socket', 'restart'])

/** The README with its table of the handover's result, where there is one. Pure. */
export function withComparison(readme: string, { handover }: Results): string {
  if (handover === undefined) return readme
  const { switches, carried = false } = handover.result
  const peers = handover.result.peers.filter(({ id }) => COMPARED.has(id))
  const isWaitKnown = peers.some(({ waits }) => waitsAt(waits) !== null)
  const rows = peers.map((peer) => {
    const { lost, closed } = lossesOf(peer.loads)
    const waits = waitsAt(peer.waits)
    return [
      peer.title,
      `${lost}`,
      `${closed}`,
      ...(carried ? [`${peer.loads.websocket.closed}`] : []),
      ...(isWaitKnown
        ? [waits === null ? '' : `${waits.switchLongestMs.median} ms (${waits.steadyLongestMs.median})`]
        : []),
    ]
  })
  const least = Math.min(...peers.map(({ loads }) => LOADS.reduce((sum, load) => sum + loads[load].requests, 0)))
  const head = [
    '',
    'requests lost',
    'connections closed',
    ...(carried ? ['WebSockets closed'] : []),
    ...(isWaitKnown ? [`longest wait at ${COMPARED_RATE} requests/s (without a switch)`] : []),
  ]
  const about = `${switches} switches under load, each peer under at least ${least.toLocaleString('en')} requests (\`${handover.command}\`). Baton's switch is *start-first*:`
  return readme.replace(COMPARISON, () => `\n${about}\n\n${markdownTable([head, ...rows])}\n\n`)
}

export const COMPARED_RATE = 2000

/** at the rate that the goals name */
function waitsAt(waits: readonly Waits[] | undefined): Waits | null {
  return waits?.find(({ rate }) => rate === COMPARED_RATE) ?? null
}

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
      title: 'Longest wait of a client in the second around a switch',
      subtitle: `milliseconds, ${COMPARED_RATE} requests/s in an open loop, median of the switches; less is better`,
      series: ['around a switch', 'without one'],
      scale: 'linear',
      rows: peers.flatMap(({ id, title, waits: all }) => {
        const waits = waitsAt(all)
        if (waits === null) return []
        const values = [waits.switchLongestMs.median, waits.steadyLongestMs.median]
        return [{ label: title, own: id === 'baton', bars: values.map((value) => ({ value, text: `${value} ms` })) }]
      }),
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
