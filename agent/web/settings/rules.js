// The panel's rules for updates without a person: shows and changes them. They can only tighten what the host's configuration allows.
// Must hold: members that the form does not show stay as they are.

import { call } from './endpoints.js'
import { make, onUse, putCode, show, ui } from './page.js'
import { render } from './render.js'
import { state } from './state.js'
import { dayName, DAYS, faultText, t } from './words.js'

const MODES = ['off', 'notify', 'patch', 'minor', 'all']

/** counts the questions: only the answer to the last one fills the form */
let asked = 0

/** Asks for the rules, and fills the form with them. It stays hidden until then: an answer would overwrite what somebody types. */
export async function openRules() {
  show(ui.rulesForm, false)
  const question = ++asked
  if (!ui.rules.open) return
  const answer = await call('GET', '/policy')
  if (question !== asked) return
  show(ui.rulesForm, answer.kind === 'ok')
  putCode(ui.ruleProblem, faultText(answer))
  if (answer.kind !== 'ok') return
  const { own, limits } = answer.body
  const most = limits.mode ?? 'notify'
  const modes = MODES.slice(0, MODES.indexOf(most))
  ui.ruleMode.replaceChildren(
    ...[most, ...modes.toReversed()].map((mode, at) => {
      const option = make('option', '', t(at === 0 ? 'rules.most' : `mode.${mode}`, { mode: t(`mode.${mode}`) }))
      option.value = at === 0 ? '' : mode
      return option
    }),
  )
  ui.ruleMode.value = modes.includes(own.mode) ? own.mode : ''
  ui.ruleDays.replaceChildren(
    ui.ruleDays.firstElementChild,
    ...DAYS.map((day) => {
      const box = make('input', '')
      Object.assign(box, { type: 'checkbox', value: day, checked: (own.days ?? DAYS).includes(day) })
      return make('label', '', box, dayName(day))
    }),
  )
  ui.ruleHours.value = own.hours ?? ''
  ui.ruleAge.value = own.minAge ?? ''
  ui.ruleSkip.value = own.skip ?? ''
}

/** What the form says, in the rules that `own` has. The service checks it. */
function written(own) {
  const days = [...ui.ruleDays.querySelectorAll('input')].filter((box) => box.checked).map((box) => box.value)
  const said = {
    mode: ui.ruleMode.value,
    days: days.length === DAYS.length ? '' : days,
    hours: ui.ruleHours.value.trim(),
    minAge: ui.ruleAge.value.trim(),
    skip: ui.ruleSkip.value.trim(),
  }
  return { ...own, ...said }
}

/**
 * Changes the panel's rules, and keeps the others. `edit` makes the new ones of the present ones; null and '' take a rule away.
 * @param {(own: import('../../words/schedule.ts').PolicyFile) => object} edit
 */
export async function changeRules(edit) {
  let answer = await call('GET', '/policy')
  if (answer.kind === 'ok') {
    const said = Object.entries(edit(answer.body.own)).filter(([, value]) => value !== null && value !== '')
    answer = await call('POST', '/policy', { policy: Object.fromEntries(said) })
  }
  if (answer.kind === 'ok') state.status = { ...state.status, schedule: answer.body.schedule }
  return answer
}

async function saveRules() {
  const answer = await changeRules(written)
  putCode(ui.ruleProblem, faultText(answer))
  if (answer.kind !== 'ok') return
  state.notice = t('rules.saved')
  ui.rules.open = false
  render()
  ui.rulesTitle.focus()
}

onUse(ui.rulesGo, saveRules)
ui.rulesForm.addEventListener('submit', (event) => event.preventDefault())
