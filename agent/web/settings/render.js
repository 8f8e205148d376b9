// Turns the state into the page. No other module writes into the page, except into an element that was clicked.

import { POLL } from './follow.js'
import { phaseTitle, renderBusy } from './busy.js'
import { renderHistory, renderOutcome } from './outcome.js'
import { announce, keepFocus, make, put, putCode, show, tell, ui } from './page.js'
import { isBusy, isSilent, state } from './state.js'
import { renderUnmanaged } from './unmanaged.js'
import { renderActions, renderVersions } from './versions.js'
import { duration, minute, sentences, t } from './words.js'

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
  put(ui.gateProblem, state.gate === '' ? '' : t(state.gate, state.gateVars))
  putCode(ui.gateText, t(state.closed ? 'gate.none' : 'gate.text'))
  for (const one of [ui.token.parentElement, ui.gate.querySelector('label')]) show(one, !state.closed)
  ui.token.toggleAttribute('aria-invalid', false)
  if (state.gate !== '') ui.token.setAttribute('aria-invalid', 'true')
}

function renderSilence() {
  const { failingMs } = state
  const key = failingMs >= POLL.silentAfterMs ? 'silence.long' : isBusy() ? 'silence.busy' : 'silence.short'
  const silence = isSilent() ? t(key, { time: duration(failingMs) }) : ''
  put(ui.waitingText, silence || t('waiting'))
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
  document.title = `${title} · ${location.host}`
}

/** What the service does by itself, when next, and what waits for a person. */
function renderSchedule({ schedule }) {
  show(ui.alone, schedule !== undefined)
  if (schedule === undefined) return
  const { mode, policy, next, says, waits, pausedUntil } = schedule
  // do not repeat what the list below says
  const then = next === null || waits.includes(says) ? '' : t('alone.next', { time: minute(next), says })
  putCode(ui.aloneText, sentences(`${policy}.`, then))
  renderWaits(waits)
  show(ui.pause, mode !== 'off' && mode !== 'notify')
  put(ui.pause, t(pausedUntil === null ? 'alone.pause' : 'alone.go'))
}

/** Changes an item only if its text changes: a person may be copying it. */
function renderWaits(waits) {
  const { children } = ui.aloneWaits
  while (children.length > waits.length) ui.aloneWaits.lastChild.remove()
  while (children.length < waits.length) ui.aloneWaits.append(make('li', 'note'))
  waits.forEach((says, index) => putCode(children[index], says))
}
