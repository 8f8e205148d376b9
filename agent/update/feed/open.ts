// Opens the feed that the setting names. The only door to this folder.

import { makeDisk } from '../../disk/disk.ts'
import { ownRelease } from '../../own.ts'
import { BatonError } from '../../words/errors.ts'
import type { ReleaseChannel, FeedChoice } from '../../words/feed-choice.ts'
import type { Anchor, Feed, OpenFeed, Target } from '../../words/release.ts'
import { knownStore } from '../trust/known.ts'
import { makeGithubFeed } from './github-feed.ts'
import { type Http, type HttpOptions, loadHttp, openHttp } from './http.ts'
import { loadTrust } from '../trust/refresh.ts'
import { type Mirror, withMirrors } from './mirrors.ts'
import type { OnPassedOver } from './newest.ts'
import { githubSetting, homesOf, parseFeedSetting, type FeedSetting, tokenNames } from './setting.ts'
import { makeSignedFeed, METADATA_FOLDER } from './signed-feed.ts'
import { assetSource, fileSource, folderSource, webSource, type Source } from './source.ts'
import { makeStaticFeed } from './static-feed.ts'

interface Told {
  onPassedOver: OnPassedOver
  /** told once, in a sentence, that the repository has another name now */
  onMoved(line: string): void
  /** told in a sentence of a source whose bytes were not the published ones */
  onLeftOut(line: string): void
}

export interface FeedOptions extends Partial<Told> {
  service: string
  /** keeps the trust metadata that this host has verified; null: keep none, begin at the compiled root each time */
  stateDirectory: string | null
  /** default: the root that this executable was built with; null: the feed is not signed */
  trust?: Anchor | null
}

/** What opening a feed needs besides its setting. */
export interface FeedMeans
  extends Omit<HttpOptions, 'homes' | 'token'>, Required<Pick<FeedOptions, 'trust' | 'stateDirectory'>>, Partial<Told> {
  target: Target
  /** see SignedOptions */
  patienceMs?: number
  /** how long a list of releases is reused without asking again; the default depends on whether asking costs quota */
  minAgeMs?: number
  channel: ReleaseChannel
  onPassedOver: OnPassedOver
}

type Github = Extract<FeedSetting, { kind: 'github' }>

const ANONYMOUS_MIN_AGE_MS = 60_000

/** Makes no request and opens no file yet. Throws BatonError invalid_settings. */
export function openFeed(choice: string | FeedChoice, options: FeedOptions): OpenFeed {
  const { service, trust = ownRelease().trust, onPassedOver = () => {}, ...more } = options
  const target = { service, os: process.platform, arch: process.arch }
  return openFeedWith(choice, { ...more, target, environment: process.env, trust, onPassedOver })
}

export function openFeedWith(choice: string | FeedChoice, given: Omit<FeedMeans, 'channel'>): OpenFeed {
  const { feed: sources, channel = 'stable', downloadPrefix } = typeof choice === 'string' ? { feed: choice } : choice
  const means: FeedMeans = { ...given, channel }
  const [setting = '', ...others] = [sources].flat()
  const parsed = parseFeedSetting(setting)
  const token = parsed.kind === 'github' ? tokenFor(parsed, means.environment) : null
  const http = openHttp({ ...means, homes: homesOf(parsed), token })
  const first =
    means.trust === null ? unsigned(setting, parsed, http, means) : signed(setting, parsed, http, means, means.trust)
  const prefixed = downloadPrefix === undefined ? [] : [prefixedSource(downloadPrefix, parsed, means)]
  const mirrors = [...prefixed, ...others.map((name) => mirrorOf(name, parseFeedSetting(name), means))]
  const feed = withMirrors(first, mirrors, prefixed.length, means.onLeftOut)
  const close = async () => {
    feed.forget()
    await Promise.all([http, ...mirrors].map((one) => one.close()))
  }
  const load = async () => {
    await Promise.all([loadHttp(), means.trust === null ? null : loadTrust()])
  }
  return { ...feed, load, close, [Symbol.asyncDispose]: close }
}

/** A place that has the bytes too. It gets no token: that is for the first source alone. */
function mirrorOf(name: string, parsed: FeedSetting, means: FeedMeans): Mirror {
  const http = openHttp({ ...means, homes: homesOf(parsed), token: null })
  return { name, source: sourceOf(parsed, http), close: () => http.close() }
}

/** The downloads of a repository, each address behind a prefix. Throws BatonError invalid_settings. */
function prefixedSource(prefix: string, parsed: FeedSetting, means: FeedMeans): Mirror {
  if (parsed.kind !== 'github')
    throw new BatonError('invalid_settings', '`downloadPrefix` works only with a GitHub `feed`')
  const { web, repository } = parsed
  const at = parseFeedSetting(prefix)
  if (at.kind !== 'web' || (at.base.startsWith('http:') && web.startsWith('https:')))
    throw new BatonError('invalid_settings', '`downloadPrefix`: expected an address that begins with https://')
  const http = openHttp({ ...means, homes: [at.base], token: null })
  const source = webSource(`${at.base}${web}/${repository}/releases/download/`, http)
  return { name: at.base, source, close: () => http.close() }
}

function signed(description: string, parsed: FeedSetting, http: Http, means: FeedMeans, anchor: Anchor): Feed {
  const { target, stateDirectory, patienceMs, channel, onPassedOver } = means
  const store = knownStore(makeDisk(), stateDirectory, anchor.root.trimEnd())
  return makeSignedFeed({
    description,
    source: sourceOf(parsed, http),
    branch: parsed.kind === 'github' ? branchSource(parsed, http) : null,
    target,
    anchor,
    store,
    ...(patienceMs === undefined ? {} : { patienceMs }),
    channel,
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
  const { target, minAgeMs, channel, onPassedOver, onMoved = () => {} } = means
  if (parsed.kind !== 'github')
    return makeStaticFeed({ description, source: sourceOf(parsed, http), target, channel, onPassedOver })
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
    channel,
    onPassedOver,
    onMoved: (to) => {
      const now = githubSetting(to, api)
      onMoved(
        `\`${description}\` is now named \`${now}\`: set the feed to the new name, because whoever takes the old one controls the feed`,
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
