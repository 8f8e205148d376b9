// The way back of a stop-first switch, once the old process is gone: the holder puts the old release back, or leaves that to the next start.
//
//   kill the successor -> put the old executable back -> start it -> give it the connections
//   if neither starts behind the held sockets: let them go (docs/decisions/0032)

import { setTimeout as sleep } from 'node:timers/promises'
import { makeDisk } from '../../disk/disk.ts'
import { placesOf } from '../../disk/places.ts'
import { readMark } from '../../disk/state-mark.ts'
import { logToStdout } from '../../log.ts'
import { descendantsOf, endAll, isGone, signalAll, startTimeOf, unitProcesses } from '../../sockets/process.ts'
import { shutDoor } from '../../sockets/shut-door.ts'
import { letGo } from '../../sockets/store.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { decide } from '../../update/decide.ts'
import { hasBackup, takeBack } from '../../update/steps/swap.ts'
import { blameOf } from '../../words/blame.ts'
import { EXIT } from '../../words/errors.ts'
import { inTime } from '../../words/in-time.ts'
import type { Successor } from '../give/child.ts'
import { confirmTo, lastWordsOf, listensWhere, notePause, switchFailure, untilWarm, whyOf } from '../give/trial.ts'
import { took } from '../moments.ts'
import { type Failed, type Hold, note, spawnFor, trialOf, warn } from './hold.ts'

const log = logToStdout
const LOOK_EVERY_MS = 1
const GONE_MS = 5000

/** Ends the processes that the old release has started, and waits until the kernel has released everything they held. */
export async function endWhatIsLeft({ holding, children }: Pick<Hold, 'holding' | 'children'>): Promise<void> {
  const keep = new Set([process.pid, ...descendantsOf(process.pid).map(({ pid }) => pid)])
  const ofUnit = () => unitProcesses(holding.service).filter((pid) => !keep.has(pid))
  const all = () => [...children, ...ofUnit().map((pid) => ({ pid, startTime: startTimeOf(pid) }))]
  for (const until = performance.now() + GONE_MS; performance.now() < until; await sleep(LOOK_EVERY_MS)) {
    const alive = all().filter((one) => !isGone(one))
    if (alive.length === 0) return
    signalAll(alive, 'SIGKILL')
  }
  warn('processes of the old release could not be stopped')
}

/** Ends a release that has failed, and all that it has started. */
export async function clearAway(failed: Successor, { holding, passing }: Hold): Promise<void> {
  await failed.end()
  await endWhatIsLeft({ holding, children: await endAll(process.pid, [], 0) })
  passing.takeBack()
}

/** From now on nobody holds the sockets: `tag` binds anew. */
export async function letSocketsGo(own: Hold, tag: string): Promise<void> {
  for (const { key, spare } of own.holding.listeners) await letGo(key, { accept: spare, spare: null })
  own.holding = { ...own.holding, listeners: [] }
  own.report.letGo = true
  warn(`releasing the sockets to start ${tag}: connections are refused until it is serving`)
}

/** Ends the successor, which may serve already, and leaves the operation to the next start. */
export async function giveUp(successor: Successor | null, { holding, stop, passing }: Hold): Promise<number> {
  const isStop = stop.signal.aborted && stop.signal.reason !== 'drop'
  if (successor?.isAlive()) {
    signalAll([successor.name], 'SIGTERM')
    await Promise.race([successor.gone, sleep(isStop ? holding.stopMs + GONE_MS : GONE_MS)])
  }
  await successor?.end()
  await endAll(process.pid, [], 0)
  passing.forget()
  if (isStop) await shutDoor(holding.listeners)
  return EXIT.done
}

/** Puts the old release back after the new one has failed: restores its executable, starts it, gives it the connections. */
export async function backToOld(cause: unknown, successor: Successor, own: Hold, wasReady: boolean): Promise<number> {
  const { report } = own
  const { tag, from, kind, executable } = own.holding
  // whoever had come to a new release that hangs has waited since then
  const failedAt = wasReady ? (own.silentSince ?? performance.now()) : (own.pausedAt ?? performance.now())
  const reason = await whyOf(cause, successor)
  log({ event: 'reverting', message: `${tag}: ${reason}` })
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
  log({ event: 'returned', returned: report.returned, cut: report.cut })

  if (await startAgain(own, failed, failedAt)) return EXIT.done
  if (report.letGo) return EXIT.down
  // that release has run before: it may be the sockets that keep it from starting
  await letSocketsGo(own, from)
  const why = `${failed.message}; ${from} also did not start until the held sockets were released, so ${tag} is not marked as failed: the next switch releases them before ${tag} starts`
  const excused = { ...failed, message: why, isBlameless: true }
  return (await startAgain(own, excused, failedAt)) ? EXIT.done : EXIT.down
}

/** Starts the old release, and commits to it. False if it does not serve: then it is ended. */
async function startAgain(own: Hold, failed: Failed, failedAt: number): Promise<boolean> {
  const { holding, places, passing, report } = own
  const { from, readyMs } = holding
  const again = spawnFor(holding)
  again.also(passing.hear)
  again.open()
  log({ event: 'successor', pid: again.pid, tag: from, doing: 'has started' })
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
    await confirmTo(again, trial) // it has no probation
    took('started again')
    return true
  } catch (second) {
    warn(`could not restart ${from}: ${await whyOf(second, again)}${await lastWordsOf(again)}`)
    if (isReady && again.isAlive()) return true // it goes on without this process
    await notifySystemd([`MAINPID=${process.pid}`])
    await again.end()
    await endWhatIsLeft({ holding, children: await endAll(process.pid, [], 0) })
    return false
  }
}
