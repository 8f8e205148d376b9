// The form that asks for the token, and says why.

import { put, putCode, show, ui } from './page.js'
import { state } from './state.js'
import { t } from './words.js'

export function renderGate() {
  put(ui.gateProblem, state.gate === '' ? '' : t(state.gate, state.gateVars))
  putCode(ui.gateText, t(state.closed ? 'gate.none' : 'gate.text'))
  for (const one of [ui.token.parentElement, ui.gate.querySelector('label')]) show(one, !state.closed)
  ui.token.toggleAttribute('aria-invalid', false)
  if (state.gate !== '') ui.token.setAttribute('aria-invalid', 'true')
}
