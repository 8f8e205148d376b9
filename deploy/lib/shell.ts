// Runs the programs that this host has: a command is an array of arguments, and no shell reads it.
// Must hold: no error message contains a text of `secrets`; a failed command throws with what it wrote to stderr.

import { spawn } from 'node:child_process'
import { access, constants, stat } from 'node:fs/promises'
import { constants as os } from 'node:os'
import { delimiter, join } from 'node:path'
import { BatonError, EXIT } from '../../agent/words.ts'

export interface CommandResult {
  exitCode: number
  stdout: string
  stderr: string
}

export interface CommandOptions {
  cwd?: string
  /** added to this process's environment; undefined removes a variable */
  env?: Readonly<Record<string, string | undefined>>
  /** written to the command's stdin, which is empty without it */
  input?: string
  timeoutMs?: number
  /** returns the result whatever the exit code */
  allowFailure?: boolean
  /** passes the command's output on as it comes */
  show?: boolean
  /** texts that must not appear in an error message */
  secrets?: readonly string[]
}

const TIMEOUT_MS = 15 * 60_000
const OUTPUT_MAX = 64 * 1024 * 1024
const SAID_MAX = 1024 * 1024
/** what a shell would end with: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_08_02 */
const NOT_STARTED: Readonly<Record<string, [number, string]>> = {
  ENOENT: [127, 'not found'],
  EACCES: [126, 'permission denied'],
}

/** Runs `command` and waits for it. Throws BatonError unexpected if it fails or cannot be started. */
export async function run(command: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const { runBounded } = await import('../../agent/install.ts') // many commands of this kit start no program
  const { cwd, env, input, timeoutMs = TIMEOUT_MS, allowFailure = false, show = false, secrets = [] } = options
  const fails = (how: string) => new BatonError('unexpected', hide(`\`${formatCommand(command)}\` ${how}`, secrets))
  try {
    const ran = await runBounded(command, {
      ...(cwd === undefined ? {} : { cwd }),
      env: { ...process.env, ...env },
      ...(input === undefined ? {} : { input }),
      timeMs: timeoutMs,
      answer: { fd: 1, max: OUTPUT_MAX },
      said: { last: SAID_MAX },
      group: 'shared',
      show,
    })
    if (ran.stopped === 'too much') throw fails(`wrote more than ${OUTPUT_MAX} bytes`)
    if (ran.code !== 0 && !allowFailure) {
      const ended = ran.signal === null ? `ended with ${ran.code}` : `was ended by ${ran.signal}`
      const said = (ran.said.trim() || ran.answer.trim()).split('\n').slice(-5).join(' · ').slice(0, 1000)
      throw fails(`${ended}${said === '' ? '' : `: ${said}`}`)
    }
    return { exitCode: ran.code ?? 1, stdout: ran.answer, stderr: ran.said }
  } catch (cause) {
    const [exitCode, why] = NOT_STARTED[(cause as NodeJS.ErrnoException).code ?? ''] ?? [null, '']
    if (exitCode === null) throw cause
    const stderr = `${command[0]}: ${why}`
    if (!allowFailure) throw fails(`ended with ${exitCode}: ${stderr}`)
    return { exitCode, stdout: '', stderr }
  }
}

/**
 * Runs `command` in this process's place: with its terminal and its environment, for as long as it likes. Passes `signals` on, which a
 * sender who knows only this process means for it. Resolves to its exit code; 128 and more: a signal has ended it, as a shell says it.
 */
export async function runInPlace(
  [file = '', ...args]: readonly string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv; uid?: number; gid?: number; detached?: boolean } = {},
  signals: readonly NodeJS.Signals[] = [],
): Promise<number> {
  const child = spawn(file, args, { ...options, stdio: 'inherit' })
  const pass = (signal: NodeJS.Signals) => void child.kill(signal)
  for (const signal of signals) process.on(signal, pass)
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code, signal) =>
        resolve(signal === null ? (code ?? EXIT.unexpected) : 128 + os.signals[signal]),
      )
    })
  } finally {
    for (const signal of signals) process.off(signal, pass)
  }
}

/** Absolute path of a program on PATH, or null. */
export async function findProgram(name: string): Promise<string | null> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(folder, name)
    const isProgram = await access(path, constants.X_OK)
      .then(() => stat(path))
      .then((found) => found.isFile())
      .catch(() => false)
    if (folder !== '' && isProgram) return path
  }
  return null
}

/** The command as a person would type it: for plans, messages and `--dry-run`. */
export function formatCommand(command: readonly string[]): string {
  return command.map(quoted).join(' ')
}

function quoted(argument: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", String.raw`'\''`)}'`
}

function hide(message: string, secrets: readonly string[]): string {
  return secrets.reduce((text, secret) => (secret === '' ? text : text.replaceAll(secret, '…')), message)
}
