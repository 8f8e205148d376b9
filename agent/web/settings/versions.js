// Shows the three versions, what is offered, what failed here, and the way back.

import { renderNotes } from './notes.js'
import { installedOf, isOld, noWayBack, offerOf } from './offer.js'
import { enable, put, putCode, show, tell, ui } from './page.js'
import { isBusy, isSilent, state } from './state.js'
import { ago, because, bytes, day, sentences, t } from './words.js'

export function renderVersions(status, report) {
  const { instance } = status
  const installed = installedOf(status, report)
  put(ui.running, instance.version)
  put(
    ui.runningNote,
    status.unproven?.tag === instance.version ? t('unproven') : t('running.since', { time: ago(instance.startedAt) }),
  )
  put(ui.installed, installed ?? '–')
  const { kind, failed } = offerOf(status, report)
  const agree = kind === 'current' && installed === instance.version && report.latest === installed
  put(ui.runningName, t(agree ? 'all' : 'running'))
  for (const one of [ui.installed, ui.latest]) show(one.closest('div'), !agree)
  put(ui.latest, failed?.tag ?? report?.latest ?? '–')
  put(ui.latestNote, latestNote(status, report, kind, failed))
  ui.latest.parentElement.classList.toggle('differs', failed === null && isOffered(kind))
  ui.latest.parentElement.classList.toggle('bad', failed !== null)
  put(ui.check, t(state.checking ? 'checking' : 'check'))
  enable(ui.check, !state.checking && !isBusy() && !isSilent())
}

const isOffered = (kind) => kind === 'update' || kind === 'return'

/** Says nothing if the check is older than the last change, nor that there is no release while another check runs. */
function latestNote(status, report, kind, failed) {
  if (report === null || isOld(report, status)) return ''
  if (failed !== null) return t('latest.failed')
  if (report.latest === null) return state.checking ? '' : t(report.problem === null ? 'latest.none' : 'latest.unknown')
  if (kind === 'current') return t('latest.current')
  const time = ago(report.release?.publishedAt)
  return time && t('latest.published', { time })
}

export function renderActions(status, report) {
  const { instance, backup } = status
  const { kind, tag, failed } = offerOf(status, report)
  const offered = isOffered(kind)
  const installed = installedOf(status, report) ?? instance.version
  const apart = installed !== instance.version && !state.checking
  tell(ui.mismatch, apart ? t('mismatch', { installed, running: instance.version }) : '')
  show(ui.offer, offered || kind === 'current')
  show(ui.update, offered)
  put(ui.update, offered ? t(kind === 'return' ? 'return.to' : 'update.to', { to: tag }) : '')
  put(ui.offerNote, offerNote(kind, report))
  renderFailed(failed, status.operation)
  renderNoWay(noWayBack(status, state.refused), instance.version)
  tell(ui.problem, report?.problem && !state.checking ? because(report.problem) : '')
  renderNotes(offered ? report : null, instance.version)
  renderTrust(report?.trust ?? status.trust, instance.version)
  put(ui.tagProblem, state.tagProblem)
  ui.tag.setAttribute('aria-invalid', String(state.tagProblem !== ''))
  // do not offer the backup twice
  show(ui.backup, backup !== null && kind !== 'return')
  put(ui.backupText, backup === null ? '' : t('rollback.text', { to: backup }))
  put(ui.rollback, backup === null ? '' : t('rollback.to', { to: backup }))
  for (const button of [ui.update, ui.again, ui.rollback, ui.tagGo]) enable(button, !state.starting && !isSilent())
}

function offerNote(kind, report) {
  if (kind === 'return') return t('return.offer')
  if (kind === 'update')
    return report.release?.sizeBytes ? t('update.offer', { size: bytes(report.release.sizeBytes) }) : ''
  return sentences(t('current'), t('checked', { time: ago(report?.checkedAt) }))
}

/** Shows the checkbox for a release with no way back. Clears it for another release: the consent is for one release. */
function renderNoWay(to, from) {
  show(ui.noWay, to !== null)
  const text = t('point.irreversible', { from, to })
  if (ui.noWayText.textContent === text) return
  ui.noWayText.textContent = text
  ui.allowIrreversible.checked = false
}

function renderFailed(failed, operation) {
  show(ui.failed, failed !== null)
  if (failed === null) return
  const { tag, at, why } = failed
  // right after the failure, the outcome above says so
  const told = !ui.outcome.hidden && operation?.to === tag
  ui.failed.className = told ? '' : 'note alarm'
  put(ui.failedText, told ? '' : t('failed.here', { tag, time: ago(at) }))
  putCode(ui.failedWhy, told ? '' : why)
  put(ui.again, t('failed.again', { tag }))
}

/**
 * Shows whether releases are signed, and what is wrong with the signatures; first of all, that the running release was yanked.
 */
function renderTrust(trust, running) {
  const ends = (trust?.metadata ?? []).map(({ expiresAt }) => expiresAt).toSorted()[0]
  const yanked = (trust?.yanked ?? []).find(({ tag }) => tag === running)
  const warning = yanked === undefined ? (trust?.warning ?? '') : t('trust.yanked', { tag: running, why: yanked.why })
  const text = () => {
    if (!trust || warning !== '') return warning
    if (!trust.signed) return t('trust.none')
    return ends === undefined ? t('trust.signed') : t('trust.until', { time: day(ends) })
  }
  tell(ui.trust, text())
  ui.trust.classList.toggle('alarm', warning !== '')
}
