// `rehearse` in baton.config.json: what is taken, what is refused, and that it goes into a release only if it is said.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Rehearse } from '../agent/words/rehearsal.ts'
import { wordsOf } from '../deploy/make/application.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match, throws } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('the setting `rehearse`')

const parse = (rehearse?: unknown) =>
  parseProject({ service: 'shop', entry: 'a.js', ...(rehearse === undefined ? {} : { rehearse }) }, '/x')

const WHOLE: Rehearse = {
  mode: 'always',
  requests: [
    { method: 'POST', path: '/notes', body: { text: 'a note' }, headers: { 'x-user': '7' }, status: 201 },
    { path: '/notes?last=1' },
  ],
  prepare: 'DELETE FROM leases',
  files: ['uploads', 'keys/own.pem'],
  reversible: true,
}

test('what an author says is kept as it is, and nothing is put in', () => {
  for (const rehearse of [
    WHOLE,
    {},
    { requests: [] },
    { reversible: false },
    { requests: [{ method: 'POST', path: '/', body: null }] },
  ])
    equal(parse(rehearse).rehearse, rehearse)
  equal([parse().rehearse, parse(null).rehearse], [null, null])
})

test('it goes into the release; a release without it is the one that it was before', () => {
  const words = (rehearse?: unknown) =>
    JSON.parse(JSON.stringify(wordsOf(parse(rehearse), 'v1.0.0', null, null))) as object
  equal((words(WHOLE) as { rehearse: Rehearse }).rehearse, WHOLE)
  is('rehearse' in words(), false)
})

const request = (some: object) => ({ requests: [{ path: '/', ...some }] })

for (const [what, rehearse, fault] of [
  ['no object', 'always', 'expected an object in `rehearse`, got "always"'],
  ['an unknown member', { moed: 'auto' }, 'unknown setting `moed` in `rehearse`, expected one of mode, requests,'],
  ['another mode', { mode: 'sometimes' }, 'expected auto or always or never in `rehearse.mode`, got "sometimes"'],
  ['requests that are no list', { requests: {} }, 'expected a list of at most 32 requests in `rehearse.requests`'],
  ['too many requests', { requests: Array.from({ length: 33 }, () => ({ path: '/' })) }, 'at most 32 requests'],
  ['a request without a path', { requests: [{ method: 'POST' }] }, 'expected a `path` in every request of'],
  ['a path without a slash', request({ path: 'notes' }), 'a path such as `/notes` in `rehearse.requests.path`'],
  ['a path that names a host', request({ path: '//elsewhere/x' }), 'a path such as `/notes`'],
  ['a path with a blank', request({ path: '/a b' }), 'a path such as `/notes`'],
  ['an unknown member of a request', request({ code: 201 }), 'unknown setting `code` in `rehearse.requests`'],
  ['another method', request({ method: 'post' }), 'or DELETE in `rehearse.requests.method`, got "post"'],
  ['a status that is none', request({ status: 99 }), 'expected 100 to 599 in `rehearse.requests.status`, got 99'],
  ['a body for GET', request({ body: {} }), 'expected no body for GET / in `rehearse.requests`'],
  ['a body too large', request({ method: 'PUT', body: 'x'.repeat(16_383) }), 'expected JSON of at most 16384 bytes'],
  ['a header of two lines', request({ headers: { a: 'b\r\nc: d' } }), 'expected headers with texts'],
  ['headers too large', request({ headers: { a: 'b'.repeat(5000) } }), 'expected at most 4096 bytes'],
  ['SQL too long', { prepare: '-'.repeat(16_385) }, 'expected SQL of at most 16384 bytes in `rehearse.prepare`'],
  ['SQL that is no text', { prepare: ['DELETE'] }, 'expected SQL of at most'],
  ['too many files', { files: Array.from({ length: 17 }, (_, at) => `f${at}`) }, 'expected at most 16 paths'],
  ['a file elsewhere', { files: ['../other'] }, 'expected paths inside the state directory'],
  ['a file by its whole path', { files: ['/etc/passwd'] }, 'expected paths inside the state directory'],
  ['the whole state directory', { files: ['uploads/..'] }, 'other than `update` and all of it'],
  ['what is Baton’s own', { files: ['./update/journal.json'] }, 'other than `update` and all of it'],
  ['a word that is neither true nor false', { reversible: 'yes' }, 'expected true or false in `rehearse.reversible`'],
] as const)
  test(`refuses ${what}`, () => {
    throws(
      () => parse(rehearse),
      (error: Error) => error.message.includes(fault),
    )
  })

test('all faults are told at once', () => {
  try {
    parse({ mode: 'no', requests: [{ path: 'x', status: 1 }], files: ['..'] })
  } catch (error) {
    const { message } = error as Error
    for (const name of ['mode', 'requests.path', 'requests.status', 'files']) match(message, `\`rehearse.${name}\``)
    return
  }
  throw new Error('expected it to be refused')
})

test('the example of the guide is taken as it stands', async () => {
  const guide = await readFile(join(import.meta.dirname, '../docs/author/migrations.md'), 'utf8')
  const [, example = ''] = /```json\n([^`]*)```/.exec(guide) ?? []
  const { rehearse } = JSON.parse(example) as { rehearse: Rehearse }
  equal(parse(rehearse).rehearse, rehearse)
  equal(Object.keys(rehearse), Object.keys(WHOLE))
})

test('config.schema.json names the same members', async () => {
  const text = await readFile(join(import.meta.dirname, '../config.schema.json'), 'utf8')
  interface Shape {
    properties: Record<string, Shape>
    items: Shape
  }
  const { rehearse } = (JSON.parse(text) as Shape).properties
  equal(Object.keys(rehearse?.properties ?? {}), Object.keys(WHOLE))
  equal(Object.keys(rehearse?.properties['requests']?.items.properties ?? {}), Object.keys(WHOLE.requests?.[0] ?? {}))
})

test.run()
