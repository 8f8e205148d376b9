// A feed whose bytes may come from several places. The first source alone says what is a release and what its sums are; a mirror has
// the same files at `<tag>/<name>`, and nothing that it sends is believed before the sum.
// Must hold: a source whose bytes were not the published ones is named, and not asked again until the feed is closed, unless
// all were left out.

import { BatonError, reasonOf } from '../../words/errors.ts'
import type { Bytes, Feed, FeedSource, Release } from '../../words/release.ts'
import type { Source } from './source.ts'

export interface Mirror {
  /** for messages */
  name: string
  source: Pick<Source, 'url' | 'bytes'>
  close(): Promise<void>
}

interface Place extends FeedSource {
  /** of its last answer: another place's means nothing to it */
  validator: string | null
}

export interface MirroredFeed extends Feed {
  /** asks all sources again from now on */
  forget(): void
}

/** `ahead`: how many of the mirrors are asked before the first source. */
export function withMirrors(
  first: Feed,
  mirrors: readonly Mirror[],
  ahead: number,
  onLeftOut: (line: string) => void = () => {},
): MirroredFeed {
  if (mirrors.length === 0) return { ...first, forget() {} }
  const paths = new Map<string, string>()
  const expect = ({ asset, deltas, tag }: Pick<Release, 'asset' | 'deltas' | 'tag'>) => {
    for (const { url, name } of [asset, ...deltas]) paths.set(url, `${tag}/${name}`)
  }
  const known = (release: Release): Release => {
    expect(release)
    return release
  }
  const own: Place = { name: first.description, bytes: (...asked) => first.bytes(...asked), validator: null }
  const others = mirrors.map((mirror) => placeOf(mirror, paths))
  const sources = [...others.slice(0, ahead), own, ...others.slice(ahead)]
  return {
    ...first,
    ...chosenAmong(sources, onLeftOut),
    sources,
    expect,
    async latest(...asked) {
      const newest = await first.latest(...asked)
      if (newest.release !== null) known(newest.release)
      return newest
    },
    byTag: async (...asked) => known(await first.byTag(...asked)),
  }
}

/** `paths`: of each address in the first source, where a mirror has that file. */
function placeOf({ name, source }: Mirror, paths: ReadonlyMap<string, string>): Place {
  return {
    name,
    validator: null,
    async bytes({ url }, ...asked) {
      const path = paths.get(url)
      if (path === undefined)
        throw new BatonError('download_failed', 'the path of this file on the mirror is not known')
      return await source.bytes(source.url(path), ...asked)
    },
  }
}

function chosenAmong(
  places: readonly Place[],
  onLeftOut: (line: string) => void,
): Pick<MirroredFeed, 'bytes' | 'forget'> & Required<Pick<Feed, 'leaveOut'>> {
  const [out, used] = [new Set<Place>(), new Set<Place>()]
  let next = 0
  /** after parts of several were not the published bytes: each download is from one place, the first that answers */
  let alone: { place: Place | null } | null = null
  const left = () => places.filter((place) => !out.has(place))

  /** From the first that answers; each connection begins with the place after the one that the last has come from. */
  const bytes: Feed['bytes'] = async (asset, from, _validator, signal): Promise<Bytes> => {
    if (out.size === places.length) out.clear() // none is better than another: its publisher may have damaged a file
    const some = from > 0 && alone?.place ? [alone.place] : left()
    if (from === 0) {
      used.clear()
      next = 0
    }
    const reasons: string[] = []
    let passing: unknown = null
    for (let tries = 0; tries < some.length; tries++) {
      const place = some[next++ % some.length] as Place
      try {
        const answer = await place.bytes(asset, from, from === 0 ? null : place.validator, signal)
        place.validator = answer.validator
        used.add(place)
        if (alone !== null) alone.place = place
        return { ...answer, validator: null }
      } catch (cause) {
        signal.throwIfAborted()
        if (!(cause instanceof BatonError)) passing ??= cause
        reasons.push(`${place.name}: ${reasonOf(cause)}`)
      }
    }
    // one that did not answer may do so later
    if (passing !== null) throw new Error(reasons.join('; '), { cause: passing })
    throw new BatonError('download_failed', reasons.join('; '))
  }

  return {
    bytes,
    async leaveOut() {
      const [only] = used
      if (only === undefined) return false
      if (used.size === 1) {
        out.add(only)
        onLeftOut(`${only.name} sent data that differs from what was published: this operation will not use it again`)
      }
      // after parts of several, one whole download from each shows which of them it was
      alone = used.size > 1 || alone !== null ? { place: null } : null
      used.clear()
      for (const place of places) place.validator = null
      return left().length > 0
    },
    forget() {
      for (const set of [out, used]) set.clear()
      alone = null
    },
  }
}

/** errors of bytes that cannot be the published ones */
const OTHER_BYTES = new WeakSet<object>()

export function noteOther<E extends Error>(error: E): E {
  OTHER_BYTES.add(error)
  return error
}

/** Tries again as long as the feed can leave out whoever has sent other bytes than the published ones. */
export async function fromWhoeverHasIt<T>(
  feed: Pick<Feed, 'leaveOut'>,
  once: (isAgain: boolean) => Promise<T>,
  isPublished: (got: T) => boolean,
): Promise<T> {
  for (let isAgain = false; ; isAgain = true) {
    const got = await once(isAgain).then(
      (value) => ({ value }),
      (cause: unknown) => ({ cause }),
    )
    if ('value' in got && isPublished(got.value)) return got.value
    const isOther = 'value' in got || OTHER_BYTES.has(Object(got.cause))
    if (isOther && ((await feed.leaveOut?.()) ?? false)) continue
    if ('value' in got) return got.value
    throw got.cause
  }
}
