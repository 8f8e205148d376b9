// Opens the feed that the setting names. The only door to this folder.

import { makeDisk } from '../../disk/disk.ts'
import { ownRelease } from '../../own.ts'
import type { Anchor, Feed, OpenFeed, Target } from '../../words/release.ts'
import { knownStore } from '../trust/known.ts'
import { makeGithubFeed } from './github-feed.ts'
import { type Http, type HttpOptions, loadHttp, openHttp } from './http.ts'
import { loadTrust } from '../trust/refresh.ts'
import type { OnPassedOver } from './newest.ts'
import { githubSetting, homesOf, parseFeedSetting, type FeedSetting, tokenNames } from './setting.ts'
import { makeSignedFeed, METADATA_FOLDER } from './signed-feed.ts'
import { assetSource, fileSource, folderSource, webSource, type Source } from './source.ts'
import { makeStaticFeed } from './static-feed.ts'

export interface FeedOptions {
  service: string
  /** keeps the trust metadata that this host has verified; null: keep none, begin at the compiled root each time */
  stateDirectory: string | null
  /** default: the root that this executable was built with; null: the feed is not signed */
  trust?: Anchor | null
  onPassedOver?: OnPassedOver
  /** told once, in a sentence, that the repository has another name now */
  onMoved?: (line: string) => void
}

/** What opening a feed needs besides its setting. */
export interface FeedMeans extends Omit<HttpOptions, 'homes' | 'token'> {
  target: Target
  /** null: not signed */
  trust: Anchor | null
  stateDirectory: string | null
  /** see SignedOptions */
  patienceMs?: number
  /** how long a list of releases is reused without asking again; the default depends on whether asking costs quota */
  minAgeMs?: number
  onPassedOver: OnPassedOver
  onMoved?: (line: string) => void
}

type Github = Extract<FeedSetting, { kind: 'github' }>

const ANONYMOUS_MIN_AGE_MS = 60_000

/** Makes no request and opens no file yet. Throws BatonError invalid_settings. */
export function openFeed(setting: string, options: FeedOptions): OpenFeed {
  const { service, stateDirectory, trust = ownRelease().trust, onPassedOver = () => {}, onMoved = () => {} } = options
  const target = { service, os: process.platform, arch: process.arch }
  return openFeedWith(setting, { target, environment: process.env, trust, stateDirectory, onPassedOver, onMoved })
}

export function openFeedWith(setting: string, means: FeedMeans): OpenFeed {
  const { environment } = means
  const parsed = parseFeedSetting(setting)
  const token = parsed.kind === 'github' ? tokenFor(parsed, environment) : null
  const http = openHttp({ ...means, homes: homesOf(parsed), token })
  const close = (): Promise<void> => http.close()
  const feed =
    means.trust === null ? unsigned(setting, parsed, http, means) : signed(setting, parsed, http, means, means.trust)
  const load = async () => {
    await Promise.all([loadHttp(), means.trust === null ? null : loadTrust()])
  }
  return { ...feed, load, close, [Symbol.asyncDispose]: close }
}

function signed(description: string, parsed: FeedSetting, http: Http, means: FeedMeans, anchor: Anchor): Feed {
  const { target, stateDirectory, patienceMs, onPassedOver } = means
  const store = knownStore(makeDisk(), stateDirectory, anchor.root.trimEnd())
  return makeSignedFeed({
    description,
    source: sourceOf(parsed, http),
    branch: parsed.kind === 'github' ? branchSource(parsed, http) : null,
    target,
    anchor,
    store,
    ...(patienceMs === undefined ? {} : { patienceMs }),
    onPassedOver,
  })
}

function sourceOf(parsed: FeedSetting, http: Http): Source {
  switch (parsed.kind) {
    case 'github': {
      const { api, web, repository } = parsed
      // do without the API and its quota: the address of each file follows from its name
      if (!http.authorized) return webSource(`${web}/${repository}/releases/download/`, http)
      return assetSource(`${api}/repos/${repository}/releases`, http)
    }
    case 'web':
      return webSource(parsed.base, http)
    case 'folder':
      return folderSource(parsed.folder)
    default:
      return parsed satisfies never
  }
}

/** The files of the branch with the metadata. Without a token by the web host, which leads to the files and costs no quota of the API. */
function branchSource({ api, web, repository }: Github, http: Http): Pick<Source, 'file'> {
  // in full: a release of that name has a tag
  const ref = `refs/heads/${METADATA_FOLDER}`
  if (!http.authorized) return webSource(`${web}/${repository}/raw/${ref}/`, http)
  return fileSource(`${api}/repos/${repository}/contents/`, `?ref=${ref}`, http)
}

function unsigned(description: string, parsed: FeedSetting, http: Http, means: FeedMeans): Feed {
  const { target, minAgeMs, onPassedOver, onMoved = () => {} } = means
  if (parsed.kind !== 'github')
    return makeStaticFeed({ description, source: sourceOf(parsed, http), target, onPassedOver })
  const { api, web, repository } = parsed
  const { authorized } = http
  const costs = api === 'https://api.github.com' && !authorized
  return makeGithubFeed({
    description,
    repository,
    api,
    web,
    target,
    http,
    authorized,
    minAgeMs: minAgeMs ?? (costs ? ANONYMOUS_MIN_AGE_MS : 0),
    onPassedOver,
    onMoved: (to) => {
      const now = githubSetting(to, api)
      onMoved(
        `\`${description}\` is \`${now}\` now: set the feed to that, because whoever takes the old name becomes the feed`,
      )
    },
  })
}

function tokenFor(
  { api, web, repository }: Github,
  environment: Readonly<Record<string, string | undefined>>,
): { value: string; bases: string[] } | null {
  const value = tokenNames(api)
    .map((name) => environment[name]?.trim())
    .find((text) => text)
  if (value === undefined) return null
  // Forgejo and Gitea serve the files of a private repository only there; GitHub's web host has another origin, or is not asked
  const files = `${web}/${repository}/releases/download`
  return { value, bases: new URL(web).origin === new URL(api).origin ? [api, files] : [api] }
}
