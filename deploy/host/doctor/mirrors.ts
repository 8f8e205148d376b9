// Asks each source of a feed that has several for the newest release: who answers, and whose bytes are the published ones. An update goes on
// without a source that does neither.

import { createHash } from 'node:crypto'
import { openFeed } from '../../../agent/install.ts'
import { type FeedSource, reasonOf, type Release } from '../../../agent/words.ts'
import { feedOf } from '../service/configuration.ts'
import type { Outside } from '../service/outside.ts'
import { type Finding, ok, type Subject, warning } from './finding.ts'

/** for the whole asset of each */
const ASK_MS = 60_000

export async function checkMirrors({ layout, receipt }: Subject, outside: Outside): Promise<Finding[]> {
  if (receipt === null) return []
  const choice = await feedOf(receipt)
  const at = outside.feedAt(choice)
  await using open = openFeed(at, { service: layout.service, stateDirectory: null })
  const { sources } = open
  if (sources === undefined) return []
  const { release } = await open.latest(() => false).catch(() => ({ release: null }))
  if (release === null) return [warning('mirror', 'none is asked: what is published is not known')]
  const opened = [at.feed].flat()
  const named = ({ name }: FeedSource) => [choice.feed].flat()[opened.indexOf(name)] ?? name
  return await Promise.all(sources.map(async (source) => await judged(source, named(source), release)))
}

async function judged(source: FeedSource, name: string, { tag, asset }: Release): Promise<Finding> {
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
