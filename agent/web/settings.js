// Starts the page: connects each click to its action, and asks the first question.
// Must hold: nothing from the service becomes markup (page.js, notes.js), the password is never in a URL (endpoints.js), polling never
// stops for good (polling.js), and the page claims nothing that it has not seen (follow.js).

import { askAgain, askNamed, askOffered, askRollback, cancel, pause, proceed, skip, turn } from './settings/actions.js'
import { memory } from './settings/memory.js'
import { announce, onUse, put, ui } from './settings/page.js'
import { askToken, check, followNow, look, poll, wake } from './settings/polling.js'
import { render } from './settings/render.js'
import { openRules } from './settings/rules.js'
import { state } from './settings/state.js'
import { copyCommand } from './settings/unmanaged.js'
import { language, otherLanguage, speak } from './settings/words.js'

ui.gate.addEventListener('submit', (event) => {
  event.preventDefault()
  const token = ui.token.value
  // a header cannot carry these characters, so no password has them
  if (/[\0\r\n]/.test(token)) {
    state.gate = 'gate.wrong'
    return render()
  }
  Object.assign(state, { token, gate: '', status: null, failures: 0, failingMs: 0 })
  void poll().then(() => {
    if (state.token === null) {
      ui.token.select()
      return
    }
    if (state.failures === 0) memory.set('token', token)
    ui.token.value = ''
    if (!ui.card.hidden) ui.cardTitle.focus()
    if (!ui.unmanaged.hidden) ui.unmanagedTitle.focus()
  })
})
ui.leave.addEventListener('click', () => {
  askToken('')
  Object.assign(state, { status: null, report: null, notice: '' })
  followNow(null)
  render()
  ui.token.focus()
})
ui.language.addEventListener('click', () => {
  memory.choose(otherLanguage())
  void speakAndShow(otherLanguage())
})
onUse(ui.check, () => {
  state.notice = ''
  void check(false)
})
onUse(ui.update, askOffered)
onUse(ui.again, askAgain)
onUse(ui.rollback, askRollback)
onUse(ui.cancel, cancel)
onUse(ui.proceed, proceed)
onUse(ui.pause, pause)
onUse(ui.skip, skip)
ui.auto.addEventListener('change', turn)
onUse(ui.copy, copyCommand)
ui.rules.addEventListener('toggle', openRules)
ui.pick.addEventListener('submit', (event) => {
  event.preventDefault()
  if (ui.tagGo.getAttribute('aria-disabled') !== 'true') askNamed(ui.tag.value.trim())
})
ui.tag.addEventListener('input', () => {
  state.tagProblem = ''
  render()
})
ui.dismiss.addEventListener('click', () => {
  memory.set('dismissed', state.status.operation.id)
  render()
})
ui.more.addEventListener('click', () => {
  state.allHistory = true
  render()
  ui.pastTitle.focus()
})
document.addEventListener('visibilitychange', wake)
window.addEventListener('online', wake)
window.addEventListener('pageshow', wake)

async function speakAndShow(next) {
  await speak(next)
  announce('')
  render()
}

// `/_baton` is where only Baton is: the application is above it
const application = location.pathname.replace(/(\/_baton)?\/web\/.*$/, '')
ui.host.href = `${application}/`
put(ui.host, location.host + application)
await speakAndShow(language)
if (state.token === null) {
  ui.token.focus()
  void look()
} else {
  void poll().then(() => {
    const focus = memory.get('focus')
    memory.set('focus', null)
    if (focus) ui[focus]?.focus()
  })
}
