// What the host looks like before anything is changed, as data. Gathered by `facts.ts`.

import type { Receipt } from '../../../agent/install.ts'
import type { Chosen } from '../place/choices.ts'
import type { Layout } from '../place/layout.ts'
import { MARK } from '../place/unit.ts'

/** What stands at a path that we are going to write. */
export type Found = 'absent' | 'same' | 'ours' | 'foreign'

export interface Facts {
  /** as root for the whole host: owners are set; otherwise everything belongs to whoever runs the command */
  root: boolean
  userExists: boolean
  directoryReady: boolean
  stateReady: boolean
  configDirectoryExists: boolean
  configExists: boolean
  /** the one that counts: root's for the whole host */
  receipt: Receipt | null
  /** installed: ours by the receipt, or left by an earlier installer for the very user that we install for */
  executable: 'absent' | 'installed' | 'foreign'
  /** tag of the executable in place; null where there is none, or it does not run */
  installed: string | null
  /** receipts that an earlier installer has left beside the executable */
  earlier: string[]
  command: Found
  /** root's own copy; `same` where there is none to be had */
  program: Found
  /** tag of root's own copy */
  programTag: string | null
  unit: Found
  rescueUnit: Found
  enabled: boolean
  active: boolean
  /** our files in the directory of the executable */
  ours: string[]
  now: Date
}

/** The program that is to be installed: the one that runs this command. */
export interface Own {
  path: string
  tag: string
  sha256: string
}

export interface InstallRequest {
  layout: Layout
  chosen: Chosen
  facts: Facts
  own: Own
  /** the operator named a release; without it an install never goes back to an older one */
  explicit: boolean
}

/** Whether the text at one of our paths was written by us. */
export function foundAs(existing: string | null, wanted: string): Found {
  if (existing === null) return 'absent'
  if (existing === wanted) return 'same'
  return existing.startsWith(MARK) ? 'ours' : 'foreign'
}

export function isOurs(found: Found): boolean {
  return found === 'same' || found === 'ours'
}
