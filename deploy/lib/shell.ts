// The one importer of zx: only of its core, because the rest adds 360 kB of YAML, globs and prompts to every executable.
// A command is an array of arguments. They are quoted here for `sh`, which every host has; zx's own quoting is bash's.
// Must hold: a failed command throws with what it wrote to stderr.

import { spawn } from 'node:child_process'
import { constants as os } from 'node:os'
import { BatonError, EXIT } from '../../agent/words.ts'
import { onSignals } from './signals.ts'

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
}

const TIMEOUT_MS = 15 * 60_000
/** how long a command may take to end after SIGTERM */
const KILL_MS = 5000
/** how many lines of a command that has failed are told */
const SAID_LINES = 5

/** Runs `command` and waits for it. Throws BatonError unexpected if it fails or cannot be started. */
export async function run(command: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const { $: zx } = await import('zx/core') // 10 ms of a command's start, and many start no program
  // a ZX_ variable of the environment could set each option that is not set here
  const shell = zx({
    shell: '/bin/sh',
    // the program takes the shell's place, so that a signal reaches it
    prefix: 'exec ',
    postfix: '',
    quote: quoted,
    cwd: options.cwd ?? process.cwd(),
    env: Object.fromEntries(
      Object.entries({ ...process.env, ...options.env }).filter(([, value]) => value !== undefined),
    ),
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    ...(options.input === undefined ? {} : { input: options.input }),
    timeout: options.timeoutMs ?? TIMEOUT_MS,
    timeoutSignal: 'SIGTERM',
    killSignal: 'SIGTERM',
    // zx's own kill looks for child processes with ps(1), which a small host may not have
    kill: async (_pid, signal) => {
      running.child?.kill(signal)
      setTimeout(() => running.child?.kill('SIGKILL'), KILL_MS).unref()
    },
    nothrow: true,
    quiet: true,
    verbose: false,
    detached: false,
    preferLocal: false,
  })
  const running = shell`${[...command]}`
  const { exitCode, signal, stdout, stderr } = await running
  if (exitCode !== 0 && options.allowFailure !== true) {
    const code = exitCode === null || exitCode < 0 ? 'could not be started' : `failed with exit code ${exitCode}`
    const ended = signal === null ? code : `was killed by ${signal}`
    const said = saidIn(stderr.trim() || stdout.trim())
    throw new BatonError('unexpected', `\`${formatCommand(command)}\` ${ended}${said === '' ? '' : `: ${said}`}`)
  }
  return { exitCode: exitCode ?? 1, stdout, stderr }
}

/** The last lines; or those from an error on, as a command of this kit prints it: its first line says what happened. */
function saidIn(text: string): string {
  const lines = text.split('\n')
  const from = lines.findLastIndex((line) => line.startsWith('error: '))
  return (from === -1 ? lines.slice(-SAID_LINES) : lines.slice(from, from + SAID_LINES)).join(' · ').slice(0, 1000)
}

/**
 * Runs `command` in this process's place: with its terminal and its environment, for as long as it likes. Passes `signals` on, which a
 * sender who knows only this process means for it; `passTo`: how, if they are for another process than this child. Resolves to its exit
 * code; 128 and more: a signal has ended it, as a shell says it.
 */
export async function runInPlace(
  [file = '', ...args]: readonly string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv; uid?: number; gid?: number; detached?: boolean } = {},
  signals: readonly NodeJS.Signals[] = [],
  passTo?: (signal: NodeJS.Signals) => void,
): Promise<number> {
  const child = spawn(file, args, { ...options, stdio: 'inherit' })
  // Ctrl-C at a terminal reaches both processes
  const isTyped = (signal: NodeJS.Signals) => signal === 'SIGINT' && process.stdin.isTTY
  using _passes = onSignals(signals, passTo ?? ((signal) => void (isTyped(signal) || child.kill(signal))))
  return await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code, signal) =>
      resolve(signal === null ? (code ?? EXIT.unexpected) : 128 + os.signals[signal]),
    )
  })
}

export async function findProgram(name: string): Promise<string | null> {
  const { which } = await import('zx/core')
  return await which(name, { nothrow: true })
}

/** The command as a person would type it: for plans, messages and `--dry-run`. */
export function formatCommand(command: readonly string[]): string {
  return command.map(quoted).join(' ')
}

function quoted(argument: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", String.raw`'\''`)}'`
}
