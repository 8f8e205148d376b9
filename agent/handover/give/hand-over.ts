// Replaces this process by a process of the executable that is now in place: start-first or stop-first.

import { openUnnamed } from '../../disk/disk.ts'
import type { Journal } from '../../disk/journal.ts'
import { updateDirectory } from '../../disk/places.ts'
import { readMark } from '../../disk/state-mark.ts'
import type { Settings } from '../../settings.ts'
import { closeDescriptor } from '../../sockets/libc.ts'
import { BatonError } from '../../words/errors.ts'
import type { Operation } from '../../words/state.ts'
import { expectedPause, lastPause } from '../../words/pause.ts'
import { writeValues } from '../values-file.ts'
import { handOverAlone } from './alone.ts'
import type { Ours, SwitchOptions } from './options.ts'
import { busyOf } from './rest.ts'
import { handOver, MustBeAlone } from './start-first.ts'

/** how long a response that still moves bytes may take, if `drainTimeout` does not allow more */
const DRAIN_MAX_MS = 600_000

/** The operation that the switch is a part of, and what the author has said. */
export interface SwitchFor {
  settings: Settings
  operation: Operation
  journal: Journal
  /** what the author hands over, by key */
  given: ReadonlyMap<string, () => unknown>
  /** why a stop-first switch is impossible here; null if it is possible */
  whyNotAlone: string | null
}

/** As `handOver`, and as `handOverAlone` if either of the two releases must be the only process. */
export async function replaceThis(ours: Ours, { whyNotAlone, ...about }: SwitchFor): Promise<void> {
  const { tag, stateDirectory } = ours
  const { history } = await about.journal.read()
  // the file ends with the processes that have it open
  const values = openUnnamed(updateDirectory(stateDirectory))
  const options = optionsOf(ours, about, { history, values })
  try {
    // two releases that cannot share the database must not live at once
    const hasOwnData = readMark(stateDirectory)?.operationId === options.operationId
    if (options.order === 'start-first' && !hasOwnData) {
      try {
        return await handOver(options)
      } catch (cause) {
        if (!(cause instanceof MustBeAlone)) throw cause // else it has begun nothing
      }
    }
    if (whyNotAlone !== null)
      throw new BatonError('restart_failed', `${tag} must run as the only process, but ${whyNotAlone}`)
    return await handOverAlone(options)
  } finally {
    if (values !== null) closeDescriptor(values)
  }
}

function optionsOf(
  ours: Ours,
  { settings, operation, journal, given }: Omit<SwitchFor, 'whyNotAlone'>,
  { history, values }: { history: readonly Operation[]; values: number | null },
): SwitchOptions {
  const began = performance.now()
  const { id, kind, from } = operation
  const { service, order, healthPath, log } = settings
  const said = { service, order, healthPath, log }
  const warn = (message: string) => log({ event: 'warning', message })
  return {
    ...ours,
    ...said,
    ...settings.update,
    drainMaxMs: Math.max(DRAIN_MAX_MS, settings.update.drainMs),
    busy: busyOf(settings.busy, operation, history),
    operationId: id,
    kind,
    from,
    values,
    expected: expectedPause(lastPause(history), operation.trial ?? null),
    letsGo: hasLetGo(history),
    onWait: (says) => void (operation.waits = [{ code: 'requests', says, why: says }]),
    async note() {
      operation.durations.restart = Math.round(performance.now() - began) // the successor ends the operation, and cannot know this
      await journal.change((state) => void (state.operation = structuredClone(operation)))
    },
    async nameHolder(holder) {
      await journal.change((state) => {
        state.operation = structuredClone(operation)
        state.holder = holder
      })
    },
    writeValues: () => void (values !== null && writeValues(values, given, warn)),
  }
}

/** Whether the last switch in which nobody was served had to let the sockets go. `history`: newest first */
function hasLetGo(history: readonly Operation[]): boolean {
  return history.find(({ handover }) => handover?.pauseMs !== undefined)?.handover?.letGo === true
}
