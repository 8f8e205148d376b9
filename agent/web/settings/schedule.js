// Shows the schedule: what the service does by itself, when next, and what waits for a person.

import { make, put, putCode, show, ui } from './page.js'
import { minute, sentences, t } from './words.js'

export function renderSchedule({ schedule }) {
  show(ui.alone, schedule !== undefined)
  if (schedule === undefined) return
  const { mode, policy, next, says, waits, heldUntil } = schedule
  // do not repeat what the list below says
  const then = next === null || waits.includes(says) ? '' : t('alone.next', { time: minute(next), says })
  putCode(ui.aloneText, sentences(`${policy}.`, then))
  renderWaits(waits)
  show(ui.hold, mode !== 'off' && mode !== 'notify')
  put(ui.hold, t(heldUntil === null ? 'alone.hold' : 'alone.go'))
}

/** Changes an item only if its text changes: a person may be copying it. */
function renderWaits(waits) {
  const { children } = ui.aloneWaits
  while (children.length > waits.length) ui.aloneWaits.lastChild.remove()
  while (children.length < waits.length) ui.aloneWaits.append(make('li', 'note'))
  waits.forEach((says, index) => putCode(children[index], says))
}
