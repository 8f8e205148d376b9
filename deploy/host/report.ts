// What a command prints. People get a plan, a progress line and one result on their terminal. Programs get one JSON object a
// line on stdout (`--json`) and nothing else there. Must hold: an error is never followed by a success.

import { type BatonError, EXIT, MEANINGS } from '../../agent/words.ts'
import { describe, type Step } from './plan/step.ts'
import type { HostStage } from './service/outside.ts'
import { printError, printJson, printLine } from '../lib/printer.ts'
import { createProgress, formatDuration, type ProgressReport } from '../lib/progress.ts'

export interface HostReport {
  plan(steps: readonly Step[]): void
  /** a plan that another program has put into words */
  told(steps: readonly { text: string }[]): void
  step(step: Step): void
  /** `tookMs`: of the stage before, if the service says so */
  stage(stage: HostStage, tookMs?: number): void
  bytes(done: number, total: number): void
  note(line: string): void
  /** another program reports from here on: ends the progress line */
  leave(): void
  /** `object` for programs has everything; a person gets `lines` instead. Returns its `exit`, by default 0. */
  result(object: Readonly<Record<string, unknown>> & { exit?: number }, lines: readonly string[]): number
  /** `end`: how far the command came, for programs. Returns the exit code of the error. */
  failed(error: BatonError, end?: Record<string, unknown>): number
}

export interface ReportOptions {
  json: boolean
  quiet: boolean
  verbose: boolean
  /** members of the last line that a program reads */
  about: Record<string, unknown>
}

/** Stages whose names in the API mean nothing to a person. */
const LABELS: Partial<Record<HostStage, string>> = {
  check: 'check the feed',
  swap: 'replace the executable',
  restart: 'switch',
  unpack: 'unpack the application',
  health: 'check its health',
}

export function makeReport({ json, quiet, verbose, about }: ReportOptions): HostReport {
  return json ? jsonReport(about) : textReport(quiet, verbose)
}

function jsonReport(about: Record<string, unknown>): HostReport {
  let index = 0
  let lastBytes = 0
  return {
    plan: (steps) =>
      printJson({ event: 'plan', steps: steps.map((step) => ({ ...publicOf(step), text: describe(step) })) }),
    told: (steps) => printJson({ event: 'plan', steps }),
    step: (step) => printJson({ event: 'step', index: index++, ...publicOf(step), text: describe(step) }),
    stage(stage) {
      lastBytes = 0
      printJson({ event: 'stage', stage })
    },
    bytes(done, total) {
      // a line for each percent is more than anybody reads
      if (done !== total && done - lastBytes < total / 20) return
      lastBytes = done
      printJson({ event: 'progress', bytes: done, totalBytes: total })
    },
    note: (message) => printJson({ event: 'note', message }),
    leave() {},
    result({ exit = EXIT.done, ...object }) {
      printJson({ event: 'result', ...about, ...object, exit })
      return exit
    },
    failed({ code, message, hint }, end = {}) {
      const { exit } = MEANINGS[code]
      printJson({ event: 'error', ...about, code, message, hint, ...end, exit })
      printError({ code, message, hint })
      return exit
    },
  }
}

function textReport(quiet: boolean, verbose: boolean): HostReport {
  const progress: ProgressReport = createProgress({ quiet })
  const numbered = (lines: readonly string[]) => {
    if (quiet) return
    const width = String(lines.length).length
    for (const [i, line] of lines.entries()) printLine(`${String(i + 1).padStart(width + 2)}  ${line}`)
    if (lines.length === 0) printLine('nothing to do')
  }
  return {
    plan: (steps) => numbered(steps.map(describe)),
    told: (steps) => numbered(steps.map(({ text }) => text)),
    // an update draws its own stages
    step: (step) => void (step.do === 'update' || step.do === 'rollback' || progress.stage(describe(step))),
    stage(stage, tookMs) {
      if (tookMs !== undefined) progress.detail(formatDuration(tookMs))
      progress.stage(LABELS[stage] ?? stage)
    },
    bytes: (done, total) => progress.bytes(done, total),
    note: (line) => void (quiet || progress.note(line)),
    leave: () => progress.end('done'),
    result({ exit = EXIT.done, ...object }, lines) {
      progress.end('done')
      if (!quiet) for (const line of lines) printLine(line)
      if (verbose) printJson({ ...object, exit }, process.stderr)
      return exit
    },
    failed(error) {
      progress.end('failed')
      printError(error)
      if (verbose && error.cause instanceof Error) printLine(error.cause.stack ?? error.cause.message, process.stderr)
      return MEANINGS[error.code].exit
    },
  }
}

/** Leaves out the content of a file: a unit's text is long, and the event's `text` says that it is written. */
function publicOf(step: Step): Record<string, unknown> {
  return step.do === 'write-file' ? { do: step.do, path: step.path } : { ...step }
}
