// Turns the state into the page. No other module writes into the page, except into an element that was clicked.

import { POLL } from './follow.js'
import { phaseTitle, renderBusy } from './busy.js'
import { renderHistory, renderOutcome } from './outcome.js'
import { announce, keepFocus, make, put, putCode, show, tell, ui } from './page.js'
import { isBusy, isSilent, state } from './state.js'
import { renderUnmanaged } from './unmanaged.js'
import { ACTS, nextCheck, renderActions, renderVersions } from './versions.js'
import { age, dayName, DAYS, duration, joined, sentences, soon, stopped, t, waiting } from './words.js'

export function render() {
  const focused = document.activeElement
  const { status, token, unmanaged, closed, failures } = state
  const gate = (token === null && unmanaged === null) || closed
  show(ui.gate, gate)
  show(ui.leave, token !== null)
  show(ui.waiting, !gate && unmanaged === null && status === null)
  show(ui.unmanaged, !gate && unmanaged !== null)
  show(ui.card, !gate && unmanaged === null && status !== null)
  renderGate()
  renderSilence()
  if (unmanaged !== null) renderUnmanaged(unmanaged)
  if (status !== null && !gate) renderCard(status)
  const named = status !== null && !gate && unmanaged === null && failures === 0
  const { version, pid, id } = status?.instance ?? {}
  show(ui.about, named)
  put(ui.instance, named ? t('instance', { version, pid, id: id.slice(0, 8) }) : '')
  keepFocus(focused)
}

/** The form that asks for the token, and says why. */
function renderGate() {
  putCode(ui.gateProblem, state.gate === '' ? '' : t(state.gate, state.gateVars))
  putCode(ui.gateText, t(state.closed ? 'gate.none' : 'gate.text'))
  for (const one of [ui.token.parentElement, ui.gate.querySelector('label')]) show(one, !state.closed)
  ui.token.toggleAttribute('aria-invalid', false)
  if (state.gate !== '') ui.token.setAttribute('aria-invalid', 'true')
}

function renderSilence() {
  const { failingMs, foreign } = state
  const long = failingMs >= POLL.silentAfterMs ? 'silence.long' : isBusy() ? 'silence.busy' : 'silence.short'
  const key = foreign ? 'foreign' : long
  const silence = foreign || isSilent() ? t(key, { time: duration(failingMs) }) : ''
  putCode(ui.waitingText, silence || t('waiting'))
  tell(ui.silence, silence)
  if (silence !== '') announce(silence, key)
}

function renderCard(status) {
  const { report, phase } = state
  const busy = isBusy()
  renderVersions(status, report)
  show(ui.busy, busy)
  show(ui.actions, !busy)
  show(ui.backup, false)
  tell(ui.notice, state.notice)
  renderOutcome(status, busy)
  if (busy) renderBusy(status)
  else renderActions(status, report)
  renderSchedule(status)
  renderHistory(status)
  const title = busy && phase !== null ? phaseTitle(phase.operation) : t('settings')
  document.title = `${title} · ${ui.service.textContent}`
}

/** What the service does by itself, when next, and what waits for a person. */
function renderSchedule({ schedule, trust }) {
  show(ui.alone, schedule !== undefined)
  if (schedule === undefined) return
  const { mode, most, waits, pausedUntil } = schedule
  const isOn = isAutomatic(mode)
  show(ui.auto, isAutomatic(most))
  ui.auto.checked = isOn
  const isStalled = trust?.signed === false && !schedule.policy.allow?.includes('unsigned')
  const on = isStalled ? t('alone.stalled') : rulesText(schedule)
  const closed = isAutomatic(most) ? '' : t('alone.closed')
  putCode(ui.aloneText, sentences(isOn ? on : t(`alone.${mode}`), closed, nextText(schedule)))
  // the offer above says what is available
  renderWaits(waits.filter(({ code }) => code !== 'available'))
  show(ui.pause, isOn)
  put(ui.pause, t(pausedUntil === null ? 'alone.pause' : 'alone.go'))
}

const isAutomatic = (mode) => mode !== undefined && mode !== 'off' && mode !== 'notify'

function rulesText({ mode, policy }) {
  const { hours = [], minAgeMs = 0, skip = [], allow = [] } = policy
  const open = hours.map(({ days, from, to, zone }) => `${daysText(days)} ${from}–${to} (${zone})`.trim())
  const parts = [
    t(`mode.${mode}`),
    ...open,
    minAgeMs > 0 ? t('alone.age', { time: age(minAgeMs / 3_600_000) }) : '',
    skip.length > 0 ? t('alone.without', { tags: skip.join(', ') }) : '',
    ...allow.map((one) => t(`alone.${one}`)),
  ]
  return t('alone.on', { what: joined(parts, t('comma')) })
}

/** '' for every day. */
function daysText(days) {
  if (days.length === DAYS.length) return ''
  const [first, last] = [days[0], days.at(-1)]
  const isRow = days.length > 2 && DAYS.indexOf(last) - DAYS.indexOf(first) === days.length - 1
  return isRow ? `${dayName(first)}–${dayName(last)}` : days.map(dayName).join(t('comma'))
}

/** what the rest of the page shows already */
const SHOWN = [undefined, 'off', 'current', 'not_asked', 'available', ...ACTS]

/** What comes next, and when; does not repeat what is shown already. */
function nextText(schedule) {
  const { now, next, waits } = schedule
  if (now?.code === 'goes') {
    const because = now.because.length > 0 ? joined(now.because.map(waiting), t('comma')) : ''
    return sentences(t('alone.goes', { tag: now.tag, time: soon(next) }), because)
  }
  const told = SHOWN.includes(now?.code) || waits.some(({ says }) => says === now?.says)
  return sentences(told ? '' : stopped(waiting(now)), ui.current.hidden || ui.actions.hidden ? nextCheck(schedule) : '')
}

/** Changes an item only if its text changes: a person may be copying it. */
function renderWaits(waits) {
  const { children } = ui.aloneWaits
  while (children.length > waits.length) ui.aloneWaits.lastChild.remove()
  while (children.length < waits.length) ui.aloneWaits.append(make('li', 'note'))
  waits.forEach((wait, index) => putCode(children[index], waiting(wait)))
}
