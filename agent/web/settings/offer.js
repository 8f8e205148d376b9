// Works out what is installed, what can be offered, and what an update would mean. Pure functions: no page, no clock.

/** Negative if `a` is older, as semver has it. Both are tags. */
export function compareTags(a, b) {
  const [left, right] = [a, b].map((tag) => tag.slice(1).split(/\W/))
  let at = 0
  while (at < left.length && left[at] === right[at]) at++
  const [one, other] = [left[at], right[at]]
  // a prerelease is older than its release; of two prereleases, the one with fewer parts
  if (!one || !other) return one === other ? 0 : !one === (at === 3) ? 1 : -1
  const word = /\D/.test(one)
  if (word !== /\D/.test(other)) return word ? 1 : -1
  return (word ? one > other : +one > +other) ? 1 : -1
}

/** Whether the last check is older than the last change: the release in its answer may be the one that runs now. */
export function isOld(report, { instance, operation }) {
  if (report === null) return false
  return report.running !== instance.version || report.checkedAt < (operation?.finishedAt ?? '')
}

/** The installed tag: from the last check or, if that is older than a swap, from the journal. */
export function installedOf(status, report) {
  const { operation } = status
  if (operation?.outcome === null && operation.stage === 'restart') return operation.to
  if (!isOld(report, status)) return report?.installed ?? null
  const { outcome = null, from, to } = operation ?? {}
  if (outcome === 'updated' || outcome === 'rolled_back') return to
  return outcome === 'reverted' ? from : report.installed
}

/**
 * What the last check means:
 * `kind` `update` (to `tag`), `restart` (the same, but `tag` is on the disk already), `return` (the same, but `tag` is the backup: nothing
 * to download either), `current`, `unknown`;
 * `failed`: the newest release that failed here and is newer than all that is offered, or null.
 */
export function offerOf(status, report) {
  if (report === null || isOld(report, status)) return { kind: 'unknown', tag: null, failed: null }
  const { latest, running, updateAvailable, skipped = [] } = report
  const best = latest !== null && compareTags(latest, running) > 0 ? latest : running
  const failed = skipped.find(({ tag }) => compareTags(tag, best) > 0) ?? null
  if (updateAvailable && latest !== null) return { kind: kindOf(latest, status, report), tag: latest, failed }
  return { kind: latest === null || failed !== null ? 'unknown' : 'current', tag: null, failed }
}

function kindOf(tag, { backup }, { installed }) {
  if (backup === tag) return 'return'
  return installed === tag ? 'restart' : 'update'
}

/**
 * Whether a rule says that this release is never installed by itself, nor offered.
 * @param {Partial<import('../../words/state.ts').Status>} status
 * @param {string | null} tag
 */
export const isSkipped = ({ schedule }, tag) => tag !== null && schedule?.policy?.skip?.includes(tag) === true

/** Tag of the release with no way back that was refused last: a request (`refused`) or the last operation; null if none. */
export const noWayBack = ({ operation, instance }, refused) => {
  const tag = refused ?? (operation?.error?.code === 'irreversible' ? operation.to : null)
  return tag === instance.version ? null : tag
}

/** What is particular about changing to `to`, most important first. */
export function particulars(to, status, report) {
  const from = status.instance.version
  const points = []
  const bad = (report?.skipped ?? []).find(({ tag }) => tag === to)
  const last = status.history.find((one) => one.to === to && ['reverted', 'failed'].includes(one.outcome))
  if (bad) points.push(badPoint({ ...bad, message: bad.why }))
  else if (last?.outcome === 'reverted') points.push(badPoint({ ...last.error, at: last.finishedAt }))
  if (compareTags(to, from) < 0) points.push({ kind: 'downgrade' })
  if (compareTags(to, from) === 0) points.push({ kind: 'same' })
  const [before, after] = [
    report?.database?.schema ?? null,
    report?.latest === to ? (report.release?.schema ?? null) : null,
  ]
  if (before !== null && after !== null)
    points.push({ kind: before === after ? 'schema.same' : 'schema', before, after })
  if (report?.database) points.push({ kind: 'snapshot', database: report.database.name })
  if (status.switch?.order === 'stop-first') points.push(pausePoint(to, status.switch, report))
  if (report?.trust?.signed === false && status.backup !== to) points.push({ kind: 'unsigned' })
  return points
}

const badPoint = ({ code, message, at }) => ({ kind: 'bad', fault: { code, message: message ?? '' }, at })

/** How long nobody would be served: as a trial of this release has shown, else the last switches. */
function pausePoint(to, { expectedMs, maxPauseMs }, report) {
  const tried = report?.latest === to && report.pause?.shownBy === 'trial' ? report.pause.expectedMs : null
  if (tried !== null) return { kind: tried > maxPauseMs ? 'pause.long' : 'pause.tried', ms: tried }
  return expectedMs === null ? { kind: 'pause.unknown' } : { kind: 'pause', ms: expectedMs }
}
