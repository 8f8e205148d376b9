// The long form of test files, as a process of their own: every case of what CI does some of.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

/** Names or parts of paths; the exit code of the runner. */
export async function runLong(...files: string[]): Promise<number> {
  const child = spawn('tsx', [join(import.meta.dirname, '../run.ts'), '-v', ...files], {
    stdio: 'inherit',
    env: { ...process.env, BATON_TEST_LONG: '1' },
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}
