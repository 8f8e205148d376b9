// Root starts a separate process that becomes the service's user for good.
// Must hold: that process has no way back. All its ids (real, effective, saved, file-system) are that user's. It has no groups, no
// capabilities, no new privileges by what it runs, and no terminal.

import { spawn, type ChildProcessByStdio, type SpawnOptions } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import { BatonError } from '../../../agent/words.ts'
import { callLibc } from '../../../agent/install.ts'
import type { Identity } from '../place/identity.ts'

export type Dropped = ChildProcessByStdio<Writable, Readable, Readable>

/** the hidden command that runs the worker */
export const WORKER = 'as-service'
/** its argument if a unit has set the groups: they are the user's own */
export const IN_UNIT = 'in-unit'
/** descriptor of the feed's folder in the worker, if root has opened it */
export const FEED_FD = 3

/** The process that acts on the service's files. */
export interface Worker {
  child: Dropped
  /** sends the signal to the process only, not to what it has started; throws if that fails */
  signal(signal: NodeJS.Signals): Promise<void>
  /** kills it and what it has started; it cannot refuse */
  end(): Promise<void>
  /** kills what it has started, once it has ended by itself */
  endRest(): Promise<void>
}

/**
 * Starts `program` as the user `uid`, `gid`, in its own process group: without systemd there is no sandbox for it. libuv clears
 * the child's groups, then sets its gid and its uid, each for good. The child gives up the rest itself (`stayDropped`) before it
 * does anything else.
 */
export function startDropped(
  program: readonly string[],
  { uid, gid }: Identity,
  environment: Record<string, string>,
  feedFd: number | null,
): Worker {
  const child = spawnWatched(program, { uid, gid, env: environment }, feedFd === null ? [] : [feedFd])
  // with the rights of that user: if the number has been reused, no other user's process is killed
  const end = async () => {
    if (child.pid !== undefined) await sayAs({ uid, gid }, 'kill -9 "$1"', String(-child.pid))
  }
  return { child, signal: async (signal) => void child.kill(signal), end, endRest: end }
}

/** Removes a user's empty directory below a parent that is not root's. A sandboxed worker cannot: the directory is mounted there. */
export async function removeEmptyAs(identity: Identity, path: string): Promise<void> {
  await sayAs(identity, 'rmdir "$1"', path)
}

/** Runs one shell command as that user, and ignores how it ends. */
async function sayAs({ uid, gid }: Identity, text: string, parameter: string): Promise<void> {
  await new Promise<void>((resolve) => {
    const words = ['-c', `PATH=/usr/bin:/bin; ${text}`, 'sh', parameter]
    const shell = spawn('/bin/sh', words, { uid, gid, cwd: '/', env: {}, detached: true, stdio: 'ignore' })
    shell.once('error', () => resolve()).once('exit', () => resolve())
  })
}

/** Starts a new session without root's terminal: the child cannot type into it (TIOCSTI), and root passes Ctrl-C on itself. */
export function spawnWatched(
  [file = '', ...args]: readonly string[],
  options: Pick<SpawnOptions, 'uid' | 'gid' | 'env'>,
  more: readonly number[] = [],
): Dropped {
  return spawn(file, args, {
    ...options,
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', ...more],
  }) as Dropped
}

const PR_SET_NO_NEW_PRIVS = 38

/** The child's first call: gives up the last privilege and checks that nothing of root is left. Throws refused. */
export function stayDropped(inUnit: boolean): void {
  if (process.platform !== 'linux') {
    if (process.getuid?.() === 0 || process.geteuid?.() === 0) throw stillRoot('uid 0')
    return
  }
  callLibc('prctl', PR_SET_NO_NEW_PRIVS, 1n, 0n, 0n, 0n)
  // the main thread starts the processes, and later threads inherit its state
  const left = remnantsOf(readFileSync('/proc/thread-self/status', 'utf8'), inUnit)
  if (left !== null) throw stillRoot(left)
}

/** Pure: what a `/proc/…/status` still has of root, or null. `inUnit`: systemd has set the groups, to those of the user. */
export function remnantsOf(status: string, inUnit: boolean): string | null {
  const field = (name: string) => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.trim() ?? ''
  for (const name of ['Uid', 'Gid']) {
    const ids = new Set(field(name).split(/\s+/))
    if (ids.size !== 1 || (name === 'Uid' && ids.has('0'))) return `${name} ${field(name)}`
  }
  const gid = field('Gid').split(/\s+/)[0]
  const groups = field('Groups')
    .split(/\s+/)
    .filter((one) => one !== '' && one !== gid)
  if (groups.length > 0 && !inUnit) return `Groups ${groups.join(' ')}`
  for (const name of ['CapPrm', 'CapEff', 'CapAmb']) if (!/^0+$/.test(field(name))) return `${name} ${field(name)}`
  return field('NoNewPrivs') === '1' ? null : `NoNewPrivs ${field('NoNewPrivs')}`
}

function stillRoot(what: string): BatonError {
  return new BatonError('refused', `root privileges were not dropped completely: ${what}`)
}
