// The file in which whoever operates this install sets variables for it, secrets among them. systemd reads it for a unit; without one
// the supervision does, at each start.
// Must hold: a file that somebody else can write sets nothing, and no value of it is said anywhere.

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Receipt } from '../../../agent/install.ts'
import { reasonOf } from '../../../agent/words.ts'

export const ENVIRONMENT_FILE_MAX_BYTES = 256 * 1024
const OTHERS_WRITE = 0o022

export function environmentFileFor({
  scope,
  service,
  configPath,
}: Pick<Receipt, 'scope' | 'service' | 'configPath'>): string {
  return scope === 'system' ? join('/etc/default', service) : join(dirname(configPath), 'environment')
}

/** What the file sets, if it belongs to this process's user or to root, and nobody else can write it. `note`: told why it does not count. */
export async function environmentFrom(path: string, note: (line: string) => unknown): Promise<Record<string, string>> {
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const found = await file.stat()
    const wrong = !found.isFile()
      ? 'it is not a regular file'
      : found.uid !== 0 && found.uid !== process.getuid?.()
        ? `it belongs to user id ${found.uid}`
        : (found.mode & OTHERS_WRITE) !== 0
          ? `other users can write to it; run \`chmod 600 ${path}\``
          : found.size > ENVIRONMENT_FILE_MAX_BYTES
            ? `it is larger than ${ENVIRONMENT_FILE_MAX_BYTES} bytes`
            : null
    if (wrong === null) return parseEnvironmentFile(await file.readFile('utf8'))
    await note(`warning: ${path} is ignored: ${wrong}`)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT')
      await note(`warning: ${path} cannot be read, so its settings are ignored: ${reasonOf(cause)}`)
  }
  return {}
}

/** Pure: as systemd reads an EnvironmentFile=, systemd.exec(5). */
export function parseEnvironmentFile(text: string): Record<string, string> {
  const found: Record<string, string> = {}
  const all = text.replaceAll(/\r\n?/g, '\n')
  const line = /[^\S\n]*(?:[#;](?:\\[^]|[^\\\n])*|([^=\n]*)(=?))/y
  for (let at = 0; at < all.length; at++) {
    line.lastIndex = at
    const [skipped = '', name = '', equals = ''] = line.exec(all) ?? []
    at += skipped.length
    if (equals === '') continue
    const { value, end } = valueIn(all, at)
    if (/^[A-Za-z_]\w*$/.test(name.trim())) found[name.trim()] = value
    at = end
  }
  return found
}

/** What begins at `at`, bare or in quotes, which may come one after the other; `end`: of its line, or the last of its lines. */
function valueIn(text: string, at: number): { value: string; end: number } {
  let [value, isBare, end] = ['', false, at]
  const quoted = /'([^']*)'?|"((?:\\[^]|[^"\\])*)"?/y
  for (; end < text.length && text[end] !== '\n'; end++) {
    const one = text[end] ?? ''
    quoted.lastIndex = end
    const [whole, plain, escaped = ''] = (isBare ? null : quoted.exec(text)) ?? []
    if (whole !== undefined) {
      value += plain ?? escaped.replaceAll(/\\(?:(["\\`$])|\n)/g, '$1')
      end += whole.length - 1
    } else if (one === '\\') {
      end += 1
      isBare = true
      value += (text[end] ?? '').replace('\n', '')
    } else if (isBare || /\S/.test(one)) {
      isBare = true
      value += one
    }
  }
  return { value: isBare ? value.trimEnd() : value, end }
}
