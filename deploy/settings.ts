// `npm run settings`: writes settings.schema.json and docs/reference/settings.md from the one table of settings.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { settingsPage, settingsSchema } from './make/settings-page.ts'
import { PROJECT } from './make/place.ts'

await writeFile(join(PROJECT, 'settings.schema.json'), settingsSchema())
await writeFile(join(PROJECT, 'docs', 'reference', 'settings.md'), settingsPage())
