// The page: one state, one poll, one render. What a poll means is judged in settings.follow.js.
// Must never break: nothing from the service becomes markup (text only), the token is never in a URL, a poll never stops for good.

import { POLL, begin, delayOf, join, judge, measure } from './settings.follow.js'
import { WORDS } from './settings.words.js'

const STAGES = { update: ['check', 'download', 'verify', 'swap', 'restart'], rollback: ['swap', 'restart'] }
const ICONS = {
  updated: 'done',
  rolled_back: 'done',
  up_to_date: 'same',
  reverted: 'back',
  failed: 'fail',
  unconfirmed: 'fail',
}
const STOP = /[.。]$/
const HISTORY_SHORT = 4
const UNCONFIRMED_MS = 20000
const OUTCOME_SHOWN_MS = 60 * 60 * 1000

/**
 * every element that has an id, by its id
 * @type {Record<string, any>}
 */
const ui = Object.fromEntries([...document.querySelectorAll('[id]')].map((element) => [element.id, element]))
const memory = makeMemory()

/**
 * @typedef {import('../state.ts').Status} Status
 * @typedef {import('../state.ts').VersionReport} VersionReport
 * @typedef {import('./settings.follow.js').Follow & { done?: boolean }} Follow
 * @typedef {ReturnType<typeof judge>} Judged
 * @typedef {{ kind: 'ok' | 'problem' | 'down', status?: number, code?: string, body?: any, retryMs?: number }} Answer
 */

/**
 * @type {{
 *   token: string | null, gate: string, gateVars: Record<string, string>, closed: boolean,
 *   unmanaged: Record<string, string> | null, status: Status | null, report: VersionReport | null,
 *   checking: boolean, starting: boolean, starts: number, notice: string, tagProblem: string,
 *   follow: Follow | null, phase: Judged | null, since: Record<string, number>,
 *   samples: { at: number, bytes: number }[], speed: ReturnType<typeof measure> | null,
 *   failures: number, failingMs: number, allHistory: boolean, wasBusy: boolean, assetsOf: string | null,
 * }}
 */
const state = {
  token: memory.get('token'),
  gate: '', // why the token is asked for: a key of WORDS
  gateVars: {},
  status: null,
  unmanaged: null, // the 501
  closed: false, // the 403: no token is set
  report: null, // of the last check
  checking: false,
  starting: false,
  starts: 0,
  notice: '',
  tagProblem: '',
  follow: memory.get('follow'),
  phase: null, // what `judge` made of the last answer
  since: {}, // phase -> when it was first seen, milliseconds of performance.now()
  samples: [],
  speed: null,
  failures: 0,
  failingMs: 0,
  allHistory: false,
  wasBusy: false,
  assetsOf: null, // the instance whose page is known to be this one
}

let language =
  memory.choice() ?? (navigator.languages.some((one) => /^zh\b/i.test(one)) ? firstOf(navigator.languages) : 'en')

// ---- polling

let timer = 0
let polling = null
let lastPollAt = performance.now()

async function poll() {
  if (polling !== null || state.token === null) return
  clearTimeout(timer)
  polling = { abort: new AbortController(), at: performance.now() }
  const { token, starts } = state
  const answer = await call('GET', '/status', undefined, polling.abort.signal)
  polling = null
  // asked before something was started, or with another token: what it says is old
  if (token !== state.token || starts !== state.starts) {
    void poll()
    return
  }
  const gap = performance.now() - lastPollAt
  lastPollAt = performance.now()
  if (answer.kind === 'down' || !understood(answer)) {
    state.failures += 1
    state.failingMs += Math.min(gap, POLL.gapMaxMs)
  } else {
    if (state.failingMs > 5000) announce(t('live.back'))
    state.failures = 0
    state.failingMs = 0
    take(answer)
  }
  render()
  plan()
}

/**
 * Anything else comes from somebody between us and the service. 429 is ours, but no reason to forget a good token.
 * @param {Answer} answer
 */
function understood({ kind, status }) {
  return kind === 'ok' || [401, 403, 501].includes(status) || (status === 429 && state.status === null)
}

function plan() {
  clearTimeout(timer)
  if (state.token === null) return
  const { failures, failingMs, status, unmanaged } = state
  timer = setTimeout(
    poll,
    delayOf({ failures, failingMs, busy: isBusy(), managed: status !== null && unmanaged === null }),
  )
}

/** Somebody looks, or the network is back: ask now. A request that hangs since before the sleep is given up. */
function wake() {
  if (document.visibilityState === 'hidden') return
  if (polling !== null && performance.now() - polling.at > 3000) polling.abort.abort()
  if (state.failures > 1) state.failures = 1
  lastPollAt = performance.now()
  void poll()
}

/** What the service has said becomes the state. */
function take(answer) {
  if (answer.kind === 'problem') {
    if (answer.status === 401) return askToken(state.status === null ? 'gate.wrong' : 'gate.again')
    if (answer.status === 429) return askToken('gate.slow', { time: duration(answer.retryMs) })
    state.closed = answer.code === 'no_password'
    state.unmanaged = answer.status === 501 ? answer.body : null
    return
  }
  const before = state.status
  const status = answer.body
  state.status = status
  state.unmanaged = null
  state.closed = false
  const { operation, instance } = status
  if (operation !== null && operation.outcome === null && operation.id !== state.follow?.id) followNow(join(status))
  settle()
  const busy = isBusy()
  const another = before?.instance.id !== instance.id
  if (before === null || (!busy && (another || state.wasBusy))) void check(true)
  if (!busy && state.assetsOf !== instance.id) void reloadOnce()
  state.wasBusy = busy
}

/** Judges the followed operation anew, and says so where it moved. */
function settle() {
  const { status, follow } = state
  if (status === null || follow === null) return
  const judged = judge(follow, status)
  if (follow.done && judged.phase === 'unconfirmed') judged.phase = 'done'
  // in the first half of a probation both processes answer, each on the connections that it has
  const before = state.phase
  if (before?.phase === 'probation' && judged.phase === 'running' && judged.operation.stage === 'restart') {
    judged.phase = 'probation'
  }
  const at = performance.now()
  if (before?.phase !== judged.phase) state.since = { [judged.phase]: at }
  if (judged.phase === 'gone') return followNow(null)
  const done = judged.phase === 'done'
  if (judged.expected !== follow.expected || done !== (follow.done ?? false)) {
    state.follow = { ...follow, expected: judged.expected, done }
    memory.set('follow', state.follow)
  }
  state.phase = judged
  const { operation } = judged
  if (operation.stage === 'download' && operation.progress && operation.outcome === null) {
    state.speed = measure(state.samples, operation.progress, at)
    state.samples = state.speed.samples
  } else {
    state.speed = null
    state.samples = []
  }
}

function followNow(follow) {
  state.follow = follow
  state.phase = null
  state.since = {}
  memory.set('follow', follow)
}

const sinceMs = (phase) => (state.since[phase] === undefined ? 0 : performance.now() - state.since[phase])

/** In flight, or finished so recently that the new process has not answered yet. */
function isBusy() {
  const { status, phase } = state
  if (status === null) return false
  return status.state === 'in_flight' || (phase?.phase === 'unconfirmed' && sinceMs('unconfirmed') < UNCONFIRMED_MS)
}

/** No answer for long enough to say so; what is asked for now would get lost. */
const isSilent = () => state.failures > 0 && state.failingMs >= 2000

/** A new version may bring a new page. At most once a version, and only where the page itself is another one. */
async function reloadOnce() {
  const { id, version } = state.status.instance
  const own = document.querySelector('meta[name=assets]').getAttribute('content')
  const before = memory.get('reloaded') ?? []
  if (before.includes(version) || ui.confirm.open || ui.tag.value !== '') return
  try {
    const response = await fetch('settings.html', { method: 'HEAD', cache: 'no-store' })
    await response.text()
    const tag = response.headers.get('etag')
    if (!response.ok || tag === null || isBusy() || state.status.instance.id !== id) return
    state.assetsOf = id
    if (tag.includes(own)) return
    memory.set('reloaded', [...before, version])
    memory.set('focus', document.activeElement?.id ?? '')
    location.reload()
  } catch {
    // the next poll tries again
  }
}

// ---- what can be asked for

async function check(quietly) {
  if (state.checking || state.status === null) return
  state.checking = true
  render()
  const answer = await call('POST', '/check')
  state.checking = false
  if (answer.kind === 'ok') {
    state.report = answer.body
    const { latest, updateAvailable } = answer.body
    if (!quietly && latest !== null) announce(updateAvailable ? t('live.found', { to: latest }) : t('live.current'))
  } else if (answer.kind === 'problem') {
    if (answer.status === 401 || answer.status === 501) take(answer)
    else state.notice = problemText(answer)
  }
  render()
}

async function start(kind, tag) {
  state.starting = true
  state.notice = ''
  const before = state.status.instance.id
  render()
  const answer = kind === 'update' ? await call('POST', '', { tag }) : await call('POST', '/rollback')
  state.starting = false
  state.starts += 1
  if (answer.kind === 'ok') {
    followNow(begin(answer.body, before, tag ?? state.status.backup))
    state.status = { ...state.status, state: 'in_flight', operation: answer.body }
    settle()
    ui.tag.value = ''
  } else if (answer.kind === 'down') {
    state.notice = t('notice.lost')
  } else if (answer.status === 401 || answer.status === 501) {
    take(answer)
  } else {
    state.notice = answer.code === 'update_in_flight' ? t('notice.taken') : problemText(answer)
  }
  render()
  void poll()
}

/** Asks in a dialog, and acts on a yes. The focus comes back by itself. */
function ask(title, text, yes, act) {
  put(ui.confirmTitle, title)
  put(ui.confirmText, text)
  put(ui.yes, yes)
  agreed = act
  ui.confirm.showModal()
  ui.yes.focus()
}

let agreed = () => {}

/** `to` is sent along, also where it is the latest: what was agreed to is what is done. */
function askUpdate(to) {
  const from = state.status.instance.version
  const act = () => start('update', to)
  ask(t('ask.update', { to }), t('ask.update.text', { from, to }), t('update.to', { to }), act)
}

function askRollback() {
  const [from, to] = [state.status.instance.version, state.status.backup]
  const act = () => start('rollback', null)
  ask(t('ask.rollback', { to }), t('ask.rollback.text', { from, to }), t('rollback.to', { to }), act)
}

function askToken(why, vars = {}) {
  memory.set('token', null)
  Object.assign(state, { token: null, gate: why, gateVars: vars, unmanaged: null, closed: false })
  clearTimeout(timer)
}

/** How far this machine's clock is behind the service's. */
let skewMs = 0
const now = () => Date.now() + (skewMs || 0)

/** @returns {Promise<Answer>} */
async function call(method, path, body, abort) {
  const limit = AbortSignal.timeout(method === 'GET' ? POLL.timeoutMs : 60000)
  // a header is bytes: letters beyond ASCII go as UTF-8
  const headers = { authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(state.token))}` }
  if (body !== undefined) headers['content-type'] = 'application/json'
  try {
    const response = await fetch(`../admin/update${path}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      cache: 'no-store',
      redirect: 'error',
      signal: abort === undefined ? limit : AbortSignal.any([limit, abort]),
    })
    const { status } = response
    const date = Date.parse(response.headers.get('date') ?? '') - Date.now()
    skewMs = Math.abs(date) > 3000 ? date : 0
    const value = await response.json()
    if (response.ok) return { kind: 'ok', body: value }
    const seconds = Number(value.retryAfterSeconds ?? response.headers.get('retry-after') ?? 30)
    return { kind: 'problem', status, code: value.code, body: value, retryMs: (seconds || 30) * 1000 }
  } catch {
    return { kind: 'down' }
  }
}

// ---- showing

function render() {
  const focused = document.activeElement
  const { status, token, unmanaged, closed, failures, failingMs } = state
  const gate = token === null || closed
  show(ui.gate, gate)
  show(ui.leave, token !== null)
  show(ui.waiting, !gate && unmanaged === null && status === null)
  show(ui.unmanaged, !gate && unmanaged !== null)
  show(ui.card, !gate && unmanaged === null && status !== null)
  renderGate()
  const quiet = !isSilent()
  const key = failingMs >= POLL.silentAfterMs ? 'silence.long' : isBusy() ? 'silence.busy' : 'silence.short'
  const silence = quiet ? '' : t(key, { time: duration(failingMs) })
  put(ui.waitingText, silence || t('waiting'))
  put(ui.silence, silence)
  show(ui.silence, !quiet)
  if (!quiet) announce(silence, key)
  if (unmanaged !== null) {
    const reason = WORDS[language][`reason.${unmanaged.reason}`] ?? ''
    const detail = unmanaged.detail ?? ''
    put(ui.unmanagedLead, [t('unmanaged.lead'), reason].join(language === 'zh' ? '' : ' '))
    // where it names a file it says more than our sentence
    putCode(ui.unmanagedReason, reason === '' || detail.includes('/') ? detail : '')
    putCode(ui.unmanagedRoute, unmanaged.route ?? '')
    show(ui.unmanagedWay, unmanaged.route !== undefined)
  }
  if (status !== null && !gate) renderCard(status)
  const named = status !== null && !gate && unmanaged === null && failures === 0
  put(
    ui.instance,
    named
      ? t('instance', {
          version: status.instance.version,
          pid: status.instance.pid,
          id: status.instance.id.slice(0, 8),
        })
      : '',
  )
  keepFocus(focused)
}

function renderGate() {
  put(ui.gateProblem, state.gate === '' ? '' : t(state.gate, state.gateVars))
  putCode(ui.gateText, t(state.closed ? 'gate.none' : 'gate.text'))
  for (const one of [ui.token.parentElement, ui.gate.querySelector('label')]) show(one, !state.closed)
  ui.token.toggleAttribute('aria-invalid', false)
  if (state.gate !== '') ui.token.setAttribute('aria-invalid', 'true')
}

function renderCard(status) {
  const { report, phase } = state
  const busy = isBusy()
  const stuck = String(state.starting || isSilent())
  for (const button of [ui.update, ui.rollback, ui.tagGo]) button.setAttribute('aria-disabled', stuck)
  renderVersions(status, report)
  put(ui.check, t(state.checking ? 'checking' : 'check'))
  ui.check.setAttribute('aria-disabled', String(state.checking || busy || isSilent()))
  show(ui.busy, busy)
  show(ui.actions, !busy)
  show(ui.backup, !busy && status.backup !== null)
  put(ui.notice, state.notice)
  show(ui.notice, state.notice !== '')
  if (busy) renderBusy(status)
  else renderActions(status, report)
  renderOutcome(status, busy)
  renderHistory(status)
  const title = busy && phase !== null ? phaseTitle(phase.operation) : t('settings')
  document.title = `${title} · ${location.host}`
}

/** Whether the last check is older than the last change: what it offers may be what is running by now. */
function isOld(report, { instance, operation }) {
  if (report === null) return false
  return report.running !== instance.version || report.checkedAt < (operation?.finishedAt ?? '')
}

/** The tag on the disk. The last check tells, or, where that is older than a swap, the journal. */
function installedOf(status, report) {
  const { operation } = status
  if (operation?.outcome === null && operation.stage === 'restart') return operation.to
  if (!isOld(report, status)) return report?.installed ?? null
  const { outcome = null, from, to } = operation ?? {}
  if (outcome === 'updated' || outcome === 'rolled_back') return to
  return outcome === 'reverted' ? from : report.installed
}

const isOffered = (status, report) =>
  report?.updateAvailable === true && report.latest !== null && !isOld(report, status)

function renderVersions(status, report) {
  const { instance } = status
  const installed = installedOf(status, report)
  const differs = installed !== null && installed !== instance.version
  put(ui.running, instance.version)
  put(ui.runningNote, t('running.since', { time: ago(instance.startedAt) }))
  put(ui.installed, installed ?? '–')
  put(ui.installedNote, t(differs ? 'installed.differs' : 'installed.note'))
  put(ui.latest, report?.latest ?? '–')
  const published = report?.release?.publishedAt
  const note = () => {
    if (report === null) return ''
    if (report.latest === null) return t(report.problem === null ? 'latest.none' : 'latest.unknown')
    if (!report.updateAvailable || report.latest === instance.version) return t('latest.current')
    return published ? t('latest.published', { time: ago(published) }) : ''
  }
  put(ui.latestNote, note())
  ui.latest.parentElement.classList.toggle(
    'differs',
    report?.updateAvailable === true && report.latest !== instance.version,
  )
}

function renderActions(status, report) {
  const { instance, backup } = status
  const offered = isOffered(status, report)
  const installed = installedOf(status, report) ?? instance.version
  const apart = installed !== instance.version && !state.checking
  put(ui.mismatch, apart ? t('mismatch', { installed, running: instance.version }) : '')
  show(ui.mismatch, apart)
  const isCurrent = report !== null && report.latest !== null && !offered && !isOld(report, status)
  show(ui.offer, offered || isCurrent)
  show(ui.update, offered)
  put(ui.update, offered ? t('update.to', { to: report.latest }) : '')
  const size = offered && report.release?.sizeBytes ? t('update.offer', { size: bytes(report.release.sizeBytes) }) : ''
  const checked = report === null ? '' : t('checked', { time: ago(report.checkedAt) })
  put(ui.offerNote, offered ? size : `${t('current')} ${checked}`)
  const problem = report?.problem ?? null
  putCode(ui.problem, problem === null ? '' : because(problem))
  show(ui.problem, problem !== null)
  const notes = offered ? (report.release?.notes ?? '').trim() : ''
  show(ui.notes, notes !== '')
  put(ui.notesTitle, offered ? t('notes.title', { to: report.latest }) : '')
  put(ui.notesText, notes)
  put(ui.tagProblem, state.tagProblem)
  ui.tag.setAttribute('aria-invalid', String(state.tagProblem !== ''))
  put(ui.backupText, backup === null ? '' : t('rollback.text', { to: backup }))
  put(ui.rollback, backup === null ? '' : t('rollback.to', { to: backup }))
}

function renderBusy({ instance }) {
  const { phase, speed } = state
  if (phase === null) return
  const { operation, expected } = phase
  const { kind, from, stage, progress } = operation
  const to = operation.to ?? expected
  const title = phaseTitle(operation)
  put(ui.busyTitle, title)
  put(ui.elapsed, clock(now() - Date.parse(operation.startedAt)))
  renderStages(kind, stage)
  const loading = stage === 'download' && progress !== null && progress.totalBytes > 0
  if (loading) {
    ui.progress.max = progress.totalBytes
    ui.progress.value = progress.bytes
  } else {
    ui.progress.removeAttribute('value')
  }
  const detail = () => {
    if (phase.phase === 'unconfirmed') {
      return t(instance.id === state.follow.instanceId ? 'detail.same' : 'detail.unconfirmed', {
        version: instance.version,
        to,
      })
    }
    if (phase.phase === 'probation')
      return t('detail.probation', { to, time: duration(Math.max(1000, sinceMs('probation'))) })
    if (loading) {
      return [
        t('detail.download', {
          bytes: bytes(progress.bytes, progress.totalBytes, false),
          total: bytes(progress.totalBytes),
        }),
        speed?.bytesPerSecond ? t('detail.speed', { speed: bytes(speed.bytesPerSecond) }) : '',
        speed?.secondsLeft ? t('detail.left', { time: duration(speed.secondsLeft * 1000) }) : '',
      ]
        .filter((part) => part !== '')
        .join('  ·  ')
    }
    if (stage === 'swap' && kind === 'rollback') return t('detail.swap.rollback')
    return stage === 'download' ? '' : t(`detail.${stage}`, { to: to ?? t('latest') })
  }
  put(ui.detail, detail())
  const serving = phase.phase === 'probation' ? 'serving.new' : to === null ? 'serving.old.unknown' : 'serving.old'
  put(ui.serving, phase.phase === 'unconfirmed' ? '' : t(serving, { from, to }))
  const word =
    phase.phase === 'running'
      ? t(`stage.${stage}`)
      : phase.phase === 'probation'
        ? t('live.probation', { to })
        : ui.detail.textContent
  announce(t('live.stage', { title, stage: word }), `${operation.id} ${stage} ${phase.phase}`)
}

function renderStages(kind, stage) {
  const stages = STAGES[kind]
  const at = stages.indexOf(stage)
  const key = `${language} ${kind} ${stage}`
  if (ui.stages.dataset.key === key) return
  ui.stages.dataset.key = key
  ui.stages.replaceChildren(
    ...stages.map((one, index) => {
      const where = index < at ? 'done' : index === at ? 'now' : 'next'
      const item = make(
        'li',
        where,
        icon('done'),
        t(`stage.${one}`),
        make('span', 'unseen', ` (${t(`stage.${where}`)})`),
      )
      if (where === 'now') item.setAttribute('aria-current', 'step')
      return item
    }),
  )
}

function renderOutcome(status, busy) {
  const operation = status.operation
  const followed = operation !== null && state.follow?.id === operation.id
  const recent = operation?.finishedAt && now() - Date.parse(operation.finishedAt) < OUTCOME_SHOWN_MS
  const shown = !busy && operation?.outcome && memory.get('dismissed') !== operation.id && (followed || recent)
  show(ui.outcome, shown)
  if (!shown) return
  const { from, to, kind, error, stage, handover } = operation
  const { version } = status.instance
  const claim = operation.outcome === 'updated' || operation.outcome === 'rolled_back'
  const believed = !claim || (version === to && (!followed || state.phase?.phase === 'done'))
  // what was true once and is no more is left to the history
  if (!believed && (!followed || state.follow.done)) return show(ui.outcome, false)
  const outcome = believed ? operation.outcome : 'unconfirmed'
  const vars = { from, to: to ?? '', version, stage: t(`stage.${stage}`) }
  const back = kind === 'rollback'
  put(ui.outcomeTitle, t(back && outcome === 'failed' ? 'outcome.failed.rollback' : `outcome.${outcome}`, vars))
  const unbroken = followed && status.instance.id === state.follow.instanceId
  const text = [
    t(
      outcome === 'failed' && !unbroken
        ? 'text.failed.other'
        : back && outcome === 'reverted'
          ? 'text.reverted.rollback'
          : `text.${outcome}`,
      vars,
    ),
  ]
  if (claim && believed && status.backup === from) text.push(t('text.kept', { from }))
  if (claim && handover !== null) {
    text.push(t('handover.ms', { ms: duration(handover.switchMs) }), t('handover.moved', handover))
  }
  put(ui.outcomeText, text.join(language === 'zh' ? '' : ' '))
  putCode(ui.outcomeReason, error === null ? '' : because(error))
  ui.outcome.className = { updated: '', rolled_back: '', up_to_date: 'plain', cancelled: 'plain' }[outcome] ?? 'bad'
  ui.outcomeIcon.setAttribute('href', `#i-${ICONS[outcome]}`)
  if (followed) announce(ui.outcomeTitle.textContent, `${operation.id} ${outcome}`)
}

function renderHistory({ history }) {
  const key = [language, state.allHistory, history[0]?.id, history.length, Math.floor(now() / 60000)].join()
  if (ui.past.dataset.key === key) return
  ui.past.dataset.key = key
  show(ui.pastNone, history.length === 0)
  show(ui.more, history.length > HISTORY_SHORT && !state.allHistory)
  put(ui.more, t('history.more', { count: history.length }))
  ui.history.replaceChildren(...history.slice(0, state.allHistory ? Infinity : HISTORY_SHORT).map(historyItem))
}

function historyItem({ kind, from, to, outcome, error, startedAt, finishedAt, handover }) {
  const time = make('time', '', ago(startedAt))
  time.dateTime = startedAt
  time.title = moment(startedAt)
  const label = outcome === 'reverted' || outcome === 'failed' ? `history.${outcome}.${kind}` : `history.${outcome}`
  const versions = to === null || to === from ? from : `${from} → ${to}`
  const what = make('span', '', make('b', '', t(label)), ' ', versions)
  const more = [
    error === null ? '' : because(error),
    finishedAt === null ? '' : t('took', { time: duration(Date.parse(finishedAt) - Date.parse(startedAt)) }),
    handover === null || error !== null ? '' : t('handover.moved', handover).replace(STOP, ''),
  ].filter((part) => part !== '')
  const reason = make('p', 'reason')
  putCode(reason, more.join(' · '))
  const kindOf = { updated: '', rolled_back: '', up_to_date: 'plain', cancelled: 'plain' }[outcome] ?? 'bad'
  return make('li', kindOf, icon(ICONS[outcome] ?? 'same', 'icon'), what, time, reason)
}

const phaseTitle = ({ kind, from, to }) => {
  const known = to ?? state.phase?.expected ?? null
  if (kind === 'update') return t(known === null ? 'busy.latest' : 'busy.update', { from, to: known })
  return t(known === null ? 'busy.rollback.unknown' : 'busy.rollback', { from, to: known })
}

/** What held the focus may be gone: the next best thing takes it, never the top of the page. */
function keepFocus(focused) {
  if (focused === null || focused === document.body || focused.closest('[hidden]') === null) return
  const next = [ui.busyTitle, ui.outcomeTitle, ui.cardTitle, ui.unmanagedTitle, ui.token].find(
    (one) => one.closest('[hidden]') === null,
  )
  next?.focus()
}

let announced = ''
function announce(text, key = text) {
  if (key === announced) return
  announced = key
  ui.live.textContent = text
}

// ---- words, numbers, times

function t(key, vars = {}) {
  return (WORDS[language][key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(vars[name] ?? ''))
}

const errorText = (code) => t(WORDS[language][`error.${code}`] === undefined ? 'error.unexpected' : `error.${code}`)
/** Our sentence for the code, then the service's own words. */
const because = ({ code, message }) =>
  [errorText(code).replace(STOP, ''), message].filter(Boolean).join(language === 'zh' ? '：' : ': ')
/** @param {Answer} answer */
const problemText = ({ code, body }) => [errorText(code), body.detail, body.hint].filter(Boolean).join(' ')

/** `unit` false leaves the unit away; `scale` decides which one it is. */
function bytes(count, scale = count, unit = true) {
  const [size, name] = scale >= 1e9 ? [1e9, 'GB'] : scale >= 1e6 ? [1e6, 'MB'] : [1e3, 'kB']
  const value = new Intl.NumberFormat(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 }).format(
    count / size,
  )
  return unit ? `${value} ${name}` : value
}

function duration(ms) {
  if (ms < 1000) return t('ms', { n: Math.max(0, Math.round(ms)) })
  const seconds = Math.round(ms / 1000)
  if (seconds < 60) return t('s', { n: seconds })
  const minutes = t('min', { n: Math.floor(seconds / 60) })
  return seconds % 60 === 0 ? minutes : `${minutes} ${t('s', { n: seconds % 60 })}`
}

const clock = (ms) =>
  `${Math.max(0, Math.floor(ms / 60000))}:${String(Math.max(0, Math.floor(ms / 1000) % 60)).padStart(2, '0')}`
const moment = (iso) =>
  new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(iso))

function ago(iso) {
  const seconds = (now() - Date.parse(iso ?? '')) / 1000
  if (Number.isNaN(seconds)) return ''
  if (seconds < 45) return t('now')
  /** @type {[Intl.RelativeTimeFormatUnit, number]} */
  const [unit, size] = seconds < 3600 ? ['minute', 60] : seconds < 86400 ? ['hour', 3600] : ['day', 86400]
  if (unit === 'day' && seconds > 30 * size)
    return new Intl.DateTimeFormat(language, { dateStyle: 'medium' }).format(new Date(iso))
  return new Intl.RelativeTimeFormat(language, { numeric: 'auto' }).format(-Math.round(seconds / size), unit)
}

function firstOf(languages) {
  return languages.map((one) => one.slice(0, 2).toLowerCase()).find((one) => one in WORDS) ?? 'en'
}

function speak(next) {
  language = next
  const other = language === 'en' ? 'zh' : 'en'
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en'
  put(ui.language, WORDS[other].language)
  ui.language.lang = other === 'zh' ? 'zh-CN' : 'en'
  for (const element of document.querySelectorAll('[data-t]')) put(element, t(element.getAttribute('data-t')))
  announced = ''
  render()
}

// ---- the page

function put(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/** Text in which `backticks` become code. */
function putCode(element, text) {
  if (element.dataset.text === text) return
  element.dataset.text = text
  element.replaceChildren(...text.split('`').map((part, index) => (index % 2 === 1 ? make('code', '', part) : part)))
}

const isEnabled = (button) => button.getAttribute('aria-disabled') !== 'true'

function show(element, shown) {
  element.hidden = !shown
}

function make(name, className, ...children) {
  const element = document.createElement(name)
  if (className !== '') element.className = className
  element.append(...children)
  return element
}

function icon(name, className = '') {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
  if (className !== '') svg.setAttribute('class', className)
  svg.setAttribute('viewBox', '0 0 16 16')
  svg.setAttribute('aria-hidden', 'true')
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use')
  use.setAttribute('href', `#i-${name}`)
  svg.append(use)
  return svg
}

/** This tab's memory, apart for every path; where storage is forbidden it lasts as long as the page. */
function makeMemory() {
  const prefix = `baton:${location.pathname}:`
  const spare = new Map()
  const guarded = (fn, fallback) => {
    try {
      return fn()
    } catch {
      return fallback()
    }
  }
  return {
    get: (key) =>
      guarded(
        () => JSON.parse(sessionStorage.getItem(prefix + key)),
        () => spare.get(key) ?? null,
      ),
    set(key, value) {
      spare.set(key, value)
      guarded(
        () =>
          value === null
            ? sessionStorage.removeItem(prefix + key)
            : sessionStorage.setItem(prefix + key, JSON.stringify(value)),
        () => {},
      )
    },
    choice: () =>
      guarded(
        () => localStorage.getItem('baton:language'),
        () => null,
      ),
    choose: (value) =>
      guarded(
        () => localStorage.setItem('baton:language', value),
        () => {},
      ),
  }
}

ui.gate.addEventListener('submit', (event) => {
  event.preventDefault()
  const token = ui.token.value
  // a header cannot carry these, so they are in no token
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
  const next = language === 'en' ? 'zh' : 'en'
  memory.choose(next)
  speak(next)
})
ui.check.addEventListener('click', () => {
  if (!isEnabled(ui.check)) return
  state.notice = ''
  void check(false)
})
ui.update.addEventListener('click', () => {
  if (isEnabled(ui.update)) askUpdate(state.report.latest)
})
ui.rollback.addEventListener('click', () => {
  if (isEnabled(ui.rollback)) askRollback()
})
ui.pick.addEventListener('submit', (event) => {
  event.preventDefault()
  if (!isEnabled(ui.tagGo)) return
  const tag = ui.tag.value.trim()
  state.tagProblem = /^v(0|[1-9]\d{0,8})(\.(0|[1-9]\d{0,8})){2}$/.test(tag) ? '' : t('other.bad')
  render()
  if (state.tagProblem === '') askUpdate(tag)
  else ui.tag.focus()
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
ui.no.addEventListener('click', () => ui.confirm.close())
ui.yes.addEventListener('click', () => {
  ui.confirm.close()
  agreed()
})
document.addEventListener('visibilitychange', wake)
window.addEventListener('online', wake)
window.addEventListener('pageshow', wake)

put(ui.host, location.host + location.pathname.replace(/\/web\/.*$/, ''))
speak(language in WORDS ? language : 'en')
if (state.token === null) {
  ui.token.focus()
} else {
  void poll().then(() => {
    const focus = memory.get('focus')
    memory.set('focus', null)
    if (focus) ui[focus]?.focus()
  })
}
