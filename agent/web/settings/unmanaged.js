// Shows an install that cannot update itself: the reason, the versions, and the command that updates it, ready to copy.

import { announce, make, put, putCode, show, ui } from './page.js'
import { ifAny, sentences, t } from './words.js'

/** `problem`: the body of the 501. */
export function renderUnmanaged(problem) {
  const { reason, running, latest } = problem
  const [detail, route, command] = [problem.detail ?? '', problem.route ?? '', problem.command ?? '']
  const why = ifAny(`reason.${reason}`)
  put(ui.unmanagedLead, sentences(t('unmanaged.lead'), why))
  // show the service's own reason too if it names a file: it says more
  putCode(ui.unmanagedReason, why === '' || detail.includes('/') ? detail : '')
  show(ui.unmanagedVersions, running !== undefined)
  put(ui.unmanagedRunning, running ?? '')
  put(ui.unmanagedLatest, latest ?? '')
  show(ui.unmanagedLatest.parentElement.parentElement, Boolean(latest))
  putCode(ui.unmanagedRoute, ifAny(`route.${reason}`) || route)
  show(ui.unmanagedCommand, command !== '')
  // A line breaks between two words if one line can hold the word; else after a `/`, `:` or `.` of a path or an address.
  const words = command.split(' ').flatMap((word, at) => [at > 0 ? ' ' : '', make('span', '', ...pathOf(word))])
  if (ui.unmanagedCommand.textContent !== command) ui.unmanagedCommand.replaceChildren(...words)
  show(ui.copy, command !== '')
  show(ui.unmanagedWay, route !== '' || command !== '')
}

function pathOf(word) {
  return word.split(/(?<=[/:.])/).flatMap((part) => [part, make('wbr', '')])
}

/** Browsers offer the clipboard to pages over https only. On other pages, the old command copies the selection. */
export async function copyCommand() {
  getSelection().selectAllChildren(ui.unmanagedCommand)
  try {
    await navigator.clipboard.writeText(ui.unmanagedCommand.textContent)
  } catch {
    if (!document.execCommand('copy')) return
  }
  put(ui.copy, t('copied'))
  announce(t('copied'))
  setTimeout(() => put(ui.copy, t('copy')), 3000)
}
