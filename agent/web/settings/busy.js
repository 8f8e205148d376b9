// Shows an operation in flight: its stages, the progress bar, the process that serves meanwhile, and the button that stops it.

import { compareTags } from './offer.js'
import { announce, enable, icon, make, put, show, ui } from './page.js'
import { isSilent, sinceMs, state } from './state.js'
import { bytes, clock, duration, language, now, remaining, t, waiting } from './words.js'

const STAGES = { update: ['check', 'download', 'verify', 'swap', 'restart'], rollback: ['swap', 'restart'] }
/** the last stage in which an operation can be cancelled: nothing has changed yet */
const LAST_TO_CANCEL = 'verify'

export function renderBusy(status) {
  const { phase } = state
  if (phase === null) return
  const { operation } = phase
  const { id, kind, from, stage, startedAt } = operation
  const to = operation.to ?? phase.expected
  const title = phaseTitle(operation)
  put(ui.busyTitle, title)
  put(ui.elapsed, clock(now() - Date.parse(startedAt)))
  const shown = isResting(operation.waits ?? []) ? 'wait' : stage
  renderStages(kind, shown)
  const proving = phase.phase === 'probation' ? probationOf(status, to) : null
  const loading = stage === 'download' && operation.progress?.totalBytes > 0 ? operation.progress : null
  renderBar(loading === null ? proving : { value: loading.bytes, max: loading.totalBytes })
  put(ui.detail, detailOf(status, operation, to, proving))
  put(ui.serving, servingOf(phase.phase, from, to, isAlone(status, operation)))
  renderCancel(operation)
  const stages = { running: shown === 'wait' ? null : t(`stage.${stage}`), probation: t('live.probation', { to }) }
  announce(
    t('live.stage', { title, stage: stages[phase.phase] ?? ui.detail.textContent }),
    `${id} ${shown} ${phase.phase}`,
  )
}

/** The probation as the service reports it, in milliseconds; null if it does not. */
function probationOf({ probation }, to) {
  if (!probation || probation.tag !== to) return null
  const max = Date.parse(probation.until) - Date.parse(probation.since)
  const value = Math.min(max, Math.max(0, now() - Date.parse(probation.since)))
  return max > 0 ? { value, max } : null
}

/** Indeterminate if the total is not known. */
function renderBar(figures) {
  if (figures === null) return ui.progress.removeAttribute('value')
  ui.progress.max = figures.max
  ui.progress.value = figures.value
}

function detailOf({ instance }, { kind, stage, progress, starting = null, waits = [] }, to, proving) {
  const { phase } = state.phase
  if (isResting(waits)) return waiting(waits[0])
  if (phase === 'unconfirmed') {
    const same = instance.id === state.follow.instanceId
    return t(same ? 'detail.same' : 'detail.unconfirmed', { version: instance.version, to })
  }
  if (phase === 'probation') {
    if (proving === null) return t('detail.probation', { to, time: duration(Math.max(1000, sinceMs('probation'))) })
    const [passed, whole] = [proving.value, proving.max].map((ms) => Math.round(ms / 1000))
    return t('detail.proving', { to, passed, whole: t('s', { n: whole }) })
  }
  if (starting) return progressOf(starting)
  if (stage === 'download') return progress?.totalBytes > 0 ? downloadOf(progress) : ''
  if (stage === 'swap' && kind === 'rollback') return t('detail.swap.rollback')
  return t(`detail.${stage}`, { to: to ?? t('latest') })
}

const progressOf = ({ text, done, total }) => (total ? `${text} (${Math.floor((100 * done) / total)}%)` : text)

function downloadOf(progress) {
  const { speed } = state
  return [
    t('detail.download', {
      bytes: bytes(progress.bytes, progress.totalBytes, false),
      total: bytes(progress.totalBytes),
    }),
    speed?.bytesPerSecond ? t('detail.speed', { speed: bytes(speed.bytesPerSecond) }) : '',
    speed?.secondsLeft ? t('detail.left', { time: remaining(speed.secondsLeft * 1000) }) : '',
  ]
    .filter((part) => part !== '')
    .join('  ·  ')
}

/** Whether the switch is stop-first, as far as the answering process knows. */
const isAlone = (status, { handover }) =>
  status.switch?.order === 'stop-first' || (handover ?? {}).pauseMs !== undefined

function servingOf(phase, from, to, alone) {
  if (phase === 'unconfirmed') return ''
  const suffix = alone ? '.alone' : ''
  if (phase === 'probation') return t(`serving.new${suffix}`, { from, to })
  return to === null ? t('serving.old.unknown') : t(`serving.old${suffix}`, { from, to })
}

/** Whether the operation waits for work of the application. */
const isResting = (waits) => waits[0]?.code === 'work'

function renderCancel({ id, kind, stage, outcome, waits = [] }) {
  const work = isResting(waits)
  show(ui.proceed, work)
  if (work) put(ui.proceed, t('proceed'))
  enable(ui.proceed, !isSilent())
  const stages = STAGES[kind]
  const early = work || stages.indexOf(stage) <= stages.indexOf(LAST_TO_CANCEL)
  show(ui.cancel, early && outcome === null)
  put(ui.cancel, t(state.cancelling === id ? 'stopping' : 'stop'))
  enable(ui.cancel, state.cancelling !== id && !isSilent())
}

function renderStages(kind, stage) {
  const stages = STAGES[kind]
  // a wait stands before the swap, and is none of them
  const at = stage === 'wait' ? stages.indexOf('swap') - 0.5 : stages.indexOf(stage)
  const key = `${language} ${kind} ${stage}`
  if (ui.stages.dataset.key === key) return
  ui.stages.dataset.key = key
  ui.stages.replaceChildren(
    ...stages.map((one, index) => {
      const where = index < at ? 'done' : index === at ? 'now' : 'next'
      const said = make('span', 'unseen', ` (${t(`stage.${where}`)})`)
      const item = make('li', where, icon('done'), t(`stage.${one}`), said)
      if (where === 'now') item.setAttribute('aria-current', 'step')
      return item
    }),
  )
}

export function phaseTitle({ kind, from, to }) {
  const known = to ?? state.phase?.expected ?? null
  const isBack = kind === 'rollback' || (known !== null && compareTags(known, from) < 0)
  if (!isBack) return t(known === null ? 'busy.latest' : 'busy.update', { from, to: known })
  if (known === null) return t('busy.rollback.unknown', { from })
  return t(compareTags(known, from) > 0 ? 'busy.return' : 'busy.rollback', { from, to: known })
}
