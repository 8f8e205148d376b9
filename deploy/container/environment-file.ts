// Sets one variable in a compose project's `.env`. Must hold: every other line stays as it is; the file is whole at any instant.

import { readFile, realpath, stat } from 'node:fs/promises'
import { makeDisk } from '../../agent/install.ts'

export async function setVariable(wanted: { environmentFile: string; variable: string; value: string }): Promise<void> {
  const { environmentFile: path, variable, value } = wanted
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw error
  })
  const changed = withVariable(text, variable, value)
  if (changed === text) return
  const file = await realpath(path).catch(() => path) // replace the link's target, not the link
  const mode = await stat(file).then(
    (found) => found.mode & 0o777,
    () => 0o600,
  ) // it may hold secrets
  await makeDisk().writeWhole(file, changed, mode)
}

/** The text of a `.env` with one variable set; all other lines as they are. Pure. */
export function withVariable(text: string, name: string, value: string): string {
  const lines = text === '' ? [] : text.replace(/\n$/, '').split('\n')
  const at = lines.findLastIndex((line) => new RegExp(`^\\s*(export\\s+)?${name}\\s*=`).test(line))
  if (at < 0) lines.push(`${name}=${value}`)
  else lines[at] = `${name}=${value}`
  return `${lines.join('\n')}\n`
}
