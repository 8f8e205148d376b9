// Reads a recipe: what an operator has to know of a package that its code does not say; and draws the page of those that Baton brings.
// recipe.schema.json is the table by which it is read. Must hold: a recipe is data. What it names is a path inside the package or the state
// directory, never a command.

import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { isAbsolute, join, normalize } from 'node:path'
import { BatonError, type Faults, keep, quoted, reasonOf, type Setting } from '../../agent/words.ts'
import { jsonIn } from '../lib/json.ts'
import SCHEMA from './recipe.schema.json' with { type: 'json' }

export interface Recipe {
  package: string
  name: string | null
  bin: string | null
  module: string | null
  args: string[]
  environment: Record<string, string>
  nodeFlags: string[]
  listensAt: 'its-host' | 'given-host'
  port: number | null
  files: Record<string, string>
  healthPath: string | null
  database: string | null
  order: 'stop-first' | 'start-first'
  onStop: 'SIGTERM' | null
  cwd: 'keep' | 'app'
  longLivedPaths: string[] | null
  exclude: string[]
  with: Record<string, string>
  overrides: Record<string, string>
  scripts: string[]
  anyNode: boolean
  formerData: string | null
  data: string | null
  clients: string | null
  tried: string | null
}

const { $schema: _, ...PROPERTIES } = SCHEMA.properties
const USUAL = Object.fromEntries(
  Object.entries(PROPERTIES as Record<string, Setting>).map(([key, { default: usual = null }]) => [key, usual]),
) as unknown as Recipe
/** what is required is asked for below: then all faults are told at once */
const TABLE = { ...SCHEMA, required: [] } as Setting
const NAME = new RegExp(SCHEMA.properties.package.pattern)
const FILE_MAX_BYTES = 64 * 1024

/** What is done with a package that has no recipe. Whatever address it would choose, `--listen` counts. */
export function withoutRecipe(name: string): Recipe {
  return { ...USUAL, package: name, listensAt: 'given-host' }
}

export function isPackageName(name: string): boolean {
  return name.length <= SCHEMA.properties.package.maxLength && NAME.test(name)
}

/** `@scope/name` -> `scope-name`, as the file of a recipe. */
export function recipeName(name: string): string {
  return name.replace(/^@/, '').replace('/', '-')
}

export async function broughtRecipe(folder: string, name: string): Promise<Recipe | null> {
  const path = join(folder, `${recipeName(name)}.json`)
  const recipe = existsSync(path) ? await readRecipe(path) : null
  return recipe?.package === name ? recipe : null // `@a/b` and `a-b` have the same file
}

export async function readRecipes(folder: string): Promise<Recipe[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.json')).toSorted()
  return await Promise.all(names.map((name) => readRecipe(join(folder, name))))
}

/** Throws BatonError invalid_settings that lists every fault, and where it stands. */
export async function readRecipe(path: string): Promise<Recipe> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new BatonError('invalid_settings', `reading the recipe ${path}: ${reasonOf(cause)}`, { cause })
  })
  const value = jsonIn(text, path)
  try {
    return parseRecipe(value)
  } catch (cause) {
    if (!(cause instanceof BatonError)) throw cause
    throw new BatonError('invalid_settings', `the recipe ${path} is not valid: ${cause.message}`, { cause })
  }
}

/** Pure. Throws BatonError invalid_settings. */
export function parseRecipe(value: unknown): Recipe {
  const { faults, unknown }: Faults = { faults: [], unknown: [] }
  const given = keep(TABLE, value, '', { faults, unknown }) as Record<string, unknown> | undefined
  for (const { name, expected } of unknown)
    faults.push(`unknown member \`${name}\`, expected one of ${expected.join(', ')}`)
  const { $schema: __, ...kept } = given ?? {}
  const recipe = { ...USUAL, ...(kept as Partial<Recipe>) } as Recipe & { package: string | null }
  if (given !== undefined && recipe.package === null && !faults.some((one) => one.includes('`package`')))
    faults.push('expected a package name in `package`')
  const below = (name: string, path: string | null) => {
    if (path !== null && !isBelow(path))
      faults.push(`expected a relative path without \`..\` in \`${name}\`, got ${quoted(path)}`)
  }
  below('module', recipe.module)
  below('database', recipe.database)
  for (const [path, text] of Object.entries(recipe.files)) {
    below('files', path)
    if (Buffer.byteLength(text) > FILE_MAX_BYTES)
      faults.push(`expected at most ${FILE_MAX_BYTES} bytes in \`files.${path}\``)
  }
  for (const [member, names] of Object.entries({
    with: Object.keys(recipe.with),
    overrides: Object.keys(recipe.overrides),
    scripts: recipe.scripts,
  }))
    for (const name of names)
      if (!isPackageName(name)) faults.push(`expected a package name in \`${member}\`, got ${quoted(name)}`)
  for (const [member, ranges] of Object.entries({ with: recipe.with, overrides: recipe.overrides }))
    for (const [name, range] of Object.entries(ranges))
      if (!isRange(range)) faults.push(`expected a version range in \`${member}.${name}\`, got ${quoted(range)}`)
  if (faults.length > 0) throw new BatonError('invalid_settings', faults.join('; '))
  return recipe
}

/** What npm would fetch from elsewhere than the registry (`git+ssh:`, `file:`, `npm:other@1`) is none. */
export function isRange(text: string): boolean {
  return /^[\w.<>=~^*|+ -]+$/.test(text)
}

function isBelow(path: string): boolean {
  if (path === '' || isAbsolute(path) || path.includes('\0')) return false
  return !normalize(path).split('/').includes('..')
}

export const RECIPES_PAGE = 'docs/reference/recipes.md'

const INTRODUCTION = `# Recipes

These [npm packages](../operator/npm.md) can be installed by name alone. \`npm run apps -- --npm\` tests each: a first install, an update under load
without a lost request, and the refusal of a broken release. The pause is how long requests wait.
`

export function recipesPage(all: readonly Recipe[]): string {
  const rows = all.map((recipe) => [
    `[${recipe.package}](../../deploy/npm/recipes/${recipeName(recipe.package)}.json)`,
    /no pause|\d+ ms/.exec(recipe.tried ?? '')?.[0] ?? '',
    recipe.clients?.replace(/^requests wait(; )?/, '') ?? '',
  ])
  const head = ['package', 'pause', 'its clients']
  const lines = [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |\n`)
  return `${INTRODUCTION}\n${lines.join('')}`
}
