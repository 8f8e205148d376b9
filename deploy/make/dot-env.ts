// What a developer keeps in `.env` files, which go into no release. Must hold: no value in them is shown or returned.

import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { formatNames } from '../../agent/words.ts'
import { pageOf } from './place.ts'

const FILES_MAX = 8
const FILE_MAX_BYTES = 64 * 1024
const NAMES_MAX = 20

/**
 * A note for a person that names the variables which the folder's `.env` files set and an install does not get; null for none.
 * `given`: variables that the configuration gives.
 */
export async function noteOfDotEnv(folder: string, given: Readonly<Record<string, string>>): Promise<string | null> {
  const all = await readdir(folder).catch(() => [])
  const files = all.filter((name) => /^\.env(\.\w+)*$/.test(name) && !/\.(example|sample|template|dist)$/.test(name))
  const texts = await Promise.all(files.slice(0, FILES_MAX).map((name) => beginningOf(join(folder, name))))
  const names = [...new Set(texts.flatMap(namesIn))].filter((name) => !Object.hasOwn(given, name))
  if (names.length === 0) return null
  return `${files.join(', ')} in this folder ${files.length === 1 ? 'stays' : 'stay'} out of the release, so an install does not get ${formatNames(names, NAMES_MAX)}: put non-secret values in \`environment\` in baton.config.json, and secrets in the environment file on the host (${pageOf('operator/install.md')})`
}

export function namesIn(text: string): string[] {
  return [...text.matchAll(/^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=/gm)].map(([, name = '']) => name)
}

async function beginningOf(path: string): Promise<string> {
  await using file = await open(path).catch(() => null)
  if (file === null || !(await file.stat()).isFile()) return ''
  const { buffer, bytesRead } = await file.read(Buffer.alloc(FILE_MAX_BYTES), 0, FILE_MAX_BYTES, 0)
  return buffer.toString('utf8', 0, bytesRead)
}
