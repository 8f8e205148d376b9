// What an operation would do, for a dry run that tells the truth: the feed is asked, the backup is looked at, and what would be
// refused is refused. Changes nothing anywhere.

import { statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { assertWritable, noBackup, openFeed, placesOf, type Receipt } from '../../../agent/install.ts'
import { badEntry, BatonError, compareTags, type Release } from '../../../agent/words.ts'
import { formatBytes } from '../../lib/progress.ts'
import { connect } from './client.ts'
import { feedOf, readAccess } from './configuration.ts'
import { badOf, inFlight, standingOf, tellOfBad, tellOfSkipped, whatToDo } from './operate.ts'
import type { Outside } from './outside.ts'
import type { Operate } from './request.ts'

export interface Foreseen {
  would: 'updated' | 'rolled_back' | 'up_to_date'
  from: string
  to: string
  /** of the asset that this host would take, hex; null where nothing would be fetched */
  sha256: string | null
}

/** Throws what the operation would throw. */
export async function foresee(receipt: Receipt, request: Operate, outside: Outside): Promise<Foreseen> {
  const status = await connect(await readAccess(receipt.configPath)).status()
  if (status?.state === 'in_flight' && status.operation !== null) throw inFlight(status.operation)
  const standing = await standingOf(receipt, status)
  const { current: from, backup } = standing
  const act = whatToDo(request, standing)
  if (act === null) return { would: 'up_to_date', from, to: from, sha256: null }
  await assertWritable(dirname(receipt.executable))
  if (act.kind === 'rollback') {
    if (backup === null) throw noBackup(placesOf(receipt.executable))
    return { would: 'rolled_back', from, to: backup, sha256: null }
  }
  await tellOfBad(receipt, act.tag, outside)
  const release = await releaseFor(receipt, act.tag, outside)
  const sha256 = release?.asset.sha256 ?? null
  const stays = release === null || release.tag === from || (act.tag === null && compareTags(release.tag, from) < 0)
  if (stays) {
    await tellOfSkipped(receipt, act.tag, from, outside)
    return { would: 'up_to_date', from, to: from, sha256 }
  }
  await assertRoom(receipt, release)
  return { would: 'updated', from, to: release.tag, sha256 }
}

/** The release that the check stage would find; a tag that is in place already is looked for too. */
async function releaseFor(receipt: Receipt, tag: string | null, outside: Outside): Promise<Release | null> {
  await using feed = openFeed(outside.feedAt(await feedOf(receipt)), { service: receipt.service, stateDirectory: null })
  if (tag !== null) return await feed.byTag(tag)
  const bad = await badOf(receipt)
  return await feed.latest(({ tag: found, asset }) => badEntry(bad, found, asset.sha256) !== null)
}

async function assertRoom(receipt: Receipt, { asset }: Release): Promise<void> {
  const directory = dirname(receipt.executable)
  const needed = asset.executable?.sizeBytes ?? asset.sizeBytes
  const { bavail, bsize } = await statfs(directory)
  if (bavail * bsize >= needed) return
  const found = formatBytes(bavail * bsize)
  throw new BatonError('download_failed', `expected ${formatBytes(needed)} free in ${directory}, found ${found}`, {
    hint: 'free some space on its disk',
  })
}
