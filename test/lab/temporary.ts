// The one place where tests make a folder that is theirs alone.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Temporary extends AsyncDisposable {
  /** absolute */
  path: string
}

/** A new folder, which the end of the scope removes. `name`: for somebody who finds it after a test was killed. */
export async function temporary(name: string): Promise<Temporary> {
  const path = await mkdtemp(join(tmpdir(), `baton-${name}-`))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}
