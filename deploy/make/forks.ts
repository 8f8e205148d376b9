// Whether an application runs as several processes of node:cluster, by its sources: no update can replace such a service. Follows
// the relative imports of one file. Reads, runs nothing, and changes nothing.
// Must hold: what it names is there to be read; what it does not find may fork all the same, which a start shows.

import { readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'

const FILES_MAX = 300
const FILE_MAX_BYTES = 1024 * 1024
const IMPORTS_CLUSTER = /(?:\brequire\(|\bfrom|\bimport\(?|\bgetBuiltinModule\()\s*['"](?:node:)?cluster['"]/
const FORKS = /\bfork\(/
const RELATIVE = /(?:\brequire\(|\bfrom|\bimport\(?)\s*['"](\.\.?\/[^'"\n]+)['"]/g
const ENDS = ['', '.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '/index.js', '/index.mjs', '/index.ts']

/** Path in the folder of a file that starts workers, if `entry` or what it imports does; null: none was found. */
export function forkingFile(folder: string, entry: string): string | null {
  const found = new Set([posix.normalize(entry)])
  for (const path of found) {
    const text = textOf(join(folder, path))
    if (IMPORTS_CLUSTER.test(text) && FORKS.test(text)) return path
    for (const [, to = ''] of text.matchAll(RELATIVE)) {
      const next = fileOf(folder, posix.join(posix.dirname(path), to))
      if (next !== null && found.size < FILES_MAX) found.add(next)
    }
  }
  return null
}

/** What to say of it, and what to do about it. */
export function aboutForks(file: string): { message: string; hint: string } {
  const isTheirs = /(^|\/)node_modules\//.test(file)
  return {
    message: `forks workers: ${file} starts processes of node:cluster, and a service of several processes is served, but cannot be updated`,
    hint: isTheirs
      ? 'write a `baton.server.mjs` that loads the module that its workers run (docs/adopt.md, "A command that starts a cluster")'
      : 'name the file that a worker runs in `entry`: one install is one process',
  }
}

function fileOf(folder: string, path: string): string | null {
  if (path.startsWith('..')) return null
  const guesses = [...ENDS.map((end) => path + end), path.replace(/\.([cm]?)js$/, '.$1ts')]
  return guesses.find((one) => statSync(join(folder, one), { throwIfNoEntry: false })?.isFile() === true) ?? null
}

function textOf(path: string): string {
  try {
    return statSync(path).size > FILE_MAX_BYTES ? '' : readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
