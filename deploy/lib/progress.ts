// Draws a command's progress: one stage after another, and bytes within a stage. On a terminal it redraws one line in place, and a
// long stage shows how long it has lasted; elsewhere each stage is one plain line. Colour alone never carries meaning; NO_COLOR is
// honoured.
// Must hold: after `end` the output is at the beginning of a line.

import { printableLine, printJson, printLine } from './printer.ts'

export interface ProgressReport {
  /** Ends the previous stage as done and begins this one. */
  stage(name: string, detail?: string): void
  /** Replaces the text beside the name of the current stage. */
  detail(text: string): void
  /** Bytes of the current stage so far. `totalBytes` null if it is not known. */
  bytes(doneBytes: number, totalBytes: number | null): void
  /** Prints a separate line, above the one that is being redrawn. */
  note(line: string): void
  /** Ends the current stage. `detail` replaces the text beside its name. */
  end(result: 'done' | 'failed', detail?: string): void
}

export interface ProgressOptions {
  /** default: process.stderr */
  stream?: Pick<NodeJS.WriteStream, 'write'> & { isTTY?: boolean; columns?: number }
  /** draws nothing */
  quiet?: boolean
  environment?: Readonly<Record<string, string | undefined>>
  /** a monotonic clock, in milliseconds */
  now?: () => number
}

interface Current {
  name: string
  detail: string
  startedAt: number
  doneBytes: number
  totalBytes: number | null
  hasBytes: boolean
  drawnAt: number
}

const REDRAW_MS = 80
/** A stage without bytes that lasts longer shows its time, so that nobody takes a wait for a hang. */
const LONG_MS = 2000
/** A shorter time is that of this command's looks, and says nothing about the stage. */
const SHOWN_MS = 10
const BAR_WIDTH = 24

export function createProgress(options: ProgressOptions = {}): ProgressReport {
  if (options.quiet) return { stage() {}, detail() {}, bytes() {}, note() {}, end() {} }
  const stream = options.stream ?? process.stderr
  const environment = options.environment ?? process.env
  const now = options.now ?? (() => performance.now())
  const live = stream.isTTY === true && environment['TERM'] !== 'dumb'
  const paint = painter(live && !environment['NO_COLOR'])
  let current: Current | null = null
  let ticks: NodeJS.Timeout | undefined

  const width = () => Math.max(20, (stream.columns || 80) - 1)
  const clear = () => live && stream.write('\r\x1b[2K')

  const draw = (stage: Current): void => {
    if (!live) return
    stage.drawnAt = now()
    const elapsedMs = now() - stage.startedAt
    const beside = stage.hasBytes
      ? formatBytesLine(stage.doneBytes, stage.totalBytes, elapsedMs)
      : [stage.detail, elapsedMs < LONG_MS ? '' : formatDuration(Math.floor(elapsedMs / 1000) * 1000)]
          .filter(Boolean)
          .join('  ')
    const line = printableLine(`${stage.name.padEnd(9)} ${beside}`)
    stream.write(`\r\x1b[2K${paint('cyan', '›')} ${line.slice(0, width() - 2)}`)
  }

  const finish = (result: 'done' | 'failed', detail?: string): void => {
    clearInterval(ticks)
    if (current === null) return
    const elapsedMs = now() - current.startedAt
    const size = current.hasBytes ? `${formatBytes(current.doneBytes)} in ${formatDuration(elapsedMs)}` : ''
    const time = elapsedMs < SHOWN_MS ? '' : formatDuration(elapsedMs)
    const beside = printableLine(detail ?? (current.detail || size || time))
    clear()
    const mark = result === 'done' ? paint('green', live ? '✓' : 'done') : paint('red', live ? '✗' : 'failed')
    stream.write(`${`${mark} ${printableLine(current.name).padEnd(9)} ${beside}`.trimEnd()}\n`)
    current = null
  }

  return {
    stage(name, detail = '') {
      finish('done')
      current = { name, detail, startedAt: now(), doneBytes: 0, totalBytes: null, hasBytes: false, drawnAt: -Infinity }
      draw(current)
      if (live) ticks = setInterval(() => current !== null && draw(current), 1000).unref()
    },
    detail(text) {
      if (current === null) return
      current.detail = text
      draw(current)
    },
    bytes(doneBytes, totalBytes) {
      if (current === null) return
      current.doneBytes = doneBytes
      current.totalBytes = totalBytes
      current.hasBytes = true
      if (now() - current.drawnAt >= REDRAW_MS || doneBytes === totalBytes) draw(current)
    },
    note(line) {
      clear()
      printLine(line, stream)
      if (current !== null) draw(current)
    },
    end: finish,
  }
}

/** `███████░░░  62%  18.6/30.1 MB  41.2 MB/s  0:03` */
export function formatBytesLine(doneBytes: number, totalBytes: number | null, elapsedMs: number): string {
  const perSecond = elapsedMs > 0 ? (doneBytes / elapsedMs) * 1000 : 0
  const speed = elapsedMs >= 200 ? `${formatBytes(perSecond)}/s` : ''
  if (totalBytes === null || totalBytes <= 0) return [formatBytes(doneBytes), speed].filter(Boolean).join('  ')
  const share = Math.min(1, doneBytes / totalBytes)
  const filled = Math.floor(share * BAR_WIDTH)
  const bar = '█'.repeat(filled) + '░'.repeat(BAR_WIDTH - filled)
  const left =
    speed !== '' && perSecond > 0 && share < 1 ? formatDuration(((totalBytes - doneBytes) / perSecond) * 1000) : ''
  const parts = [bar, `${Math.floor(share * 100)}%`.padStart(4), `${formatBytes(doneBytes)}/${formatBytes(totalBytes)}`]
  return [...parts, speed, left === '' ? '' : `eta ${left}`].filter(Boolean).join('  ')
}

/** After "listens on". */
export function formatPorts(ports: readonly number[]): string {
  return `${ports.length === 1 ? 'port' : 'the ports'} ${ports.join(', ')}`
}

/** Decimal units, as package managers and `curl` print them. */
export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`
  const units = ['kB', 'MB', 'GB', 'TB']
  let value = bytes
  let unit = -1
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit++
  }
  return `${value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`
}

export function formatDuration(ms: number): string {
  if (ms < 950) return `${Math.max(0, Math.round(ms))} ms`
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')} min`
}

const COLOURS = { cyan: 36, green: 32, red: 31 } as const

function painter(on: boolean): (colour: keyof typeof COLOURS, text: string) => string {
  return (colour, text) => (on ? `\x1b[${COLOURS[colour]}m${text}\x1b[39m` : text)
}

/** With `json`, stages and notes are lines of JSON. */
export function progressFor({ json, quiet }: { json: boolean; quiet: boolean }): ProgressReport {
  const progress = createProgress({ quiet: quiet || json })
  if (!json) return progress
  return {
    ...progress,
    stage: (stage, detail) => printJson({ event: 'stage', stage, ...(detail === undefined ? {} : { detail }) }),
    note: (message) => printJson({ event: 'note', message }),
  }
}
