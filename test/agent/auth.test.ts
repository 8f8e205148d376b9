// Who may ask, and how fast.

import { readFile } from 'node:fs/promises'
import { FAILURE_FORGOTTEN_MS, FAILURES_AT_ONCE, makeGuard } from '../../agent/http/auth.ts'
import type { BatonError } from '../../agent/words/errors.ts'
import { is, not, ok, throws, withCode } from '../assert.ts'
import { suite } from '../suite.ts'

const PASSWORD = 'correct-horse'
const HERE = '192.0.2.1'

const test = suite('auth')

/** A guard with a clock that stands still until it is told otherwise. */
function guarded(password: string | null = PASSWORD) {
  let now = 1_000_000
  const { pass: asked } = makeGuard({ password, now: () => now })
  const guard = (authorization: string | undefined, address: string) =>
    asked({
      headers: authorization === undefined ? {} : { authorization },
      socket: { remoteAddress: address },
    })
  return {
    guard,
    fail: (times: number, address = HERE) => {
      for (let i = 0; i < times; i++) throws(() => guard('Bearer wrong', address), withCode('unauthorized'))
    },
    wait: (ms: number) => (now += ms),
  }
}

test('lets the right token pass, in any case of the scheme and with any number of spaces', () => {
  const { guard } = guarded()
  for (const scheme of ['Bearer', 'bearer', 'BEARER']) guard(`${scheme} ${PASSWORD}`, HERE)
  guard(`Bearer    ${PASSWORD}`, HERE)
})

test('refuses everything else, and never shows what it was', () => {
  const wrongs = [
    undefined,
    '',
    PASSWORD,
    'Bearer',
    'Bearer ',
    `Bearer ${PASSWORD} `,
    `Bearer ${PASSWORD}x`,
    `Bearer ${PASSWORD.slice(1)}`,
    `Bearer ${PASSWORD.toUpperCase()}`,
    `Basic ${PASSWORD}`,
    ` Bearer ${PASSWORD}`,
    `Bearer ${PASSWORD}${' '.repeat(5000)}`,
  ]
  for (const [i, wrong] of wrongs.entries()) {
    const { guard } = guarded()
    const error = throws(() => guard(wrong, HERE), withCode('unauthorized')) as BatonError
    const told = JSON.stringify([error.message, error.hint, error.members])
    ok(!told.includes(PASSWORD) && !told.includes('5000'), `${i}: ${told}`)
  }
})

test('a header of its own counts only where the setting says so, and then beside the other one', () => {
  const asking = (headers: Record<string, string>) => ({ headers, socket: { remoteAddress: HERE } })
  const [own, proxys] = [`Bearer ${PASSWORD}`, 'Basic YTpi']
  const { pass: strict } = makeGuard({ password: PASSWORD })
  const { hint } = throws(
    () => strict(asking({ authorization: proxys, 'x-baton-authorization': own })),
    withCode('unauthorized'),
  ) as BatonError
  is(
    hint,
    'if a proxy uses the `Authorization` header itself, set `dashboard.passwordHeader` to send the password in another header',
  )
  const { pass: both } = makeGuard({ password: PASSWORD, passwordHeader: 'x-baton-authorization' })
  both(asking({ authorization: proxys, 'x-baton-authorization': own }))
  both(asking({ authorization: own }))
  for (const headers of [{}, { authorization: proxys }, { 'x-baton-authorization': proxys }] as Record<
    string,
    string
  >[])
    throws(() => both(asking(headers)), withCode('unauthorized'))
})

test('compares sums of one length, by timingSafeEqual and by nothing else', async () => {
  const source = await readFile(new URL('../../agent/http/auth.ts', import.meta.url), 'utf8')
  const comparing = /function isBearer[\s\S]*?\n}\n/.exec(source)?.[0] ?? ''
  // a header that is none of ours, and the length of what was sent, are no secret
  const others = comparing.match(/===|!==|==|\.equals\(|compare\(|includes\(expected/g)
  is(others?.join(' '), '=== ===')
  ok(/\[asText, asBytes\]\.map\(\(one\) => nodeCrypto\(\)\.timingSafeEqual\(one, expected\(\)\)\)/.test(comparing))
})

test('takes a password that is not ASCII as bytes of UTF-8, as a header carries it', () => {
  const { guard } = guarded('pässwörd-密码')
  guard(`Bearer ${Buffer.from('pässwörd-密码').toString('latin1')}`, HERE)
  throws(() => guard(`Bearer ${Buffer.from('passwörd-密码').toString('latin1')}`, HERE), withCode('unauthorized'))
})

test('without a password nobody passes, whatever they bring, and nobody is counted', () => {
  const { guard } = guarded(null)
  for (const value of [undefined, 'Bearer ', 'Bearer null', 'Bearer undefined', 'Bearer ""']) {
    for (let i = 0; i < 50; i++) throws(() => guard(value, HERE), withCode('no_password'))
  }
})

test('slows an address down after so many failures, and says for how long', () => {
  const { guard, fail, wait } = guarded()
  fail(FAILURES_AT_ONCE)
  const error = throws(() => guard('Bearer wrong', HERE), withCode('too_many_failures')) as BatonError
  const seconds = Number(error.members['retryAfterSeconds'])
  is(seconds, FAILURE_FORGOTTEN_MS / 1000)
  wait(seconds * 1000 - 1)
  throws(() => guard('Bearer wrong', HERE), withCode('too_many_failures'))
  wait(1)
  throws(() => guard('Bearer wrong', HERE), withCode('unauthorized'))
})

test('never slows down the right password, whoever guesses from the same address, nor forgives them for it', () => {
  const { guard, fail, wait } = guarded()
  fail(FAILURES_AT_ONCE)
  for (let second = 0; second < 48; second++) {
    for (let i = 0; i < 550; i++) throws(() => guard('Bearer wrong', HERE))
    guard(`Bearer ${PASSWORD}`, HERE)
    throws(() => guard('Bearer wrong', HERE), withCode('too_many_failures'))
    wait(10)
  }
})

test('being refused for that does not count: the wait does not grow', () => {
  const { guard, fail, wait } = guarded()
  fail(FAILURES_AT_ONCE)
  for (let i = 0; i < 1000; i++) throws(() => guard('Bearer wrong', HERE), withCode('too_many_failures'))
  wait(FAILURE_FORGOTTEN_MS)
  fail(1)
  throws(() => guard('Bearer wrong', HERE), withCode('too_many_failures'))
})

test('forgives all of it in time', () => {
  const { fail, wait } = guarded()
  fail(FAILURES_AT_ONCE)
  wait(FAILURE_FORGOTTEN_MS * FAILURES_AT_ONCE)
  fail(FAILURES_AT_ONCE)
})

test('counts each address apart, and remembers no more than its bound', () => {
  const { guard, fail } = guarded()
  fail(FAILURES_AT_ONCE)
  fail(FAILURES_AT_ONCE, '192.0.2.2')
  const before = process.memoryUsage().heapUsed
  for (let i = 0; i < 50_000; i++)
    throws(() => guard('Bearer wrong', `2001:db8:${(i >> 16).toString(16)}:${(i & 0xffff).toString(16)}::1`))
  globalThis.gc?.()
  ok(process.memoryUsage().heapUsed - before < 100 * 1024 * 1024)
  not.instance(guard, Error)
})

test.run()
