// Shows the three versions, what is offered, what failed here, and the way back.

import { renderNotes } from './notes.js'
import { installedOf, isOld, isSkipped, noWayBack, offerOf } from './offer.js'
import { enable, put, putCode, show, tell, ui } from './page.js'
import { isBusy, isSilent, state } from './state.js'
import { ago, because, bytes, day, sentences, soon, t, withWhy } from './words.js'

export function renderVersions(status, report) {
  const { instance } = status
  const installed = installedOf(status, report)
  put(ui.running, instance.version)
  put(
    ui.runningNote,
    status.probation?.tag === instance.version
      ? t('onProbation')
      : t('running.since', { time: ago(instance.startedAt) }),
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

const isOffered = (kind) => ['update', 'restart', 'return'].includes(kind)

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
  const beyond = offered && report.beyond
  const first = beyond ? t('beyond', { ...beyond, to: tag }) : ''
  tell(ui.mismatch, sentences(apart ? t('mismatch', { installed, running: instance.version }) : '', first))
  const skipped = isSkipped(status, tag)
  show(ui.offer, offered || kind === 'current')
  show(ui.current, kind === 'current')
  show(ui.update, offered && !skipped)
  put(ui.update, offered ? t(kind === 'return' ? 'return.to' : 'update.to', { to: tag }) : '')
  put(ui.offerNote, skipped ? t('skipped', { tag }) : offerNote(kind, status, report))
  show(ui.skip, offered && status.schedule !== undefined)
  put(ui.skip, t(skipped ? 'skip.end' : 'skip'))
  renderFailed(failed, status.operation)
  renderNoWay(noWayBack(status, state.refused), instance.version)
  tell(ui.problem, report?.problem && !state.checking ? because(report.problem) : '')
  renderNotes(offered && !skipped ? report : null, instance.version)
  renderTrust(report?.trust ?? status.trust, instance.version)
  put(ui.tagProblem, state.tagProblem)
  ui.tag.setAttribute('aria-invalid', String(state.tagProblem !== ''))
  // do not offer the backup twice
  show(ui.backup, backup !== null && kind !== 'return')
  put(ui.backupText, backup === null ? '' : t('rollback.text', { to: backup }))
  put(ui.rollback, backup === null ? '' : t('rollback.to', { to: backup }))
  for (const button of [ui.update, ui.skip, ui.again, ui.rollback, ui.tagGo])
    enable(button, !state.starting && !isSilent())
}

function offerNote(kind, { schedule }, report) {
  if (kind === 'return') return t('return.offer')
  if (kind === 'restart') return t('restart.offer', { to: report.latest })
  if (kind === 'update')
    return report.release?.sizeBytes ? t('update.offer', { size: bytes(report.release.sizeBytes) }) : ''
  const checked = [report?.checkedAt ?? '', schedule?.askedAt ?? ''].toSorted().at(-1)
  return sentences(t('checked', { time: ago(checked) }), nextCheck(schedule))
}

/** what the service waits for while something goes on */
export const ACTS = ['in_flight', 'asks_feed', 'goes_now']

/** When the service asks its feed next by itself; '' if it does something else next. */
export function nextCheck(schedule) {
  const looks = schedule?.next && ![...ACTS, 'goes'].includes(schedule.now?.code)
  return looks ? t('alone.next', { time: soon(schedule.next) }) : ''
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
  const text =
    yanked === undefined
      ? warningOf(trust?.warning ?? null, ends)
      : withWhy(t('trust.yanked', { tag: running }), yanked.why)
  tell(ui.trust, text)
  const signed = ends === undefined ? t('trust.signed') : t('trust.until', { time: day(ends) })
  put(ui.signed, trust?.signed ? signed : t('trust.none'))
}

function warningOf(warning, ends) {
  if (warning === null) return ''
  const { code, message } = warning
  return ['expiring', 'expired'].includes(code)
    ? t(`trust.${code}`, { time: day(ends) })
    : withWhy(t('trust.unusable'), message)
}
