// Everything that a command does to the service's files; it runs as the service's user. If root gave the command, a worker does it
// (`boundary/`), else this process. Parameters and results are plain data.
// Must hold: nothing here needs root. `outside.ts` lists what it needs from the process that runs the command (progress, start, stop).

import { type Lock, makeDisk, type Receipt, runVersion, takeLock } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { examine, type Checks } from '../doctor/doctor.ts'
import type { Subject } from '../doctor/finding.ts'
import { badOf } from './advice.ts'
import { detachedSupervisor } from '../supervisor/detached.ts'
import { connect } from './client.ts'
import { assertValid, readAccess } from './configuration.ts'
import { foresee } from './foresee.ts'
import { look } from './look.ts'
import { assertAtRest, cancelOperation, operate, pauseUpdates } from './operate.ts'
import { listReleases } from './releases.ts'
import { waitUntilStable } from './offline.ts'
import type { Outside } from './outside.ts'
import type { Operate } from './request.ts'
import { cleanState, listState, restoreCopy } from './state.ts'
import * as places from './survey.ts'

interface Asked {
  receipt: Receipt
  request: Operate
}

export type Side = ReturnType<typeof makeSide>

export function makeSide(outside: Outside, own: { path: string }) {
  let held: Lock | null = null
  const inner: Outside = {
    ...outside,
    supervisor: (receipt) =>
      receipt.supervisor === 'none' ? detachedSupervisor(receipt) : outside.supervisor(receipt),
  }
  const detached = (receipt: Receipt) => {
    if (receipt.supervisor === 'none') return detachedSupervisor(receipt)
    throw new BatonError('unexpected', `expected an install without systemd, got one with ${receipt.supervisor}`)
  }
  return {
    survey: places.survey,
    /** true if it made the directory */
    makeDirectory: ({ path, mode }: { path: string; mode: number }) => places.makeOwnDirectory(path, mode),
    /** held until `unlock`, or until this process ends */
    async lock({ stateDirectory, who }: { stateDirectory: string; who: string }) {
      held = await takeLock(makeDisk(), stateDirectory, who)
    },
    async unlock() {
      const lock = held
      held = null
      await lock?.release()
    },
    /** copies this program to `path` */
    place: ({ path, stateDirectory, tag }: { path: string; stateDirectory: string; tag: string }) =>
      places.placeExecutable(own.path, path, stateDirectory, tag),
    /** has the executable unpack itself, if it is of a kind that does, so that its start need not */
    unpack: async ({ path }: { path: string }) => void (await runVersion(path, { prepare: true })),
    remove: places.removeAll,
    empty: places.empty,
    removeDirectory: places.removeDirectory,
    operate: ({ receipt, request }: Asked) => operate(receipt, request, inner),
    /** throws invalid_settings if the service would not start with its configuration */
    assertConfiguration: async (receipt: Receipt) => assertValid(receipt, await readAccess(receipt.configPath)),
    /** throws update_in_flight if an operation is under way for longer than `timeoutMs` */
    assertAtRest: ({ receipt, timeoutMs }: { receipt: Receipt; timeoutMs: number }) =>
      assertAtRest(receipt, timeoutMs, inner),
    foresee: ({ receipt, request }: Asked) => foresee(receipt, request, inner),
    look: ({ receipt, check }: { receipt: Receipt; check: boolean }) => look(receipt, check, inner),
    /** releases that failed on this host */
    failed: badOf,
    releases: (receipt: Receipt) => listReleases(receipt, inner),
    cancel: (receipt: Receipt) => cancelOperation(receipt, inner),
    pause: ({ receipt, until }: { receipt: Receipt; until: string | null }) => pauseUpdates(receipt, until),
    listState,
    restoreCopy,
    cleanState,
    async waitHealthy({ receipt, tag, timeoutMs }: { receipt: Receipt; tag: string; timeoutMs: number }) {
      const quiet = { ...inner, stage: () => {} }
      await waitUntilStable(receipt, connect(await readAccess(receipt.configPath)), tag, timeoutMs, quiet)
    },
    examine: ({ subject, checks }: { subject: Subject; checks: Checks }) => examine(subject, checks, inner),
    // for an install without systemd only
    supervisorState: (receipt: Receipt) => detached(receipt).state(),
    supervisorStart: (receipt: Receipt) => detached(receipt).start(),
    supervisorStop: (receipt: Receipt) => detached(receipt).stop(),
    supervisorRestart: (receipt: Receipt) => detached(receipt).restart(),
  }
}
