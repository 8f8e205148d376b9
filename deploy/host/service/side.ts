// Everything that a command does to the service's files; it runs as the service's user. If root gave the command, a worker does it
// (`boundary/`), else this process. Parameters and results are plain data.
// Must hold: nothing here needs root. `outside.ts` lists what it needs from the process that runs the command (progress, start, stop).

import { type Lock, makeDisk, type Receipt, runVersion, takeLock } from '../../../agent/install.ts'
import { BatonError, type OperationReport, type PolicyReport, type StateCopy } from '../../../agent/words.ts'
import { examine, type Checks } from '../doctor/doctor.ts'
import type { Finding, Subject } from '../doctor/finding.ts'
import { detachedSupervisor } from '../supervisor/detached.ts'
import type { SupervisorState } from '../supervisor/supervisor.ts'
import { connect } from './client.ts'
import { readAccess } from './configuration.ts'
import { type Foreseen, foresee } from './foresee.ts'
import { cancelOperation, pauseUpdates } from './running.ts'
import { look, type Look } from './look.ts'
import { operate } from './operate.ts'
import { listReleases, type ListedReleases } from './releases.ts'
import { waitUntilStable } from './offline.ts'
import type { Outside } from './outside.ts'
import type { Operate, Operated } from './request.ts'
import { type CleanedState, cleanState, listState, restoreCopy, type RestoredState } from './state.ts'
import * as places from './survey.ts'

export interface Side {
  survey(at: places.HostPlaces): Promise<places.Survey>
  /** true if it made the directory */
  makeDirectory(at: { path: string; mode: number }): Promise<boolean>
  /** held until `unlock`, or until this process ends */
  lock(at: { stateDirectory: string; who: string }): Promise<void>
  unlock(): Promise<void>
  /** copies this program to `path` */
  place(at: { path: string; stateDirectory: string; tag: string }): Promise<void>
  /** has the executable unpack itself, if it is of a kind that does, so that its start need not */
  unpack(at: { path: string }): Promise<void>
  remove(paths: readonly string[]): Promise<void>
  /** removes everything in the directory; returns what could not be removed, each as `path: reason` */
  empty(path: string): Promise<string[]>
  removeDirectory(path: string): Promise<void>
  operate(what: { receipt: Receipt; request: Operate }): Promise<Operated>
  foresee(what: { receipt: Receipt; request: Operate }): Promise<Foreseen>
  look(what: { receipt: Receipt; check: boolean }): Promise<Look>
  releases(receipt: Receipt): Promise<ListedReleases>
  cancel(receipt: Receipt): Promise<OperationReport | null>
  pause(what: { receipt: Receipt; until: string | null }): Promise<PolicyReport>
  listState(receipt: Receipt): Promise<StateCopy[]>
  restoreCopy(what: { receipt: Receipt; name: string; dryRun: boolean }): Promise<RestoredState>
  cleanState(what: { receipt: Receipt; name: string | null; dryRun: boolean }): Promise<CleanedState>
  waitHealthy(what: { receipt: Receipt; tag: string; timeoutMs: number }): Promise<void>
  examine(what: { subject: Subject; checks: Checks }): Promise<Finding[]>
  /** these four for an install without systemd only */
  supervisorState(receipt: Receipt): Promise<SupervisorState>
  supervisorStart(receipt: Receipt): Promise<void>
  supervisorStop(receipt: Receipt): Promise<void>
  supervisorRestart(receipt: Receipt): Promise<void>
}

export function makeSide(outside: Outside, own: { path: string }): Side {
  let held: Lock | null = null
  const inner: Outside = {
    ...outside,
    supervisor: (receipt) =>
      receipt.supervisor === 'none' ? detachedSupervisor(receipt) : outside.supervisor(receipt),
  }
  const detached = (receipt: Receipt) => {
    if (receipt.supervisor === 'none') return detachedSupervisor(receipt)
    throw new BatonError('unexpected', `expected an install without systemd, got ${receipt.supervisor}`)
  }
  return {
    survey: places.survey,
    makeDirectory: ({ path, mode }) => places.makeOwnDirectory(path, mode),
    async lock({ stateDirectory, who }) {
      held = await takeLock(makeDisk(), stateDirectory, who)
    },
    async unlock() {
      const lock = held
      held = null
      await lock?.release()
    },
    place: ({ path, stateDirectory, tag }) => places.placeExecutable(own.path, path, stateDirectory, tag),
    unpack: async ({ path }) => void (await runVersion(path, { prepare: true })),
    remove: places.removeAll,
    empty: places.empty,
    removeDirectory: places.removeDirectory,
    operate: ({ receipt, request }) => operate(receipt, request, inner),
    foresee: ({ receipt, request }) => foresee(receipt, request, inner),
    look: ({ receipt, check }) => look(receipt, check, inner),
    releases: (receipt) => listReleases(receipt, inner),
    cancel: (receipt) => cancelOperation(receipt, inner),
    pause: ({ receipt, until }) => pauseUpdates(receipt, until),
    listState,
    restoreCopy: ({ receipt, ...what }) => restoreCopy(receipt, what),
    cleanState: ({ receipt, ...what }) => cleanState(receipt, what),
    async waitHealthy({ receipt, tag, timeoutMs }) {
      const quiet = { ...inner, stage: () => {} }
      await waitUntilStable(receipt, connect(await readAccess(receipt.configPath)), tag, timeoutMs, quiet)
    },
    examine: ({ subject, checks }) => examine(subject, checks, inner),
    supervisorState: (receipt) => detached(receipt).state(),
    supervisorStart: (receipt) => detached(receipt).start(),
    supervisorStop: (receipt) => detached(receipt).stop(),
    supervisorRestart: (receipt) => detached(receipt).restart(),
  }
}
