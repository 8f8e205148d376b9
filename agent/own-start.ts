// How this process was started, as the first code of a release has noted it before the application got its own arguments.
// Must hold: what is noted here stays in this process; no secret of it goes into the environment by itself.

import { createRequire } from 'node:module'

/** What an installer's `config.json` holds, as far as the agent reads it for an author who leaves it to us. */
export interface InstallConfiguration {
  dashboard?: { password?: string }
  listen?: { host?: string; port?: number; path?: string }
  basePath?: string
  stateDirectory?: string
  feed?: string
  update?: Record<string, number>
}

export interface OwnStart {
  /** what the program was started with, before the first code took its own words away */
  readonly argv: readonly string[]
  /** path of the file to replace: the executable, or the script */
  readonly executable: string
  /** a file of the application that the application itself has forked: not the service */
  readonly isChild: boolean
  /** working directory, before the application changed it; null where that is not wanted */
  readonly directory: string | null
  /** null where it was not started by an installer's words */
  readonly configuration: Readonly<InstallConfiguration> | null
}

const START = Symbol.for('baton.start')
/** In the environment of what the application starts: the id of the process of the service that it comes from. */
export const PARENT = 'BATON_PARENT'

/** Null where no first code of ours has run: from source, or in a program that was built without us. */
export function ownStart(): OwnStart | null {
  return (globalThis as { [START]?: OwnStart })[START] ?? null
}

export function noteStart(start: OwnStart): void {
  Object.defineProperty(globalThis, START, { value: Object.freeze(start), configurable: true })
}

/** Captured at start: after a swap `process.execPath` is still right, but `/proc/self/exe` says `(deleted)`. */
export function ownExecutable(): string | null {
  return ownStart()?.executable ?? (isSingleExecutable() ? process.execPath : null)
}

/** In a single executable argv is [executable, argv0 as typed, …own], in a script [node, script, …own]. */
export function ownArguments(): string[] {
  return [...(ownStart()?.argv ?? process.argv.slice(2))]
}

export function isSingleExecutable(): boolean {
  const sea = createRequire(process.execPath)('node:sea') as { isSea(): boolean }
  return sea.isSea()
}
