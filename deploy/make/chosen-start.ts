// Which script of package.json starts an application, and what that runs: `start:prod` before `start`; what a release can run of the
// commands before it; and the commands that packages bring. Reads, and changes nothing.

import { join, posix } from 'node:path'
import { readJson, readText } from './source-text.ts'
import { type NodeCommand, readNodeCommand, readOtherCommand, readStart, type StartScript } from './start-script.ts'

const START_SCRIPTS = ['start:prod', 'start']

/** Those that run Node or a file: of `start:prod`, then of `start`. */
export function startCommands(folder: string, scripts: Record<string, string>): NodeCommand[] {
  return START_SCRIPTS.flatMap((name) => {
    const { node = null, runner = null } = readStart(scripts, name) ?? {}
    return node === null ? [] : runner === null ? node : { ...node, program: ecosystemOf(folder, node.program) }
  })
}

/** The script of which `startCommands` gives the first, else `start`. */
export function chosenStart(scripts: Record<string, string>): StartScript | null {
  const all = START_SCRIPTS.flatMap((name) => readStart(scripts, name) ?? [])
  return all.find(({ node }) => node !== null) ?? readStart(scripts, 'start')
}

/** A runner's own configuration names the program; null if it names several. */
function ecosystemOf(folder: string, program: string | null): string | null {
  if (program === null || !/\.config\.c?js$|\.json$/.test(program)) return program
  const named = [...readText(join(folder, program)).matchAll(/\bscript['"]?\s*:\s*['"`]([^'"`]+)/g)]
  return named.length === 1 ? (named[0]?.[1] ?? null) : null
}

/** By the start script; without one that runs Node.js, by what the sources call. */
export function foreignRuntimeOf(scripts: Record<string, string>, texts: string): 'Bun' | 'Deno' | null {
  const script = chosenStart(scripts)
  const name = readOtherCommand(script?.command ?? '')?.name ?? ''
  if (/^bunx?$/.test(name)) return 'Bun'
  if (name === 'deno') return 'Deno'
  if (script?.node !== undefined && script.node !== null) return null
  if (/\btypeof (?:Bun|Deno)\b/.test(texts)) return null // made for several
  if (/\bBun\.serve\(|['"]bun:\w+['"]/.test(texts)) return 'Bun'
  return /\bDeno\.serve\(/.test(texts) ? 'Deno' : null
}

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
