// The ground of a stop-first switch, in the holder.
//
//   start    spawn the successor; it waits at its gate
//   retire   take connections -> the old process is gone -> end its children
//   begin    open the gate, and take the lock meanwhile -> hello -> probe -> accept -> ready
//   claim    tell the manager the new main process
//   hand     give it the connections; its probation is in the journal
//   prove    the probation
//   commit   and exit
//   putBack  before the old process pauses: say why, and exit, for it serves; once it is gone: `back.ts`
//
// Must hold: the gate opens only when no process of the old release is left.

import { setTimeout as sleep } from 'node:timers/promises'
import { makeDisk } from '../../disk/disk.ts'
import { beginsProbation } from '../../disk/journal.ts'
import { type Lock, takeLock } from '../../disk/lock.ts'
import { foreignHolder } from '../../disk/sqlite-locks.ts'
import { readOwed } from '../../disk/owed.ts'
import { readMark } from '../../disk/state-mark.ts'
import { logToStdout } from '../../log.ts'
import { descendantsOf, isGone, signalAll } from '../../sockets/process.ts'
import { notifySystemd } from '../../sockets/systemd.ts'
import { blameless, blameOf, isBlameless } from '../../words/blame.ts'
import { EXIT, reasonOf } from '../../words/errors.ts'
import type { Holding } from '../../words/wire.ts'
import type { Ground } from '../conduct.ts'
import { rejected, type Successor } from '../give/child.ts'
import {
  becomeReady,
  commitTo,
  lastWordsOf,
  listensWhere,
  notePause,
  observe,
  provesItself,
  whyOf,
} from '../give/trial.ts'
import { ALIVE_EVERY_MS, lifeOf } from '../heartbeat.ts'
import { took } from '../moments.ts'
import { loadUsual } from '../warm.ts'
import { clearAway, endWhatIsLeft, giveUp, letSocketsGo, backToOld } from './back.ts'
import { type Hold, restartMs, spawnFor, trialOf, warn } from './hold.ts'

const log = logToStdout
const LOOK_EVERY_MS = 1
const LOCK_MS = 10_000

/** A successor, once there is one, and the lock of the operation, which the old process drops as it ends. */
interface Here {
  own: Hold
  successor: Successor | null
  isOldGone: boolean
  /** nobody else keeps it while the journal names this process, so the gate need not wait for it; null: this process has not asked */
  lock: Promise<Lock> | null
}

/** Conducted, it ends with the exit code of this process. Disposing of it lets the lock go. */
export function stopFirst(own: Hold): Ground<number> & AsyncDisposable {
  const here: Here = { own, successor: null, isOldGone: false, lock: null }
  const there = (): Successor => here.successor ?? rejected('it was not started')
  // A stop of the whole service reaches the successor too. If the signal came to this process alone, a successor that serves goes on without it.
  const leave = async (hasServed: boolean) => (hasServed ? EXIT.done : await giveUp(here.successor, own))
  return {
    leaving: { signal: own.stop.signal, leave },
    start: () => start(here),
    retire: () => retire(here, there()),
    begin: () => begin(here, there()),
    claim: () => claim(here, there()),
    hand: () => hand(here, there()),
    prove: () => prove(here, there()),
    async commit() {
      await commitTo(there(), trialOf(own))
      return EXIT.done
    },
    async putBack(cause, hasServed) {
      if (!here.isOldGone) {
        await own.up.tell({ type: 'failed', message: reasonOf(cause), isBlameless: isBlameless(cause) })
        return EXIT.unexpected
      }
      if (own.stop.signal.aborted) return await leave(hasServed)
      const successor = there()
      if (await successor.isStopping()) return await giveUp(successor, own)
      await (here.lock ??= lockOf(own.holding)) // the way back writes to the disk
      return await backToOld(cause, successor, own, hasServed)
    },
    [Symbol.asyncDispose]: async () => await (await here.lock)?.release(),
  }
}

/** Resolves when the new release waits at its gate and the old process has the message. */
async function start(here: Here): Promise<'stop-first'> {
  const { holding, up } = here.own
  const successor = (here.successor = spawnFor(holding))
  loadUsual() // the lock is taken while clients wait; nobody waits for this, since the successor starts meanwhile
  const hasBegun = successor.heard('hello').then(() => rejected('it started before the old process had exited'))
  hasBegun.catch(() => {})
  try {
    const waiting = await Promise.race([successor.heard('waiting'), hasBegun])
    took('said waiting')
    await up.tell(waiting)
    return 'stop-first'
  } catch (cause) {
    const why = await whyOf(cause, successor)
    await successor.end()
    throw new Error(`${why}${await lastWordsOf(successor)}`, { cause })
  }
}

async function retire(here: Here, successor: Successor): Promise<void> {
  const { own } = here
  await oldIsGone(own, successor)
  here.isOldGone = true
  if (own.stop.signal.aborted) return // `leave` is at work
  await endWhatIsLeft(own)
  took('old is gone')
  Object.assign(own.report, own.left?.report ?? own.passing.kept())
}

/** Resolves when the old process is gone. Reports to it if the successor dies at its gate. Kills it if it hangs. */
async function oldIsGone(own: Hold, successor: Successor): Promise<void> {
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
    warn(`killing the old process (pid ${old.pid}): it is stuck`)
    signalAll([old], 'SIGKILL')
    break
  }
  own.pausedAt ??= performance.now() // the old process was killed while it served
  while (!isGone(old)) await sleep(LOOK_EVERY_MS)
}

/** Goes on even without the lock: the service must serve, and the successor ends the operation all the same. */
async function lockOf({ stateDirectory }: Holding): Promise<Lock> {
  try {
    const lock = await takeLock(makeDisk(), stateDirectory, 'the switch', { waitMs: LOCK_MS })
    took('locked')
    return lock
  } catch (cause) {
    warn(cause)
    return { release: async () => {}, [Symbol.asyncDispose]: async () => {} }
  }
}

async function begin(here: Here, successor: Successor): Promise<void> {
  const { own } = here
  const { left, places, passing, stop } = own
  successor.also(passing.hear)
  try {
    here.lock ??= lockOf(own.holding)
    await refuseForeign(own.holding)
    await copyWhileNobodyLives(here)
    successor.open()
    took('opened')
    const openedAt = performance.now()
    await becomeReady(successor, trialOf(own), left?.tickets ?? [], (hello) => listensWhere(places, hello))
    own.report.startMs = Math.round(performance.now() - openedAt)
  } catch (cause) {
    const isLate = blameOf(cause).hadMs !== undefined // clients have waited long enough
    const mayBeginAnew = own.holding.letsGo && own.report.letGo === undefined && !isLate && !isBlameless(cause)
    if (!mayBeginAnew || stop.signal.aborted || (await successor.isStopping())) throw cause
    here.successor = await beginAnew(cause, successor, own)
    await begin(here, here.successor)
  }
}

/** The new release once more, without the sockets: the last switch has shown that this application does not start behind them. */
async function beginAnew(cause: unknown, failed: Successor, own: Hold): Promise<Successor> {
  const { tag } = own.holding
  warn(`could not start ${tag}: ${await whyOf(cause, failed)}${await lastWordsOf(failed)}`)
  await clearAway(failed, own)
  await letSocketsGo(own, tag)
  own.stop.signal.throwIfAborted() // `leave` has been called: nobody would end what is started now
  const anew = spawnFor(own.holding)
  log({ event: 'successor', pid: anew.pid, tag, doing: 'has started' })
  return anew
}

/** Throws a blameless error if the database is about to be exchanged and another process has it open. */
async function refuseForeign({ stateDirectory, operationId }: Holding): Promise<void> {
  const mark = readMark(stateDirectory)
  if (mark?.operationId !== operationId) return
  const holder = await foreignHolder(mark.database)
  if (holder === null) return
  throw blameless('refused', `${holder} has ${mark.database} open, so the database cannot be replaced`, {
    hint: 'stop that process during the update',
  })
}

/** The snapshot that is to be taken now. If it fails, the old release is started again; a rollback goes on without. */
async function copyWhileNobodyLives({ own, lock }: Here): Promise<void> {
  const { stateDirectory, operationId, kind } = own.holding
  const owed = readOwed(stateDirectory)
  if (owed?.owes !== 'snapshot' || owed.operationId !== operationId) return
  await lock
  const { payCopies } = await import('../../update/steps/pay-copies.ts')
  await payCopies(stateDirectory, owed, own.journal).catch((cause: unknown) => {
    if (kind === 'update') throw cause
    warn(`rolling back without a snapshot: ${reasonOf(cause)}`)
  })
}

async function claim({ own }: Here, successor: Successor): Promise<void> {
  const { tag } = own.holding
  notePause(own.report, own.pausedAt)
  own.report.switchMs = restartMs(own)
  await notifySystemd([`MAINPID=${successor.pid}`, `STATUS=handed over to ${tag}, on probation`])
  took('claimed')
  log({ event: 'successor', pid: successor.pid, tag, doing: 'is accepting connections' })
}

async function hand({ own, lock }: Here, successor: Successor): Promise<void> {
  await own.passing.passTo(successor)
  took('passed on')
  await lock // from here on this process writes to the disk
  await own.journal.change((state) => beginsProbation(state, own.holding.probationMs)).catch(warn)
}

async function prove({ own }: Here, successor: Successor): Promise<void> {
  const trial = trialOf(own)
  await observe(successor, trial, own.holding.probationMs, provesItself(successor, trial))
  took('stood')
}
