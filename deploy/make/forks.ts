// What the sources of an application say that gets in the way of an install: whether it runs as several processes of node:cluster,
// which no update can replace, and whether it makes its own folder the working folder. Follows the relative imports of one file.
// Reads, runs nothing, and changes nothing.
// Must hold: what it names is there to be read; what it does not find may be so all the same, which a start shows.

import { readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'
import { series } from '../../agent/words.ts'
import { pageOf } from './place.ts'

const FILES_MAX = 300
const FILE_MAX_BYTES = 1024 * 1024
const IMPORTS_CLUSTER = /(?:\brequire\(|\bfrom|\bimport\(?|\bgetBuiltinModule\()\s*['"](?:node:)?cluster['"]/
const FORKS = /\bfork\(/
const RELATIVE = /(?:\brequire\(|\bfrom|\bimport\(?)\s*['"](\.\.?\/[^'"\n]+)['"]/g
const ENDS = ['', '.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '/index.js', '/index.mjs', '/index.ts']

/** `chdir` with a folder that is named by where the source lies */
const TO_OWN_FOLDER =
  /\bchdir\([^;\n]{0,100}?(?:__dirname|__filename|import\.meta\b|new URL\([^)]*import\.meta|require\.main|process\.argv\[1\])/

/** Path in the folder of a file that starts workers, if `entry` or what it imports does; null: none was found. */
export function forkingFile(folder: string, entry: string): string | null {
  return firstFile(folder, entry, (text) => IMPORTS_CLUSTER.test(text) && FORKS.test(text))
}

/** Path in the folder of a file that makes its own folder the working folder, if `entry` or what it imports does; null: none was found. */
export function movingFile(folder: string, entry: string): string | null {
  return firstFile(folder, entry, (text) => TO_OWN_FOLDER.test(text))
}

function firstFile(folder: string, entry: string, isIt: (text: string) => boolean): string | null {
  const found = new Set([posix.normalize(entry)])
  for (const path of found) {
    const text = textOf(join(folder, path))
    if (isIt(text)) return path
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
    message: `${file} starts node:cluster workers; a service of several processes runs, but cannot be updated, as an update replaces one process`,
    hint: isTheirs
      ? `write a \`baton.server.mjs\` that loads the module that the workers run (${pageOf('author/packages.md')}, "A command that starts a cluster")`
      : 'set `entry` to the file that a worker runs',
  }
}

/** What to say of `movingFile`, and what to do about it. `args`: those that the application is started with. */
export function aboutMoving(file: string, args: readonly string[]): { message: string; hint: string } {
  const given = args.filter(isRelativePath)
  const looked =
    given.length === 0 ? 'every relative path' : `every relative path (including ${series(given, 'and')} in \`args\`)`
  return {
    message: `${file} changes the working directory to its own folder (chdir), so in an install ${looked} is resolved against the release's folder, which may be read-only and changes with each release`,
    hint: `remove the call, and use \`import.meta.dirname\` (or \`__dirname\`) to find files of the release, and \`{stateDirectory}\` in \`args\` and \`environment\` for the data folder (${pageOf('author/application.md')})`,
  }
}

/** Pure: whether this word, or what a flag gives, names something below the working folder. */
function isRelativePath(arg: string): boolean {
  const value = arg.replace(/^--?[\w-]+=/, '')
  return !/^[-/{]|^\w+:\/\//.test(value) && (value.includes('/') || /\w\.[a-z]\w*$/i.test(value))
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
