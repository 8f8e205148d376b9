// The operator's actions: update, roll back, cancel, pause. Update and rollback ask first, and name what is particular this time.
// Must hold: the page sends exactly what the operator agreed to.

import { call } from './endpoints.js'
import { begin } from './follow.js'
import { memory } from './memory.js'
import { isSkipped, noWayBack, offerOf, particulars } from './offer.js'
import { make, put, putCode, ui } from './page.js'
import { followNow, poll, settle, take } from './polling.js'
import { render } from './render.js'
import { changeRules } from './rules.js'
import { state } from './state.js'
import { ago, duration, faultText, minute, now, sentences, t, withFault } from './words.js'

/** `tag` null: a rollback. `typed`: the operator typed the tag. */
async function start(tag, { typed = false, allowIrreversible = false } = {}) {
  state.starting = true
  state.notice = ''
  const before = state.status.instance.id
  render()
  // an older service does not know `allowIrreversible`: send it only if it is true
  const wanted = allowIrreversible ? { tag, allowIrreversible } : { tag }
  const answer = tag === null ? await call('POST', '/rollback') : await call('POST', '', wanted)
  state.starting = false
  state.starts += 1
  state.refused = answer.code === 'irreversible' ? tag : null
  if (answer.kind === 'ok') {
    state.tagTyped = typed ? tag : null
    memory.set('typed', state.tagTyped)
    followNow(begin(answer.body, before, tag ?? state.status.backup))
    state.status = { ...state.status, state: 'in_flight', operation: answer.body }
    settle()
    ui.tag.value = ''
  } else if (typed && answer.code === 'release_not_found') {
    state.tagProblem = t('other.missing', { tag })
    ui.tag.focus()
  } else {
    sayRefused(answer)
  }
  render()
  void poll()
}

/** @param {import('./endpoints.js').Answer} answer */
function sayRefused(answer) {
  if (answer.status === 401 || answer.status === 501) take(answer)
  else state.notice = answer.code === 'update_in_flight' ? t('notice.taken') : faultText(answer)
}

/** Ends the application's work for which the operation waits; the button says so. */
export async function proceed() {
  const answer = await call('POST', '/proceed')
  if (answer.kind !== 'ok' && answer.code !== 'too_late') sayRefused(answer)
  render()
  void poll()
}

/** Does not ask first: before the swap nothing has changed, and after it the service refuses. */
export async function cancel() {
  const { operation } = state.status
  if (operation === null) return
  state.cancelling = operation.id
  state.notice = ''
  render()
  const answer = await call('POST', '/cancel')
  if (answer.kind !== 'ok') {
    state.cancelling = null
    sayRefused(answer)
  }
  render()
  void poll()
}

/** Pauses automatic updates for a week, or ends the pause. A pause in the configuration stays. */
export async function pause() {
  const isPaused = state.status.schedule.pausedUntil !== null
  const until = new Date(now() + 7 * 86_400_000).toISOString()
  await rule('pauseUntil', isPaused ? null : until)
  const { pausedUntil } = state.status.schedule
  if (isPaused && pausedUntil !== null && state.notice === '')
    state.notice = t('alone.kept', { time: minute(pausedUntil) })
  render()
}

/** Turns automatic updates off, or on as far as the operator allows. */
export const turn = () => rule('mode', ui.auto.checked ? null : 'notify')

/** Skips the release that is on offer, or offers it again. One that the configuration skips stays skipped. */
export function skip() {
  const { tag } = offerOf(state.status, state.report)
  return rule('skip', isSkipped(state.status, tag) ? null : tag)
}

/** Sets one of the panel's rules; null removes it. */
async function rule(name, value) {
  state.notice = ''
  const answer = await changeRules((own) => ({ ...own, [name]: value }))
  if (answer.kind !== 'ok') sayRefused(answer)
  render()
}

/** the action if the operator says yes */
let agreed = () => {}

/** Asks in a dialog, and acts on a yes. Enter means no, so that pressing it twice is not a yes. The browser restores the focus. */
function ask(title, text, points, yes, act) {
  put(ui.confirmTitle, title)
  put(ui.confirmText, text)
  ui.confirmPoints.replaceChildren(...points.map(pointItem))
  ui.confirmPoints.hidden = points.length === 0
  put(ui.yes, yes)
  agreed = act
  ui.confirm.showModal()
  ui.no.focus()
}

function pointItem({ kind, at, fault, ms, ...vars }) {
  const item = make('li', /^(bad|down|irr)/.test(kind) ? 'alarm' : '')
  const own = t(`point.${kind}`, { ...vars, time: ago(at), wait: duration(ms ?? 0) })
  putCode(item, fault === undefined ? own : withFault(own, fault))
  return item
}

/** Sends `to` even if it is the latest: the service does what the operator agreed to. */
function askUpdate(to, typed = false) {
  const { status, report } = state
  const from = status.instance.version
  const allowIrreversible = ui.allowIrreversible.checked && to === noWayBack(status, state.refused)
  const points = [
    ...(allowIrreversible ? [{ kind: 'irreversible', from, to }] : []),
    ...particulars(to, status, report),
  ]
  const act = () => {
    ui.allowIrreversible.checked = false // the consent counts once
    void start(to, { typed, allowIrreversible })
  }
  const isThere = report?.installed === to
  const text = sentences(
    t(isThere ? 'ask.restart.text' : 'ask.update.text', { from, to }),
    allowIrreversible ? '' : t('ask.back', { from }),
  )
  ask(t('ask.update', { to }), text, points, t('update.to', { to }), act)
}

export function askRollback() {
  const [from, to] = [state.status.instance.version, state.status.backup]
  const points = particulars(to, state.status, state.report)
  const act = () => void start(null)
  const yes = offerOf(state.status, state.report).kind === 'return' ? 'return.to' : 'rollback.to'
  const text = sentences(t('ask.rollback.text', { from, to }), t('ask.back', { from }))
  ask(t(`ask.${yes}`, { to }), text, points, t(yes, { to }), act)
}

/** The button of the offer: updates to the newest release, or rolls back if the backup is that release. */
export function askOffered() {
  const { kind, tag } = offerOf(state.status, state.report)
  if (kind === 'return') askRollback()
  else if (tag !== null) askUpdate(tag)
}

export function askAgain() {
  const { failed } = offerOf(state.status, state.report)
  if (failed !== null) askUpdate(failed.tag)
}

export function askNamed(tag) {
  state.tagProblem = /^v\d+\.\d+\./.test(tag) ? '' : t('error.invalid_tag')
  render()
  if (state.tagProblem === '') askUpdate(tag, true)
  else ui.tag.focus()
}

ui.no.addEventListener('click', () => ui.confirm.close())
ui.yes.addEventListener('click', () => {
  ui.confirm.close()
  agreed()
})
