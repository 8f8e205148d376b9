// Releases in a folder: behind any web server (S3, nginx), or on a disk, a share or a USB stick. Layout:
//   releases.json   { "format": 1, "releases": [{ "tag": "v1.0.0", "draft": false, "prerelease": false }] }
//   v1.0.0/         SHA256SUMS release.json <service>-linux-x64.zst …
// If a folder on disk has no releases.json, its `vX.Y.Z` subfolders are its releases.

import { BatonError } from '../../words/errors.ts'
import type { ReleaseChannel } from '../../words/feed-choice.ts'
import { isTag, parseTag } from '../../words/release.ts'
import type { Feed, Tag, Target } from '../../words/release.ts'
import { TEXT_MAX_BYTES, readReleaseTexts } from '../trust/release-texts.ts'
import { isObject, parsedJson, quoted } from '../../words/untrusted.ts'
import { trustReport } from '../trust/signed-releases.ts'
import { assess, listingOf, newestFirst, usableOf } from '../trust/usable.ts'
import type { Judgement } from '../trust/usable.ts'
import { notesBetween } from './notes.ts'
import { isIn, newestUsable, withBarrier } from './newest.ts'
import type { OnPassedOver } from './newest.ts'
import type { Source } from './source.ts'

export interface StaticOptions {
  description: string
  source: Source
  target: Target
  channel: ReleaseChannel
  onPassedOver: OnPassedOver
}

interface Listed {
  tag: Tag
  draft: boolean
  prerelease: boolean
}

export const LIST_NAME = 'releases.json'
const SHOWN_MAX = 3

export function makeStaticFeed({ description, source, target, channel, onPassedOver }: StaticOptions): Feed {
  const text = async (path: string, signal: AbortSignal | undefined): Promise<string | null> =>
    (await source.file(path, TEXT_MAX_BYTES, signal))?.toString() ?? null

  const list = async (signal: AbortSignal | undefined): Promise<Listed[]> => {
    const listed = await text(LIST_NAME, signal)
    if (listed !== null) return parseReleases(listed)
    const tags = await source.tags()
    if (tags === null) throw new BatonError('check_failed', `${source.url(LIST_NAME)}: there is no such file`)
    return tags.map((tag) => ({ tag, draft: false, prerelease: false }))
  }

  const judge = async (listed: Listed, signal: AbortSignal | undefined): Promise<Judgement> => {
    const { tag } = listed
    const texts = await readReleaseTexts((name) => text(`${tag}/${name}`, signal))
    if ('why' in texts) return texts
    const listing = listingOf(listed, texts, (name) => source.url(`${tag}/${name}`))
    return assess(listing, texts, target)
  }

  return {
    description,
    trust: () => Promise.resolve(trustReport(null, new Date())),
    async latest(skip, signal) {
      const asked = (listed: Listed) => judge(listed, signal)
      const found = await newestUsable(await list(signal), skip, asked, onPassedOver, channel)
      return withBarrier(found, skip.from ?? null)
    },
    async byTag(value, signal) {
      const tag = parseTag(value)
      const all = await list(signal)
      const listed = all.find((entry) => entry.tag === tag)
      if (listed === undefined)
        throw new BatonError('release_not_found', `${description} has no release ${tag}`, newestOf(all, channel))
      return usableOf(tag, await judge(listed, signal))
    },
    async notes(range, signal) {
      return await notesBetween(await list(signal), range, (listed) => judge(listed, signal), channel)
    },
    bytes: (asset, from, validator, signal) => source.bytes(asset.url, from, validator, signal),
  }
}

/** For a person who has typed a tag that is not there. */
function newestOf(all: readonly Listed[], channel: ReleaseChannel): { hint?: string } {
  const published = newestFirst(all.filter((one) => isIn(channel, one)))
  const tags = published.slice(0, SHOWN_MAX).map(({ tag }) => tag)
  return tags.length === 0 ? {} : { hint: `the newest releases in the feed: ${tags.join(', ')}` }
}

/** The entries of releases.json. Leaves out entries whose tag is not vX.Y.Z. Throws BatonError check_failed. */
export function parseReleases(text: string): Listed[] {
  const value = parsedJson(text)
  if (!isObject(value) || value['format'] !== 1 || !Array.isArray(value['releases'])) {
    const got = quoted(isObject(value) ? value['format'] : text)
    throw new BatonError(
      'check_failed',
      `${LIST_NAME}: expected an object with \`format\` 1 and \`releases\`, got ${got}`,
    )
  }
  return (value['releases'] as unknown[]).flatMap((entry) => {
    if (!isObject(entry) || !isTag(entry['tag'])) return []
    const { tag, draft = false, prerelease = false } = entry
    return [{ tag, draft: draft !== false, prerelease: prerelease !== false }]
  })
}
