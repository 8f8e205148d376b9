// How root becomes the service's user, in a process of its own and for good. Must hold: that process has no way back: real,
// effective, saved and file-system ids, no groups, no capabilities, no new privileges by what it runs, and no terminal.

import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import { BatonError } from '../../../agent/words.ts'
import { openLibc } from '../../../agent/install.ts'
import type { Identity } from '../place/identity.ts'

export type Dropped = ChildProcessByStdio<Writable, Readable, Readable>

/** the hidden word of the command tree that is the other side */
export const WORKER = 'as-service'
/** descriptor of the feed's folder in the worker, where root has opened it */
export const FEED_FD = 3

/**
 * Starts `file` as `identity`. libuv clears the groups, then sets the gid and the uid of the child, each for good; the child
 * itself gives up what else there is (`stayDropped`) before it does anything.
 */
export function spawnDropped(
  [file, ...args]: readonly [string, ...string[]],
  { uid, gid }: Identity,
  environment: Record<string, string>,
  feedFd: number | null,
): Dropped {
  return spawn(file, args, {
    uid,
    gid,
    cwd: '/',
    env: environment,
    detached: true, // a session without root's terminal: nothing can be typed into it from there (TIOCSTI)
    stdio: ['pipe', 'pipe', 'pipe', ...(feedFd === null ? [] : [feedFd])],
  }) as Dropped
}

const PR_SET_NO_NEW_PRIVS = 38

/** In the child, first of all: gives up the last privilege and makes sure that nothing of root is left. Throws refused. */
export function stayDropped(): void {
  if (process.platform !== 'linux') {
    if (process.getuid?.() === 0 || process.geteuid?.() === 0) throw stillRoot('uid 0')
    return
  }
  const { prctl } = openLibc({ prctl: { arguments: ['i32', 'u64', 'u64', 'u64', 'u64'], return: 'i32' } })
  prctl?.(PR_SET_NO_NEW_PRIVS, 1n, 0n, 0n, 0n)
  // the main thread is the one that starts processes, and threads made from here on are as it is
  const left = remnantsOf(readFileSync('/proc/thread-self/status', 'utf8'))
  if (left !== null) throw stillRoot(left)
}

/** Pure: what of root is left in a `/proc/…/status`, or null. */
export function remnantsOf(status: string): string | null {
  const field = (name: string) => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.trim() ?? ''
  for (const name of ['Uid', 'Gid']) {
    const ids = new Set(field(name).split(/\s+/))
    if (ids.size !== 1 || (name === 'Uid' && ids.has('0'))) return `${name} ${field(name)}`
  }
  const gid = field('Gid').split(/\s+/)[0]
  const groups = field('Groups')
    .split(/\s+/)
    .filter((one) => one !== '' && one !== gid)
  if (groups.length > 0) return `Groups ${groups.join(' ')}`
  for (const name of ['CapPrm', 'CapEff', 'CapAmb']) if (!/^0+$/.test(field(name))) return `${name} ${field(name)}`
  return field('NoNewPrivs') === '1' ? null : `NoNewPrivs ${field('NoNewPrivs')}`
}

function stillRoot(what: string): BatonError {
  return new BatonError('refused', `expected a process that has given root's rights up, found ${what}`)
}
