// Names the process of another user that has a database open. The service's user cannot look into such a process; root can.
// Must hold: root only reads /proc. What it prints of a process, which chooses its own words, is of one line and bounded.

import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { ANOTHER_USERS, plainOf } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { readProc } from '../../lib/proc.ts'

const COMMAND_MAX = 160
/** in the messages of the two that refuse to exchange an open database: the holder, and a command that does it itself */
const OPEN = /\bha(?:s|ve) (\/.+?) open\b/

/** The same error; if it tells of a process that the service's user could not name, root's own command names it. */
export async function withOpener(error: BatonError): Promise<BatonError> {
  const path = OPEN.exec(error.message)?.[1]
  if (path === undefined || !error.message.includes(ANOTHER_USERS) || process.getuid?.() !== 0) return error
  const opener = await openerOf(path)
  if (opener === null) return error
  const message = error.message.replace(ANOTHER_USERS, () => opener)
  return new BatonError(error.code, message, {
    ...(error.hint === null ? {} : { hint: error.hint }),
    members: error.members,
    cause: error,
  })
}

/** `python3 replicate.py (pid 812, user backup)`; null: none has it open, or it has ended. */
async function openerOf(path: string): Promise<string | null> {
  const own = String(process.pid)
  for (const pid of (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name) && name !== own)) {
    if (!(await hasOpen(pid, path))) continue
    const words = (await readProc(`/proc/${pid}/cmdline`)).replaceAll('\0', ' ').trim()
    const name = words === '' ? (await readProc(`/proc/${pid}/comm`)).trim() : words
    const { uid } = await stat(`/proc/${pid}`).catch(() => ({ uid: null }))
    const user = uid === null ? '' : `, user ${await userOf(uid)}`
    return `${plainOf(name).slice(0, COMMAND_MAX) || 'a process'} (pid ${pid}${user})`
  }
  return null
}

async function hasOpen(pid: string, path: string): Promise<boolean> {
  const names = await readdir(`/proc/${pid}/fd`).catch(() => [])
  for (const name of names) if ((await readlink(`/proc/${pid}/fd/${name}`).catch(() => '')) === path) return true
  return false
}

async function userOf(uid: number): Promise<string> {
  const lines = (await readFile('/etc/passwd', 'utf8').catch(() => '')).split('\n')
  return lines.map((line) => line.split(':')).find(([, , id]) => id === String(uid))?.[0] ?? String(uid)
}
