// Opens the feed that the setting names. The one door to this folder.

import type { Feed, Target } from '../release.ts'
import { makeGithubFeed } from './github.ts'
import { openHttp } from './http.ts'
import type { HttpOptions } from './http.ts'
import type { OnPassedOver } from './newest.ts'
import { homesOf, parseFeedSetting } from './setting.ts'
import type { FeedSetting } from './setting.ts'
import { folderSource, webSource } from './source.ts'
import { makeStaticFeed } from './static.ts'

export interface FeedOptions {
  service: string
  onPassedOver?: OnPassedOver
}

export interface OpenFeed extends Feed, AsyncDisposable {
  /** Lets go of idle connections. The feed can be used again afterwards. */
  close(): Promise<void>
}

/** What a feed is opened with besides its setting; a process has one set of them, a test several. */
export interface FeedMeans extends Omit<HttpOptions, 'homes' | 'token'> {
  target: Target
  /** how long a list of releases is used again without asking; default by whether asking costs quota */
  minAgeMs?: number
  onPassedOver: OnPassedOver
}

const ANONYMOUS_MIN_AGE_MS = 60_000

/** Opens nothing yet: no request, no file. Throws BatonError invalid_settings. */
export function openFeed(setting: string, { service, onPassedOver = () => {} }: FeedOptions): OpenFeed {
  const target = { service, os: process.platform, arch: process.arch }
  return openFeedWith(setting, { target, environment: process.env, onPassedOver })
}

export function openFeedWith(setting: string, means: FeedMeans): OpenFeed {
  const { target, environment, onPassedOver } = means
  const parsed = parseFeedSetting(setting)
  const token = parsed.kind === 'github' ? tokenFor(parsed, environment) : null
  const http = openHttp({ ...means, homes: homesOf(parsed), token })
  const close = (): Promise<void> => http.close()
  const feed = ((): Feed => {
    switch (parsed.kind) {
      case 'github': {
        const costs = parsed.api === 'https://api.github.com' && token === null
        return makeGithubFeed({
          description: setting,
          repository: parsed.repository,
          api: parsed.api,
          web: parsed.web,
          target,
          http,
          authorized: token !== null,
          minAgeMs: means.minAgeMs ?? (costs ? ANONYMOUS_MIN_AGE_MS : 0),
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
