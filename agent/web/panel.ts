// Serves the panel's files over HTTP: a short list of names. Asks for no password, since the files hold no secret.
// Must hold: nothing outside the list is ever read. How a file is sent stands in panel-send.ts, loaded at the first request.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { pathOf } from '../http/answer.ts'
import { nodeCrypto } from '../words/later.ts'
import type { PasswordHeader } from '../words/bounds.ts'
import { PAGE, typeOf, webAssets } from './assets.ts'
import type { PanelFile } from './panel-send.ts'

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
  let files: Map<string, PanelFile> | null = null
  return (req, res) => {
    const path = pathOf(req)
    if (!path.startsWith(prefix)) return false
    const name = path.slice(prefix.length)
    files ??= readFiles(told) // once, and only in a process that gets a request for them
    const file = files.get(name)
    if (file === undefined) return false
    void import('./panel-send.ts').then(({ sendFile }) => sendFile(req, res, file)).catch(() => void res.destroy())
    return true
  }
}

/**
 * Writes into the page what it has to know before it asks, and the hash of the whole panel. That is the page's ETag too, so that the page
 * sees when it is out of date.
 */
function readFiles({ service, passwordHeader }: Omit<PanelOptions, 'basePath'>): Map<string, PanelFile> {
  const filledIn = (text: string) => text.replaceAll('SERVICE', service).replace('HEADER', passwordHeader)
  const texts = Object.entries(webAssets()).map(
    ([name, text]) => [name, name === PAGE[0] ? filledIn(text) : text] as const,
  )
  const whole = hashOf(texts.map(([name, text]) => `${name}\n${text}`).join('\n'))
  return new Map(texts.map(([name, text]) => [name, fileOf(name, text, whole)]))
}

function fileOf(name: string, text: string, whole: string): PanelFile {
  const isPage = name === 'settings.html'
  const body = Buffer.from(isPage ? text.replace('content="ASSETS"', `content="${whole}"`) : text)
  return { type: typeOf(name), hash: isPage ? whole : hashOf(text), body, packed: new Map() }
}

function hashOf(text: string): string {
  return nodeCrypto().createHash('sha256').update(text).digest('hex').slice(0, 24)
}
