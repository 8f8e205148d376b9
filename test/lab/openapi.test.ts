// The document agrees with the code's words, and the check of answers against the document refuses wrong ones.

import { EXIT, MEANINGS } from '../../agent/words/errors.ts'
import { irreversibleFault, type Rehearsal, TRIAL_CODES, VERDICTS } from '../../agent/words/rehearsal.ts'
import { HISTORY_MAX, OUTCOMES, STAGES } from '../../agent/words/state.ts'
import { WAIT_CODES } from '../../agent/words/waits.ts'
import { newOperation } from '../../agent/update/operation.ts'
import { equal, is, throws } from '../assert.ts'
import { suite } from '../suite.ts'
import { type Answer, apiDocument, conforms, faultsOf, type Json, documentedAt } from './openapi.ts'

type Fields = Record<string, Json>

const JSON_HEADERS = { 'Content-Type': 'application/json; charset=utf-8', 'Cache-Control': 'no-store' }
const STATUS_HEADERS = { ...JSON_HEADERS, ETag: '"5f"' }
const PROBLEM_HEADERS = { 'content-type': 'application/problem+json', 'cache-control': 'no-store' }

const BEGUN = { id: 'a', kind: 'update', from: 'v1.0.0', to: null, startedAt: '2026-11-21T09:00:00.000Z' } as const
const { trial: _, stateMoved: __, waits: ___, ...NEW } = newOperation(BEGUN)
const OPERATION: Fields = { ...NEW, error: null, handover: null, progress: null, durations: {} }
const TRIED: Rehearsal = {
  verdict: 'irreversible',
  reason: 'v1.0.0 exited with code 1: no such column: body',
  hint: 'expand first, contract in a later release',
  rows: 1042,
  copyMs: 31.5,
  migrationMs: 512,
  tookMs: 1870.25,
}
const ENDED: Fields = { ...OPERATION, to: 'v1.1.0', stage: 'restart', finishedAt: '2026-11-21T09:00:09Z' }
const INSTANCE: Fields = { id: 'i', pid: 42, version: 'v1.0.0', startedAt: '2026-11-21T08:00:00Z' }
const TRUST: Fields = { signed: false, metadata: [], yanked: [], warning: null }
const STATUS: Fields = {
  state: 'idle',
  operation: null,
  instance: INSTANCE,
  backup: null,
  probation: null,
  trust: TRUST,
  history: [],
}

const status = (fields: Fields): Answer => ({
  method: 'GET',
  path: '/admin/update/status',
  status: 200,
  headers: STATUS_HEADERS,
  body: { ...STATUS, ...fields },
})

const started = (fields: Fields, headers: Record<string, string> = {}): Answer => ({
  method: 'POST',
  path: '/admin/update',
  status: 202,
  headers: { ...JSON_HEADERS, Location: '/admin/update/status', ...headers },
  body: JSON.stringify({ ...OPERATION, ...fields }),
})

const refused = (code: keyof typeof MEANINGS, over: Partial<Answer> = {}, headers = {}): Answer => ({
  method: 'POST',
  path: '/admin/update',
  status: MEANINGS[code].status,
  headers: { ...PROBLEM_HEADERS, ...headers },
  body: { type: `docs/reference/errors.md#${code}`, title: 't', status: MEANINGS[code].status, code, detail: 'why' },
  ...over,
})

const test = suite('openapi')

test('the document is sound: references, examples, refusals, schemas', () => {
  equal(faultsOf(apiDocument()), [])
})

test('finds what is wrong with a document', () => {
  const broken = apiDocument()
  const text = JSON.stringify(broken)
  const faults = (from: string | RegExp, to: string): string =>
    faultsOf(JSON.parse(text.replace(from, to)) as Fields).join('\n')
  is(faults('#/components/schemas/Tag', '#/components/schemas/Gone').includes('schemas/Gone'), true)
  is(faults('"operationId":"startRollback"', '"operationId":"startUpdate"').includes('taken'), true)
  is(faults(/"totalBytes":\d+/, '"totalBytes":-1').includes('example'), true)
  is(faults('"429":', '"418":').includes('no 429'), true)
})

test("speaks the code's words", () => {
  const schemas = ['components', 'schemas']
  equal(documentedAt(...schemas, 'ErrorCode', 'enum'), Object.keys(MEANINGS))
  equal(documentedAt(...schemas, 'Operation', 'properties', 'stage', 'enum'), [...STAGES])
  equal(documentedAt(...schemas, 'Operation', 'properties', 'outcome', 'enum'), [null, ...OUTCOMES])
  equal(documentedAt(...schemas, 'Status', 'properties', 'history', 'maxItems'), HISTORY_MAX)
  equal(documentedAt(...schemas, 'Wait', 'properties', 'code', 'enum'), [...WAIT_CODES])
  equal(documentedAt(...schemas, 'Trial', 'properties', 'verdict', 'enum'), [...VERDICTS])
  equal(documentedAt(...schemas, 'Trial', 'properties', 'code', 'enum'), [...TRIAL_CODES])
})

test('gives every code of a refusal the status that the table gives it', () => {
  const { responses } = apiDocument()['components'] as unknown as {
    responses: Record<string, { content: Record<string, { schema: { allOf: [unknown, { properties: Fields }] } }> }>
  }
  for (const { content } of Object.values(responses)) {
    const { status: one, code } = content['application/problem+json']?.schema.allOf[1].properties ?? {}
    for (const name of (code as { enum: (keyof typeof MEANINGS)[] }).enum) {
      is(MEANINGS[name].status, (one as { const: number }).const, name)
    }
  }
  is(Object.values(EXIT).length, new Set(Object.values(EXIT)).size)
})

test('accepts what is documented', () => {
  conforms(status({}))
  conforms(status({ state: 'in_flight', operation: OPERATION, history: [{ ...ENDED, outcome: 'updated' }] }))
  const error = { code: 'restart_failed', message: 'the successor exited' }
  conforms(status({ operation: { ...ENDED, outcome: 'reverted', error }, backup: 'v0.9.0' }))
  conforms(
    status({
      operation: {
        ...ENDED,
        outcome: 'updated',
        handover: { moved: 3, carried: 1, returned: 0, cut: 0, switchMs: 210.5 },
      },
    }),
  )
  for (const verdict of VERDICTS) {
    const none = { rows: null, copyMs: null, migrationMs: null, tookMs: 0 }
    const rehearsal = { ...TRIED, verdict, ...(verdict === 'untried' ? none : {}) }
    conforms(status({ operation: { ...ENDED, outcome: 'updated', trial: rehearsal } }))
  }
  const { code, message, hint } = irreversibleFault('v1.1.0', TRIED)
  const fault = { code, message, ...(hint === null ? {} : { hint }) }
  conforms(status({ operation: { ...ENDED, outcome: 'failed', error: fault, trial: { ...TRIED } } }))
  conforms(refused('irreversible'))
  conforms(started({}))
  conforms(started({}, { location: '/base/admin/update/status' }))
  conforms({ ...refused('update_in_flight'), path: '/base/admin/update?token=x' })
  conforms(refused('unauthorized', {}, { 'WWW-Authenticate': 'Bearer realm="beacon"' }))
  conforms(refused('method_not_allowed', { method: 'DELETE' }, { allow: 'POST' }))
  conforms(refused('method_not_allowed', { method: 'PUT', path: '/admin/update/status' }, { allow: 'GET, HEAD' }))
  conforms(refused('not_found', { path: '/admin/update/nothing' }))
  conforms({ ...status({}), method: 'HEAD', body: '' })
  conforms({ ...status({}), headers: new Headers(STATUS_HEADERS) })
})

const wrong: [promise: string, answer: Answer, message: RegExp][] = [
  [
    'a status that is not documented',
    { ...status({}), status: 204 },
    /answered 204: expected one of 200, 304, 400, 401/,
  ],
  ['a 500', refused('unexpected'), /answered 500: expected one of/],
  ['a missing member', { ...status({}), body: { state: 'idle' } }, /required property 'instance'/],
  ['an unknown member', status({ secret: 'x' }), /additional properties \("secret"\)/],
  ['a tag of a wrong form', status({ backup: '' }), /backup/],
  ['a rehearsal without a verdict', status({ operation: { ...OPERATION, trial: { reason: 'x' } } }), /verdict/],
  ['a time that is not UTC', status({ instance: { ...INSTANCE, startedAt: '2026-11-21 09:00' } }), /date-time/],
  ['in_flight without an operation', status({ state: 'in_flight' }), /operation must be object/],
  ['idle with an operation under way', status({ operation: OPERATION }), /operation/],
  [
    'an outcome without its time',
    status({ operation: { ...ENDED, outcome: 'updated', finishedAt: null } }),
    /finishedAt/,
  ],
  ['a failure that does not say why', status({ operation: { ...ENDED, outcome: 'failed' } }), /error must be object/],
  ['a 202 that does not say where to poll', started({}, { Location: '' }), /header Location/],
  ['an answer that may be cached', started({}, { 'Cache-Control': 'max-age=1' }), /header Cache-Control/],
  [
    'a problem sent as plain JSON',
    refused('locked', { headers: JSON_HEADERS }),
    /got content type `application\/json`/,
  ],
  ['a code under another status', refused('invalid_tag', { status: 409 }), /status must be equal to constant/],
  ['a code that is not in the table', refused('locked', { body: { code: 'oops' } }), /code/],
  ['a 401 without a challenge', refused('unauthorized'), /expected a header WWW-Authenticate, got none/],
  [
    'a 405 with the wrong methods',
    refused('method_not_allowed', { method: 'PUT' }, { Allow: 'GET' }),
    /Allow to name post/,
  ],
  ['a success for an unknown path', { ...status({}), path: '/admin/update/nothing' }, /the path is not documented/],
  ['a success for an unknown method', { ...started({}), method: 'PUT' }, /the method is not documented/],
  ['a HEAD with a body', { ...status({}), method: 'HEAD' }, /no body for HEAD/],
  ['what is no JSON', { ...started({}), body: '<html>' }, /expected JSON/],
]

for (const [promise, answer, message] of wrong) {
  test(`refuses ${promise}`, () => {
    throws(() => conforms(answer), message)
  })
}

test.run()
