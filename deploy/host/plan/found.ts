// The state of the host before anything is changed, as data. `facts.ts` gathers it.

import type { Receipt } from '../../../agent/install.ts'
import type { Chosen } from '../place/choices.ts'
import type { Layout } from '../place/layout.ts'
import { MARK } from '../place/unit.ts'

/** What is at a path that the installer is going to write. `ours`: the installer's, but it differs; `foreign`: anything else. */
export type Found = 'absent' | 'same' | 'ours' | 'foreign'

export interface Facts {
  /** root installs for the whole host and sets owners; otherwise everything belongs to the user of the command */
  root: boolean
  userExists: boolean
  /** an install of this service has made the user, or will */
  userIsOurs: boolean
  directoryReady: boolean
  stateReady: boolean
  configDirectoryExists: boolean
  configExists: boolean
  /** the receipt that counts: root's for the whole host */
  receipt: Receipt | null
  /** installed: a receipt names it, root's or one that an earlier installer left beside it */
  executable: 'absent' | 'installed' | 'foreign'
  /** tag of the executable in place; null if there is none, or it does not run */
  installed: string | null
  /** receipts that an earlier installer has left beside the executable */
  earlier: string[]
  command: Found
  /** root's own copy; `same` for one user, who needs none */
  program: Found
  /** tag of root's own copy */
  programTag: string | null
  unit: Found
  rescueUnit: Found
  /** the units of the cage; `same` if the layout gets none */
  cageUnit: Found
  cagePathUnit: Found
  /** the cage's folder is there and the service's user owns it */
  cageReady: boolean
  /** systemd waits for requests to the cage */
  cageEnabled: boolean
  /** 0 if there is none */
  systemdVersion: number
  enabled: boolean
  active: boolean
  /** the install's files in the directory of the executable */
  ours: string[]
  /** see `Survey` */
  written: string | null
  now: Date
}

/** The program that is to be installed: the one that runs this command. */
export interface Own {
  path: string
  tag: string
  sha256: string
  /** see OwnRelease */
  basePath: string
}

export interface InstallRequest {
  layout: Layout
  chosen: Chosen
  facts: Facts
  own: Own
  /** the operator named a release; without it an install never goes back to an older one */
  explicit: boolean
}

/** Judges the text at one of the installer's paths; null: there is no file. */
export function foundAs(existing: string | null, wanted: string): Found {
  if (existing === null) return 'absent'
  if (existing === wanted) return 'same'
  return existing.startsWith(MARK) ? 'ours' : 'foreign'
}

export function isOurs(found: Found): boolean {
  return found === 'same' || found === 'ours'
}
