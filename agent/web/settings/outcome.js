// Shows how an operation ended: what the page has seen, then the reason, then the figures.
// Must hold: the page claims a success only if the new process has answered (follow.js).

import { memory } from './memory.js'
import { compareTags } from './offer.js'
import { announce, icon, make, put, putCode, show, ui } from './page.js'
import { state } from './state.js'
import {
  ago,
  because,
  bytes,
  duration,
  ifAny,
  joined,
  language,
  moment,
  now,
  said,
  sentences,
  t,
  withoutStop,
  withWhy,
} from './words.js'

const ICONS = { updated: 'done', rolled_back: 'done', up_to_date: 'same', cancelled: 'same', reverted: 'back' }
const KINDS = { updated: '', rolled_back: '', up_to_date: 'plain', cancelled: 'plain' }
const HISTORY_SHORT = 4
/** letters of a reason: one that is not shorter is folded after so many */
const [LONG, SHORT] = [160, 100]
const OUTCOME_SHOWN_MS = 60 * 60 * 1000

export function renderOutcome(status, busy) {
  const told = busy ? null : outcomeOf(status)
  show(ui.outcome, told !== null)
  if (told === null) return
  const { operation, outcome, followed } = told
  const { id, from, to, stage } = operation
  const vars = { from, to: to ?? '', version: status.instance.version, stage: t(`stage.${stage}`) }
  put(ui.outcomeTitle, t(titleKey(operation, outcome), vars))
  const kept = succeeded(outcome) && status.backup === from ? t('text.kept', { from }) : ''
  put(ui.outcomeText, sentences(t(textKey(status, told), vars), kept, ...handoverOf(operation)))
  putCode(
    ui.outcomeReason,
    sentences(reasonOf(operation, outcome), leftOf(operation), cutOf(operation), triedOf(operation), hintOf(operation)),
  )
  ui.outcome.className = KINDS[outcome] ?? 'bad'
  ui.outcomeIcon.setAttribute('href', `#i-${ICONS[outcome] ?? 'fail'}`)
  if (followed) announce(ui.outcomeTitle.textContent, `${id} ${outcome}`)
}

function titleKey(operation, outcome) {
  if (outcome === 'failed' && operation.kind === 'rollback') return 'outcome.failed.rollback'
  return outcome === 'rolled_back' && isForward(operation) ? 'outcome.returned' : `outcome.${outcome}`
}

/** A rollback leads to the backup. After a rollback the backup is the newer one. */
const isForward = ({ from, to }) => to !== null && compareTags(to, from) > 0

const succeeded = (outcome) => outcome === 'updated' || outcome === 'rolled_back'

/** The outcome to show; null if it was dismissed, is too long ago, or another version runs since. */
function outcomeOf({ operation, instance }) {
  if (!operation?.outcome || memory.get('dismissed') === operation.id) return null
  const followed = state.follow?.id === operation.id
  const recent = operation.finishedAt && now() - Date.parse(operation.finishedAt) < OUTCOME_SHOWN_MS
  if (!followed && !recent) return null
  const seen = instance.version === operation.to && (!followed || state.phase?.phase === 'done')
  if (!succeeded(operation.outcome) || seen) return { operation, outcome: operation.outcome, followed }
  return followed && !state.follow.done ? { operation, outcome: 'unconfirmed', followed } : null
}

function textKey({ instance }, { operation, outcome, followed }) {
  if (outcome === 'reverted' && operation.kind === 'rollback') return 'text.reverted.rollback'
  const unbroken = followed && instance.id === state.follow.instanceId
  if (succeeded(outcome)) return 'text.done'
  return outcome === 'failed' && !unbroken ? 'text.failed.other' : `text.${outcome}`
}

/** The reason of a failure; '' if `triedOf` gives it. */
const reasonOf = ({ error, trial }, outcome) =>
  error === null || outcome === 'cancelled' || (error.code === 'irreversible' && trial) ? '' : because(error)

/** What the trial on a copy has shown; '' if there was none. */
function triedOf(operation) {
  const { trial } = operation
  if (!trial) return ''
  const { verdict, rows, tookMs, triedAt } = trial
  const counted = rows === null ? '' : t('tried.rows', { n: rows.toLocaleString(language) })
  const what = counted + duration(tookMs) + (triedAt ? t('comma') + ago(triedAt) : '')
  const text = t(`tried.${verdict}`, { what })
  if (verdict === 'reversible') return text
  const why = whyTried(operation)
  return why === '' ? withWhy(text, trial.reason) : sentences(text, why)
}

/** Why the trial ended so, in the page's words; '' if it has none for this. */
const whyTried = ({ trial, from, to }) => ifAny(`tried.why.${trial.code}`, { from, to, why: said(trial.reason) })

/** What to do about it, or what the trial has left out; the page's words say the first themselves. */
function hintOf(operation) {
  const { others, hint } = operation.trial ?? {}
  if (!hint) return ''
  const own = others ? ifAny('tried.why.others', { list: others.join(t('comma')) }) : whyTried(operation)
  return own === '' ? said(hint) : others ? own : ''
}

/** Where a rollback with the data has put those of before; a failure says it in its reason. */
const leftOf = ({ stateMoved, outcome }) =>
  stateMoved && succeeded(outcome) ? t('left', { ...stateMoved, rows: stateMoved.rows ?? '?' }) : ''

/** The application's work that it did not wait for to its end. */
const cutOf = ({ cutWork }) => (cutWork ? t('work.cut', { work: cutWork.join(t('comma')) }) : '')

/** What happened to the connections; nothing if there was no handover. */
function handoverOf({ handover, outcome }) {
  if (handover === null) return []
  const { moved, carried = 0, returned = 0, ended = 0, cut, switchMs, pauseMs, pausesMs = [pauseMs] } = handover
  const done = succeeded(outcome)
  if (!done && moved + returned + ended + cut === 0 && pauseMs === undefined) return []
  return [
    done ? t('handover.ms', { ms: duration(switchMs) }) : '',
    pauseMs !== undefined ? t('handover.pause', { ms: pausesMs.map(duration).join(' + ') }) : '',
    handover.letGo ? t('handover.refused') : '',
    t(carried > 0 ? 'handover.carried' : 'handover.moved', { moved, carried, cut }),
    ended > 0 ? t('handover.ended', { ended }) : '',
    returned > 0 ? t('handover.back', { returned }) : '',
  ]
}

export function renderHistory({ history, copies = [] }) {
  const kept = copies.map(({ tag, kind, at, bytes: size }) =>
    t(`copies.${kind}`, { tag, time: ago(at), size: bytes(size) }),
  )
  const key = [language, state.allHistory, history[0]?.id, history.length, kept, Math.floor(now() / 60000)].join()
  if (ui.past.dataset.key === key) return
  ui.past.dataset.key = key
  show(ui.pastNone, history.length === 0)
  show(ui.more, history.length > HISTORY_SHORT && !state.allHistory)
  put(ui.more, t('history.more', { count: history.length }))
  show(ui.copies, kept.length > 0)
  put(ui.copies, kept.length > 0 ? t('copies', { list: kept.join(' · ') }) : '')
  const held = document.activeElement?.closest('#history li')?.id
  ui.history.replaceChildren(...history.slice(0, state.allHistory ? Infinity : HISTORY_SHORT).map(historyItem))
  if (held) document.getElementById(held)?.querySelector('summary')?.focus()
}

function historyItem(operation) {
  const { id, kind, from, to, outcome, startedAt, finishedAt } = operation
  const time = make('time', '', ago(startedAt))
  time.dateTime = startedAt
  time.title = moment(startedAt)
  const endings = {
    reverted: `reverted.${kind}`,
    failed: `failed.${kind}`,
    rolled_back: isForward(operation) ? 'returned' : 'rolled_back',
  }
  const label = `history.${endings[outcome] ?? outcome}`
  const versions = to === null || to === from ? from : `${from} → ${to}`
  const what = make('span', '', make('b', '', t(label)), ' ', make('span', 'tags', versions))
  const [why, rest] = parted(reasonOf(operation, outcome))
  const more = [
    rest === '' ? why : '',
    withoutStop(leftOf(operation)),
    withoutStop(cutOf(operation)),
    withoutStop(triedOf(operation)),
    operation.by ? t('history.alone') : '',
    finishedAt === null ? '' : t('took', { time: duration(Date.parse(finishedAt) - Date.parse(startedAt)) }),
    ...handoverOf(operation).slice(1).map(withoutStop),
  ]
  const reason = make('p', 'reason')
  putCode(reason, joined(more, ' · '))
  const whole = rest === '' ? [] : [folded(id, why, rest)]
  const item = make('li', KINDS[outcome] ?? 'bad', icon(ICONS[outcome] ?? 'fail', 'icon'), what, time, ...whole, reason)
  item.id = `past-${id}`
  return item
}

/** A long reason in two parts: the page's own sentence, or what has room in two lines, up to a word's end; and the rest of it. */
function parted(text) {
  const own = text.indexOf('\n')
  if (text.length < LONG) return [text, '']
  let at = own > 0 ? own : text.lastIndexOf(' ', SHORT)
  while (text.slice(0, at).split('`').length % 2 === 0) at = text.lastIndexOf(' ', at - 1)
  return at > 0 ? [text.slice(0, at), text.slice(at)] : [text, '']
}

/** It stays open, and keeps the focus, when the list is drawn again. */
function folded(id, why, rest) {
  const details = make('details', 'reason', putCode(make('summary', ''), why), putCode(make('p', ''), rest))
  details.open = state.opened.has(id)
  details.addEventListener('toggle', () => void state.opened[details.open ? 'add' : 'delete'](id))
  return details
}
