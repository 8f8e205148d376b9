// The operator's actions: update, roll back, cancel. Each but cancel asks first, and names what is particular this time.
// Must never break: what the operator agreed to is what is sent.

import { call } from './endpoints.js'
import { begin } from './follow.js'
import { memory } from './memory.js'
import { noWayBack, offerOf, particulars } from './offer.js'
import { make, put, putCode, ui } from './page.js'
import { followNow, poll, settle, take } from './polling.js'
import { render } from './render.js'
import { state } from './state.js'
import { ago, duration, now, problemText, sentences, t, withoutStop } from './words.js'

/** `oneWay`: true or undefined, which is not sent: an older service knows no such word */
async function start(kind, tag, typed = false, oneWay = undefined) {
  state.starting = true
  state.notice = ''
  const before = state.status.instance.id
  render()
  const answer = kind === 'update' ? await call('POST', '', { tag, oneWay }) : await call('POST', '/rollback')
  state.starting = false
  state.starts += 1
  state.refused = answer.code === 'one_way' ? tag : null
  if (answer.kind === 'ok') {
    state.tagTyped = typed ? tag : null
    memory.set('typed', state.tagTyped)
    followNow(begin(answer.body, before, tag ?? state.status.backup))
    state.status = { ...state.status, state: 'in_flight', operation: answer.body }
    settle()
    ui.tag.value = ''
  } else {
    refused(answer)
  }
  render()
  void poll()
}

/** @param {import('./endpoints.js').Answer} answer */
function refused(answer) {
  if (answer.kind === 'down') state.notice = t('notice.lost')
  else if (answer.status === 401 || answer.status === 501) take(answer)
  else state.notice = answer.code === 'update_in_flight' ? t('notice.taken') : problemText(answer)
}

/** Asks no question: before the swap nothing has changed, and after it the service refuses. */
export async function cancel() {
  const { operation } = state.status
  if (operation === null) return
  state.cancelling = operation.id
  state.notice = ''
  render()
  const answer = await call('POST', '/cancel')
  if (answer.kind !== 'ok') {
    state.cancelling = null
    refused(answer)
  }
  render()
  void poll()
}

/** Holds for a week what goes by itself, or ends the hold. Keeps the other rules of the panel. */
export async function hold() {
  const { heldUntil } = state.status.schedule
  let answer = await call('POST', '/policy')
  if (answer.kind === 'ok') {
    const { holdUntil: _, ...policy } = answer.body.own
    if (heldUntil === null) policy.holdUntil = new Date(now() + 7 * 86_400_000).toISOString()
    answer = await call('POST', '/policy', { policy })
  }
  if (answer.kind === 'ok') state.status = { ...state.status, schedule: answer.body.schedule }
  else refused(answer)
  render()
}

/** Asks in a dialog, and acts on a yes; pressing Enter twice is no yes. The focus returns by itself. */
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

function pointItem({ kind, at, why, ms, ...vars }) {
  const item = make('li', /^(bad|down|one)/.test(kind) ? 'alarm' : '')
  putCode(item, t(`point.${kind}`, { ...vars, time: ago(at), wait: duration(ms ?? 0), why: withoutStop(why ?? '') }))
  return item
}

let agreed = () => {}

/** Sends `to` even if it is the latest: the service does what the operator agreed to. */
function askUpdate(to, typed = false) {
  const from = state.status.instance.version
  const points = particulars(to, state.status, state.report)
  const oneWay = (ui.oneWay.checked && to === noWayBack(state.status, state.refused)) || undefined
  if (oneWay) points.unshift({ kind: 'one_way', from, to })
  const act = () => {
    ui.oneWay.checked = false // it is said for once
    void start('update', to, typed, oneWay)
  }
  const text = sentences(t('ask.update.text', { from, to }), oneWay ? '' : t('ask.back', { from }))
  ask(t('ask.update', { to }), text, points, t('update.to', { to }), act)
}

export function askRollback() {
  const [from, to] = [state.status.instance.version, state.status.backup]
  const points = particulars(to, state.status, state.report)
  const act = () => start('rollback', null)
  const yes = offerOf(state.status, state.report).kind === 'return' ? 'return.to' : 'rollback.to'
  const text = sentences(t('ask.rollback.text', { from, to }), t('ask.back', { from }))
  ask(t(`ask.${yes}`, { to }), text, points, t(yes, { to }), act)
}

/** The button of the offer: the newest release, from the feed or, if it is the backup, from the disk. */
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
  state.tagProblem = /^v(0|[1-9]\d{0,8})(\.(0|[1-9]\d{0,8})){2}$/.test(tag) ? '' : t('other.bad')
  render()
  if (state.tagProblem === '') askUpdate(tag, true)
  else ui.tag.focus()
}

ui.no.addEventListener('click', () => ui.confirm.close())
ui.yes.addEventListener('click', () => {
  ui.confirm.close()
  agreed()
})
