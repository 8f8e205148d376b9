// How root becomes the service's user, in a process of its own and for good. Must hold: that process has no way back: real,
// effective, saved and file-system ids, no groups, no capabilities, no new privileges by what it runs, and no terminal.

import { spawn, type ChildProcessByStdio, type SpawnOptions } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import { BatonError } from '../../../agent/words.ts'
import { callLibc } from '../../../agent/install.ts'
import type { Identity } from '../place/identity.ts'

export type Dropped = ChildProcessByStdio<Writable, Readable, Readable>

/** the hidden word of the command tree that is the other side */
export const WORKER = 'as-service'
/** and its word where a unit has set the groups: they are the user's own */
export const IN_UNIT = 'in-unit'
/** descriptor of the feed's folder in the worker, where root has opened it */
export const FEED_FD = 3

/** The process at the other end. */
export interface Worker {
  child: Dropped
  /** to the process itself */
  signal(signal: NodeJS.Signals): Promise<void>
  /** ends it and what it has started, which it need not agree to */
  end(): Promise<void>
  /** ends what it has started, once it has ended by itself */
  endRest(): Promise<void>
}

/**
 * Starts `file` as `identity`, in a process group of its own: without systemd there is no sandbox for it. libuv clears the groups, then
 * sets the gid and the uid of the child, each for good; the child itself gives up what else there is (`stayDropped`) before it
 * does anything.
 */
export function startDropped(
  program: readonly string[],
  { uid, gid }: Identity,
  environment: Record<string, string>,
  feedFd: number | null,
): Worker {
  const child = spawnWatched(program, { uid, gid, env: environment }, feedFd === null ? [] : [feedFd])
  // with the rights of that user: whatever has the number by now, nobody else's is ended
  const end = async () => {
    if (child.pid !== undefined) await sayAs({ uid, gid }, 'kill -9 "$1"', String(-child.pid))
  }
  return { child, signal: async (signal) => void child.kill(signal), end, endRest: end }
}

/** An empty directory that is that user's, in a place that is not root's: a process in the sandbox has it mounted. */
export async function removeEmptyAs(identity: Identity, path: string): Promise<void> {
  await sayAs(identity, 'rmdir "$1"', path)
}

/** One word of the shell's, whatever comes of it. */
async function sayAs({ uid, gid }: Identity, text: string, parameter: string): Promise<void> {
  await new Promise<void>((resolve) => {
    const words = ['-c', `PATH=/usr/bin:/bin; ${text}`, 'sh', parameter]
    const shell = spawn('/bin/sh', words, { uid, gid, cwd: '/', env: {}, detached: true, stdio: 'ignore' })
    shell.once('error', () => resolve()).once('exit', () => resolve())
  })
}

/** In a session without root's terminal: nothing can be typed into it from there (TIOCSTI), and its Ctrl-C is ours to pass on. */
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

/** In the child, first of all: gives up the last privilege and makes sure that nothing of root is left. Throws refused. */
export function stayDropped(inUnit: boolean): void {
  if (process.platform !== 'linux') {
    if (process.getuid?.() === 0 || process.geteuid?.() === 0) throw stillRoot('uid 0')
    return
  }
  callLibc('prctl', PR_SET_NO_NEW_PRIVS, 1n, 0n, 0n, 0n)
  // the main thread is the one that starts processes, and threads made from here on are as it is
  const left = remnantsOf(readFileSync('/proc/thread-self/status', 'utf8'), inUnit)
  if (left !== null) throw stillRoot(left)
}

/** Pure: what of root is left in a `/proc/…/status`, or null. `inUnit`: systemd has set the groups, to those of the user. */
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
  return new BatonError('refused', `expected a process that has given root's rights up, found ${what}`)
}
