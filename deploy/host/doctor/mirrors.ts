// Asks each source of a feed that has several for the newest release: who answers, and whose bytes are the published ones. An update goes on
// without a source that does neither.

import { createHash } from 'node:crypto'
import { type FeedSource, reasonOf, type Release } from '../../../agent/words.ts'
import { type Finding, ok, warning } from './finding.ts'

/** for the whole asset of each */
const ASK_MS = 60_000

/** `release`: the newest one, which the feed itself has named; null: it has not. */
export async function judgeSources(sources: readonly FeedSource[], release: Release | null): Promise<Finding[]> {
  if (release === null) return [warning('mirror', 'none is asked: what is published is not known')]
  return await Promise.all(sources.map(async (source) => await judged(source, release)))
}

async function judged(source: FeedSource, { tag, asset }: Release): Promise<Finding> {
  const { name } = source
  const signal = AbortSignal.timeout(ASK_MS)
  let bytes = 0
  try {
    const { stream } = await source.bytes(asset, 0, null, signal)
    const hash = createHash('sha256')
    for await (const part of stream) {
      bytes += part.length
      if (bytes > asset.sizeBytes) break
      hash.update(part)
    }
    if (bytes === asset.sizeBytes && hash.digest('hex') === asset.sha256)
      return ok('mirror', `${name} has ${tag} as it was published`)
    const hint = 'an update leaves it out; tell who keeps it, or take it out of `feed`'
    return warning('mirror', `${name} sends other bytes than the published ones for \`${asset.name}\` of ${tag}`, hint)
  } catch (cause) {
    const why =
      bytes > 0 && signal.aborted
        ? `it sent ${bytes} of ${asset.sizeBytes} bytes in ${ASK_MS / 1000} s`
        : reasonOf(cause)
    return warning(
      'mirror',
      `${name} does not have ${tag} now: ${why}`,
      'an update takes the bytes from another source',
    )
  }
}
