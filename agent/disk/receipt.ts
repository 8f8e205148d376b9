// The receipt makes an executable a managed install. The installer writes it, the agent reads it. It holds the operator's choices
// and no secret, and counts only if it names the executable that asks.
// For the whole host the receipt is root's, in a folder that only root can change. For one user it lies beside the executable.
// The installed version is no choice: it is in the state directory (`installed.ts`).

import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { dirname, isAbsolute } from 'node:path'
import { BatonError, codeOf, reasonOf } from '../words/errors.ts'
import type { Disk } from './disk.ts'
import { receiptPath, systemReceiptPath } from './places.ts'

export interface Receipt {
  format: 1
  service: string
  /** absolute path of the executable */
  executable: string
  scope: 'system' | 'user'
  supervisor: 'systemd' | 'systemd-user' | 'none'
  /** name of the user that the service runs as */
  user: string
  stateDirectory: string
  configPath: string
  feed: string
  /** absolute path of the Node that runs it, if the executable is a script */
  node?: string
  /** ISO 8601, UTC */
  installedAt: string
  /** the operator's choices, so that a re-run with fewer flags changes nothing */
  options: Record<string, string | boolean>
}

const RECEIPT_MAX_BYTES = 64 * 1024

/**
 * The receipt for `executable`: root's if it names this executable, else the one beside it. Anyone who can write beside the
 * executable could have written that one, so it counts for that user's own service only. Null if there is none. Throws refused
 * if it does not count.
 */
export async function receiptFor(service: string, executable: string): Promise<Receipt | null> {
  const system = await readSystemReceipt(service)
  if (system !== null && (await isNamedBy(system, executable))) return system
  const beside = await readReceiptBeside(executable)
  if (beside === null) return null
  const path = receiptPath(executable)
  if (beside.scope === 'system') {
    throw new BatonError('refused', `${path} describes a system-wide install, but only root can set one up`, {
      hint: 'run `install.sh` once as root',
    })
  }
  const [{ uid }, own] = [lstatSync(path), process.getuid?.()]
  if (own === undefined || uid === own) return beside
  throw new BatonError('refused', `${path} belongs to user id ${uid}, but this process runs as user id ${own}`)
}

/** Root's receipt for a service of the whole host, or null. Throws refused if another user can change it. */
export async function readSystemReceipt(service: string): Promise<Receipt | null> {
  const path = systemReceiptPath(service)
  const receipt = await readAt(path)
  if (receipt === null) return null
  for (const part of [dirname(path), path]) {
    const { uid, mode } = lstatSync(part)
    if (uid === 0 && (mode & 0o022) === 0) continue
    throw new BatonError(
      'refused',
      `expected ${part} to be owned by root and writable by root alone, got user id ${uid}, mode ${(mode & 0o777).toString(8)}`,
    )
  }
  return receipt
}

/**
 * The receipt beside `executable`, or null if there is none. Throws BatonError refused if it cannot be parsed. Anyone who can
 * write there could have written it: root must not trust it, unless root made that directory.
 */
export async function readReceiptBeside(executable: string): Promise<Receipt | null> {
  return await readAt(receiptPath(executable))
}

async function readAt(path: string): Promise<Receipt | null> {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error))) return null
    throw new BatonError('refused', `reading ${path}: ${reasonOf(error)}`, { cause: error })
  }
  return parseReceipt(text, path)
}

/** Writes the receipt to the path that its scope demands. */
export async function writeReceipt(disk: Disk, receipt: Receipt): Promise<void> {
  const path = receipt.scope === 'system' ? systemReceiptPath(receipt.service) : receiptPath(receipt.executable)
  await disk.writeWhole(path, `${JSON.stringify(receipt, null, 2)}\n`, 0o644)
}

/** Whether the receipt names this executable, links resolved. */
export async function isNamedBy(receipt: Receipt, executable: string): Promise<boolean> {
  if (receipt.executable === executable) return true
  const [named, own] = await Promise.all([resolved(receipt.executable), resolved(executable)])
  return named !== null && named === own
}

export function parseReceipt(text: string, path: string): Receipt {
  const bad = (what: string) =>
    new BatonError('refused', `${path} cannot be used: ${what}`, {
      hint: 'run `install.sh` again to write a new one',
    })
  if (text.length > RECEIPT_MAX_BYTES) throw bad(`expected at most ${RECEIPT_MAX_BYTES} bytes, got ${text.length}`)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw bad(reasonOf(error))
  }
  if (typeof value !== 'object' || value === null) throw bad('expected an object')
  const record = value as Record<string, unknown>
  if (record['format'] !== 1) throw bad(`expected format 1, got ${JSON.stringify(record['format'])}`)
  for (const key of ['service', 'executable', 'user', 'stateDirectory', 'configPath', 'feed', 'installedAt']) {
    if (typeof record[key] !== 'string') throw bad(`expected a string in \`${key}\``)
  }
  const { node = '/' } = record
  if (typeof node !== 'string' || !isAbsolute(node)) throw bad('expected an absolute path in `node`')
  if (!isAbsolute(String(record['executable']))) throw bad('expected an absolute path in `executable`')
  if (record['scope'] !== 'system' && record['scope'] !== 'user') throw bad('expected system or user in `scope`')
  if (!['systemd', 'systemd-user', 'none'].includes(String(record['supervisor']))) {
    throw bad('expected systemd, systemd-user or none in `supervisor`')
  }
  if (typeof record['options'] !== 'object' || record['options'] === null) throw bad('expected an object in `options`')
  return value as Receipt
}

async function resolved(path: string): Promise<string | null> {
  try {
    return realpathSync.native(path)
  } catch {
    return null
  }
}
