// The facts that the build puts beside a release's code, for its first code; and how the first code refuses to start.

import type { OwnRelease } from '../../../agent/first.ts'

/** Travels as JSON: an executable has it as an asset, a script as a constant. */
export interface OwnWords extends OwnRelease {
  /** environment of an application that an installer starts: variable -> text with {port} and the like */
  environment: Record<string, string>
  /** arguments of an application that an installer starts */
  args: string[]
  /** commands that run before the application begins: each a file of the release, and its arguments; absent: none */
  before?: string[][]
  /** flags of Node that this release is started with, without those that load a module */
  nodeFlags: string[]
  /** kind app */
  archive?: {
    /** of the archive as it was made */
    sha256: string
    sizeBytes: number
    /** on a disk; absent in older executables */
    unpackedBytes?: number
    entry: string
    cwd: 'keep' | 'app'
    /** file that is loaded before the application, in every process; absent: none */
    preload?: string
    /** positions at which the build has put `n` for `N`: see `withoutFuse` in deploy/make/sea.ts */
    fuses?: number[]
  }
}

/** Ends the process before the application begins; one line says why. */
export function refuse(message: string, hint: string | null = null, exitCode = EXIT_REFUSED): never {
  process.stderr.write(`error: ${message}\n${hint === null ? '' : `hint: ${hint}\n`}`)
  process.exit(exitCode)
}

/** `refused` and `invalid_request` in the table of agent/words/errors.ts, which is far too much to load here */
const EXIT_REFUSED = 7
export const EXIT_USAGE = 2
