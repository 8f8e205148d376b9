// Allows one deployment of a container at a time. The lock is the agent's own (agent/disk/lock.ts): the kernel frees it with its
// process, and a note beside it names that process.
// Must hold: nobody but the user of this command can hold the lock, or write what a deployment that is kept out says about it.

import { createHash } from 'node:crypto'
import { chmod, lstat, mkdir } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { makeDisk, takeLock } from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { assertTrusted } from '../lib/trusted.ts'

const OTHERS_WRITE = 0o022
const HINT = 'remove the folder, or allow only its owner to write to it'

/** Held until disposed of. Throws BatonError locked, and refused if anybody else can write in `place`. */
export async function lockContainer(
  socketPath: string,
  name: string,
  place = lockPlace(process.geteuid?.() ?? 0, process.env),
): Promise<AsyncDisposable> {
  await makeOwn(place)
  const hash = createHash('sha256').update(`${socketPath}\0${name}`).digest('hex').slice(0, 32)
  try {
    return await takeLock(makeDisk(), join(place, `container-${hash}`), 'deploy-container.sh')
  } catch (cause) {
    if (!(cause instanceof BatonError && cause.code === 'locked')) throw cause
    const { heldByPid: pid, heldSince: since } = cause.members
    const holder =
      pid === undefined ? '(started by an unknown process)' : `(pid ${String(pid)}, since ${String(since)})`
    throw new BatonError('locked', `another deployment of \`${name}\` is in progress ${holder}`, {
      cause,
      hint: 'wait for it to finish; `--status` shows its progress',
    })
  }
}

/** The folder of all locks of a user. Pure, but for the home of a user without a folder in `/run`. */
export function lockPlace(uid: number, environment: Readonly<NodeJS.ProcessEnv>): string {
  if (uid === 0) return '/var/run/baton' // on Linux this is /run; a Mac has only this name
  return join(environment['XDG_RUNTIME_DIR'] || join(homedir(), '.cache'), 'baton')
}

async function makeOwn(place: string): Promise<void> {
  try {
    // a service reads other files of root's there, whatever the umask of this command
    if ((await mkdir(place, { recursive: true })) !== undefined) await chmod(place, 0o755)
  } catch (cause) {
    throw new BatonError('refused', `creating the lock folder ${place}: ${reasonOf(cause)}`, { cause })
  }
  const uid = process.geteuid?.() ?? 0
  if (uid === 0) return await assertTrusted(place, 'the lock folder', HINT)
  const found = await lstat(place)
  if (found.isDirectory() && found.uid === uid && (found.mode & OTHERS_WRITE) === 0) return
  const message = `the lock folder must be in a directory that only user id ${uid} can write to, got ${place}`
  throw new BatonError('refused', message, { hint: HINT })
}
