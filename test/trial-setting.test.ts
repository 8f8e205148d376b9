// `trial` in baton.config.json: what is taken, what is refused, and that it goes into a release only if it is said.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Rehearse } from '../agent/words/rehearsal.ts'
import { wordsOf } from '../deploy/make/application.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, ok, throws } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('the setting `trial`')

const parse = (trial?: unknown) =>
  parseProject({ service: 'shop', entry: 'a.js', ...(trial === undefined ? {} : { trial }) }, '/x')

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
  for (const trial of [
    WHOLE,
    {},
    { requests: [] },
    { reversible: false },
    { requests: [{ method: 'POST', path: '/', body: null }] },
  ])
    equal(parse(trial).trial, trial)
  equal([parse().trial, parse(null).trial], [null, null])
})

test('it goes into the release; a release without it is the one that it was before', () => {
  const words = (rehearse?: unknown) =>
    JSON.parse(JSON.stringify(wordsOf(parse(rehearse), 'v1.0.0', null, null))) as object
  equal((words(WHOLE) as { rehearse: Rehearse }).rehearse, WHOLE)
  is('rehearse' in words(), false)
})

const request = (some: object) => ({ requests: [{ path: '/', ...some }] })

for (const [what, rehearse, fault] of [
  ['no object', 'always', 'expected an object in `trial`, got "always"'],
  ['an unknown member', { moed: 'auto' }, 'unknown setting `trial.moed`, expected one of mode, requests,'],
  ['another mode', { mode: 'sometimes' }, 'expected `auto`, `always` or `never` in `trial.mode`, got "sometimes"'],
  ['requests that are no list', { requests: {} }, 'expected a list of at most 32 items in `trial.requests`'],
  ['too many requests', { requests: Array.from({ length: 33 }, () => ({ path: '/' })) }, 'a list of at most 32 items'],
  ['a request without a path', { requests: [{ method: 'POST' }] }, 'expected `path` in `trial.requests[0]`'],
  [
    'a path without a slash',
    request({ path: 'notes' }),
    'a path such as `/notes` (at most 2048 characters) in `trial.requests[0].path`',
  ],
  ['a path that names a host', request({ path: '//elsewhere/x' }), 'a path such as `/notes`'],
  ['a path with a blank', request({ path: '/a b' }), 'a path such as `/notes`'],
  ['an unknown member of a request', request({ code: 201 }), 'unknown setting `trial.requests[0].code`'],
  ['another method', request({ method: 'post' }), 'or `DELETE` in `trial.requests[0].method`, got "post"'],
  [
    'a status that is none',
    request({ status: 99 }),
    'a whole number from 100 to 599 in `trial.requests[0].status`, got 99',
  ],
  [
    'a body for GET',
    request({ body: {} }),
    'expected a method that allows a `body`, such as POST, in `trial.requests[0].method`, got "GET"',
  ],
  ['a body too large', request({ method: 'PUT', body: 'x'.repeat(16_383) }), 'expected JSON of at most 16384 bytes'],
  [
    'a header of two lines',
    request({ headers: { a: 'b\r\nc: d' } }),
    'expected a single line of text in `trial.requests[0].headers.a`',
  ],
  [
    'a header of another name',
    request({ headers: { 'a b': 'c' } }),
    'expected header names in `trial.requests[0].headers`',
  ],
  ['headers too large', request({ headers: { a: 'b'.repeat(5000) } }), 'expected at most 4096 bytes'],
  ['SQL too long', { prepare: '-'.repeat(16_385) }, 'expected SQL (at most 16384 characters) in `trial.prepare`'],
  ['SQL of too many bytes', { prepare: 'é'.repeat(8193) }, 'expected SQL of at most 16384 bytes in `trial.prepare`'],
  ['SQL that is no text', { prepare: ['DELETE'] }, 'expected SQL (at most'],
  [
    'too many files',
    { files: Array.from({ length: 17 }, (_, at) => `f${at}`) },
    'expected a list of at most 16 items in `trial.files`',
  ],
  ['a file elsewhere', { files: ['../other'] }, 'expected paths inside the state directory'],
  ['a file by its whole path', { files: ['/etc/passwd'] }, 'expected paths inside the state directory'],
  [
    'the whole state directory',
    { files: ['uploads/..'] },
    'expected paths inside the state directory, but outside its `update` folder,',
  ],
  [
    'what is Baton’s own',
    { files: ['./update/journal.json'] },
    'expected paths inside the state directory, but outside its `update` folder,',
  ],
  ['a word that is neither true nor false', { reversible: 'yes' }, 'expected true or false in `trial.reversible`'],
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
    for (const name of ['mode', 'requests[0].path', 'requests[0].status', 'files'])
      ok(message.includes(`\`trial.${name}\``), message)
    return
  }
  throw new Error('expected it to be refused')
})

test('the example of the guide is taken as it stands', async () => {
  const guide = await readFile(join(import.meta.dirname, '../docs/author/migrations.md'), 'utf8')
  const [, example = ''] = /```json\n([^`]*)```/.exec(guide) ?? []
  const { trial } = JSON.parse(example) as { trial: Rehearse }
  equal(parse(trial).trial, trial)
  equal(Object.keys(trial), Object.keys(WHOLE))
})

test.run()
