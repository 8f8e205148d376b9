// What the panel is made of, as text. From source it is read from this folder; in an executable, which has no folder, the
// bundler has put it in the place of `__BATON_WEB__` (JSON of `readAssets()`, as one string).

import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ASSETS = {
  'settings.html': 'text/html; charset=utf-8',
  'settings.css': 'text/css; charset=utf-8',
  'settings.js': 'text/javascript; charset=utf-8',
  'settings.follow.js': 'text/javascript; charset=utf-8',
  'settings.words.js': 'text/javascript; charset=utf-8',
  'settings.svg': 'image/svg+xml',
} as const

export type AssetName = keyof typeof ASSETS
export const ASSET_NAMES = Object.keys(ASSETS) as AssetName[]

declare const __BATON_WEB__: string | undefined

/** Name -> text, from the folder of this file or from `folder`. For the bundler, and for running from source. */
export function readAssets(folder: string = import.meta.dirname): Record<AssetName, string> {
  const texts = ASSET_NAMES.map((name) => [name, readFileSync(join(folder, name), 'utf8')])
  return Object.fromEntries(texts) as Record<AssetName, string>
}

/** Name -> text, wherever this process runs from. */
export function webAssets(): Record<AssetName, string> {
  return typeof __BATON_WEB__ === 'undefined' ? readAssets() : (JSON.parse(__BATON_WEB__) as Record<AssetName, string>)
}
