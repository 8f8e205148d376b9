// Checks answers against docs/reference/openapi.json: status, headers, media type and body. The only importer of ajv.
// Must never pass an answer that the document does not describe: it refuses everything that it does not know.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020, type ErrorObject } from 'ajv/dist/2020.js'

export { Ajv2020 }

export interface Answer {
  method: string
  /** path of the request; the comparison ignores the part before `/admin/` and the query */
  path: string
  status: number
  headers: Headers | Record<string, string | string[] | number | undefined>
  /** the received text, or the value parsed from it */
  body: unknown
  /** the test broke something on purpose, so a 500 is right. It is documented, but else no test may meet one */
  isBroken?: boolean
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }
type Node = { [key: string]: Json }

const METHODS = ['get', 'post', 'put', 'patch', 'delete', 'head', 'options', 'trace']

const document = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../docs/reference/openapi.json'), 'utf8'),
) as Node
const conformsToDocument = conformance(document)

/** Throws an Error with the expected and the found, if the answer is not as documented. */
export function conforms(answer: Answer): void {
  conformsToDocument(answer)
}

/** Makes a `conforms` for another document. */
export function conformance(api: Node): (answer: Answer) => void {
  const ajv = validator(api)
  const paths = nodeAt(api, ['paths'])
  const refusals = sharedRefusals(api)

  return (answer) => {
    const method = answer.method.toLowerCase()
    const path = (answer.path.split('?', 1)[0] ?? '')
      .replace(/^.*(?=\/admin\/)/, '')
      .replace(/(?<=\/operations\/)[^/]+$/, '{id}')
    const fail = (message: string): never => {
      const shown = typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body)
      throw new Error(`${answer.method} ${answer.path} answered ${answer.status}: ${message}\n${shown?.slice(0, 2000)}`)
    }

    const item = Object.hasOwn(paths, path) ? nodeAt(paths, [path]) : null
    // HEAD is GET without a body; the document also describes the refusal of an unknown method or path
    const operation = item && Object.hasOwn(item, method) ? method : method === 'head' && item?.['get'] ? 'get' : null
    let pointer: string[]
    if (operation !== null) {
      const responses = Object.keys(nodeAt(paths, [path, operation, 'responses']))
      const documented = responses.filter((status) => status !== '500' || answer.isBroken === true)
      if (!documented.includes(String(answer.status))) fail(`expected one of ${documented.join(', ')}`)
      pointer = ['paths', path, operation, 'responses', String(answer.status)]
    } else {
      const expected = item ? ['400', '401', '403', '405', '429', '501'] : ['400', '401', '403', '404', '429', '501']
      const name = expected.includes(String(answer.status)) ? refusals.get(String(answer.status)) : undefined
      if (name === undefined)
        fail(`expected one of ${expected.join(', ')}: ${item ? 'the method' : 'the path'} is not documented`)
      pointer = ['components', 'responses', name ?? '']
    }

    pointer = follow(api, pointer)
    const response = nodeAt(api, pointer)
    for (const [name, header] of Object.entries((response['headers'] ?? {}) as Node)) {
      const value = headerOf(answer.headers, name)
      if (value === null) {
        if ((header as Node)['required'] === true) fail(`expected a header ${name}, got none`)
        continue
      }
      const error = check(ajv, [...pointer, 'headers', name, 'schema'], value)
      if (error !== null) fail(`header ${name}: ${error}`)
    }
    if (answer.status === 405 && item !== null) {
      const allowed = METHODS.filter((it) => Object.hasOwn(item, it) || (it === 'head' && Object.hasOwn(item, 'get')))
      const said = (headerOf(answer.headers, 'allow') ?? '').toLowerCase().split(/,\s*/)
      if (allowed.toSorted().join() !== said.toSorted().join()) fail(`expected Allow to name ${allowed.join(', ')}`)
    }

    if (method === 'head') {
      if (answer.body !== '' && answer.body !== null && answer.body !== undefined) fail('expected no body for HEAD')
      return
    }
    const content = (response['content'] ?? {}) as Node
    const type = (headerOf(answer.headers, 'content-type') ?? '').split(';', 1)[0]?.trim() ?? ''
    if (!Object.hasOwn(content, type))
      fail(`expected ${Object.keys(content).join(' or ')}, got content type \`${type}\``)
    const error = check(ajv, [...pointer, 'content', type, 'schema'], parsed(answer.body, fail))
    if (error !== null) fail(error)
  }
}

/** Faults of the document itself, as far as a small check can find them; empty if it finds none. */
export function faultsOf(api: Node): string[] {
  const faults: string[] = []
  const expect = (good: boolean, message: string): void => void (good || faults.push(message))
  const { openapi } = api
  const { title, version } = nodeAt(api, ['info'])
  expect(/^3\.1\.\d+$/.test(typeof openapi === 'string' ? openapi : ''), 'openapi is not 3.1.x')
  expect(typeof title === 'string' && typeof version === 'string', 'info needs title and version')
  for (const [pointer, ref] of refsOf(api, [])) {
    expect(
      ref.startsWith('#/') && valueAt(api, ref.slice(2).split('/').map(unescape)) !== undefined,
      `${pointer}: ${ref}`,
    )
  }
  if (faults.length > 0) return faults // the other checks would only stumble over these

  const schemes = Object.keys(nodeAt(api, ['components', 'securitySchemes']))
  const ids = new Set<Json>()
  const ajv = validator(api)
  for (const [path, item] of Object.entries(nodeAt(api, ['paths']))) {
    expect(path.startsWith('/'), `${path}: does not start with /`)
    for (const [method, operation] of Object.entries(item as Node)) {
      const at = `${method} ${path}`
      const { operationId, responses, security, requestBody } = operation as Node
      expect(METHODS.includes(method), `${at}: not a method`)
      expect(typeof operationId === 'string' && !ids.has(operationId), `${at}: operationId is missing or taken`)
      ids.add(operationId ?? null)
      for (const requirement of (security ?? api['security'] ?? []) as Node[]) {
        for (const name of Object.keys(requirement)) expect(schemes.includes(name), `${at}: no security scheme ${name}`)
      }
      for (const refusal of ['401', '403', '404', '405', '413', '429', '501']) {
        expect(Object.hasOwn(responses as Node, refusal), `${at}: no ${refusal}`)
      }
      const parts = Object.keys(responses as Node).map((status) => ['paths', path, method, 'responses', status])
      if (requestBody !== undefined) parts.push(['paths', path, method, 'requestBody'])
      for (const part of parts) {
        const pointer = follow(api, part)
        const { description, content } = nodeAt(api, pointer)
        const status = part[3] === 'responses' ? part[4] : null
        expect(status === null || /^[1-5]\d\d$/.test(status ?? ''), `${at}: status ${status}`)
        expect(status === null || typeof description === 'string', `${at} ${status}: no description`)
        for (const [type, media] of Object.entries((content ?? {}) as Node)) {
          const { example, examples } = media as Node
          const values = Object.values((examples ?? {}) as Node).map((it) => (it as Node)['value'])
          for (const value of example === undefined ? values : [...values, example]) {
            const error = check(ajv, [...pointer, 'content', type, 'schema'], value)
            expect(error === null, `${at} ${status ?? 'request'}: example: ${error}`)
          }
          if (status !== null && Number(status) >= 400) {
            expect(type === 'application/problem+json', `${at} ${status}: ${type} is no problem document`)
          }
        }
      }
    }
  }
  for (const name of Object.keys(nodeAt(api, ['components', 'schemas']))) {
    try {
      compiled(ajv, ['components', 'schemas', name])
    } catch (error) {
      faults.push(`schema ${name}: ${String(error)}`)
    }
  }
  return faults
}

/** A part of the document, for tests that compare it with the code. */
export function documentedAt(...pointer: string[]): Json | undefined {
  return valueAt(document, pointer)
}

export function apiDocument(): Node {
  return structuredClone(document)
}

function validator(api: Node): Ajv2020 {
  // add the whole document as one schema, so that `#/components/…` resolves; only parts of it are compiled
  const ajv = new Ajv2020({ allErrors: true, strict: false, validateSchema: false })
  ajv.addFormat('date-time', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/)
  return ajv.addSchema(api, 'openapi')
}

function compiled(ajv: Ajv2020, pointer: string[]): ReturnType<Ajv2020['compile']> {
  const ref = `openapi#/${pointer.map((part) => encodeURIComponent(escape(part))).join('/')}`
  const validate = ajv.getSchema(ref)
  if (!validate) throw new Error(`no schema at ${ref}`)
  return validate
}

function check(ajv: Ajv2020, pointer: string[], value: unknown): string | null {
  const validate = compiled(ajv, pointer)
  if (validate(value)) return null
  return (validate.errors ?? []).map(lineOf).join('; ')
}

function lineOf({ instancePath, message, params }: ErrorObject): string {
  const details = Object.entries(params as Record<string, unknown>)
    .filter(([name]) => ['additionalProperty', 'unevaluatedProperty', 'allowedValue', 'allowedValues'].includes(name))
    .map(([, detail]) => ` (${JSON.stringify(detail)})`)
  return `${instancePath || 'the body'} ${message ?? 'is wrong'}${details.join('')}`
}

/** Status of a refusal -> name of the documented response, for requests that match no operation. */
function sharedRefusals(api: Node): Map<string, string> {
  const byStatus: [string, string][] = [
    ['400', 'InvalidRequest'],
    ['401', 'Unauthorized'],
    ['403', 'NoPassword'],
    ['404', 'NotFound'],
    ['405', 'MethodNotAllowed'],
    ['429', 'TooManyFailures'],
    ['501', 'NotManaged'],
  ]
  const known = nodeAt(api, ['components', 'responses'])
  return new Map(byStatus.filter(([, name]) => Object.hasOwn(known, name)))
}

/** The pointer that a `$ref` at `pointer` leads to. */
function follow(api: Node, pointer: string[]): string[] {
  const ref = nodeAt(api, pointer)['$ref']
  return typeof ref === 'string' ? follow(api, ref.slice(2).split('/').map(unescape)) : pointer
}

function refsOf(value: Json, pointer: string[]): [string, string][] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, child]): [string, string][] => {
    const below = [...pointer, key]
    return key === '$ref' && typeof child === 'string' ? [[below.join('/'), child]] : refsOf(child, below)
  })
}

function nodeAt(root: Json, pointer: string[]): Node {
  const value = valueAt(root, pointer)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  throw new Error(`the document has no object at ${pointer.join('/')}`)
}

function valueAt(root: Json, pointer: string[]): Json | undefined {
  return pointer.reduce<Json | undefined>(
    (value, part) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, part) ? (value as Node)[part] : undefined,
    root,
  )
}

function parsed(body: unknown, fail: (message: string) => never): unknown {
  if (typeof body !== 'string') return body
  try {
    return JSON.parse(body)
  } catch {
    return fail('expected JSON')
  }
}

function headerOf(headers: Answer['headers'], name: string): string | null {
  if (headers instanceof Headers) return headers.get(name)
  const value = Object.entries(headers).find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1]
  return value === undefined ? null : String(value)
}

function escape(part: string): string {
  return part.replaceAll('~', '~0').replaceAll('/', '~1')
}

function unescape(part: string): string {
  return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
}
