// The panel's files, as text, and who serves them over HTTP. From source they are read from this folder, one module a file. An executable
// has no folder: the bundler puts the files in place of `__BATON_WEB__` (JSON, as one string), and merges the modules into one, except those
// of PAGE_LATER, which not every visitor needs. Asks for no password, since the files hold no secret.
// Must hold: nothing outside the list is ever served. How a file is sent stands in panel-send.ts, loaded at the first request.

import { readdirSync, readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { pathOf } from '../http/answer.ts'
import type { PasswordHeader } from '../words/bounds.ts'

/** Path below `/web/` -> text. `settings.html` is the page. */
export type Assets = Readonly<Record<string, string>>

export const PAGE = ['settings.html', 'settings.css', 'settings.js', 'settings.svg']

/** `settings.js` loads these when it needs them: one language, and the parser of release notes */
export const PAGE_LATER = ['settings/en.js', 'settings/zh.js', 'settings/marked.js']

/** for an application's own pages */
export const BADGE = 'badge.js'

declare const __BATON_WEB__: string | undefined

/** Reads the panel's files from the folder of this file. `marked.js` comes from the package. */
export function readAssets(): Assets {
  const folder = import.meta.dirname
  const parts = readdirSync(join(folder, 'settings')).filter((name) => /\.(js|css)$/.test(name))
  const names = [...PAGE, BADGE, ...parts.map((name) => `settings/${name}`)]
  const texts = names.map((name) => [name, readFileSync(join(folder, name), 'utf8')])
  return { ...Object.fromEntries(texts), 'settings/marked.js': markedText() }
}

/**
 * The package's own module, served as one of the panel's: a browser that runs the page from source cannot read `node_modules`.
 */
function markedText(): string {
  const { createRequire } = process.getBuiltinModule('node:module')
  return readFileSync(createRequire(import.meta.url).resolve('marked'), 'utf8')
}

/** The panel's files, in an executable and from source. */
export function webAssets(): Assets {
  return typeof __BATON_WEB__ === 'undefined' ? readAssets() : (JSON.parse(__BATON_WEB__) as Assets)
}

/** Answers a request for the panel; returns false for any other. */
export type Panel = (req: IncomingMessage, res: ServerResponse) => boolean

export interface PanelOptions {
  /** prefix of `/web/settings.html`, '' for none */
  basePath: string
  service: string
  passwordHeader: PasswordHeader
}

export function makePanel({ basePath, ...told }: PanelOptions): Panel {
  const prefix = `${basePath.replace(/\/+$/, '')}/web/`
  let texts: Assets | null = null
  return (req, res) => {
    const path = pathOf(req)
    if (!path.startsWith(prefix)) return false
    const name = path.slice(prefix.length)
    texts ??= webAssets() // once, and only in a process that gets a request for them
    if (!Object.hasOwn(texts, name)) return false
    const asked = { name, texts, ...told }
    void import('./panel-send.ts').then(({ sendFile }) => sendFile(req, res, asked)).catch(() => void res.destroy())
    return true
  }
}
