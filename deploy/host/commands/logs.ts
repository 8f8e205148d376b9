// `logs`: what the service has written, from where its supervisor keeps it: the journal, or the log beside the state.
// Must hold: the file is the service's own, so root reads it as the service's user; what is in it moves no cursor of a terminal.

import { createInterface } from 'node:readline'
import type { Receipt } from '../../../agent/install.ts'
import { BatonError, EXIT, reasonOf } from '../../../agent/words.ts'
import { usage } from '../../lib/flags.ts'
import { printLine } from '../../lib/printer.ts'
import { BASE_ENVIRONMENT } from '../../lib/passed.ts'
import { formatCommand } from '../../lib/shell.ts'
import { END_SIGNALS, onSignals } from '../../lib/signals.ts'
import { spawnWatched } from '../boundary/drop.ts'
import { isCrossing } from '../boundary/open.ts'
import { idOf, isRoot } from '../place/identity.ts'
import { runFilesOf } from '../supervisor/run-files.ts'
import { type Context, locate } from './context.ts'

/** `lines`: how many of the last ones, as it was typed. */
export async function logs(context: Context, follow: boolean, lines: string): Promise<number> {
  if (!/^\d{1,6}$/.test(lines)) throw usage(`expected a number for --lines, got ${JSON.stringify(lines.slice(0, 40))}`)
  const { receipt } = await locate(context)
  const command = logProgram(receipt, follow, lines)
  const identity = (await isCrossing(receipt)) && receipt.supervisor === 'none' ? await idOf(receipt.user) : {}
  // that user could read root's environment in /proc
  const child = spawnWatched(command, { ...identity, env: isRoot() ? BASE_ENVIRONMENT : process.env })
  child.stdin.on('error', () => {}) // it may have ended before
  child.stdin.end()
  let isAsked = false
  const end = () => {
    isAsked = true
    child.kill()
  }
  using _ends = onSignals(END_SIGNALS, end)
  process.stdout.on('error', end) // the reader has gone, as `head` does
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  try {
    createInterface({ input: child.stdout }).on('line', (line) => isAsked || printLine(line))
    createInterface({ input: child.stderr }).on('line', (line) => printLine(line, process.stderr))
    const code = await ended
    if (code === 0 || isAsked) return EXIT.done
    throw new BatonError(
      'refused',
      `\`${formatCommand(command)}\` ${code === null ? 'was killed by a signal' : `failed with exit code ${code}`}`,
    )
  } catch (cause) {
    if (cause instanceof BatonError) throw cause
    throw new BatonError('unsupported_host', `starting \`${formatCommand(command)}\`: ${reasonOf(cause)}`, { cause })
  }
}

/** Pure: the program that reads the log. */
export function logProgram(receipt: Receipt, follow: boolean, lines: string): string[] {
  const { service, supervisor } = receipt
  // the log is exchanged when it is large
  if (supervisor === 'none') return ['tail', '-n', lines, ...(follow ? ['-F'] : []), runFilesOf(receipt).log]
  const manager = supervisor === 'systemd-user' ? ['--user'] : []
  const unit = ['--unit', `${service}.service`, '--no-pager', '--lines', lines]
  return ['journalctl', ...manager, ...unit, ...(follow ? ['--follow'] : [])]
}
