// The holder of a stop-first switch: a process of the old executable that never loads the application. It keeps the listening
// sockets and the connections while no process of the application lives, starts the new release when the old process is gone, and
// watches it through its probation. If the new release fails, the holder puts the old one back.
//
//   spawn the successor -> it waits at its gate -> take connections -> the old process is gone -> end its children -> lock
//   -> open the gate -> hello -> probe -> accept -> ready -> give connections -> probation -> commit -> exit
//   on a failure before the old process pauses: say why, and exit; the old process serves
//   on a failure after it is gone: kill the successor, put the old executable back, start it, give it the connections
//   if neither starts behind the held sockets: let them go (docs/decisions/0032)
//
// Must hold: the gate opens only when no process of the old release is left; if this process dies, at any moment, the successor goes on.

import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeDisk } from '../../disk/disk.ts'
import { beginsProbation, makeJournal } from '../../disk/journal.ts'
import { foreignHolder } from '../../disk/sqlite-locks.ts'
import { type Lock, takeLock } from '../../disk/lock.ts'
import { placesOf } from '../../disk/places.ts'
import { readMark } from '../../disk/state-mark.ts'
import { logToStdout } from '../../log.ts'
import { adoptOrphans, keepFromChildren } from '../../sockets/libc.ts'
import { packetsOn } from '../../sockets/packets.ts'
import { descendantsOf, endAll, isGone, signalAll, startTimeOf, unitProcesses } from '../../sockets/process.ts'
import { shutDoor } from '../../sockets/shut-door.ts'
import { letGo } from '../../sockets/store.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { decide } from '../../update/decide.ts'
import { hasBackup, takeBack } from '../../update/steps/swap.ts'
import { blameless, blameOf, isBlameless } from '../../words/blame.ts'
import { EXIT, reasonOf } from '../../words/errors.ts'
import { type HandoverReport, NO_HANDOVER } from '../../words/state.ts'
import { type FromHolder, type Holding, HOLDING, type ToHolder } from '../../words/wire.ts'
import { inTime } from '../../words/in-time.ts'
import { channelOver } from '../channel.ts'
import { rejected, spawnSuccessor, type Successor } from '../give/child.ts'
import {
  aborted,
  becomeReady,
  commitTo,
  listensWhere,
  switchFailure,
  notePause,
  observe,
  provesItself,
  type TrialOptions,
  whyOf,
  lastWordsOf,
  untilWarm,
} from '../give/trial.ts'
import { ALIVE_EVERY_MS, lifeOf } from '../heartbeat.ts'
import { took } from '../moments.ts'
import { type Failed, type Hold, note, restartMs, trialOf } from './hold.ts'
import { makePassing } from './passing.ts'

const log = logToStdout
const LOOK_EVERY_MS = 1
const [LOCK_MS, GONE_MS] = [10_000, 5000]

/** Resolves to the exit code. */
export async function hold(): Promise<number> {
  const holding = JSON.parse(process.env[HOLDING] ?? '') as Holding
  delete process.env[HOLDING]
  const { channel, listeners } = holding
  const inherited = [channel.messages, channel.packets, ...listeners.map(({ spare }) => spare), holding.values ?? null]
  for (const fd of inherited) if (fd !== null) keepFromChildren(fd)
  const socket = new Socket({ fd: channel.messages, readable: true, writable: true })
  const up = channelOver<FromHolder, ToHolder>(socket, packetsOn(channel.packets))
  const report: HandoverReport = { ...NO_HANDOVER }
  const own: Hold = {
    holding,
    places: listeners,
    up,
    passing: makePassing(report, up.tell),
    report,
    journal: makeJournal(makeDisk(), holding.stateDirectory, (message) => log({ event: 'warning', message })),
    left: null,
    children: holding.children,
    pausedAt: null,
    silentSince: null,
    stop: new AbortController(),
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => own.stop.abort(signal))
  process.on('SIGHUP', () => {})
  adoptOrphans() // so that it finds every process that a new release has started, even if that process's parent has ended
  hear(own)
  took('held')
  let successor: Successor
  try {
    successor = begin(holding)
    await waitsAtGate(successor, own)
  } catch (cause) {
    await up.tell({ type: 'failed', message: reasonOf(cause), isBlameless: isBlameless(cause) })
    return EXIT.unexpected
  }
  const outcome = await Promise.race([oldIsGone(own, successor), aborted(own.stop.signal)])
  if (outcome !== 'gone') return await giveUp(successor, own)
  await endWhatIsLeft(own)
  took('old is gone')
  await using _lock = await lockOf(holding)
  took('locked')
  Object.assign(report, own.left?.report ?? { moved: own.passing.size() })
  return await handOn(successor, own)
}

function hear(own: Hold): void {
  const { up, passing, stop } = own
  const alive = setInterval(() => void up.tell({ type: 'alive' }), ALIVE_EVERY_MS)
  void up.closed.then(() => clearInterval(alive))
  up.hear((message, descriptors) => {
    switch (message.type) {
      case 'pause':
        own.pausedAt = performance.now()
        return
      case 'resume':
        own.pausedAt = null
        return passing.forget()
      case 'drop':
        return stop.abort('drop')
      case 'leaving':
        own.left = message
        own.children = message.children
        own.pausedAt = performance.now() - message.pausedMs
        return
      case 'alive':
        return
      case 'connections':
      case 'carry':
      case 'late':
      case 'spoilt':
        return passing.take(message, descriptors)
      default:
        return message satisfies never
    }
  })
}

function begin(holding: Holding): Successor {
  const { command, listeners, old, values = null } = holding
  return spawnSuccessor(command, listeners, holding, { gate: old, values })
}

/** Resolves when the new release waits at its gate and the old process has the message. */
async function waitsAtGate(successor: Successor, { up }: Hold): Promise<void> {
  const hasBegun = successor.heard('hello').then(() => rejected('it began before the old process had ended'))
  hasBegun.catch(() => {})
  try {
    const waiting = await Promise.race([successor.heard('waiting'), hasBegun])
    took('said waiting')
    await up.tell(waiting)
  } catch (cause) {
    const why = await whyOf(cause, successor)
    await successor.end()
    throw new Error(`${why}${await lastWordsOf(successor)}`, { cause })
  }
}

/** Resolves when the old process is gone. Reports to it if the successor dies at its gate. Kills it if it hangs. */
async function oldIsGone(own: Hold, successor: Successor): Promise<'gone'> {
  const { up, holding } = own
  const { old, hangMs, pauseMaxMs } = holding
  const life = lifeOf(old.pid)
  void successor.gone.then(async (why) => {
    const message = `${why}${await lastWordsOf(successor)}`
    await up.tell({ type: 'failed', message }) // the old process serves again, unless it has closed its state
  })
  for (;;) {
    if ((await Promise.race([up.closed.then(() => true), sleep(ALIVE_EVERY_MS)])) === true) break
    if (isGone(old)) break // `up` stays open if a child of the old process has its end
    const seen = own.left === null ? descendantsOf(old.pid, [process.pid]) : []
    if (seen.length > 0) own.children = seen
    const isSilent = life.silentMs() > hangMs // look every time: a process that was stopped before the pause may run again
    if (own.pausedAt === null) continue
    const pausedMs = performance.now() - own.pausedAt
    if (!isSilent && pausedMs <= pauseMaxMs) continue
    log({ event: 'warning', message: `the old process (pid ${old.pid}) is ended: it hangs` })
    signalAll([old], 'SIGKILL')
    break
  }
  own.pausedAt ??= performance.now() // the old process was killed while it served
  while (!isGone(old)) await sleep(LOOK_EVERY_MS)
  return 'gone'
}

/** Ends the processes that the old release has started, and waits until the kernel has released everything they held. */
async function endWhatIsLeft({ holding, children }: Pick<Hold, 'holding' | 'children'>): Promise<void> {
  const keep = new Set([process.pid, ...descendantsOf(process.pid).map(({ pid }) => pid)])
  const ofUnit = () => unitProcesses(holding.service).filter((pid) => !keep.has(pid))
  const all = () => [...children, ...ofUnit().map((pid) => ({ pid, startTime: startTimeOf(pid) }))]
  for (const until = performance.now() + GONE_MS; performance.now() < until; await sleep(LOOK_EVERY_MS)) {
    const alive = all().filter((one) => !isGone(one))
    if (alive.length === 0) return
    signalAll(alive, 'SIGKILL')
  }
  log({ event: 'warning', message: 'processes of the old release could not be ended' })
}

/** Goes on even without the lock: the service must serve, and the successor ends the operation all the same. */
async function lockOf({ stateDirectory }: Holding): Promise<Lock> {
  try {
    return await takeLock(makeDisk(), stateDirectory, 'the switch', { waitMs: LOCK_MS })
  } catch (cause) {
    log({ event: 'warning', message: reasonOf(cause) })
    return { release: async () => {}, [Symbol.asyncDispose]: async () => {} }
  }
}

/** Call it once no process of the old release lives. Resolves to the exit code. */
async function handOn(successor: Successor, own: Hold): Promise<number> {
  const { holding, passing, report, stop } = own
  const { tag, probationMs } = holding
  const trial = trialOf(own)
  successor.also(passing.hear)
  let isReady = false
  try {
    const orders = aborted(stop.signal).then(() => rejected('stopped'))
    orders.catch(() => {})
    await refuseForeign(holding)
    successor.open()
    took('opened')
    await Promise.race([ready(successor, trial, own), orders])
    isReady = true
    notePause(report, own.pausedAt)
    report.switchMs = restartMs(own)
    await notifySystemd([`MAINPID=${successor.pid}`, `STATUS=handed over to ${tag}, on probation`])
    took('claimed')
    log({ event: 'successor', pid: successor.pid, tag, doing: 'accepting' })
    await passing.passTo(successor)
    took('passed on')
    await own.journal.change((state) => beginsProbation(state, probationMs)).catch(warn)
    await Promise.race([observe(successor, trial, probationMs, provesItself(successor, trial)), orders])
    took('stood')
    await commitTo(successor, trial)
    return EXIT.done
  } catch (cause) {
    // A stop of the whole service reaches the successor too. If the signal came to this process alone, the successor goes on without it.
    if (isReady && stop.signal.aborted) return EXIT.done
    if (stop.signal.aborted || (await successor.isStopping())) return await giveUp(successor, own)
    const isLate = blameOf(cause).hadMs !== undefined // clients have waited long enough
    if (holding.letsGo && report.letGo === undefined && !isReady && !isLate && !isBlameless(cause))
      return await handOn(await beginAnew(cause, successor, own), own)
    return await putBack(cause, successor, own, isReady)
  }
}

/** The new release once more, without the sockets: the last switch has shown that this application does not start behind them. */
async function beginAnew(cause: unknown, failed: Successor, own: Hold): Promise<Successor> {
  const { tag } = own.holding
  warn(`starting ${tag}: ${await whyOf(cause, failed)}${await lastWordsOf(failed)}`)
  await clearAway(failed, own)
  await letThemGo(own, tag)
  const anew = begin(own.holding)
  log({ event: 'successor', pid: anew.pid, tag, doing: 'spawned' })
  return anew
}

/** Ends a release that has failed, and all that it has started. */
async function clearAway(failed: Successor, { holding, passing }: Hold): Promise<void> {
  await failed.end()
  await endWhatIsLeft({ holding, children: await endAll(process.pid, [], 0) })
  passing.takeBack()
}

/** From now on nobody holds the sockets: `tag` binds anew. */
async function letThemGo(own: Hold, tag: string): Promise<void> {
  for (const { key, spare } of own.holding.listeners) await letGo(key, { accept: spare, spare: null })
  own.holding = { ...own.holding, listeners: [] }
  own.report.letGo = true
  warn(`the sockets are let go, and ${tag} is started as on its first day: clients are refused until it serves`)
}

/** Throws a blameless error if the database is about to be exchanged and another process has it open. */
async function refuseForeign({ stateDirectory, operationId }: Holding): Promise<void> {
  const mark = readMark(stateDirectory)
  if (mark?.operationId !== operationId) return
  const holder = await foreignHolder(mark.database)
  if (holder === null) return
  throw blameless('refused', `${holder} has ${mark.database} open, which must not be exchanged below it`, {
    hint: 'stop it for the time of the update',
  })
}

async function ready(successor: Successor, trial: TrialOptions, { left, places }: Hold): Promise<void> {
  await becomeReady(successor, trial, left?.tickets ?? [], (hello) => listensWhere(places, hello))
}

/** Ends the successor, which may serve already, and leaves the operation to the next start. */
async function giveUp(successor: Successor, { holding, stop, passing }: Hold): Promise<number> {
  const isStop = stop.signal.aborted && stop.signal.reason !== 'drop'
  if (successor.isAlive()) {
    signalAll([successor.name], 'SIGTERM')
    await Promise.race([successor.gone, sleep(isStop ? holding.stopMs + GONE_MS : GONE_MS)])
  }
  await successor.end()
  await endAll(process.pid, [], 0)
  passing.forget()
  if (isStop) await shutDoor(holding.listeners)
  return EXIT.done
}

/** Puts the old release back after the new one has failed: restores its executable, starts it, gives it the connections. */
async function putBack(cause: unknown, successor: Successor, own: Hold, wasReady: boolean): Promise<number> {
  const { report } = own
  const { tag, from, kind, executable } = own.holding
  // whoever had come to a new release that hangs has waited since then
  const failedAt = wasReady ? (own.silentSince ?? performance.now()) : (own.pausedAt ?? performance.now())
  const reason = await whyOf(cause, successor)
  log({ event: 'reverting', message: reason })
  took('reverting')
  await notifySystemd([`MAINPID=${process.pid}`, `STATUS=reverting from ${tag}`])
  await clearAway(successor, own)
  took('ended')
  const what = wasReady ? 'probation_failed' : 'restart_failed'
  const failure = await switchFailure(what, tag, reason, cause, successor)
  const places = placesOf(executable)
  const failed = { code: failure.code, message: failure.message, ...blameOf(failure) }
  const seen = { asks: 'holder', kind, stage: 'restart', failed, failures: 0, inPlace: 'new', alive: 'nobody' } as const
  const hasMark = readMark(own.holding.stateDirectory) !== null
  const { disk } = decide({ ...seen, hasBackup: await hasBackup(places), hasMark })
  await takeBack(makeDisk(), places, disk)
  took('put back')
  await note(own, failed).catch(warn)
  log({ event: 'taken_back', takenBack: report.takenBack, cut: report.cut })

  if (await startAgain(own, failed, failedAt)) return EXIT.done
  if (report.letGo) return EXIT.down
  // that release has run before: it may be the sockets that keep it from starting
  await letThemGo(own, from)
  const why = `${failed.message}; ${from} too started only once the held sockets were let go, so this is not held against ${tag}: the next switch lets them go for it too`
  const excused = { ...failed, message: why, isBlameless: true }
  return (await startAgain(own, excused, failedAt)) ? EXIT.done : EXIT.down
}

/** Starts the old release, and commits to it. False if it does not serve: then it is ended. */
async function startAgain(own: Hold, failed: Failed, failedAt: number): Promise<boolean> {
  const { holding, places, passing, report } = own
  const { from, readyMs } = holding
  const again = begin(holding)
  again.also(passing.hear)
  again.open()
  log({ event: 'successor', pid: again.pid, tag: from, doing: 'spawned' })
  let isReady = false
  try {
    const trial = { ...trialOf(own), tag: from, note: () => note(own, failed).catch(warn) }
    const late = () => new Error(`${from} was not ready in time`)
    const warmBy = performance.now() + readyMs
    listensWhere(places, await inTime(readyMs, again.heard('hello'), late)) // nobody would find it on another port
    await untilWarm(again, trial, warmBy - performance.now(), own.stop.signal)
    const serves = again.tell({ type: 'accept', tickets: own.left?.tickets ?? [] }).then(() => again.heard('ready'))
    await inTime(readyMs, serves, late)
    isReady = true
    await notifySystemd([`MAINPID=${again.pid}`, `STATUS=serving ${from}`])
    await passing.passTo(again)
    notePause(report, failedAt) // if the new release had been ready, this is a second pause
    await commitTo(again, trial)
    took('started again')
    return true
  } catch (second) {
    warn(`starting ${from} again: ${await whyOf(second, again)}${await lastWordsOf(again)}`)
    if (isReady && again.isAlive()) return true // it goes on without this process
    await notifySystemd([`MAINPID=${process.pid}`])
    await again.end()
    await endWhatIsLeft({ holding, children: await endAll(process.pid, [], 0) })
    return false
  }
}

function warn(cause: unknown): void {
  log({ event: 'warning', message: reasonOf(cause) })
}
