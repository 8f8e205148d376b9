// Which script of package.json starts an application, and what that runs: `start:prod` before `start`. Reads, and changes nothing.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type NodeCommand, readOtherCommand, readStart, type StartScript } from './start-script.ts'

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

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
