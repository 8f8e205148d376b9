// The file in which values travel from one process to the next: a map of serialized values, in V8's own format. Loaded when a
// switch begins, or when the first value is asked for.

import { ftruncateSync, readSync, writeSync } from 'node:fs'
import { reasonOf } from '../words/errors.ts'

/** of all values together */
const VALUES_MAX_BYTES = 64 * 1024 * 1024

/** Each value in its serialized form, so that one which fails does not spoil the others. */
function collected(given: ReadonlyMap<string, () => unknown>, warn: (message: string) => void): Map<string, Buffer> {
  const { serialize } = process.getBuiltinModule('node:v8')
  const all = new Map<string, Buffer>()
  let bytes = 0
  for (const [key, value] of given) {
    try {
      const one = serialize(value())
      bytes += one.length
      if (bytes > VALUES_MAX_BYTES)
        throw new Error(`expected at most ${VALUES_MAX_BYTES} bytes of all values, got more`)
      all.set(key, one)
    } catch (cause) {
      warn(`the value \`${key}\` is not handed over: ${reasonOf(cause).replaceAll(/\s+/g, ' ')}`)
    }
  }
  return all
}

/** Writes all values into the file. Never throws. */
export function writeValues(
  fd: number,
  given: ReadonlyMap<string, () => unknown>,
  warn: (message: string) => void,
): void {
  try {
    writeTo(fd, collected(given, warn))
  } catch (cause) {
    warn(`no value is handed over: ${reasonOf(cause)}`)
  }
}

function writeTo(fd: number, values: Map<string, Buffer>): void {
  const bytes = process.getBuiltinModule('node:v8').serialize(values)
  ftruncateSync(fd, 0)
  for (let done = 0; done < bytes.length;) done += writeSync(fd, bytes, done, bytes.length - done, done)
}

/** Empty if the writer was killed before it had written all. */
export function readValues(fd: number): Map<string, unknown> {
  const { deserialize } = process.getBuiltinModule('node:v8')
  const parts: Buffer[] = []
  for (let at = 0; ;) {
    const part = Buffer.alloc(1024 * 1024)
    const got = readSync(fd, part, 0, part.length, at)
    if (got === 0) break
    parts.push(part.subarray(0, got))
    at += got
  }
  try {
    const all = deserialize(Buffer.concat(parts)) as Map<string, Buffer>
    return new Map([...all].map(([key, bytes]) => [key, deserialize(bytes) as unknown]))
  } catch {
    return new Map()
  }
}
