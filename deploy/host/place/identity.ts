// The user of this command, and the user of the service.

import { readFile } from 'node:fs/promises'
import { BatonError } from '../../../agent/words.ts'
import { run } from '../../lib/shell.ts'
import { ownName } from '../../lib/own-name.ts'

export interface Identity {
  uid: number
  gid: number
}

export function isRoot(): boolean {
  return process.geteuid?.() === 0
}

/** Null if there is no such user. */
export async function findId(user: string): Promise<Identity | null> {
  const fields = await entryOf(user)
  if (fields !== undefined) return { uid: Number(fields[2]), gid: Number(fields[3]) }
  if (user === ownName()) return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  try {
    // id(1) also knows users that are not in /etc/passwd, such as LDAP's
    const [uid, gid] = await Promise.all([run(['id', '-u', user]), run(['id', '-g', user])])
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
  } catch {
    return null
  }
}

/** The home directory of a user, as systemd gives it to a service as `HOME`; null if this host names none. */
export async function homeOf(user: string): Promise<string | null> {
  const fields =
    (await entryOf(user)) ?? (await run(['getent', 'passwd', user], { allowFailure: true })).stdout.trim().split(':')
  return fields[5] || null
}

/** The description of a user of this host (GECOS); null: it has no such user. */
export async function descriptionOf(user: string): Promise<string | null> {
  return (await entryOf(user))?.[4] ?? null
}

async function entryOf(user: string): Promise<string[] | undefined> {
  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '')
  return passwd
    .split('\n')
    .map((line) => line.split(':'))
    .find(([name]) => name === user)
}

export async function idOf(user: string): Promise<Identity> {
  const identity = await findId(user)
  if (identity === null) throw new BatonError('refused', `the service runs as ${user}, but this host has no such user`)
  return identity
}
