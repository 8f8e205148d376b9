// What a command prints. People get a plan, a progress line and one result on their terminal. Programs get one JSON object a
// line on stdout (`--json`) and nothing else there. Must hold: an error is never followed by a success.

import { type BatonError, MEANINGS } from '../../agent/words.ts'
import { describe, type Step } from './plan/step.ts'
import type { HostStage } from './service/outside.ts'
import { createProgress, type ProgressReport } from '../lib/progress.ts'

export interface HostReport {
  plan(steps: readonly Step[]): void
  /** a plan that another program has put into words */
  told(steps: readonly { text: string }[]): void
  step(step: Step): void
  stage(stage: HostStage): void
  bytes(done: number, total: number): void
  note(line: string): void
  /** another program reports from here on: ends the progress line */
  leave(): void
  /** `object` for programs has everything; a person gets `lines` instead */
  result(object: Record<string, unknown>, lines: readonly string[]): void
  /** `end`: how far the command came, for programs */
  failed(error: BatonError, end?: Record<string, unknown>): void
}

export interface ReportOptions {
  json: boolean
  quiet: boolean
  verbose: boolean
  /** members of the last line that a program reads */
  about: Record<string, unknown>
}

export function makeReport({ json, quiet, verbose, about }: ReportOptions): HostReport {
  return json ? jsonReport(about) : textReport(quiet, verbose)
}

function jsonReport(about: Record<string, unknown>): HostReport {
  const print = (object: Record<string, unknown>) => void process.stdout.write(`${JSON.stringify(object)}\n`)
  let index = 0
  let lastBytes = 0
  return {
    plan: (steps) =>
      print({ event: 'plan', steps: steps.map((step) => ({ ...publicOf(step), text: describe(step) })) }),
    told: (steps) => print({ event: 'plan', steps }),
    step: (step) => print({ event: 'step', index: index++, ...publicOf(step), text: describe(step) }),
    stage(stage) {
      lastBytes = 0
      print({ event: 'stage', stage })
    },
    bytes(done, total) {
      // a line for each percent is more than anybody reads
      if (done !== total && done - lastBytes < total / 20) return
      lastBytes = done
      print({ event: 'progress', bytes: done, totalBytes: total })
    },
    note: (message) => print({ event: 'note', message }),
    leave() {},
    result: (object) => print({ event: 'result', ...about, ...object }),
    failed({ code, message, hint }, end = {}) {
      print({ event: 'error', ...about, code, message, hint, ...end, exit: MEANINGS[code].exit })
      process.stderr.write(`error: ${message}\n${hint === null ? '' : `hint: ${hint}\n`}`)
    },
  }
}

function textReport(quiet: boolean, verbose: boolean): HostReport {
  const progress: ProgressReport = createProgress({ quiet })
  const numbered = (lines: readonly string[]) => {
    if (quiet) return
    const width = String(lines.length).length
    for (const [i, line] of lines.entries()) process.stdout.write(`${String(i + 1).padStart(width + 2)}  ${line}\n`)
    if (lines.length === 0) process.stdout.write('nothing to do\n')
  }
  return {
    plan: (steps) => numbered(steps.map(describe)),
    told: (steps) => numbered(steps.map(({ text }) => text)),
    // an update draws its own stages
    step: (step) => void (step.do === 'update' || step.do === 'rollback' || progress.stage(describe(step))),
    stage: (stage) => progress.stage(stage),
    bytes: (done, total) => progress.bytes(done, total),
    note: (line) => void (quiet || progress.note(line)),
    leave: () => progress.end('done'),
    result(object, lines) {
      progress.end('done')
      if (!quiet) process.stdout.write(lines.map((line) => `${line}\n`).join(''))
      if (verbose) process.stderr.write(`${JSON.stringify(object)}\n`)
    },
    failed(error) {
      progress.end('failed')
      process.stderr.write(`error: ${error.message}\n${error.hint === null ? '' : `hint: ${error.hint}\n`}`)
      if (verbose && error.cause instanceof Error) process.stderr.write(`${error.cause.stack ?? error.cause.message}\n`)
    },
  }
}

/** Leaves out the content of a file: a unit's text is long, and the event's `text` says that it is written. */
function publicOf(step: Step): Record<string, unknown> {
  return step.do === 'write-file' ? { do: step.do, path: step.path } : { ...step }
}
