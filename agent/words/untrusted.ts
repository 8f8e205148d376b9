// Input from strangers: checks its form, and makes it fit for display. Pure; fuzzed.
// Must hold: a value that passes `isFileName` names one file in one directory; a value from `quoted` fits into a log line.

/** A plain file name: no separator, no `..`, no NUL, not hidden, no character that a shell or a terminal acts upon. */
export function isFileName(value: unknown): value is string {
  return typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/.test(value) && !value.includes('..')
}

/** how deep objects and lists may nest; 8 MB of `[` would cost `JSON.parse` seconds and a gigabyte */
const DEPTH_MAX = 32

/** The value, or undefined if the text is not JSON or is nested deeper than any of Baton's documents. */
export function parsedJson(text: string): unknown {
  if (isDeep(text)) return undefined
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

function isDeep(text: string): boolean {
  let depth = 0
  let inText = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (inText) {
      if (code === 0x5c) at++
      else if (code === 0x22) inText = false
    } else if (code === 0x22) inText = true
    else if (code === 0x5b || code === 0x7b) {
      if (++depth > DEPTH_MAX) return true
    } else if (code === 0x5d || code === 0x7d) depth--
  }
  return false
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isSha256(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)
}

/** ISO 8601 with a date and a time, as in releases */
export function isTime(value: unknown): value is string {
  return (
    typeof value === 'string' &&
    /^\d{4}-\d\d-\d\dT[\d:.]{5,15}(Z|[+-]\d\d:\d\d)$/.test(value) &&
    !Number.isNaN(Date.parse(value))
  )
}

/** A stranger's value, fit for a message: JSON, at most 60 characters, no control characters. */
export const quoted = (value: unknown) => quotedUpTo(60, value)

/** The same, of another length. */
export function quotedUpTo(maxChars: number, value: unknown): string {
  const text = JSON.stringify(value) ?? String(value)
  const plain = text.replaceAll(/[^\x20-\x7e]/g, '?')
  return plain.length > maxChars ? `${plain.slice(0, maxChars)}…` : plain
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

export function isSize(value: unknown, max: number): value is number {
  return isCount(value) && value >= 1 && value <= max
}
