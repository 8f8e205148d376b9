// The setting `rehearse`: what an author says about trying a release on a copy of the data (docs/author/migrations.md). Pure.
// Must hold: it stays small, since it travels in every release and is read before each update.

import { normalize } from 'node:path'
import { type Rehearse, REHEARSE_MODES, type RehearseRequest } from '../../agent/words.ts'
import { isBelow, number, oneOf, type Read, record, refuseOthers, shownValue, texts } from './reading.ts'

const REQUESTS_MAX = 32
const FILES_MAX = 16
const [PATH_MAX, BODY_MAX_BYTES, HEADERS_MAX_BYTES, PREPARE_MAX_BYTES] = [2048, 16_384, 4096, 16_384]
const METHODS = ['GET', 'HEAD', 'OPTIONS', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
/** the whole state directory, and the folder of it that is Baton's own */
const BATONS = /^(\.|update)(\/|$)/
const WITHOUT_BODY: readonly string[] = ['GET', 'HEAD']

export const rehearseFrom: Read<Rehearse> = (value, name, faults) => {
  const fields = record(value, name, faults)
  return parts<Rehearse>(PARTS, fields, name, faults)
}

const PARTS: { [Key in keyof Required<Rehearse>]: Read<Required<Rehearse>[Key]> } = {
  mode: oneOf(REHEARSE_MODES, 'auto'),
  requests(value, name, faults) {
    const all: unknown[] = Array.isArray(value) ? value : []
    if (!Array.isArray(value) || all.length > REQUESTS_MAX)
      faults.push(`expected a list of at most ${REQUESTS_MAX} requests in ${name}, got ${shownValue(value)}`)
    return all.slice(0, REQUESTS_MAX).map((one) => requestFrom(one, name, faults))
  },
  prepare(value, name, faults) {
    if (typeof value === 'string' && value !== '' && Buffer.byteLength(value) <= PREPARE_MAX_BYTES) return value
    faults.push(`expected SQL of at most ${PREPARE_MAX_BYTES} bytes in ${name}, got ${shownValue(value)}`)
    return ''
  },
  files(value, name, faults) {
    const files = texts(value, name, faults)
    const bad = files.find((file) => !isBelow(file) || BATONS.test(normalize(file)))
    if (bad !== undefined)
      faults.push(
        `expected paths inside the state directory, other than \`update\` and all of it, in ${name}, got ${shownValue(bad)}`,
      )
    if (files.length > FILES_MAX) faults.push(`expected at most ${FILES_MAX} paths in ${name}, got ${files.length}`)
    return files
  },
  reversible(value, name, faults) {
    if (typeof value !== 'boolean') faults.push(`expected true or false in ${name}, got ${shownValue(value)}`)
    return value === true
  },
}

function requestFrom(value: unknown, name: string, faults: string[]): RehearseRequest {
  const fields = record(value, name, faults)
  const request = parts<RehearseRequest>(REQUEST, fields, name, faults)
  if (fields['path'] === undefined)
    faults.push(`expected a \`path\` in every request of ${name}, got ${shownValue(value)}`)
  const { method = 'GET', path, body } = request
  if (body !== undefined && WITHOUT_BODY.includes(method))
    faults.push(`expected no body for ${method} ${path} in ${name}: a \`method\` such as POST has one`)
  return request
}

const REQUEST: { [Key in keyof Required<RehearseRequest>]: Read<Required<RehearseRequest>[Key]> } = {
  method: oneOf(METHODS, 'GET'),
  path(value, name, faults) {
    // `//` would be the name of a host
    if (typeof value === 'string' && value.length <= PATH_MAX && /^\/(?!\/)[!-~]*$/.test(value)) return value
    faults.push(`expected a path such as \`/notes\` in ${name}, got ${shownValue(value)}`)
    return '/'
  },
  body(value, name, faults) {
    if (bytesOf(value) > BODY_MAX_BYTES) faults.push(`expected JSON of at most ${BODY_MAX_BYTES} bytes in ${name}`)
    return value
  },
  headers(value, name, faults) {
    const headers = record(value, name, faults)
    const isGood = ([header, text]: [string, unknown]) =>
      /^[A-Za-z0-9-]+$/.test(header) && typeof text === 'string' && /^[ -~]*$/.test(text)
    const bad = Object.entries(headers).find((one) => !isGood(one))
    if (bad !== undefined)
      faults.push(`expected headers with texts in ${name}, got ${shownValue(Object.fromEntries([bad]))}`)
    if (bytesOf(headers) > HEADERS_MAX_BYTES) faults.push(`expected at most ${HEADERS_MAX_BYTES} bytes in ${name}`)
    return headers as Record<string, string>
  },
  status: number(100, 599, 200),
}

/** Reads the members that are there; what is absent stays absent. A member without a reader is a fault. */
function parts<T extends object>(
  readers: { [Key in keyof Required<T>]: Read<Required<T>[Key]> },
  fields: Record<string, unknown>,
  name: string,
  faults: string[],
): T {
  refuseOthers(fields, Object.keys(readers), name, faults)
  const all = Object.entries<Read<unknown>>(readers)
  const given = all.filter(([key]) => fields[key] !== undefined)
  const inner = (key: string) => `\`${name.replaceAll('`', '')}.${key}\``
  return Object.fromEntries(given.map(([key, read]) => [key, read(fields[key], inner(key), faults)])) as T
}

function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value))
}
