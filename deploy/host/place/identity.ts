// Users: who runs this, who runs the service, and how root does something as somebody else.
// Must never break: what root makes in the service user's directories ends up theirs, and no link that they planted there
// leads root elsewhere.

import { readFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { BatonError } from '../../../agent/words.ts'
import { run } from '../../lib/shell.ts'

export interface Identity {
  uid: number
  gid: number
}

export function isRoot(): boolean {
  return process.geteuid?.() === 0
}

export function ownName(): string {
  try {
    return userInfo().username
  } catch {
    return String(process.getuid?.() ?? '') // a uid without a name, as in some containers
  }
}

/** Null where there is no such user. */
export async function findId(user: string): Promise<Identity | null> {
  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '')
  const fields = passwd
    .split('\n')
    .map((line) => line.split(':'))
    .find(([name]) => name === user)
  if (fields !== undefined) return { uid: Number(fields[2]), gid: Number(fields[3]) }
  if (user === ownName()) return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  try {
    // directories beyond /etc/passwd
    const [uid, gid] = await Promise.all([run(['id', '-u', user]), run(['id', '-g', user])])
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
  } catch {
    return null
  }
}

export async function idOf(user: string): Promise<Identity> {
  const identity = await findId(user)
  if (identity === null) throw new BatonError('refused', `expected a user ${user} on this host, found none`)
  return identity
}

/** As root: does `work` with the rights of `user`, and takes root's back. As anybody else: just does it. */
export async function asUser<T>(user: string | Identity, work: () => Promise<T>): Promise<T> {
  const { getgroups, getegid, setgroups, setegid, seteuid } = process
  if (!isRoot() || !getgroups || !getegid || !setgroups || !setegid || !seteuid) return await work()
  const { uid, gid } = typeof user === 'string' ? await idOf(user) : user
  if (uid === 0) return await work()
  const before = { groups: getgroups(), gid: getegid() }
  setgroups([gid])
  setegid(gid)
  seteuid(uid)
  try {
    return await work()
  } finally {
    becomeRootAgain(before)
  }
}

/** Within `asUser`: what only root may do, such as asking systemd. */
export async function asRoot<T>(work: () => Promise<T>): Promise<T> {
  const { getgroups, getegid, geteuid, setegid, setgroups, seteuid } = process
  if (process.getuid?.() !== 0 || isRoot()) return await work()
  if (!getgroups || !getegid || !geteuid || !setegid || !setgroups || !seteuid) return await work()
  const before = { groups: getgroups(), gid: getegid(), uid: geteuid() }
  becomeRootAgain({ groups: [0], gid: 0 })
  try {
    return await work()
  } finally {
    setgroups(before.groups)
    setegid(before.gid)
    seteuid(before.uid)
  }
}

function becomeRootAgain({ groups, gid }: { groups: number[]; gid: number }): void {
  process.seteuid?.(0)
  process.setegid?.(gid)
  process.setgroups?.(groups)
}
