// Starts a process of the service and passes it held sockets, as a service manager would.

import { spawn } from 'node:child_process'
import { environmentAtStart } from './environment.ts'
import type { Listener } from './listeners.ts'
import { storedNameOf } from './stored-names.ts'

/** A listening socket that is held for the next process. */
export interface HeldSocket {
  name: string
  fd: number
}

export function spares(listeners: readonly Listener[]): HeldSocket[] {
  return listeners.flatMap(({ key, spare }) => (spare === null ? [] : [{ name: storedNameOf(key), fd: spare }]))
}

/** The command that starts a process of the service. */
export interface Command {
  file: string
  args: string[]
  /** default: this process's working directory */
  cwd?: string
}

/** sets LISTEN_PID to the new process's own pid: the descriptors are for that process alone */
const FOR_ITSELF = 'LISTEN_PID=$$; export LISTEN_PID; exec "$0" "$@"'

type Ended = (code: number | null, signal: NodeJS.Signals | null) => void

/**
 * `output`: descriptor of its log; `env`: wins over this process's own; `ended`: called with how it ends, if this process lives then.
 * Resolves to its pid.
 */
export async function startWith(
  { file, args, cwd }: Command,
  held: readonly HeldSocket[],
  { output, env, ended }: { output?: number; env?: NodeJS.ProcessEnv; ended?: Ended } = {},
): Promise<number> {
  const said = output ?? 'inherit'
  const child = spawn('/bin/sh', ['-c', FOR_ITSELF, file, ...args], {
    ...(cwd === undefined ? {} : { cwd }),
    stdio: ['ignore', said, said, ...held.map(({ fd }) => fd)],
    env: {
      ...environmentAtStart(),
      ...env,
      LISTEN_FDS: String(held.length),
      LISTEN_FDNAMES: held.map(({ name }) => name).join(':'),
    },
    detached: true,
  })
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve)
    child.once('error', reject)
  })
  if (ended !== undefined) child.once('exit', ended)
  child.unref()
  return child.pid ?? 0
}
