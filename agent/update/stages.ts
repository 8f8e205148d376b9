// The real steps of one operation on one install. Must hold: each stage is in the journal before it begins.

import { BatonError, reasonOf } from '../words/errors.ts'
import type { JournalState } from '../disk/journal.ts'
import type { Placed } from './installed.ts'
import { imageOf, type ManagedInstall } from '../disk/managed-install.ts'
import { writeOwed } from '../disk/owed.ts'
import { assertWritable, needsBeside } from '../disk/room.ts'
import { blameless, isBlameless } from '../words/blame.ts'
import { ownCommand } from './own-command.ts'
import { type Alone, whyNotAlone } from './schedule/proven.ts'
import type { Rehearsal } from '../words/rehearsal.ts'
import type { Release } from '../words/release.ts'
import {
  badEntry,
  isDone,
  type Operation,
  type Probation,
  type Progress,
  type Stage,
  stillBad,
  whyAgain,
} from '../words/state.ts'
import { expectedPause, lastPause, pauseFault } from '../words/pause.ts'
import { orderOf } from '../words/order.ts'
import { refuseBarred } from './barrier.ts'
import { downloadBytes } from './chosen-delta.ts'
import { makeFetch } from './fetch.ts'
import { refuseOtherWire } from './other-wire.ts'
import { markRestore, markUpdate } from './own-data.ts'
import { knownRehearsal, refuseIrreversible, rehearse, type ToRehearse } from './rehearsal/rehearse.ts'
import { rehearseOnScratch } from './rehearsal/scratch.ts'
import { makeCheck } from './steps/check.ts'
import { makeDownload } from './steps/download.ts'
import { makeCopies, refuseAlwaysAlive, snapshotPlan, toCopy } from './steps/dump.ts'
import { assertDatabaseThere, snapshot } from './steps/snapshot.ts'
import { makeSwap, type Swap } from './steps/swap.ts'
import { makeVerify, sha256OfFile } from './steps/verify.ts'
import type { Steps } from './story.ts'
import { installedTag } from './version.ts'

/** a look that finds no work is no wait */
const RESTED_MS = 50

export interface Stages {
  steps: Steps
  /** call it at the end of the last stage: records how long that took */
  leave(): void
  /** what has been swapped, and what ends that */
  swap: Pick<Swap, 'takeBack' | 'settle' | 'inPlace'>
  /** whether the published bytes themselves fail, so that downloading them again would not help */
  isPublishedBad(): boolean
  /** the executable that the swap has put in place; null before the swap */
  placed(): Placed | null
}

interface StagesOptions {
  restart(to: string): Promise<void>
  rest(signal: AbortSignal): Promise<void>
  allowIrreversible: boolean
  /** restores data that the release itself has left: it has worked on them, so there is no rehearsal */
  restoreState: boolean
  /** null: a person asked for the operation */
  alone: (Alone & { sha256: string }) | null
}

/** Updates `operation` as the stages go on. */
export function makeStages(install: ManagedInstall, operation: Operation, options: StagesOptions): Stages {
  const { restart, rest, allowIrreversible, restoreState, alone } = options
  const { journal, feed } = install
  const { enter, leave, ...clock } = makeClock(install, operation)
  let [state, placed, publishedBad] = [null as JournalState | null, null as Placed | null, false]
  const check = makeCheck({
    feed,
    current: () => install.current,
    skip: ({ tag, asset }) => badEntry(stillBad(state?.bad ?? [], install.readyMs), tag, asset.sha256) !== null,
  })
  const download = makeDownloadOf(install, operation)
  const verify = makeVerifyOf(install)
  const swap = makeSwapOf(install, operation, restoreState, (tag, sha256) => (placed ??= { tag, sha256 }))
  const steps: Steps = {
    async check(tag, signal) {
      await enter('check')
      state = await journal.read()
      await assertWritable(install.places.directory)
      const release = await check(tag, signal)
      if (release !== null) await choose(release, install, operation, { allowIrreversible, restoreState, alone })
      return release
    },
    async download(release, signal) {
      operation.progress = { bytes: 0, totalBytes: await downloadBytes(release, install.places.executable) }
      await enter('download')
      return await download(release, signal)
    },
    async verify(candidate, release, signal) {
      await enter('verify')
      try {
        await verify(candidate, release, signal)
        const toTry = { install, operation, release, candidate: candidate.path, allowIrreversible, signal }
        if (!restoreState) await tryFirst(toTry, alone)
      } catch (cause) {
        // a shortage of this host says nothing about the release
        const isVerdict = cause instanceof BatonError && cause.code === 'verify_failed' && !isBlameless(cause)
        publishedBad = isVerdict && candidate.assetSha256 === release.asset.sha256 && signal?.aborted !== true
        throw cause
      }
    },
    rest: (signal) => clock.rest(() => rest(signal)),
    async swap(candidate, release) {
      placed = { tag: release.tag, sha256: release.asset.executable?.sha256 ?? null }
      operation.progress = null // it was the download's
      await enter('swap')
      await swap.swap(candidate, release)
    },
    async restore() {
      await enter('swap')
      await assertCanGoBack(install)
      return await swap.restore()
    },
    async restart(to) {
      await enter('restart')
      await restart(to)
    },
  }
  return { steps, leave, swap, isPublishedBad: () => publishedBad, placed: () => placed }
}

/**
 * Notes the release that the update moves to. Throws refused if the database to snapshot is missing or the feed's bytes have changed,
 * and irreversible if the release is known to have no way back and `allowIrreversible` is false.
 */
async function choose(
  release: Release,
  install: ManagedInstall,
  operation: Operation,
  { allowIrreversible, restoreState, alone }: Pick<StagesOptions, 'allowIrreversible' | 'restoreState' | 'alone'>,
): Promise<void> {
  ;[operation.to, operation.sha256] = [release.tag, release.asset.sha256]
  if (alone !== null && release.asset.sha256 !== alone.sha256)
    throw blameless('refused', `${release.tag} has changed in the feed since it was chosen`)
  if (!restoreState) refuseBarred(release, install.current)
  const known = await knownRehearsal(install, release)
  if (!allowIrreversible && !restoreState) refuseIrreversible(release, known)
  await refuseLongPause(install, release, known)
  await assertDatabaseThere(install.database, install.stateDirectory)
  // nothing serves beside a command: no process of the application lives
  const order = install.next === null ? 'stop-first' : orderOf(install.next.order, release.order ?? null)
  refuseAlwaysAlive(await snapshotPlan(install), order)
  const again = whyAgain((await install.journal.read()).bad, release.tag, release.asset.sha256, install.readyMs)
  if (again !== null) install.log({ event: 'warning', message: `trying ${release.tag} again: ${again}` })
}

/**
 * Throws refused if clients would have to wait longer for this release than the operator allows. Asked as soon as it can be known: before the
 * download by the last switch and an earlier trial, and after its own trial. The switch asks once more, for a release that does not
 * announce what it asks for.
 */
async function refuseLongPause({ next, journal }: ManagedInstall, release: Release, rehearsal: Rehearsal | null) {
  // a release that gets a copy of the database cannot live beside the one that has the other
  const isAlone = rehearsal?.verdict === 'irreversible' ? 'stop-first' : (release.order ?? null)
  if (next === null || orderOf(next.order, isAlone) !== 'stop-first') return
  const fault = pauseFault(expectedPause(lastPause((await journal.read()).history), rehearsal), next.maxPauseMs)
  if (fault !== null) throw fault
}

/** Rehearses the release. Throws as `rehearse` does, and refused for a pause too long, or if only a person may allow what the service asks by itself. */
async function tryFirst(what: ToRehearse, alone: Alone | null): Promise<void> {
  await (what.install.database === null ? rehearseOnScratch : rehearse)(what)
  const { install, operation, release } = what
  await refuseLongPause(install, release, operation.trial ?? null)
  const why = alone === null ? null : whyNotAlone(alone, operation.from, release.tag, operation.trial)
  if (why !== null)
    throw blameless('refused', why.says, { hint: `to install it yourself, run \`${ownCommand('upgrade')}\`` })
}

async function assertCanGoBack(install: ManagedInstall): Promise<void> {
  const { directory, backup } = install.places
  await assertWritable(directory)
  await refuseOtherWire(install, backup, await installedTag(backup), 'rollback')
}

function makeVerifyOf(install: ManagedInstall): Steps['verify'] {
  const verify = makeVerify(install)
  return async (candidate, release, signal) => {
    await verify(candidate, release, signal)
    await refuseOtherWire(install, candidate.path, release.tag, `upgrade ${release.tag}`)
  }
}

function makeDownloadOf(install: ManagedInstall, operation: Operation): Steps['download'] {
  const { feed, feedAgain, disk, places } = install
  const warn = (message: string) => install.log({ event: 'warning', message })
  const told = {
    onProgress: (progress: Progress) => void (operation.progress = progress),
    onDeltaFailed: warn,
    onReceived: (bytes: number) => void (operation.bytes += bytes),
  }
  const files = { disk, partialPath: places.partial, installedPath: places.executable }
  const means = { ...told, alsoNeeds: () => needsBeside(install) }
  const here = makeDownload({ feed, ...files, ...means })
  return feedAgain === undefined ? here : makeFetch(install, feedAgain, { ...means, warn }, here)
}

interface Clock {
  enter(stage: Stage): Promise<void>
  leave(): void
  /** Waits, which is no part of the stage. */
  rest(wait: () => Promise<void>): Promise<void>
}

/** Notes each stage as it begins, and measures how long it takes. */
function makeClock(install: ManagedInstall, operation: Operation): Clock {
  let [enteredAt, restedMs] = [performance.now(), 0]
  const leave = () => {
    operation.durations[operation.stage] = Math.round(performance.now() - enteredAt - restedMs)
    ;[enteredAt, restedMs] = [performance.now(), 0]
  }
  return {
    leave,
    async rest(wait) {
      const began = performance.now()
      try {
        await wait()
      } finally {
        restedMs = performance.now() - began
        if (restedMs >= RESTED_MS) operation.durations.wait = Math.round(restedMs)
      }
    },
    async enter(stage) {
      if (operation.stage === stage) return // `begin` has written it
      leave()
      install.log({ event: 'operation', id: operation.id, kind: operation.kind, stage })
      operation.stage = stage
      await install.journal.change((state) => void (state.operation = structuredClone(operation)))
    },
  }
}

/** Copies what is not in SQLite; or notes that it is to be copied once no process of the application lives. */
async function copyTheRest(install: ManagedInstall, operation: Operation): Promise<void> {
  const plan = await snapshotPlan(install)
  if (plan === null) return
  const { disk, stateDirectory, serves, next } = install
  const { id: operationId, kind, from } = operation
  // of an update `choose` has seen to it
  if (plan.when === 'stopped' && serves && (kind === 'update' || next?.order === 'stop-first')) {
    const executable = install.places.backup // once the switch has begun
    return await writeOwed(disk, stateDirectory, { owes: 'snapshot', operationId, kind, from, plan, executable })
  }
  const onBytes = (bytes: number, lastBytes: number | null) =>
    void (operation.progress = { bytes, totalBytes: Math.max(bytes, lastBytes ?? 0) })
  operation.copies = await makeCopies({ ...(await toCopy(install, plan)), onBytes })
  operation.progress = null
}

function makeSwapOf(
  install: ManagedInstall,
  operation: Operation,
  restoreState: boolean,
  place: (to: string, sha256: string | null) => Placed,
): Swap {
  const { disk, places, journal, database, stateDirectory } = install
  return makeSwap({
    disk,
    places,
    runningImage: install.runningImage,
    async snapshot() {
      try {
        const copier = { executable: await imageOf(install), here: !install.serves }
        if (database !== null) await snapshot(disk, database, stateDirectory, install.current, copier)
        await copyTheRest(install, operation)
      } catch (cause) {
        if (operation.kind === 'update') throw cause
        // A rollback goes on without a snapshot: the full disk that prevents it may be the reason for the rollback.
        install.log({ event: 'warning', message: `rolling back without a snapshot: ${reasonOf(cause)}` })
      }
      if (database === null) return
      if (operation.trial?.verdict === 'irreversible') await markUpdate(install, operation)
      if (restoreState) await markRestore(install, operation)
    },
    backupTag: () => installedTag(places.backup),
    async enterProbation(to) {
      operation.to = to
      // Only the operation that installed the backup knows the sha256 under which it was published.
      const brought = (await journal.read()).history.find(
        (one) => one.sha256 !== null && isDone(one.outcome) && one.to === to,
      )
      if (operation.kind === 'rollback') operation.sha256 = brought?.sha256 ?? null
      const { id: operationId, kind, from } = operation
      const since = new Date().toISOString()
      // the two have one tag, and only their sums tell them apart
      const sum = to === from && operation.kind === 'rollback' ? await sha256OfFile(places.backup) : null
      const { sha256 } = place(to, sum)
      const probation: Probation = { operationId, kind, from, to, since, until: null, sha256, failures: 0 }
      await journal.change((state) => {
        state.operation = structuredClone(operation)
        state.probation = probation
      })
    },
  })
}
