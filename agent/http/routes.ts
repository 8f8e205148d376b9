// The endpoints. Order of refusals: 400 (two Host headers), 501 (unmanaged and no password), 403, 401 or 429, 404, 405, 501, 400.
// Decides nothing about an update: reads the request, asks the updater, writes the answer.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { asBatonError, BatonError } from '../words/errors.ts'
import { type Answer, assertOneHost, etagOf, problemOf, readBody, send, textOf } from './answer.ts'
import type { Log } from '../log.ts'
import { parseTag } from '../words/release.ts'
import { series } from '../words/series.ts'
import type { Allowed, AllowedBack, Operation, PolicyReport, Status, VersionReport } from '../words/state.ts'
import { unexpectedAnswer } from '../words/unexpected.ts'

/** The actions behind the endpoints. Every method throws BatonError with the code of its refusal. */
export interface Updater {
  /** `tag` null: the newest. Throws irreversible for a release that is known to have no way back, unless that is allowed. */
  update(tag: string | null, allowed: Allowed): Promise<Operation>
  rollback(allowed: AllowedBack): Promise<Operation>
  /** Has the operation in flight wait for work no longer. Throws too_late if there is none that does. */
  proceed(): Promise<Operation>
  /** Ends the operation in flight with nothing changed. Throws too_late if there is none or its swap has begun. */
  cancel(): Promise<Operation>
  check(): Promise<VersionReport>
  /** `wait`: only once the status is new or has changed, at the latest after `mostMs`; null: at once */
  status(wait: { mostMs: number; isNew(status: Status): boolean } | null): Promise<Status>
  /** every operation that is remembered, newest first */
  operations(): Promise<Operation[]>
  /** `own`: the policy that the panel writes; undefined: only reads. Throws invalid_request */
  policy(own?: unknown): Promise<PolicyReport>
  /** throws not_managed */
  assertManaged(): void
  /** Has the schedule look for itself, and go on doing so. Rejects with not_managed. */
  attend(): Promise<void>
}

export const BODY_MAX_BYTES = 4096

/** seconds that `status?wait=` may say */
const WAIT_MAX_S = 60

/** What a path does for each method that it knows. A POST has fields. */
interface Endpoint {
  GET?: (request: IncomingMessage) => Promise<unknown>
  POST?: readonly [fields: readonly string[], act: (fields: Fields) => Promise<Answer>]
}

type Fields = Readonly<Record<string, unknown>>

/** `prefix`: where the endpoints are, such as `/admin/update`. The result answers a request for the path below it. */
export function makeRoutes(
  prefix: string,
  admit: (request: IncomingMessage) => Promise<void>,
  updater: Updater,
  log: Log,
): (path: string, request: IncomingMessage, response: ServerResponse) => Promise<void> {
  const endpoints = makeEndpoints(prefix, updater)
  const endpointAt = (path: string) =>
    endpoints.get(path) ?? (path.startsWith(OPERATION) ? operationAt(path.slice(OPERATION.length), updater) : undefined)

  const answer = async (request: IncomingMessage, path: string): Promise<Answer> => {
    assertOneHost(request)
    try {
      await admit(request)
    } catch (refusal) {
      // No client can pass without a password, and setting one on an unmanaged install only leads to this refusal: give it now.
      if (refusal instanceof BatonError && refusal.code === 'no_password') updater.assertManaged()
      throw refusal
    }
    const endpoint = endpointAt(path)
    if (endpoint === undefined) throw new BatonError('not_found', 'there is no such endpoint')
    const { GET: read, POST: write } = endpoint
    if (read !== undefined && (request.method === 'GET' || request.method === 'HEAD')) {
      updater.assertManaged()
      return ok(await read(request))
    }
    if (write === undefined || request.method !== 'POST') {
      const expected = Object.keys(endpoint).join(' or ')
      throw new BatonError('method_not_allowed', `expected ${expected}, got ${request.method ?? ''}`)
    }
    updater.assertManaged()
    const [known, act] = write
    return await act(await readFields(request, known))
  }

  return async (path, request, response) => {
    const ready = await answer(request, path).catch((cause: unknown) => refuse(cause, endpointAt(path), request, log))
    send(request, response, ready)
  }
}

/** Whether the field `name` is true. Throws invalid_request if it is anything but true, false or absent. */
function is(fields: Fields, name: 'allowIrreversible' | 'now' | 'restoreState'): boolean {
  const { [name]: value = false } = fields
  if (typeof value === 'boolean') return value
  throw new BatonError('invalid_request', `expected \`${name}\` to be true`)
}

const OPERATION = '/operations/'

const ok = (body: unknown): Answer => ({ status: 200, body })

function makeEndpoints(prefix: string, updater: Updater): ReadonlyMap<string, Endpoint> {
  const accepted = (operation: Operation): Answer => ({
    status: 202,
    body: operation,
    headers: { Location: `${prefix}/status` },
  })
  const update = async (fields: Fields) =>
    accepted(
      await updater.update(fields['tag'] === undefined ? null : parseTag(fields['tag']), {
        allowIrreversible: is(fields, 'allowIrreversible'),
        restoreState: is(fields, 'restoreState'),
        now: is(fields, 'now'),
      }),
    )
  const rollback = async (fields: Fields) =>
    accepted(
      await updater.rollback({
        restoreState: is(fields, 'restoreState'),
        now: is(fields, 'now'),
        bad: fields['bad'] as string, // `begin` looks at it: an application's own code may give anything too
      }),
    )
  return new Map<string, Endpoint>([
    ['', { POST: [['tag', 'allowIrreversible', 'restoreState', 'now'], update] }],
    ['/check', { POST: [[], async () => ok(await updater.check())] }],
    ['/status', { GET: (request) => updater.status(waitOf(request)) }],
    ['/operations', { GET: async () => ({ operations: await updater.operations() }) }],
    [
      '/policy',
      { GET: () => updater.policy(), POST: [['policy'], async ({ policy }) => ok(await updater.policy(policy))] },
    ],
    ['/cancel', { POST: [[], async () => ok(await updater.cancel())] }],
    ['/proceed', { POST: [[], async () => ok(await updater.proceed())] }],
    ['/rollback', { POST: [['restoreState', 'now', 'bad'], rollback] }],
  ])
}

function operationAt(id: string, updater: Updater): Endpoint {
  const find = async () => {
    const found = (await updater.operations()).find((operation) => operation.id === id)
    if (found === undefined) throw new BatonError('not_found', 'there is no record of an operation with this ID')
    return found
  }
  return { GET: find }
}

function waitOf({ url, headers }: IncomingMessage): Parameters<Updater['status']>[0] {
  const said = new URLSearchParams(url?.split('?')[1]).get('wait')
  if (said === null) return null
  const seconds = Number(said)
  if (!/^\d+$/.test(said) || seconds > WAIT_MAX_S) {
    const got = JSON.stringify(said.slice(0, 40))
    throw new BatonError('invalid_request', `expected 0 to ${WAIT_MAX_S} seconds in \`wait\`, got ${got}`)
  }
  const seen = headers['if-none-match']
  return { mostMs: seconds * 1000, isNew: (status) => seen !== undefined && seen !== etagOf(textOf(status)) }
}

function refuse(cause: unknown, endpoint: Endpoint | undefined, request: IncomingMessage, log: Log): Answer {
  if (!(cause instanceof BatonError)) {
    const error = asBatonError(cause, 'unexpected', `answering ${request.method ?? ''}`)
    log({ event: 'warning', message: error.message })
    return problemOf(unexpectedAnswer())
  }
  const problem = problemOf(cause)
  if (cause.code !== 'method_not_allowed' || endpoint === undefined) return problem
  const allow = [...(endpoint.GET ? ['GET', 'HEAD'] : []), ...(endpoint.POST ? ['POST'] : [])].join(', ')
  return { ...problem, headers: { ...problem.headers, Allow: allow } }
}

async function readFields(request: IncomingMessage, known: readonly string[]): Promise<Record<string, unknown>> {
  const value = await readJson(request)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BatonError(
      'invalid_request',
      `request body: expected a JSON object, got ${Array.isArray(value) ? 'an array' : value === null ? 'null' : typeof value}`,
    )
  }
  const unknown = Object.keys(value).filter((key) => !known.includes(key))
  if (unknown.length > 0) {
    const names = known.map((key) => `\`${key}\``)
    const expected = known.length === 0 ? 'no fields' : `only ${series(names, 'and')}`
    throw new BatonError('invalid_request', `expected ${expected}, got ${JSON.stringify(unknown[0]?.slice(0, 40))}`)
  }
  return value as Record<string, unknown>
}

/** `{}` if there is no body. If the service's body parser has read the body already, takes what the parser made of it. */
async function readJson(request: IncomingMessage): Promise<unknown> {
  const { body } = request as IncomingMessage & { body?: unknown }
  if (request.readableEnded && typeof body === 'object' && body !== null && !Buffer.isBuffer(body)) return body
  const isRead = request.readableEnded && (typeof body === 'string' || Buffer.isBuffer(body))
  if (request.readableEnded && !isRead && Number(request.headers['content-length'] ?? 0) > 0) {
    throw new BatonError(
      'invalid_request',
      'the request body was already consumed before the request reached the agent',
      {
        hint: 'let the agent handle the request before any body parser',
      },
    )
  }
  const text = isRead
    ? String(body)
    : request.readableEnded
      ? ''
      : (await readBody(request, BODY_MAX_BYTES)).toString('utf8')
  if (text.trim() === '') return {}
  try {
    return JSON.parse(text)
  } catch {
    throw new BatonError('invalid_request', 'request body: expected a JSON object, got something that is not JSON')
  }
}
