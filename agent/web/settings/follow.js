// Judges the state of a switch from the answer to a poll. Pure functions: no page, no clock, no network.
// Must hold: a success is `done` only if a new instance answers with the expected version AND the journal has the outcome.

export const POLL = {
  busyMs: 1000,
  idleMs: 5000,
  unmanagedMs: 15000,
  timeoutMs: 10000,
  backOffMs: [1000, 1000, 2000, 3000, 5000],
  /** after this long without an answer, the page says that the service does not answer */
  silentAfterMs: 300000,
  silentMs: 15000,
  /** a longer time between two polls counts as sleep of this machine, not as silence of the service */
  gapMaxMs: 20000,
}

/** Follows an operation that this page has started. `instanceId`: the instance that answered before. */
export function begin(operation, instanceId, expected) {
  return { id: operation.id, instanceId, expected: expected ?? operation.to }
}

/** Follows an operation that was in flight already. If the successor answers already, there is no old instance to wait for. */
export function join({ operation, instance }) {
  const old = Date.parse(instance.startedAt) < Date.parse(operation.startedAt)
  return { id: operation.id, instanceId: old ? instance.id : null, expected: operation.to }
}

/**
 * The phase of the followed operation:
 * `running`, `probation` (the successor answers, the outcome is open), `done`,
 * `unconfirmed` (the journal reports success, but the instance that answers is not the expected one), `gone` (no longer known).
 */
export function judge(follow, { operation: current, instance, history }) {
  const operation = current?.id === follow.id ? current : history.find((one) => one.id === follow.id)
  if (!operation) return { phase: 'gone', operation: null, expected: follow.expected }
  const expected = operation.to ?? follow.expected
  const fresh = instance.id !== follow.instanceId
  const phase = () => {
    switch (operation.outcome) {
      case null:
        return operation.stage === 'restart' && fresh && instance.version === expected ? 'probation' : 'running'
      case 'updated':
      case 'rolled_back':
        return fresh && instance.version === expected ? 'done' : 'unconfirmed'
      default:
        return 'done'
    }
  }
  return { phase: phase(), operation, expected }
}

/** Milliseconds until the next poll. `failures` in a row, `failingMs` since the last answer. */
export function delayOf({ failures, failingMs, busy, managed }) {
  if (failures > 0) {
    // `wake` resets the failures when a person returns to the page: then a few quick tries again, even after a long silence.
    if (failures > POLL.backOffMs.length && failingMs >= POLL.silentAfterMs) return POLL.silentMs
    return POLL.backOffMs[Math.min(failures, POLL.backOffMs.length) - 1]
  }
  return busy ? POLL.busyMs : managed ? POLL.idleMs : POLL.unmanagedMs
}

const WINDOW_MS = 6000

/** Speed and time left of a download over the last seconds. `samples`: the one from the previous call. */
export function measure(samples, progress, atMs) {
  const last = samples.at(-1)
  const kept = last && progress.bytes < last.bytes ? [] : samples.filter(({ at }) => atMs - at <= WINDOW_MS)
  const next = [...kept, { at: atMs, bytes: progress.bytes }]
  const first = next[0]
  const seconds = (atMs - first.at) / 1000
  const bytesPerSecond = seconds >= 0.5 ? (progress.bytes - first.bytes) / seconds : null
  const secondsLeft = bytesPerSecond ? (progress.totalBytes - progress.bytes) / bytesPerSecond : null
  return { samples: next, bytesPerSecond, secondsLeft }
}
