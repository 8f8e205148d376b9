// What the deployment tells a release in a container to do with its data: own-data.ts says it, state-here.ts does it.

import type { StateMoved } from '../../agent/words.ts'

/** Variable with a `StateOrder` as JSON, for the command that copies the database. */
export const STATE_ORDER = 'BATON_STATE_ORDER'

export type StateOrder =
  | { do: 'mark'; containers: string[]; next: string }
  | { do: 'settle' }
  | { do: 'restore'; name: string; container: string }

export interface StateAnswer {
  /** what the switch that is over has exchanged; null: nothing */
  moved: StateMoved | null
}
