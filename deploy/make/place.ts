// Where this kit runs from: a clone, or the folder of the installed package.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

declare const __BATON_PACKAGED__: boolean | undefined

/** Whether this is the installed package. It has the scripts bundled that a clone bundles when it needs them. */
export const IS_PACKAGED = typeof __BATON_PACKAGED__ !== 'undefined'

/** Root folder: two above both `deploy/make/` of a clone and `lib/esm/` of the package. */
export const PROJECT = fileURLToPath(new URL('../../', import.meta.url))

/** Path of a page below `docs/`, from the folder of whoever reads it: the package has the pages, and is in the project of its user. */
export function pageOf(page: string): string {
  return `${IS_PACKAGED ? 'node_modules/baton-kit/' : ''}docs/${page}`
}

/** The version of this kit; a clone has it where `npm pack` takes it from. */
export async function ownVersion(): Promise<string> {
  const manifest = JSON.parse(await readFile(join(PROJECT, 'package.json'), 'utf8')) as Record<string, unknown>
  const { version, packed } = manifest as { version?: string; packed?: { version: string } }
  return version ?? packed?.version ?? 'of unknown version'
}
