// Replaces this process by a process of the executable that is now in place: together for a while, or one at a time.

import { openUnnamed } from '../../disk/disk.ts'
import type { Journal } from '../../disk/journal.ts'
import { updateDirectory } from '../../disk/places.ts'
import { readMark } from '../../disk/state-mark.ts'
import { closeDescriptor } from '../../sockets/libc.ts'
import { BatonError } from '../../words/errors.ts'
import type { Operation } from '../../words/state.ts'
import { expectedPause, lastPause } from '../../words/pause.ts'
import type { Switch } from '../../words/switch.ts'
import { writeValues } from '../values-file.ts'
import { type AloneOptions, handOverAlone } from './alone.ts'
import { handOver, type HandoverOptions, MustBeAlone } from './predecessor.ts'

/** options that `replaceThis` fills in */
type Own = 'values' | 'onWait' | 'writeValues' | 'note' | 'expected' | 'nameHolder' | 'kind' | 'from' | 'operationId'

export interface SwitchOptions extends Omit<HandoverOptions & AloneOptions, Own> {
  /** the kind of switch that this release asks for */
  switch: Switch
  /** why a switch one at a time is impossible here; null if it is possible */
  whyNotAlone: string | null
  /** what the author hands over, by key */
  given: ReadonlyMap<string, () => unknown>
  operation: Operation
  journal: Journal
}

/** As `handOver`, and as `handOverAlone` if either of the two releases must be the only process. */
export async function replaceThis(options: SwitchOptions): Promise<'stopped'> {
  const { journal, operation, tag, whyNotAlone, given, log } = options
  const began = performance.now()
  const { id: operationId, kind, from } = operation
  // the file ends with the processes that have it open
  const values = openUnnamed(updateDirectory(options.stateDirectory))
  const warn = (message: string) => log({ event: 'warning', message })
  const shared = {
    ...options,
    operationId,
    kind,
    from,
    values,
    onWait: (message: string) => void (operation.waits = message),
    writeValues: () => void (values !== null && writeValues(values, given, warn)),
    note: async () => {
      operation.durations.restart = Math.round(performance.now() - began) // the successor ends the operation, and cannot know this
      await journal.change((state) => void (state.operation = structuredClone(operation)))
    },
  }
  try {
    // two releases that cannot share the database must not live at once
    const hasOwnData = readMark(options.stateDirectory)?.operationId === operationId
    if (options.switch === 'together' && !hasOwnData) {
      try {
        return await handOver(shared)
      } catch (cause) {
        if (!(cause instanceof MustBeAlone)) throw cause // else it has begun nothing
      }
    }
    if (whyNotAlone !== null)
      throw new BatonError('restart_failed', `${tag} must be the only process, and ${whyNotAlone}`)
    return await handOverAlone({
      ...shared,
      expected: expectedPause(lastPause((await journal.read()).history), operation.rehearsal ?? null),
      nameHolder: async (holder) => {
        await journal.change((state) => {
          state.operation = structuredClone(operation)
          state.holder = holder
        })
      },
    })
  } finally {
    if (values !== null) closeDescriptor(values)
  }
}
