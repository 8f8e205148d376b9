// Temporary folders of a build. Must hold: none is left behind, even if a signal ends the build.

import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'

const temporaries = new Set<string>()

/** Makes a new directory inside `parent`; the end of the scope removes it. */
export async function temporaryDirectory(parent: string): Promise<AsyncDisposable & { path: string }> {
  await mkdir(parent, { recursive: true })
  const path = await mkdtemp(join(parent, '.partial-'))
  temporaries.add(path)
  const remove = async () => {
    await rm(path, { recursive: true, force: true })
    temporaries.delete(path)
  }
  return { path, [Symbol.asyncDispose]: remove }
}

/** For a signal handler: scopes do not end then. What was started is killed first, since it may still write into these folders. */
export function exitAtOnce(exitCode: number): never {
  process.once('exit', () => {
    for (const path of temporaries) rmSync(path, { recursive: true, force: true, maxRetries: 3 })
  })
  process.exit(exitCode)
}
