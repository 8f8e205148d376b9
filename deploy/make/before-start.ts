// What a start script runs before the application, as a release can run it; and the commands that packages bring. Reads, and changes
// nothing.

import { join, posix } from 'node:path'
import { readJson, readText } from './source-text.ts'
import { readNodeCommand, readOtherCommand } from './start-script.ts'

interface Release {
  folder: string
  /** names of the packages that go into it */
  dependencies: readonly string[]
  /** path in the folder of the file that Node would run for this name; null: there is none */
  fileOf(program: string | null): string | null
}

/** Makes files, and prepares no data: a build does that once, and no start. */
const MAKES = /^(?:tsc|tsup|vite|webpack|rollup|esbuild|swc|next|nest|npm|pnpm|yarn|bun)$|^(?:prisma generate)$/

/**
 * What a release can run of a command such as `prisma migrate deploy`: a file of the author's, or the file behind a command of a package
 * that goes into the release, and its arguments. Null: only a shell can run it, or the release does not have it.
 */
export function beforeOf({ folder, dependencies, fileOf }: Release, text: string): string[] | null {
  if (/[&|]$/.test(text)) return null
  const node = readNodeCommand(text)
  if (node !== null) {
    const file = node.flags.every((flag) => flag === '--import=tsx') ? fileOf(node.program) : null
    return file === null || node.lostArgs.length > 0 || /^\w+=/.test(text) ? null : [file, ...node.args]
  }
  const other = /^\w+=/.test(text) ? null : readOtherCommand(text)
  if (other === null || other.lostArgs.length > 0) return null
  if (MAKES.test(other.name) || MAKES.test(`${other.name} ${other.args[0]}`)) return null
  const word = other.name.replace(/^(?:\.\/)?node_modules\/\.bin\//, '')
  for (const name of dependencies) {
    const file = commandsOf(folder, name)[word]
    if (file !== undefined && isScript(join(folder, 'node_modules', name, file)))
      return [posix.join('node_modules', name, file), ...other.args]
  }
  return null
}

/** Some commands are programs of their own. */
function isScript(path: string): boolean {
  return /\.[cm]?js$/.test(path) || /^#!.*\bnode\b/.test(readText(path))
}

/** command -> its file in the package */
export function commandsOf(folder: string, name: string): Record<string, string> {
  const { bin = {} } = readJson(join(folder, 'node_modules', name, 'package.json')) as {
    bin?: string | Record<string, string>
  }
  return typeof bin === 'string' ? { [name.split('/').at(-1) ?? name]: bin } : bin
}
