// Reads the root that a release is built with; its hosts then verify their feed with it. Must hold: with a root that would keep a host
// from later updates, no release is built.

import { readFile } from 'node:fs/promises'
import type { Anchor } from '../../agent/publish.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'

/** Null if `path` is null: the feed is not signed. Throws BatonError invalid_settings, or verify_failed with every fault. */
export async function readRoot(
  path: string | null,
  service: string,
  publishedAt: string | null,
): Promise<Anchor | null> {
  if (path === null) return null
  const root = await readFile(path, 'utf8').catch((cause: unknown) => {
    const hint = "to make one in the feed's `verified/` folder, run `trust init`"
    throw new BatonError('invalid_settings', `reading the trust root file ${path}: ${reasonOf(cause)}`, { cause, hint })
  })
  const { faultsOfRoot } = await import('../../agent/publish.ts')
  const faults = await faultsOfRoot(root, service, new Date())
  if (faults.length === 0) return { root: root.trimEnd(), builtAt: publishedAt }
  const hint = "build with the feed's newest root; `trust show` shows when it expires"
  throw new BatonError('verify_failed', `the trust root file ${path} is not valid: ${faults.join('; ')}`, { hint })
}
