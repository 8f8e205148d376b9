// The receipt: the file beside an executable that makes it a managed install. Written by the installer, read by the agent.
// It holds no secret. It counts only where it names the very executable that it stands beside.

import { readFile, realpath } from 'node:fs/promises'
import { dirname, isAbsolute, join } from 'node:path'
import { BatonError, reasonOf } from './errors.ts'
import { isTag } from './release.ts'
import type { Disk } from './disk.ts'

export interface Receipt {
  format: 1
  service: string
  /** absolute path of the executable */
  executable: string
  /** tag that was put in place last */
  tag: string
  /** of the executable put in place last, hex */
  sha256: string
  scope: 'system' | 'user'
  supervisor: 'systemd' | 'systemd-user' | 'none'
  /** name of the user that runs the service */
  user: string
  stateDirectory: string
  configPath: string
  feed: string
  /** ISO 8601, UTC */
  installedAt: string
  /** what the operator chose, so that a re-run with fewer flags changes nothing */
  options: Record<string, string | boolean>
}

const RECEIPT_MAX_BYTES = 64 * 1024

export function receiptPath(executable: string): string {
  return join(dirname(executable), 'receipt.json')
}

/** The receipt beside `executable`, or null where there is none. Throws BatonError refused where it cannot be understood. */
export async function readReceipt(executable: string): Promise<Receipt | null> {
  const path = receiptPath(executable)
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) return null
    throw new BatonError('refused', `reading the receipt ${path}: ${reasonOf(error)}`, { cause: error })
  }
  return parseReceipt(text, path)
}

export async function writeReceipt(disk: Disk, receipt: Receipt): Promise<void> {
  await disk.writeWhole(receiptPath(receipt.executable), `${JSON.stringify(receipt, null, 2)}\n`, 0o644)
}

/** Whether the receipt is about this executable, links resolved. */
export async function names(receipt: Receipt, executable: string): Promise<boolean> {
  if (receipt.executable === executable) return true
  const [named, own] = await Promise.all([resolved(receipt.executable), resolved(executable)])
  return named !== null && named === own
}

export function parseReceipt(text: string, path: string): Receipt {
  const bad = (what: string) =>
    new BatonError('refused', `the receipt ${path} cannot be used: ${what}`, {
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
  for (const key of [
    'service',
    'executable',
    'sha256',
    'user',
    'stateDirectory',
    'configPath',
    'feed',
    'installedAt',
  ]) {
    if (typeof record[key] !== 'string') throw bad(`expected a string in \`${key}\``)
  }
  if (!isTag(record['tag'])) throw bad('expected a tag in `tag`')
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
    return await realpath(path)
  } catch {
    return null
  }
}
