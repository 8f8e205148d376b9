// Recognizes a host that refuses to be written to: a full or read-only disk, or missing rights. A command then exits with 7,
// refused: it is not the command's fault.

const CODES: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM'])
/** SQLite: SQLITE_READONLY, SQLITE_FULL */
const RESULTS: ReadonlySet<number> = new Set([8, 13])

/** Whether `cause` is such a refusal. */
export function isRefusal(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false
  const { code, errcode } = cause as { code?: unknown; errcode?: unknown }
  return CODES.has(String(code)) || RESULTS.has(Number(errcode) & 0xff)
}

/** The same for the message of an error from another process; full and read-only disks only. */
export function tellsOfRefusal(message: string): boolean {
  return tellsOfFullDisk(message) || /\bEROFS\b/.test(message)
}

/** Whether this message of any program reports a full disk. */
export function tellsOfFullDisk(message: string): boolean {
  return /\b(?:ENOSPC|EDQUOT)\b|no space left|disk quota exceeded|database or disk is full/i.test(message)
}
