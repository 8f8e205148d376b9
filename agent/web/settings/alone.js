// Shows what the service does by itself, when next, and what waits for a person.

import { make, put, putCode, show, ui } from './page.js'
import { minute, sentences, t } from './words.js'

export function renderAlone({ schedule }) {
  show(ui.alone, schedule !== undefined)
  if (schedule === undefined) return
  const { mode, policy, next, says, waits, heldUntil } = schedule
  const isAsked = waits.includes(says) || next === null
  putCode(ui.aloneText, sentences(`${policy}.`, isAsked ? '' : t('alone.next', { time: minute(next), says })))
  show(ui.hold, !/^(off|notify)$/.test(mode))
  put(ui.hold, t(heldUntil === null ? 'alone.hold' : 'alone.go'))
  if (ui.aloneWaits.dataset.text === waits.join()) return
  ui.aloneWaits.dataset.text = waits.join()
  ui.aloneWaits.replaceChildren(...waits.map((one) => putCode(make('li', 'note'), one)))
}
