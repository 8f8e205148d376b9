// Serves the panel's files over HTTP: a short list of names. Asks for no password, since the files hold no secret.
// Must hold: nothing outside the list is ever read. How a file is sent stands in panel-send.ts, loaded at the first request.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { pathOf } from '../http/answer.ts'
import type { PasswordHeader } from '../words/bounds.ts'
import { type Assets, webAssets } from './assets.ts'

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
