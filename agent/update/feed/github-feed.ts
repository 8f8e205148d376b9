// Releases of a GitHub repository, through the REST API at any base URL: github.com, Enterprise, or a mirror with the same API.
// An anonymous client has 60 requests an hour. A 304 counts too (with a token it does not), so the list is kept for a while.
// If the quota is used up, the redirect of `/releases/latest` on the web host still names the newest tag.

import { BatonError, reasonOf } from '../../words/errors.ts'
import { NOTES_MAX_CHARS, TEXT_MAX_BYTES, readReleaseTexts, sha256Of } from '../trust/release-texts.ts'
import { isTag, parseTag } from '../../words/release.ts'
import { isBarred } from '../../words/which-release.ts'
import type { Feed, ListedFile, Listing, Release, Skip, Tag } from '../../words/release.ts'
import type { Beyond } from '../../words/state.ts'
import { isObject, isTime, quoted } from '../../words/untrusted.ts'
import { trustReport } from '../trust/signed-releases.ts'
import { assess, listingOf, ruledOut, unusable, usableOf } from '../trust/usable.ts'
import type { Judgement } from '../trust/usable.ts'
import { ifThere } from './answer.ts'
import type { Http } from './http.ts'
import { notesBetween } from './notes.ts'
import { newestUsable, withBarrier } from './newest.ts'
import { repositoryOf, tokenNames } from './setting.ts'
import type { StaticOptions } from './static-feed.ts'

export interface GithubOptions extends Omit<StaticOptions, 'source'> {
  /** base of the REST API, no slash at the end */
  api: string
  /** base of the web host, no slash at the end */
  web: string
  /** `owner/name` */
  repository: string
  http: Http
  /** whether `http` has a token for `api`: then assets come through the API, as private repositories need */
  authorized: boolean
  /** how long a list is reused without asking again */
  minAgeMs: number
  /** told once: the name that the repository has now */
  onMoved: (repository: string) => void
}

const ACCEPT = 'application/vnd.github+json'
const LIST_MAX_BYTES = 8 * 1024 * 1024
const PER_PAGE = 50
/** how many pages are searched for a usable release */
const PAGES_MAX = 3
const KEPT_MAX = 8
/** how many renames of a repository are followed */
const MOVES_MAX = 3

interface Kept {
  listings: Listing[]
  etag: string | null
  next: string | null
  at: number
}

export function makeGithubFeed(options: GithubOptions): Feed {
  const { description, api, repository, target, http, authorized, channel, onPassedOver } = options
  const releases = `${api}/repos/${repository}/releases`
  const moved = makeMoved(options)
  const ask = makeAsk(options, moved)
  const text = makeText(http)
  const judge = (listing: Listing, signal: AbortSignal | undefined) => judgeWith(text, listing, target, signal)
  const byConvention = makeByConvention(options, text, moved)

  return {
    description,
    trust: () => Promise.resolve(trustReport(null, new Date())),
    async latest(skip, signal) {
      let url: string | null = `${releases}?per_page=${PER_PAGE}`
      const from = skip.from ?? null
      let problem: BatonError | null = null // why the newest published release cannot be used
      let beyond: Beyond | null = null
      try {
        for (let page = 1; url !== null && page <= PAGES_MAX; page++) {
          const { listings, next }: Kept = await ask(url, signal)
          const asked = (listing: Listing) => judge(listing, signal)
          const found = await newestUsable(listings, skip, asked, onPassedOver, channel)
          problem ??= found.problem
          beyond ??= found.beyond
          if (found.release !== null) return withBarrier({ release: found.release, problem, beyond }, from)
          url = next
        }
      } catch (error) {
        if (!(error instanceof BatonError) || error.code !== 'rate_limited') throw error
        return { release: await byConvention(null, skip, error, signal), problem }
      }
      problem ??= url === null ? null : tooManyOthers()
      return withBarrier({ release: null, problem, beyond }, from)
    },
    async byTag(value, signal) {
      const tag = parseTag(value)
      try {
        const [listing] = (await ask(`${releases}/tags/${tag}`, signal)).listings
        if (listing?.tag !== tag) throw unusable(tag, `the feed answered with ${listing?.tag ?? 'another release'}`)
        return usableOf(tag, await judge(listing, signal))
      } catch (error) {
        if (!(error instanceof BatonError)) throw error
        if (error.code === 'release_not_found') {
          const hint = authorized ? {} : { hint: `if the repository is private, set ${tokenNames(api)[1]}` }
          throw new BatonError('release_not_found', `${description} has no release ${tag}`, { cause: error, ...hint })
        }
        if (error.code === 'rate_limited') return await byConvention(tag, () => false, error, signal)
        throw error
      }
    },
    async notes(range, signal) {
      const { listings } = await ask(`${releases}?per_page=${PER_PAGE}`, signal)
      return await notesBetween(listings, range, async (listing) => ({ release: listing }), channel)
    },
    bytes: (asset, from, validator, signal) => http.bytes(asset.url, from, validator, signal),
  }
}

/** A repository may hold other releases too: if none of the newest ones can be used, an older one may be usable. */
function tooManyOthers(): BatonError {
  const searched = PAGES_MAX * PER_PAGE
  return new BatonError(
    'release_unusable',
    `none of the newest ${searched} releases can be used, and older ones were not checked`,
    {
      hint: 'specify a release by its tag, or use a feed that contains only releases of this service',
    },
  )
}

type Text = (url: string, signal: AbortSignal | undefined) => Promise<string | null>

/** Compares the name that the host gives the repository with the one in the setting. GitHub takes a name in any case. */
function makeMoved({ repository, onMoved }: GithubOptions): (named: string | null) => void {
  let isTold = false
  return (named) => {
    if (isTold || named === null || named.toLowerCase() === repository.toLowerCase()) return
    isTold = true
    onMoved(named)
  }
}

/** Fetches lists of releases. Asks for a list again only when it may have changed. */
function makeAsk(
  { web, http, authorized, minAgeMs }: GithubOptions,
  moved: (named: string | null) => void,
): (url: string, signal?: AbortSignal) => Promise<Kept> {
  const kept = new Map<string, Kept>()
  return async (url, signal) => {
    const known = kept.get(url)
    if (known && performance.now() - known.at < minAgeMs) return known
    const request = { url, maxBytes: LIST_MAX_BYTES, accept: ACCEPT, failure: 'check_failed', signal } as const
    const answer = await http.json({ ...request, known: known?.etag ?? null })
    const { etag, next } = answer ?? known ?? { etag: null, next: null }
    const listings = answer === null ? (known?.listings ?? []) : parseReleases(answer.value, authorized)
    moved(repositoryOf(listings[0]?.url ?? null, web))
    const fresh = { listings, etag, next, at: performance.now() }
    kept.delete(url)
    kept.set(url, fresh)
    for (const oldest of kept.keys()) if (kept.size > KEPT_MAX) kept.delete(oldest)
    return fresh
  }
}

/** Fetches a small file as text; null if there is none. */
function makeText(http: Http): Text {
  return async (url, signal) => {
    const accept = 'application/octet-stream'
    const request = { url, maxBytes: TEXT_MAX_BYTES, accept, failure: 'check_failed', signal } as const
    return (await ifThere(http.file(request)))?.content.toString() ?? null
  }
}

async function judgeWith(
  text: Text,
  listing: Listing,
  target: GithubOptions['target'],
  signal: AbortSignal | undefined,
): Promise<Judgement> {
  const out = ruledOut(listing, target)
  if (out !== null) return { why: out }
  const different: string[] = []
  const texts = await readReleaseTexts(async (name) => {
    const file = listing.files.find((entry) => entry.name === name)
    if (file === undefined) return null
    const got = await text(file.url, signal)
    if (got !== null && file.sha256 !== null && file.sha256 !== sha256Of(got)) different.push(name)
    return got
  })
  if (different.length > 0) return { why: `${different[0]} does not match its digest in the feed` }
  return 'why' in texts ? texts : assess(listing, texts, target)
}

/**
 * Finds a release without the API. `wanted` null: the latest. `limited`: the API's refusal. If this fails too, throws rate_limited
 * with both reasons.
 */
function makeByConvention(
  { api, web, repository, target, http, authorized, channel }: GithubOptions,
  text: Text,
  moved: (named: string | null) => void,
) {
  /** The tag, and the repository's name now. A renamed repository redirects to its new name first. */
  const latestNow = async (signal: AbortSignal | undefined): Promise<{ tag: Tag | null; name: string }> => {
    for (let name = repository, moves = 0; ; moves++) {
      const url = `${web}/${name}/releases/latest`
      const location = await http.location({ url, failure: 'check_failed', signal })
      const tag = tagOfLocation(location)
      const named = repositoryOf(location, web) ?? name
      if (tag !== null || named === name || moves === MOVES_MAX) return { tag, name: named }
      name = named
    }
  }
  return async (
    wanted: Tag | null,
    skip: Skip,
    limited: BatonError,
    signal: AbortSignal | undefined,
  ): Promise<Release> => {
    const latestUrl = `${web}/${repository}/releases/latest`
    const giveUp = (why: string): never => {
      const { hint, members } = limited
      const message = `${limited.message}, and the fallback, ${latestUrl}, failed too: ${why}`
      const token = authorized ? '' : `, or set ${tokenNames(api)[1]} for a larger quota`
      throw new BatonError('rate_limited', message, { cause: limited, members, hint: `${hint ?? 'wait'}${token}` })
    }
    try {
      if (wanted === null && channel === 'beta') return giveUp('it never points to a prerelease')
      const { tag, name: now } = await latestNow(signal)
      moved(now)
      if (tag === null) return giveUp('it does not point to a release')
      // The redirect leads to a release that is neither a draft nor a prerelease. For any other tag this cannot be known.
      if (wanted !== null && tag !== wanted) return giveUp(`it points to ${tag}, not ${wanted}`)
      const urlOf = (name: string): string => `${web}/${now}/releases/download/${tag}/${name}`
      const texts = await readReleaseTexts((name) => text(urlOf(name), signal))
      if ('why' in texts) return giveUp(`${tag} cannot be used: ${texts.why}`)
      const verdict = assess(listingOf({ tag, draft: false, prerelease: false }, texts, urlOf), texts, target)
      if ('why' in verdict) return giveUp(`${tag} cannot be used: ${verdict.why}`)
      if (isBarred(verdict.release, skip.from ?? null))
        return giveUp(`it points to ${tag}, which can be installed only on top of ${verdict.release.from} or later`)
      return skip(verdict.release) ? giveUp(`it points to ${tag}, which failed here before`) : verdict.release
    } catch (error) {
      if (error instanceof BatonError && error.cause === limited) throw error
      return giveUp(reasonOf(error))
    }
  }
}

/** The listings in an answer that holds a list of releases, or one release. */
function parseReleases(value: unknown, authorized: boolean): Listing[] {
  if (Array.isArray(value)) return (value as unknown[]).flatMap((entry) => parseListing(entry, authorized) ?? [])
  if (!isObject(value)) throw new BatonError('check_failed', `expected a list of releases, got ${quoted(value)}`)
  const release = parseListing(value, authorized)
  return release === null ? [] : [release]
}

/** The members of GitHub's `release` schema that matter here. Null if its tag is not vX.Y.Z, such as `nightly`. */
export function parseListing(value: unknown, authorized: boolean): Listing | null {
  if (!isObject(value) || !isTag(value['tag_name'])) return null
  const { tag_name: tag, body, draft, prerelease, published_at: publishedAt, html_url: page, assets } = value
  return {
    tag,
    draft: draft !== false,
    prerelease: prerelease !== false,
    notes: typeof body === 'string' ? body.slice(0, NOTES_MAX_CHARS) : '',
    publishedAt: isTime(publishedAt) ? publishedAt : null,
    url: typeof page === 'string' && page.length < 500 && /^https?:\/\/[^\s]+$/.test(page) ? page : null,
    files: (Array.isArray(assets) ? (assets as unknown[]) : []).flatMap((asset) => parseFile(asset, authorized) ?? []),
  }
}

function parseFile(value: unknown, authorized: boolean): ListedFile | null {
  if (!isObject(value)) return null
  const { name, state, size, digest, url, browser_download_url: browserUrl } = value
  // Forgejo and Gitea have no address of it in their API
  const address = authorized && typeof url === 'string' ? url : browserUrl
  if (typeof name !== 'string' || typeof address !== 'string') return null
  if (state !== undefined && state !== 'uploaded') return null // still being uploaded
  return {
    name,
    url: address,
    sizeBytes: typeof size === 'number' ? size : null,
    sha256: typeof digest === 'string' && digest.startsWith('sha256:') ? digest.slice(7) : null,
  }
}

function tagOfLocation(location: string | null): Tag | null {
  const [, tag] = /\/releases\/tag\/([^/?#]+)$/.exec(location ?? '') ?? []
  return isTag(tag) ? tag : null
}
