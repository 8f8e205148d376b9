// Bar charts as SVG, by hand: one file for a light page and one for a dark one. Meaning is in the numbers, colour only helps.

export interface Bar {
  value: number
  /** what is written at its end */
  text: string
}

export interface Row {
  label: string
  /** one a series */
  bars: Bar[]
  /** the row to look at */
  own: boolean
}

export interface Chart {
  title: string
  subtitle: string
  series: string[]
  rows: Row[]
  /** `log`: for values of which some are 0 and some in the thousands */
  scale: 'linear' | 'log'
}

export type Theme = 'light' | 'dark'

const COLOURS = {
  light: {
    page: '#ffffff',
    text: '#1f2328',
    muted: '#59636e',
    line: '#d1d9e0',
    own: ['#0969da', '#54aeff', '#a5d6ff'],
    other: ['#6e7781', '#afb8c1', '#d0d7de'],
  },
  dark: {
    page: '#0d1117',
    text: '#f0f6fc',
    muted: '#9198a1',
    line: '#3d444d',
    own: ['#4493f8', '#316dca', '#1b4b91'],
    other: ['#8b949e', '#6e7681', '#484f58'],
  },
} as const

const WIDTH = 760
const LABEL_WIDTH = 210
const TEXT_WIDTH = 100
const BAR_HEIGHT = 13
const BAR_GAP = 3
const ROW_GAP = 14
const TOP = 84
const FONT = 'system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif'

export function drawChart(chart: Chart, theme: Theme): string {
  const colours = COLOURS[theme]
  const rowHeight = chart.series.length * (BAR_HEIGHT + BAR_GAP) + ROW_GAP
  const height = TOP + chart.rows.length * rowHeight + 8
  const most = Math.max(1, ...chart.rows.flatMap(({ bars }) => bars.map(({ value }) => value)))
  const length = (value: number): number => {
    const share = chart.scale === 'linear' ? value / most : Math.log10(1 + value) / Math.log10(1 + most)
    return Math.round(share * (WIDTH - LABEL_WIDTH - TEXT_WIDTH) * 10) / 10
  }
  const parts: string[] = []
  const text = (x: number, y: number, what: string, fill: string, more = ''): void => {
    parts.push(`<text x="${x}" y="${y}" fill="${fill}"${more}>${escaped(what)}</text>`)
  }
  text(16, 28, chart.title, colours.text, ' font-size="16" font-weight="600"')
  text(16, 48, chart.subtitle, colours.muted)
  let x = LABEL_WIDTH
  for (const [i, name] of chart.series.entries()) {
    parts.push(`<rect x="${x}" y="60" width="10" height="10" rx="2" fill="${colours.other[i % 3]}"/>`)
    parts.push(`<rect x="${x + 12}" y="60" width="10" height="10" rx="2" fill="${colours.own[i % 3]}"/>`)
    text(x + 27, 69, name, colours.muted)
    x += 45 + name.length * 7
  }
  for (const [i, row] of chart.rows.entries()) {
    const y = TOP + i * rowHeight
    const middle = y + (chart.series.length * (BAR_HEIGHT + BAR_GAP)) / 2 + 3
    text(LABEL_WIDTH - 10, middle, row.label, colours.text, ` text-anchor="end"${row.own ? ' font-weight="600"' : ''}`)
    for (const [j, bar] of row.bars.entries()) {
      const top = y + j * (BAR_HEIGHT + BAR_GAP)
      const fill = (row.own ? colours.own : colours.other)[j % 3]
      parts.push(
        `<rect x="${LABEL_WIDTH}" y="${top}" width="${Math.max(1.5, length(bar.value))}" height="${BAR_HEIGHT}" rx="2" fill="${fill}"/>`,
      )
      text(
        LABEL_WIDTH + Math.max(1.5, length(bar.value)) + 6,
        top + 11,
        bar.text,
        row.own ? colours.text : colours.muted,
      )
    }
  }
  const line = `<line x1="${LABEL_WIDTH}" y1="${TOP - 6}" x2="${LABEL_WIDTH}" y2="${height - 12}" stroke="${colours.line}"/>`
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family='${FONT}' font-size="12" role="img" aria-label="${escaped(chart.title)}">
<rect width="100%" height="100%" rx="6" fill="${colours.page}"/>
${line}
${parts.join('\n')}
</svg>
`
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
}
