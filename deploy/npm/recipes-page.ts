// Draws the page of the recipes that Baton brings. Pure.

import { type Recipe, recipeName } from './recipe.ts'

export const RECIPES_PAGE = 'docs/reference/recipes.md'

const INTRODUCTION = `# Recipes

[A package of npm](../operator/npm.md) that is named here becomes a service by its name alone. \`npm run apps -- --npm\`
takes each from nothing to an update under load, which lost no request, and to a release that breaks, which is refused. Requests wait.
`

/** Content of docs/reference/recipes.md. */
export function recipesPage(all: readonly Recipe[]): string {
  const rows = all.map((recipe) => [
    `[${recipe.package}](../../deploy/npm/recipes/${recipeName(recipe.package)}.json)`,
    /\d+ ms/.exec(recipe.tried ?? '')?.[0] ?? '',
    recipe.clients?.replace(/^requests wait(; )?/, '') ?? '',
  ])
  const head = ['package', 'pause', 'its clients']
  const lines = [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |\n`)
  return `${INTRODUCTION}\n${lines.join('')}`
}
