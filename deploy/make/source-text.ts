// Looks into an author's folder that nobody has checked: a file that is not there, or is no JSON, is empty.

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parsedJson } from '../../agent/words.ts'

const SOURCE_MAX_BYTES = 1024 * 1024

export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8').slice(0, SOURCE_MAX_BYTES)
  } catch {
    return ''
  }
}

export function readJson(path: string): unknown {
  return parsedJson(readText(path)) ?? {}
}

/** where bundlers put files with a hash in their names: Vite, Remix, React Router, SvelteKit, Nuxt, Astro */
const HASHED = [
  'dist/assets',
  'dist/client/assets',
  'dist/public/assets',
  'client/dist/assets',
  'public/build',
  'build/client/assets',
].concat(['build/client/_app/immutable', '.output/public/_nuxt', 'dist/client/_astro'])

/**
 * The folders whose files have a hash in their names, for `assets` of baton.config.json: what is there; of a plain Vite that has built
 * nothing yet, what it is going to make.
 */
export function hashedFolders(folder: string, packages: Readonly<Record<string, string>>): string[] {
  const found = HASHED.filter((name) => existsSync(join(folder, name)))
  const isOthers = Object.keys(packages).some((name) =>
    /^(astro|nuxt|@(sveltejs|remix-run|react-router)\/.*)$/.test(name),
  )
  if (found.length > 0 || packages['vite'] === undefined || isOthers) return found
  const configs = ['js', 'mjs', 'cjs', 'ts', 'mts', 'cts'].map((end) => join(folder, `vite.config.${end}`))
  const isElsewhere = configs.some((path) => /\b(outDir|assetsDir)\b/.test(readText(path)))
  return isElsewhere ? [] : ['dist/assets']
}
