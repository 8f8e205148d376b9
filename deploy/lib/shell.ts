// The one importer of zx. Commands are arrays of arguments; nothing is ever pasted into a shell line.
// Must hold: no argument is printed that `secrets` names; a failed command throws with what it wrote to stderr.

import { $ as zx, which } from 'zx'
import { BatonError } from '../../agent/errors.ts'

export interface CommandResult {
  exitCode: number
  stdout: string
  stderr: string
}

export interface CommandOptions {
  cwd?: string
  /** added to this process's environment; undefined removes a variable */
  env?: Readonly<Record<string, string | undefined>>
  /** written to the command's stdin, which is empty otherwise */
  input?: string
  timeoutMs?: number
  /** return the result whatever the exit code */
  allowFailure?: boolean
  /** pass the command's output on as it comes */
  show?: boolean
  /** texts that must not appear in an error message */
  secrets?: readonly string[]
}

const TIMEOUT_MS = 15 * 60_000

/** Runs `command` without a shell and waits for it. Throws BatonError unexpected where it fails or cannot be started. */
export async function run(command: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS
  const shell = zx({
    nothrow: true,
    quiet: true,
    timeout: timeoutMs,
    timeoutSignal: 'SIGTERM',
    input: options.input ?? '',
    env: Object.fromEntries(
      Object.entries({ ...process.env, ...options.env }).filter(([, value]) => value !== undefined),
    ),
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  })
  const running = shell`${[...command]}`
  if (options.show) {
    running.stdout.pipe(process.stdout, { end: false })
    running.stderr.pipe(process.stderr, { end: false })
  }
  const { exitCode, signal, stdout, stderr } = await running
  if (exitCode !== 0 && options.allowFailure !== true) {
    const ended = signal !== null ? `was ended by ${signal}` : `ended with ${exitCode ?? 'no exit code'}`
    const said = stderr.trim().split('\n').slice(-5).join(' · ').slice(0, 1000)
    const message = `\`${formatCommand(command)}\` ${ended}${said === '' ? '' : `: ${said}`}`
    throw new BatonError('unexpected', hide(message, options.secrets ?? []))
  }
  return { exitCode: exitCode ?? 1, stdout, stderr }
}

/** Absolute path of a program on PATH, or null. */
export async function findProgram(name: string): Promise<string | null> {
  return await which(name, { nothrow: true })
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
