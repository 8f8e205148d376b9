// The file in which values travel from one process to the next, each in V8's own format. Loaded when a switch begins, or with the
// first call of `inherited`.

import { closeSync, fstatSync, ftruncateSync, readSync, writeSync } from 'node:fs'
import { reasonOf } from '../words/errors.ts'

/** of all values together */
const VALUES_MAX_BYTES = 64 * 1024 * 1024
const LENGTH_BYTES = 4

/** Each value in its serialized form, so that one which fails does not spoil the others. */
function collected(given: ReadonlyMap<string, () => unknown>, warn: (message: string) => void): Map<string, Buffer> {
  const { serialize } = process.getBuiltinModule('node:v8')
  const all = new Map<string, Buffer>()
  let bytes = 0
  for (const [key, value] of given) {
    try {
      const one = serialize(value())
      if (bytes + one.length > VALUES_MAX_BYTES)
        throw new Error(`expected at most ${VALUES_MAX_BYTES} bytes for all values together, got more`)
      bytes += one.length
      all.set(key, one)
    } catch (cause) {
      warn(`the value \`${key}\` cannot be handed over: ${reasonOf(cause).replaceAll(/\s+/g, ' ')}`)
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
    warn(`no values were handed over: ${reasonOf(cause)}`)
  }
}

/** Four bytes with the length of a JSON list of keys and sizes, the list, and the values one after the other. */
function writeTo(fd: number, values: Map<string, Buffer>): void {
  const sizes = Buffer.from(JSON.stringify([...values].map(([key, { length }]) => [key, length])))
  const length = Buffer.alloc(LENGTH_BYTES)
  length.writeUInt32LE(sizes.length)
  ftruncateSync(fd, 0)
  let at = 0
  for (const part of [length, sizes, ...values.values()]) {
    for (let done = 0; done < part.length;) done += writeSync(fd, part, done, part.length - done, at + done)
    at += part.length
  }
}

/** Closes the file. Empty if the writer was killed before it had written all. */
export function readValues(fd: number): Map<string, unknown> {
  const { deserialize } = process.getBuiltinModule('node:v8')
  try {
    const bytes = Buffer.allocUnsafe(fstatSync(fd).size)
    for (let done = 0, got = 1; done < bytes.length && got > 0; done += got)
      got = readSync(fd, bytes, done, bytes.length - done, done)
    let at = LENGTH_BYTES + bytes.readUInt32LE(0)
    const sizes = JSON.parse(bytes.toString('utf8', LENGTH_BYTES, at)) as [string, number][]
    return new Map(sizes.map(([key, size]) => [key, deserialize(bytes.subarray(at, (at += size))) as unknown]))
  } catch {
    return new Map()
  } finally {
    closeSync(fd)
  }
}
