// What a switch needs, of whichever kind: one record, and this is the one list of its fields. `hand-over.ts` makes it.

import type { Listener } from '../../sockets/listeners.ts'
import type { Command } from '../../sockets/start-with.ts'
import type { Settings } from '../../settings.ts'
import type { Busy } from '../../words/bounds.ts'
import type { ExpectedPause } from '../../words/pause.ts'
import type { HandoverReport, Kind } from '../../words/state.ts'
import type { Ability, ProcessName } from '../../words/wire.ts'
import type { Carries } from '../carry/carry.ts'

/** What the service that serves has to give. */
export interface Ours {
  /** of the release that is in place now */
  tag: string
  /** starts that release */
  command: Command
  /** starts this one, from where the swap has moved it: `.backup` */
  image: Command
  executable: string
  stateDirectory: string
  listeners: Listener[]
  /** connections in the middle of something that the author has registered */
  carries: Carries
  /** filled in as the switch goes on; also right if it fails */
  report: HandoverReport
  /** the author's hook: end what cannot move */
  onDrain(): void
  /** the author's hook: this process serves on */
  onResume(): void
  /** called when the successor accepts connections beside this process: its probation begins */
  onAccepting(): void
  /** whether this release could make the next update: a successor need not be able to do more */
  couldUpdate(): Promise<Ability>
  /** `passTurn` stops the work that only one process may do; `takeTurn` starts it again */
  passTurn(): Promise<void>
  takeTurn(): Promise<void>
  /** aborts when an operator or a supervisor wants this process to end */
  leaving: AbortSignal
  /** the author's last hook, within its time limit; afterwards this process cannot serve any more */
  close(): Promise<void>
}

/** what an author has said, and what an operator has changed */
type Said = Pick<Settings, 'service' | 'order' | 'healthPath' | 'log'> & Omit<Settings['update'], 'busyMaxMs'>

export interface SwitchOptions extends Ours, Said {
  /** of the release that serves */
  from: string
  operationId: string
  kind: Kind
  /** how long a response that still moves bytes may take */
  drainMaxMs: number
  /** what becomes of requests that do not end */
  busy: Busy
  /** how long clients will have to wait; null: not known */
  expected: ExpectedPause | null
  /** whether the last switch had to let the held sockets go before any release started */
  letsGo: boolean
  /** called with what the switch waits for, one sentence */
  onWait(message: string): void
  /** writes the report to the disk, so that the successor finds it */
  note(): Promise<void>
  /** writes to the disk that `holder` owns the operation once this process is gone */
  nameHolder(holder: ProcessName): Promise<void>
  /** descriptor of the file for the values in memory; null: there is none */
  values: number | null
  /** fills that file; never throws */
  writeValues(): void
}
