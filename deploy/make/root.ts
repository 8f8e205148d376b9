// Reads the root that a release is built with; its hosts then verify their feed with it. Must hold: no release is built from which
// a host could not update.

import { readFile } from 'node:fs/promises'
import type { Anchor } from '../../agent/publish.ts'
import { BatonError } from '../../agent/words.ts'

/** Null if `path` is null: the feed is not signed. Throws BatonError invalid_settings, or verify_failed with every fault. */
export async function readRoot(
  path: string | null,
  service: string,
  publishedAt: string | null,
): Promise<Anchor | null> {
  if (path === null) return null
  const root = await readFile(path, 'utf8').catch((cause: unknown) => {
    const hint = '`trust init` makes one, in `verified/` of the feed'
    throw new BatonError('invalid_settings', `reading the root ${path}`, { cause, hint })
  })
  const { faultsOfRoot } = await import('../../agent/publish.ts')
  const faults = await faultsOfRoot(root, service, new Date())
  if (faults.length === 0) return { root: root.trimEnd(), builtAt: publishedAt }
  const hint = 'the newest root of the feed is what a build takes; `trust show` says until when it holds'
  throw new BatonError('verify_failed', `the root ${path}: ${faults.join('; ')}`, { hint })
}
