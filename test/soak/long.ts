// The long form of test files, as a process of their own: every case of what CI does some of.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { glob, readFile } from 'node:fs/promises'
import { join } from 'node:path'

const TEST = join(import.meta.dirname, '..')

/** Every test file that has a long form. Those of containers stand in the file that they run inside the lab. */
export async function longFiles(): Promise<string[]> {
  const found: string[] = []
  for await (const path of glob('**/*.test.ts', { cwd: TEST })) {
    const text = await readFile(join(TEST, path), 'utf8')
    const inside = /inLab\(.*'(container\/[\w-]+\.ts)'/.exec(text)?.[1]
    const whole = inside === undefined ? text : text + (await readFile(join(TEST, inside), 'utf8'))
    if (/\bisLong\b|\btest\.long\b|^\/\/.*@long\b/.test(whole)) found.push(join('test', path))
  }
  return found.toSorted()
}

/** Names or parts of paths; the exit code of the runner. */
export async function runLong(...files: string[]): Promise<number> {
  const child = spawn('tsx', [join(TEST, 'run.ts'), '-v', ...files], {
    stdio: 'inherit',
    env: { ...process.env, BATON_TEST_LONG: '1' },
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}
