// The releases of the feed, and what this host knows of each: it runs, is installed, is the backup, has failed here, was yanked. Reads
// only.

import { downloadBytes, openFeed, type Receipt } from '../../../agent/install.ts'
import { asBatonError, badEntry, compareTags, type Release } from '../../../agent/words.ts'
import { feedOf } from './configuration.ts'
import { look } from './look.ts'
import type { Outside } from './outside.ts'

export interface ListedRelease {
  tag: string
  /** ISO 8601; null: the feed does not say */
  publishedAt: string | null
  /** what an update downloads; null: not known */
  sizeBytes: number | null
  isRunning: boolean
  isInstalled: boolean
  isBackup: boolean
  /** false: it is here, and the feed has it no more, or not among the newest */
  isOffered: boolean
  /** how it failed here */
  bad: { why: string; at: string } | null
  /** why its publisher has taken it back */
  yanked: string | null
  /** why it cannot be installed here */
  unusable: string | null
}

export interface ListedReleases {
  feed: string
  /** newest first */
  releases: ListedRelease[]
  /** false: the feed may have older ones */
  isWhole: boolean
}

/** each costs a request or two */
const LISTED_MAX = 20

/** Throws check_failed, rate_limited, and what a signed feed refuses. */
export async function listReleases(receipt: Receipt, outside: Outside): Promise<ListedReleases> {
  const { running, installed, backup, bad, feed } = await look(receipt, false, outside)
  const usable: Release[] = []
  const passedOver = new Map<string, string>()
  await using open = openFeed(outside.feedAt(await feedOf(receipt)), {
    service: receipt.service,
    stateDirectory: null,
    onPassedOver: (tag, why) => void passedOver.set(tag, why),
  })
  const doing = `asking ${open.description}`
  await open
    .latest((release) => usable.push(release) < LISTED_MAX)
    .catch((cause: unknown) => {
      throw asBatonError(cause, 'check_failed', doing)
    })
  const { yanked: yanks } = await open.trust()
  const here = [running, installed, backup].filter((tag) => tag !== null)
  const tags = new Set([...usable.map(({ tag }) => tag), ...passedOver.keys(), ...yanks.map(({ tag }) => tag), ...here])
  const listed = [...tags].map(async (tag): Promise<ListedRelease> => {
    const release = usable.find((one) => one.tag === tag)
    const yanked = yanks.find((one) => one.tag === tag)?.why ?? null
    const failed = badEntry(bad, tag, release?.asset.sha256 ?? null)
    return {
      tag,
      publishedAt: release?.publishedAt ?? null,
      sizeBytes: release === undefined ? null : await downloadBytes(release, receipt.executable),
      isRunning: tag === running,
      isInstalled: tag === installed,
      isBackup: tag === backup,
      isOffered: release !== undefined || passedOver.has(tag) || yanked !== null,
      bad: failed === null ? null : { why: failed.reason, at: failed.at },
      yanked,
      unusable: release === undefined && yanked === null ? (passedOver.get(tag) ?? null) : null,
    }
  })
  const releases = await Promise.all(listed)
  return {
    feed,
    releases: releases.toSorted((a, b) => compareTags(b.tag, a.tag)),
    isWhole: usable.length < LISTED_MAX,
  }
}
