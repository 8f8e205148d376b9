// `npm run pages`: writes every page and schema that is made from a table.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ERRORS_PAGE } from '../agent/words.ts'
import { cliPage } from './cli-page.ts'
import { errorsPage } from './make/errors-page.ts'
import { glossaryPage } from './make/glossary.ts'
import { settingsPage, settingsSchema } from './make/settings-page.ts'
import { PROJECT } from './make/place.ts'
import { readRecipes, RECIPES_PAGE, recipesPage } from './npm/recipe.ts'

await writeFile(join(PROJECT, 'settings.schema.json'), settingsSchema())
await writeFile(join(PROJECT, 'docs', 'reference', 'settings.md'), settingsPage())
await writeFile(join(PROJECT, ERRORS_PAGE), errorsPage())
await writeFile(join(PROJECT, 'docs', 'reference', 'glossary.md'), glossaryPage())
await writeFile(join(PROJECT, 'docs', 'reference', 'cli.md'), cliPage())
await writeFile(join(PROJECT, RECIPES_PAGE), recipesPage(await readRecipes(join(PROJECT, 'deploy/npm/recipes'))))
