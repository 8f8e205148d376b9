// What the build puts beside the code of a release, for its first code; and how that says no.

import type { OwnRelease } from '../../../agent/first.ts'

/** As JSON: an asset of an executable, a constant of a script. */
export interface OwnWords extends OwnRelease {
  /** what the application is given when an installer starts it: variable -> text with {port} and the like */
  environment: Record<string, string>
  /** own arguments of the application when an installer starts it */
  args: string[]
  /** kind app */
  archive?: { sha256: string; sizeBytes: number; entry: string; cwd: 'keep' | 'app' }
}

/** Ends the process before the application has begun: one line says why. */
export function refuse(message: string, hint: string | null = null): never {
  process.stderr.write(`error: ${message}\n${hint === null ? '' : `hint: ${hint}\n`}`)
  process.exit(EXIT_REFUSED)
}

/** `refused` of the table in agent/words/errors.ts, which would be far too much to load here */
const EXIT_REFUSED = 7
