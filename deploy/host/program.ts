// Runs a program that speaks these commands, `--json` behind it: install.sh, or the command of an install.

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { COMMAND } from '../../agent/install.ts'
import { BatonError, durationText, type ErrorCode, EXIT, MEANINGS, parsedJson } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'
import { IRREVERSIBLE_FLAG } from '../lib/flags.ts'
import { onSignals } from '../lib/signals.ts'

export type Line = Record<string, unknown>

export interface EndedProgram {
  /** its result or its error; null: it has said neither */
  last: Line | null
  exit: number
  /** what it has written to stderr, its end */
  said: string
}

export interface ProgramOptions {
  /** for its standard input */
  input?: string | null
  env?: NodeJS.ProcessEnv
  /** it is ended after so long; default: never */
  timeoutMs?: number
  /** passed on to it */
  signals?: readonly NodeJS.Signals[]
}

const STDERR_MAX = 2000
/** how long it may take to end after SIGTERM */
const KILL_MS = 5000

/** Resolves once it has ended, however. `heard`: told its events but the last. Rejects if it cannot be started. */
export async function runProgram(
  [file = '', ...args]: readonly string[],
  heard: (event: Line) => void,
  { input = null, env = process.env, timeoutMs, signals = [] }: ProgramOptions = {},
): Promise<EndedProgram> {
  // run the kit's commands, even if the release keeps them behind the word `baton`
  const child = spawn(file, args, { env: { ...env, [COMMAND]: '1' }, stdio: ['pipe', 'pipe', 'pipe'] })
  child.stdin.on('error', () => {}) // the child may end before it has read its input
  child.stdin.end(input ?? '')
  let [said, last]: [string, Line | null] = ['', null]
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = `${said}${text}`.slice(-STDERR_MAX)))
  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => resolve(code ?? EXIT.unexpected))
  })
  const timers = timeoutMs === undefined ? [] : [setTimeout(() => child.kill(), timeoutMs)]
  if (timeoutMs !== undefined) timers.push(setTimeout(() => child.kill('SIGKILL'), timeoutMs + KILL_MS))
  using _passes = onSignals(signals, (signal) => void child.kill(signal))
  try {
    const lines = createInterface({ input: child.stdout })
    lines.on('line', (line) => {
      const event = recordOf(parsedJson(line))
      if (event['event'] === 'result' || event['event'] === 'error') last = event
      else heard(event)
    })
    return { exit: await ended, last, said: said.trim() }
  } finally {
    for (const timer of timers) clearTimeout(timer)
  }
}

/** The error of a program that has not ended well. */
export function errorOf({ last, exit, said }: EndedProgram): BatonError {
  const known = last?.['code']
  const plainest = Object.entries(MEANINGS).find(([, meaning]) => meaning.exit === exit)?.[0] ?? 'unexpected'
  const name = (typeof known === 'string' && Object.hasOwn(MEANINGS, known) ? known : plainest) as ErrorCode
  const message =
    typeof last?.['message'] === 'string' ? last['message'] : said || `the program exited with code ${exit}`
  const { hint, outcome = null, from = null, to = null, operationId = null } = last ?? {}
  return new BatonError(name, message.replace(/^error: /, ''), {
    ...(typeof hint === 'string' ? { hint } : {}),
    members: { outcome, from, to, operationId } as Record<string, string | null>,
  })
}

/** The flags by which a command is told what was typed behind another one. */
export function flagsFor(typed: {
  healthTimeoutMs: number
  lockTimeoutMs: number
  allowIrreversible: boolean
  dryRun: boolean
}): string[] {
  return [
    '--health-timeout',
    durationText(typed.healthTimeoutMs),
    '--lock-timeout',
    durationText(typed.lockTimeoutMs),
    ...(typed.allowIrreversible ? [`--${IRREVERSIBLE_FLAG}`] : []),
    ...(typed.dryRun ? ['--dry-run'] : []),
  ]
}
