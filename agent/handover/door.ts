// Listening sockets that somebody holds while no process of the service lives: the service manager, or a process that starts
// another one in its place. Connections wait in their queue meanwhile, and nobody is refused. They come back as sd_listen_fds(3)
// says: LISTEN_FDS of them from descriptor 3 on, with their names in LISTEN_FDNAMES, meant for the process LISTEN_PID.

import { execFile, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { keepFromChildren } from './descriptors.ts'
import type { Command } from './child.ts'
import type { Listener } from './listeners.ts'
import { notifySystemd, notifyWith } from './systemd.ts'

const FIRST = 3
const NAME_MAX = 255
/** tells the process that will be, and no other, that the descriptors are meant for it */
const FOR_ITSELF = 'LISTEN_PID=$$; export LISTEN_PID; exec "$0" "$@"'

/** Sockets by the key of their listener, taken out of the environment: neither a child nor a second call finds them. */
export function heldSockets(environment: NodeJS.ProcessEnv = process.env): Map<string, number> {
  const { LISTEN_PID: pid, LISTEN_FDS: count, LISTEN_FDNAMES: names } = environment
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete environment[name]
  const held = new Map<string, number>()
  if (Number(pid) !== process.pid || !/^[0-9]{1,4}$/.test(count ?? '')) return held
  for (let i = 0; i < Number(count); i++) {
    keepFromChildren(FIRST + i)
    const key = keyOfName(names?.split(':')[i] ?? '')
    if (key === null || held.has(key)) closeSync(FIRST + i)
    else held.set(key, FIRST + i)
  }
  return held
}

/** Gives the listening sockets to the manager, which holds them from now on whatever becomes of this process. */
export function storeSockets(listeners: Listener[]): void {
  for (const { key, spare } of listeners) {
    if (spare !== null) notifyWith(['FDSTORE=1', `FDNAME=${nameOf(key)}`], spare)
  }
}

/** A socket that was held for a listener which this release does not have. */
export async function letGo(key: string, fd: number): Promise<void> {
  await notifySystemd(['FDSTOREREMOVE=1', `FDNAME=${nameOf(key)}`])
  closeSync(fd)
}

/**
 * Before a stop: the manager lets go of the sockets, so that nobody waits for a service that was stopped on purpose. Not where
 * it starts it again: then connections wait in the queue until it is back.
 */
export async function shutDoor(listeners: Listener[]): Promise<void> {
  if ((process.env['NOTIFY_SOCKET'] ?? '') === '' || (await isRestarting())) return
  for (const { key } of listeners) await notifySystemd(['FDSTOREREMOVE=1', `FDNAME=${nameOf(key)}`])
}

/** Whether this process is asked to end by `systemctl restart`: the manager's job for its unit says so. */
async function isRestarting(): Promise<boolean> {
  const unit = /([^/]+\.service)\s*$/.exec(await readFile('/proc/self/cgroup', 'utf8').catch(() => ''))?.[1]
  if (unit === undefined) return false
  const scope = process.env['MANAGERPID'] === undefined ? [] : ['--user']
  const jobs = await new Promise<string>((resolve) => {
    execFile('systemctl', [...scope, 'list-jobs', '--plain', '--no-legend'], { timeout: 2000 }, (_error, stdout) =>
      resolve(stdout),
    )
  })
  return jobs.split('\n').some((line) => {
    const [, name, type] = line.trim().split(/\s+/)
    return name === unit && type === 'restart'
  })
}

/** Starts `command` with the sockets of `listeners`, as a manager that holds them would. Resolves to its pid. */
export async function startWith({ file, args }: Command, listeners: Listener[]): Promise<number> {
  const held = listeners.flatMap(({ key, spare }) => (spare === null ? [] : [{ name: nameOf(key), spare }]))
  const child = spawn('/bin/sh', ['-c', FOR_ITSELF, file, ...args], {
    stdio: ['ignore', 'inherit', 'inherit', ...held.map(({ spare }) => spare)],
    env: {
      ...process.env,
      LISTEN_FDS: String(held.length),
      LISTEN_FDNAMES: held.map(({ name }) => name).join(':'),
    },
    detached: true,
  })
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve)
    child.once('error', reject)
  })
  child.unref()
  return child.pid ?? 0
}

/** A name that systemd takes: visible ASCII without `:`, at most 255. */
export function nameOf(key: string): string {
  const name = `baton-${encodeURIComponent(key)}`
  return name.length <= NAME_MAX ? name : name.slice(0, NAME_MAX)
}

function keyOfName(name: string): string | null {
  try {
    return name.startsWith('baton-') ? decodeURIComponent(name.slice('baton-'.length)) : null
  } catch {
    return null
  }
}
