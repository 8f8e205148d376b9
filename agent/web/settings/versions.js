// Three versions, what is offered, what failed here, and the way back.

import { renderNotes } from './notes.js'
import { installedOf, offerOf } from './offer.js'
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
  put(
    ui.installedNote,
    t(installed !== null && installed !== instance.version ? 'installed.differs' : 'installed.note'),
  )
  const { kind, failed } = offerOf(status, report)
  put(ui.latest, failed?.tag ?? report?.latest ?? '–')
  put(ui.latestNote, latestNote(status, report, kind, failed))
  ui.latest.parentElement.classList.toggle(
    'differs',
    failed === null && report?.updateAvailable === true && report.latest !== instance.version,
  )
  ui.latest.parentElement.classList.toggle('bad', failed !== null)
  put(ui.check, t(state.checking ? 'checking' : 'check'))
  enable(ui.check, !state.checking && !isBusy() && !isSilent())
}

function latestNote({ instance }, report, kind, failed) {
  if (report === null) return ''
  if (failed !== null) return t('latest.failed')
  if (report.latest === null) return t(report.problem === null ? 'latest.none' : 'latest.unknown')
  if (kind === 'current' || !report.updateAvailable || report.latest === instance.version) return t('latest.current')
  const published = report.release?.publishedAt
  return published ? t('latest.published', { time: ago(published) }) : ''
}

export function renderActions(status, report) {
  const { instance, backup } = status
  const { kind, tag, failed } = offerOf(status, report)
  const offered = kind === 'update' || kind === 'return'
  const installed = installedOf(status, report) ?? instance.version
  const apart = installed !== instance.version && !state.checking
  tell(ui.mismatch, apart ? t('mismatch', { installed, running: instance.version }) : '')
  show(ui.offer, offered || kind === 'current')
  show(ui.update, offered)
  put(ui.update, offered ? t(kind === 'return' ? 'return.to' : 'update.to', { to: tag }) : '')
  put(ui.offerNote, offerNote(kind, report))
  renderFailed(failed, offered)
  tell(ui.problem, report?.problem ? because(report.problem) : '')
  renderNotes(offered ? report : null, instance.version)
  renderTrust(report?.trust ?? status.trust, instance.version)
  put(ui.tagProblem, state.tagProblem)
  ui.tag.setAttribute('aria-invalid', String(state.tagProblem !== ''))
  // where the backup is what is offered, it is offered once
  show(ui.backup, backup !== null && kind !== 'return')
  put(ui.backupText, backup === null ? '' : t('rollback.text', { to: backup }))
  put(ui.rollback, backup === null ? '' : t('rollback.to', { to: backup }))
  for (const button of [ui.update, ui.again, ui.rollback, ui.tagGo]) enable(button, !state.starting && !isSilent())
}

function offerNote(kind, report) {
  if (kind === 'return') return t('return.offer')
  if (kind === 'update')
    return report.release?.sizeBytes ? t('update.offer', { size: bytes(report.release.sizeBytes) }) : ''
  return sentences(t('current'), report === null ? '' : t('checked', { time: ago(report.checkedAt) }))
}

function renderFailed(failed, offered) {
  show(ui.failed, failed !== null)
  if (failed === null) return
  const { tag, at, why } = failed
  put(ui.failedText, t('failed.here', { tag, time: at ? ago(at) : '' }))
  // right after it happened the outcome says why
  putCode(ui.failedWhy, ui.outcome.hidden ? why : '')
  put(ui.again, t('failed.again', { tag }))
  ui.again.classList.toggle('primary', !offered)
}

/** Whether releases are signed, and what is wrong with the signatures; before that, what was withdrawn and runs here. */
function renderTrust(trust, running) {
  const ends = (trust?.metadata ?? []).map(({ expiresAt }) => expiresAt).toSorted()[0]
  const withdrawn = (trust?.withdrawn ?? []).find(({ tag }) => tag === running)
  const warning =
    withdrawn === undefined ? (trust?.warning ?? '') : t('trust.withdrawn', { tag: running, why: withdrawn.why })
  const text = () => {
    if (!trust || warning !== '') return warning
    if (!trust.signed) return t('trust.none')
    return ends === undefined ? t('trust.signed') : t('trust.until', { time: day(ends) })
  }
  tell(ui.trust, text())
  ui.trust.classList.toggle('alarm', warning !== '')
}
