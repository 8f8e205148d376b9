// Opens the feed that the setting names. The one door to this folder.

import type { Feed, Target } from '../release.ts'
import { makeGithubFeed } from './github.ts'
import { openHttp } from './http.ts'
import type { HttpOptions } from './http.ts'
import type { OnPassedOver } from './newest.ts'
import { parseFeedSetting } from './setting.ts'
import type { FeedSetting } from './setting.ts'
import { folderSource, makeStaticFeed, webSource } from './static.ts'

export interface FeedOptions extends Partial<Pick<HttpOptions, 'ca' | 'timeoutMs'>> {
  service: string
  /** default: of this process */
  os?: string
  arch?: string
  /** for the proxy and the token; default `process.env` */
  environment?: Readonly<Record<string, string | undefined>>
  /** base of the web host where it cannot be told from the API's, without a slash at the end */
  web?: string
  /** how long a list of releases is used again without asking; default by whether asking costs quota */
  minAgeMs?: number
  onPassedOver?: OnPassedOver
}

export interface OpenFeed extends Feed, AsyncDisposable {
  /** Lets go of idle connections. The feed can be used again afterwards. */
  close(): Promise<void>
}

const ANONYMOUS_MIN_AGE_MS = 60_000

/** Opens nothing yet: no request, no file. Throws BatonError invalid_settings. */
export function openFeed(setting: string, options: FeedOptions): OpenFeed {
  const { service, os = process.platform, arch = process.arch, environment = process.env } = options
  const parsed = parseFeedSetting(setting)
  const target: Target = { service, os, arch }
  const onPassedOver = options.onPassedOver ?? (() => {})
  const token = parsed.kind === 'github' ? tokenFor(parsed, environment) : null
  const { ca, timeoutMs } = options
  const http = openHttp({
    environment,
    token,
    ...(ca === undefined ? {} : { ca }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  })
  const close = (): Promise<void> => http.close()
  const feed = ((): Feed => {
    switch (parsed.kind) {
      case 'github': {
        const costs = parsed.api === 'https://api.github.com' && token === null
        return makeGithubFeed({
          description: setting,
          repository: parsed.repository,
          api: parsed.api,
          web: options.web ?? parsed.web,
          target,
          http,
          authorized: token !== null,
          minAgeMs: options.minAgeMs ?? (costs ? ANONYMOUS_MIN_AGE_MS : 0),
          onPassedOver,
        })
      }
      case 'web':
        return makeStaticFeed({ description: setting, source: webSource(parsed.base, http), target, onPassedOver })
      case 'folder':
        return makeStaticFeed({ description: setting, source: folderSource(parsed.folder), target, onPassedOver })
      default:
        return parsed satisfies never
    }
  })()
  return { ...feed, close, [Symbol.asyncDispose]: close }
}

/** The names that `gh` uses: one for github.com, another for everything else, so that no host gets the other's token. */
function tokenFor(
  { api }: Extract<FeedSetting, { kind: 'github' }>,
  environment: Readonly<Record<string, string | undefined>>,
): { value: string; base: string } | null {
  const names =
    api === 'https://api.github.com' ? ['GH_TOKEN', 'GITHUB_TOKEN'] : ['GH_ENTERPRISE_TOKEN', 'GITHUB_ENTERPRISE_TOKEN']
  const value = names.map((name) => environment[name]?.trim()).find((text) => text)
  return value ? { value, base: api } : null
}
