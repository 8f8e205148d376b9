// What the deployment tells a release in a container to do with its data: own-data.ts says it, snapshot-here.ts does it.

import type { Kind, StateMoved } from '../../agent/words.ts'

/** Variable with a `StateOrder` as JSON, for the command that copies the database. */
export const STATE_ORDER = 'BATON_STATE_ORDER'

export type StateOrder =
  | { do: 'mark'; containers: string[]; next: string }
  | { do: 'owe'; container: string; kind: Kind }
  | { do: 'settle' }
  | { do: 'restore'; name: string; container: string }
  /** answers as `restore`, and changes nothing; an older release answers nothing that counts */
  | { do: 'find'; name: string }

export interface StateAnswer {
  /** what the switch that is over has exchanged; null: nothing */
  moved: StateMoved | null
  /** for a restore: how long it may take at the next start, beyond a usual one */
  mostMs?: number
  /** for a restore: the release whose data the copy holds */
  tag?: string
}

/** What `snapshot --for-update` prints without an order. Older releases print `files` alone. */
export interface TakenHere {
  /** what else a rehearsal needs, relative to the state directory */
  files: readonly string[]
  /** of what is not in SQLite; paths inside the container */
  copies: readonly TakenCopy[]
  /** these are made once the old container has ended (`owe`), and that may take so long; null: they are made */
  owesMs: number | null
}

export interface TakenCopy {
  path: string
  bytes: number
  ms: number
}
