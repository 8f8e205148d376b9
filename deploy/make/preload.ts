// The file that a release loads before the application, as `node --import` and `node --require` would: Node's own flags look for it from
// the folder that a process is started in, and an executable finds its files only when it has unpacked them.

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** path in the release */
export const PRELOAD = 'baton.preload.mjs'

/** What `nodeFlags` loads first: what is required, then what is imported, each after the one before, as Node does. Null: nothing. */
export function preloadText(nodeFlags: readonly string[]): string | null {
  const named = (flag: string) =>
    nodeFlags.filter((one) => one.startsWith(flag)).map((one) => JSON.stringify(one.slice(flag.length)))
  const [required, imported] = [named('--require='), named('--import=')]
  if (required.length + imported.length === 0) return null
  const lines = [
    ...(required.length === 0
      ? []
      : [`import { createRequire } from 'node:module'`, 'const require = createRequire(import.meta.url)']),
    ...required.map((name) => `require(${name})`),
    ...imported.map((name) => `await import(${name})`),
  ]
  return `// Made by \`baton build\` from \`nodeFlags\` of baton.config.json.\n${lines.join('\n')}\n`
}

/** The same flag for a start from source in another folder; one that is not found there, or that loads no module, as it is. */
export function preloadFrom(folder: string, flag: string): string {
  const [, name, module] = /^(--(?:import|require)=)(.+)$/.exec(flag) ?? []
  if (name === undefined || module === undefined) return flag
  try {
    const path = createRequire(join(folder, 'package.json')).resolve(module)
    return name + (name === '--import=' ? pathToFileURL(path).href : path)
  } catch {
    return flag
  }
}
