// Asks the service. Must hold: the password is in a header and nowhere else; every request ends.

import { POLL } from './follow.js'
import { state } from './state.js'
import { setClock } from './words.js'

/**
 * `foreign`: somebody between this page and the service asks for a login of their own.
 * @typedef {{ kind: 'ok' | 'problem' | 'down' | 'foreign', status?: number, code?: string, body?: any, retryMs?: number }} Answer
 */

const LOGINS = [401, 403, 407, 511]
/** the setting `dashboard.passwordHeader`, which the service has written into the page */
const header = document.querySelector('meta[name=header]').getAttribute('content')

/** the last answer, so that an idle service need not send it again */
let last = { token: null, etag: null, body: null }

/** @returns {Promise<Answer>} */
export async function askStatus(abort) {
  const { token } = state
  const known = last.token === token ? last.etag : null
  const answer = await call('GET', '/status', undefined, { abort, known })
  if (answer.status === 304) return { kind: 'ok', status: 304, body: last.body }
  if (answer.kind === 'ok') last = { token, etag: answer.etag, body: answer.body }
  return answer
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @param {{ abort?: AbortSignal, known?: string | null }} [more]
 * @returns {Promise<Answer & { etag?: string | null }>}
 */
export async function call(method, path, body, more = {}) {
  const { abort, known = null } = more
  const limit = AbortSignal.timeout(method === 'GET' ? POLL.timeoutMs : 60000)
  // a header is bytes: send letters beyond ASCII as UTF-8
  const token = state.token === null ? '' : String.fromCharCode(...new TextEncoder().encode(state.token))
  const headers = token === '' ? {} : { [header]: `Bearer ${token}` }
  if (body !== undefined) headers['content-type'] = 'application/json'
  if (known !== null) headers['if-none-match'] = known
  try {
    const response = await fetch(`../admin/update${path}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      cache: 'no-store',
      redirect: 'manual',
      signal: abort === undefined ? limit : AbortSignal.any([limit, abort]),
    })
    const { status } = response
    setClock(response.headers.get('date'))
    if (response.type === 'opaqueredirect') return { kind: 'foreign' }
    const text = await response.text()
    if (status === 304 && known !== null) return { kind: 'ok', status }
    const value = parsed(text)
    if (LOGINS.includes(status) && typeof value?.code !== 'string') return { kind: 'foreign' }
    if (value === undefined) return { kind: 'down' }
    if (response.ok) return { kind: 'ok', body: value, etag: response.headers.get('etag') }
    const seconds = Number(value.retryAfterSeconds ?? response.headers.get('retry-after') ?? 30)
    return { kind: 'problem', status, code: value.code, body: value, retryMs: (seconds || 30) * 1000 }
  } catch {
    return { kind: 'down' }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
