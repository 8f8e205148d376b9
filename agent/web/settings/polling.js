// Keeps asking the service, and puts each answer into the state. follow.js judges what an answer means.
// Must hold: polling never stops for good; only a hidden page, or one without a token, asks nothing.

import { askStatus, call } from './endpoints.js'
import { POLL, delayOf, join, judge, measure } from './follow.js'
import { memory } from './memory.js'
import { announce, ui } from './page.js'
import { render } from './render.js'
import { isBusy, state } from './state.js'
import { because, duration, faultText, t } from './words.js'

/** errors that a wrongly typed tag causes: nothing has begun */
const MISTYPED = ['release_not_found', 'release_unusable', 'not_signed', 'yanked', 'invalid_tag']

let timer = 0
let polling = null
/** whether to ask the feed once more: the last question got lost, or something has changed since */
let checkAgain = false
let lastPollAt = performance.now()

export async function poll() {
  if (polling !== null || state.token === null || isHidden()) return
  clearTimeout(timer)
  polling = { abort: new AbortController(), at: performance.now() }
  const { token, starts } = state
  const answer = await askStatus(polling.abort.signal)
  polling = null
  // this answer is old: the page asked before it started an operation, or with another token
  if (token !== state.token || starts !== state.starts) {
    void poll()
    return
  }
  const gap = performance.now() - lastPollAt
  lastPollAt = performance.now()
  state.foreign = answer.kind === 'foreign'
  if (!understood(answer)) {
    state.failures += 1
    state.failingMs += Math.min(gap, POLL.gapMaxMs)
  } else {
    if (state.failingMs > 5000) announce(t('live.back'))
    state.failures = 0
    state.failingMs = 0
    take(answer)
  }
  render()
  plan()
}

/**
 * Whether the service itself has answered: anything else comes from a proxy in between. A 429 must not make the page drop a good token.
 * @param {import('./endpoints.js').Answer} answer
 */
function understood({ kind, status }) {
  if (kind !== 'problem') return kind === 'ok'
  return [401, 403, 501].includes(status) || (status === 429 && state.status === null)
}

function plan() {
  clearTimeout(timer)
  if (state.token === null || isHidden()) return
  const { failures, failingMs, status, unmanaged } = state
  const managed = status !== null && unmanaged === null
  timer = setTimeout(poll, delayOf({ failures, failingMs, busy: isBusy(), managed }))
}

const isHidden = () => document.visibilityState === 'hidden'

/** Asks now, because a person looks at the page or the network is back. Ends a request that hangs since before the sleep. */
export function wake() {
  if (isHidden()) {
    clearTimeout(timer)
    return
  }
  if (polling !== null && performance.now() - polling.at > 3000) polling.abort.abort()
  if (state.failures > 1) state.failures = 1
  lastPollAt = performance.now()
  void poll()
}

/** Puts the service's answer into the state. */
export function take(answer) {
  if (answer.kind === 'problem') {
    const wrong = answer.body.isProxys ? 'foreign' : 'gate.wrong'
    if (answer.status === 401) return askToken(state.status === null ? wrong : 'gate.again')
    if (answer.status === 429) return askToken('gate.slow', { time: duration(answer.retryMs) })
    state.closed = answer.code === 'no_password'
    state.unmanaged = answer.status === 501 ? answer.body : null
    return
  }
  const before = state.status
  const status = answer.body
  state.status = status
  state.unmanaged = null
  state.closed = false
  const { operation, instance } = status
  if (operation !== null && operation.outcome === null && operation.id !== state.follow?.id) followNow(join(status))
  settle()
  const busy = isBusy()
  const another = before?.instance.id !== instance.id
  if (before === null || (!busy && (another || state.wasBusy || checkAgain))) void check(true)
  if (!busy && state.assetsOf !== instance.id) void reloadOnce()
  state.wasBusy = busy
}

export function askToken(why, vars = {}) {
  memory.set('token', null)
  Object.assign(state, { token: null, gate: why, gateVars: vars, unmanaged: null, closed: false })
  clearTimeout(timer)
}

/** Judges the followed operation anew, and saves what has changed. */
export function settle() {
  const { status, follow } = state
  if (status === null || follow === null) return
  const judged = judge(follow, status)
  if (follow.done && judged.phase === 'unconfirmed') judged.phase = 'done'
  // in the first half of a probation both processes answer, each on its own connections
  const before = state.phase
  if (before?.phase === 'probation' && judged.phase === 'running' && judged.operation.stage === 'restart') {
    judged.phase = 'probation'
  }
  const at = performance.now()
  if (before?.phase !== judged.phase) state.since = { [judged.phase]: at }
  if (judged.phase === 'gone') return followNow(null)
  const done = judged.phase === 'done'
  if (judged.expected !== follow.expected || done !== (follow.done ?? false)) {
    state.follow = { ...follow, expected: judged.expected, done }
    memory.set('follow', state.follow)
  }
  state.phase = judged
  const { operation } = judged
  if (done) backToField(operation)
  const loading = operation.stage === 'download' && operation.progress !== null && operation.outcome === null
  state.speed = loading ? measure(state.samples, operation.progress, at) : null
  state.samples = state.speed?.samples ?? []
}

/** Puts a typed tag back into its field if it was mistyped, or if its release has no way back: then it may be sent again. */
function backToField({ id, to, outcome, error }) {
  const typed = state.tagTyped
  if (typed === null) return
  state.tagTyped = null
  memory.set('typed', null)
  const isIrreversible = error?.code === 'irreversible'
  if (outcome !== 'failed' || to !== typed || !(isIrreversible || MISTYPED.includes(error?.code))) return
  ui.other.open = true
  ui.tag.value = typed
  if (isIrreversible) return
  memory.set('dismissed', id)
  state.tagProblem = t(error.code === 'release_not_found' ? 'other.missing' : `error.${error.code}`, { tag: typed })
  setTimeout(() => ui.tag.focus())
}

export function followNow(follow) {
  state.follow = follow
  state.phase = null
  state.since = {}
  memory.set('follow', follow)
}

/** Asks the service before the page asks for a token: an unmanaged service, or one without a password, says what to do instead. */
export async function look() {
  const answer = await call('GET', '/status')
  const isPassed = answer.kind === 'ok' // by the application's own login
  if (state.token !== null || !(isPassed || [403, 501].includes(answer.status))) return
  if (isPassed) state.token = ''
  take(answer)
  render()
  if (isPassed) plan()
}

export async function check(quietly) {
  if (state.status === null) return
  checkAgain = state.checking
  if (state.checking) return
  state.checking = true
  render()
  const answer = await call('POST', '/check')
  state.checking = false
  checkAgain ||= answer.kind !== 'ok' && answer.kind !== 'problem'
  if (answer.kind === 'ok') {
    state.report = answer.body
    const { latest, updateAvailable, problem } = answer.body
    const nothing = () => (problem === null ? t('live.current') : because(problem))
    if (!quietly) announce(updateAvailable ? t('live.found', { to: latest }) : nothing())
  } else if (answer.kind === 'problem') {
    if (answer.status === 401 || answer.status === 501) take(answer)
    else state.notice = faultText(answer)
  }
  render()
}

/** A new version may have a new page: reloads at most once for each version, and only if the page itself has changed. */
async function reloadOnce() {
  const { id, version } = state.status.instance
  const own = document.querySelector('meta[name=assets]').getAttribute('content')
  const before = memory.get('reloaded') ?? []
  if (before.includes(version) || ui.confirm.open || ui.tag.value !== '') return
  try {
    const response = await fetch('settings.html', { method: 'HEAD', cache: 'no-store' })
    await response.text()
    const tag = response.headers.get('etag')
    if (!response.ok || tag === null || isBusy() || state.status.instance.id !== id) return
    state.assetsOf = id
    if (tag.includes(own)) return
    memory.set('reloaded', [...before, version])
    memory.set('focus', document.activeElement?.id ?? '')
    location.reload()
  } catch {
    // the next poll tries again
  }
}
