// The endpoints. Order of refusals: 400 (two Host headers), 501 (unmanaged and no password), 403, 401 or 429, 404, 405, 501, 400.
// Decides nothing about an update: reads the request, asks the updater, writes the answer.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { asBatonError, BatonError } from '../words/errors.ts'
import type { Guard } from './auth.ts'
import { type Answer, assertOneHost, pathOf, problemOf, readBody, send } from './answer.ts'
import type { Log } from '../log.ts'
import { parseTag } from '../words/release.ts'
import type { Operation, PolicyReport, Status, VersionReport } from '../words/state.ts'

/** The actions behind the endpoints. Every method throws BatonError with the code of its refusal. */
export interface Updater {
  /**
   * `oneWay`: a person allows a release with no way back; if it is false, throws one_way for a release that is known to have none.
   * `restoreState`: also puts the newest snapshot that the named release has left in the place of the database
   */
  update(tag: string | null, allowed: { oneWay: boolean; restoreState: boolean }): Promise<Operation>
  /** `restoreState`: also puts the snapshot that the update took in the place of the database */
  rollback(restoreState: boolean): Promise<Operation>
  /** Ends the operation in flight with nothing changed. Throws too_late if there is none or its swap has begun. */
  cancel(): Promise<Operation>
  check(): Promise<VersionReport>
  status(): Promise<Status>
  /** `own`: the policy that the panel writes; undefined: only reads. Throws invalid_request */
  policy(own: unknown): Promise<PolicyReport>
  /** throws not_managed */
  assertManaged(): void
}

export const BODY_MAX_BYTES = 4096

type Endpoint = {
  method: 'GET' | 'POST'
  fields: readonly string[]
  act: (fields: Fields) => Promise<Answer>
}

type Fields = Readonly<Record<string, unknown>>

/** Answers requests below `<basePath>/admin/update`. Returns false, untouched, for any other request. */
export function makeRoutes(
  basePath: string,
  guard: Guard,
  updater: Updater,
  log: Log,
): (request: IncomingMessage, response: ServerResponse) => boolean {
  const prefix = `${basePath}/admin/update`
  const endpoints = makeEndpoints(prefix, updater)

  const answer = async (request: IncomingMessage, path: string): Promise<Answer> => {
    assertOneHost(request)
    try {
      guard(request)
    } catch (refusal) {
      // No client can pass without a password, and setting one on an unmanaged install only leads to this refusal: give it now.
      if (refusal instanceof BatonError && refusal.code === 'no_password') updater.assertManaged()
      throw refusal
    }
    const endpoint = endpoints.get(path)
    if (endpoint === undefined) throw new BatonError('not_found', 'there is no such endpoint')
    const method = request.method === 'HEAD' ? 'GET' : request.method
    if (method !== endpoint.method) {
      throw new BatonError('method_not_allowed', `expected ${endpoint.method}, got ${request.method ?? ''}`)
    }
    updater.assertManaged()
    const fields = endpoint.method === 'POST' ? await readFields(request, endpoint.fields) : {}
    return await endpoint.act(fields)
  }

  return (request, response) => {
    const whole = pathOf(request)
    if (!whole.startsWith(prefix)) return false
    const path = whole.slice(prefix.length)
    if (path !== '' && !path.startsWith('/')) return false
    answer(request, path)
      .catch((cause: unknown) => refuse(cause, endpoints.get(path), request, log))
      .then((ready) => send(request, response, ready))
      .catch((cause: unknown) => {
        response.destroy(cause instanceof Error ? cause : undefined)
      })
    return true
  }
}

/** Whether the field `name` is `only`. Throws invalid_request if it is anything but `only`, false or absent. */
function is(fields: Fields, name: 'oneWay' | 'state', only: true | 'snapshot'): boolean {
  const value = fields[name]
  if (value === undefined || value === false || value === only) return value === only
  throw new BatonError('invalid_request', `expected ${only} in \`${name}\``)
}

function makeEndpoints(prefix: string, updater: Updater): ReadonlyMap<string, Endpoint> {
  const accepted = (operation: Operation): Answer => ({
    status: 202,
    body: operation,
    headers: { Location: `${prefix}/status` },
  })
  return new Map<string, Endpoint>([
    [
      '',
      {
        method: 'POST',
        fields: ['tag', 'oneWay', 'state'],
        act: async (fields) =>
          accepted(
            await updater.update(fields['tag'] === undefined ? null : parseTag(fields['tag']), {
              oneWay: is(fields, 'oneWay', true),
              restoreState: is(fields, 'state', 'snapshot'),
            }),
          ),
      },
    ],
    ['/check', { method: 'POST', fields: [], act: async () => ({ status: 200, body: await updater.check() }) }],
    ['/status', { method: 'GET', fields: [], act: async () => ({ status: 200, body: await updater.status() }) }],
    [
      '/policy',
      {
        method: 'POST',
        fields: ['policy'],
        act: async ({ policy }) => ({ status: 200, body: await updater.policy(policy) }),
      },
    ],
    ['/cancel', { method: 'POST', fields: [], act: async () => ({ status: 200, body: await updater.cancel() }) }],
    [
      '/rollback',
      {
        method: 'POST',
        fields: ['state'],
        act: async (fields) => accepted(await updater.rollback(is(fields, 'state', 'snapshot'))),
      },
    ],
  ])
}

function refuse(cause: unknown, endpoint: Endpoint | undefined, request: IncomingMessage, log: Log): Answer {
  if (!(cause instanceof BatonError)) {
    const error = asBatonError(cause, 'unexpected', `answering ${request.method ?? ''}`)
    log({ event: 'warning', message: error.message })
    return problemOf(new BatonError('unexpected', 'something went wrong here; the log of the service says what'))
  }
  const problem = problemOf(cause)
  if (cause.code !== 'method_not_allowed' || endpoint === undefined) return problem
  return { ...problem, headers: { ...problem.headers, Allow: endpoint.method === 'GET' ? 'GET, HEAD' : 'POST' } }
}

async function readFields(request: IncomingMessage, known: readonly string[]): Promise<Record<string, unknown>> {
  const value = await readJson(request)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BatonError(
      'invalid_request',
      `expected a JSON object, got ${Array.isArray(value) ? 'an array' : value === null ? 'null' : typeof value}`,
    )
  }
  const unknown = Object.keys(value).filter((key) => !known.includes(key))
  if (unknown.length > 0) {
    const expected = known.length === 0 ? 'no fields' : `only ${known.map((key) => `\`${key}\``).join(', ')}`
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
    throw new BatonError('invalid_request', 'the body was read before the agent could, and nobody kept it', {
      hint: 'let the agent handle the request before any body parser',
    })
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
    throw new BatonError('invalid_request', 'expected a JSON object, got something that is not JSON')
  }
}
