// A file of /proc.

import { readFile } from 'node:fs/promises'

/** Empty if it cannot be read. */
export async function readProc(path: string): Promise<string> {
  return await readFile(path, 'utf8').catch(() => '')
}
