// Folders that a build makes on its way. Must hold: none is left, also where a signal ends the build.

import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'

const temporaries = new Set<string>()

/** A fresh directory inside `parent` that goes away with its scope. */
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

/** For a process that is about to be ended by a signal: scopes do not end then. */
export function removeTemporaries(): void {
  for (const path of temporaries) rmSync(path, { recursive: true, force: true })
}
