// The panel's rules for updates without a person: shows and changes them. They can only tighten what the host's configuration allows.
// Must hold: members that the form does not show stay as they are.

import { call } from './endpoints.js'
import { make, onUse, put, show, ui } from './page.js'
import { render } from './render.js'
import { state } from './state.js'
import { language, problemText, t } from './words.js'

const MODES = ['off', 'notify', 'patch', 'minor', 'all']
const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']
/** a Monday, for the names of the days */
const MONDAY = Date.UTC(2024, 0, 1)

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
  put(ui.ruleProblem, answer.kind === 'problem' ? problemText(answer) : answer.kind === 'down' ? t('notice.lost') : '')
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
  const name = new Intl.DateTimeFormat(language, { weekday: 'short', timeZone: 'UTC' })
  ui.ruleDays.replaceChildren(
    ui.ruleDays.firstElementChild,
    ...DAYS.map((day, at) => {
      const box = make('input', '')
      Object.assign(box, { type: 'checkbox', value: day, checked: (own.days ?? DAYS).includes(day) })
      return make('label', '', box, name.format(MONDAY + at * 86_400_000))
    }),
  )
  ui.ruleHours.value = own.hours ?? ''
  ui.ruleAge.value = own.minAgeHours ?? ''
  ui.ruleSkip.value = own.skip ?? ''
}

/** What the form says, in the rules that `own` has. The service checks it. */
function written(own) {
  const days = [...ui.ruleDays.querySelectorAll('input')].filter((box) => box.checked).map((box) => box.value)
  const age = ui.ruleAge.value.trim()
  const said = {
    mode: ui.ruleMode.value,
    days: days.length === DAYS.length ? '' : days,
    hours: ui.ruleHours.value.trim(),
    minAgeHours: age === '' || Number.isNaN(Number(age)) ? age : Number(age),
    skip: ui.ruleSkip.value.trim(),
  }
  return Object.fromEntries(Object.entries({ ...own, ...said }).filter(([, value]) => value !== ''))
}

async function saveRules() {
  let answer = await call('GET', '/policy')
  if (answer.kind === 'ok') answer = await call('POST', '/policy', { policy: written(answer.body.own) })
  const isSaved = answer.kind === 'ok'
  put(ui.ruleProblem, isSaved ? '' : answer.kind === 'down' ? t('notice.lost') : problemText(answer))
  if (!isSaved) return
  state.status = { ...state.status, schedule: answer.body.schedule }
  state.notice = t('rules.saved')
  ui.rules.open = false
  render()
  ui.rulesTitle.focus()
}

onUse(ui.rulesGo, saveRules)
ui.rulesForm.addEventListener('submit', (event) => event.preventDefault())
