// What a host will not have written: a full or read-only disk, and missing rights. A command that meets it has been refused, by exit 7;
// it is no fault of the command's.

const CODES: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM'])
/** SQLite: SQLITE_READONLY, SQLITE_FULL */
const RESULTS: ReadonlySet<number> = new Set([8, 13])

/** Whether that is why something failed. */
export function isRefusal(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false
  const { code, errcode } = cause as { code?: unknown; errcode?: unknown }
  return CODES.has(String(code)) || RESULTS.has(Number(errcode) & 0xff)
}

/** The same of a sentence, where the error has come from another process. */
export function tellsOfFullDisk(message: string): boolean {
  return /\b(?:ENOSPC|EDQUOT|EROFS|database or disk is full)\b/.test(message)
}
