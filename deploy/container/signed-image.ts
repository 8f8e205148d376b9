// Finds the image that a signed feed names for a release. The maintainer's signature decides what a tag means, not a registry.
// Must hold: an unsigned image is never taken from such a feed.

import { readFile } from 'node:fs/promises'
import { openFeed } from '../../agent/install.ts'
import { BatonError, parseTag, reasonOf } from '../../agent/words.ts'
import type { SignedBy } from './request.ts'

export interface SignedImage {
  tag: string
  repository: string
  digest: string
}

/**
 * `release`: `latest` or a tag. Throws not_signed, release_not_found, release_unusable, yanked and the feed's other errors.
 */
export async function signedImage({ feed, root }: SignedBy, service: string, release: string): Promise<SignedImage> {
  const trust = root === null ? {} : { trust: { root: await rootOf(root), builtAt: null } }
  await using open = openFeed(feed, { service, stateDirectory: null, ...trust })
  const { release: found, problem } =
    release === 'latest'
      ? await open.latest(() => false)
      : { release: await open.byTag(parseTag(release)), problem: null }
  if (problem !== null) throw problem // an older one is not what was asked for
  if (found === null) throw new BatonError('release_not_found', `${open.description} has no release of ${service}`)
  const { signed } = await open.trust()
  if (signed && found.image !== null) return { tag: found.tag, ...found.image }
  const what = signed ? `names no image of ${found.tag}` : 'is not signed, or no root is known to check it with'
  throw new BatonError('not_signed', `${open.description} ${what}`, {
    hint: signed ? 'its maintainer signs one with `baton trust sign --image`' : 'name the root with --root FILE',
  })
}

async function rootOf(path: string): Promise<string> {
  return await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new BatonError('invalid_request', `reading ${path}: ${reasonOf(cause)}`, { cause })
  })
}
