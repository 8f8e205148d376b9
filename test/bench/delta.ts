// The download stage of one update by the full asset, and by a delta.

import { createHash } from 'node:crypto'
import { open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readable } from '../../agent/update/steps/delta.ts'
import { makeDelta } from '../../deploy/make/delta.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import type { Releases } from './baton.ts'
import type { FileServer } from './files.ts'
import { start } from './processes.ts'
import { writeBundle } from './setup.ts'
import { median } from './statistics.ts'

export interface Transfer {
  /** medians */
  ms: number
  peakKb: number
}

export interface DeltaResult {
  assetBytes: number
  deltaBytes: number
  makeMs: number
  full: Transfer
  delta: Transfer
}

/** `server` serves the feed of `releases`. */
export async function byDelta(releases: Releases, server: FileServer, place: string, rounds: number) {
  const { v100, v110, feed } = releases
  const since = performance.now()
  const bytes = await deltaOf(v100.executable, v110.executable)
  const makeMs = Math.round(performance.now() - since)
  const path = join(feed, 'bench.delta')
  await writeFile(path, bytes)
  const from = createHash('sha256')
    .update(await readFile(v100.executable))
    .digest('hex')
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  const delta = { name: 'bench.delta', url: `${server.url}bench.delta`, sizeBytes: bytes.length, sha256, from }
  const program = await writeBundle('one-download', join(PROJECT, 'test/bench/one-download.ts'))
  const once = async (deltas: readonly (typeof delta)[]): Promise<Transfer> => {
    const args = [program, server.url, v100.executable, join(place, 'by-delta'), JSON.stringify(deltas)]
    const child = start(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    await child.exited
    if (child.child.exitCode !== 0) throw new Error(`the download failed: ${child.output()}`)
    return JSON.parse(child.output()) as Transfer
  }
  const [full, small]: [Transfer[], Transfer[]] = [[], []]
  for (let i = 0; i < rounds; i++) {
    full.push(await once([]))
    small.push(await once([delta]))
  }
  await rm(path)
  const middle = (some: readonly Transfer[]): Transfer => ({
    ms: Math.round(median(some.map(({ ms }) => ms))),
    peakKb: median(some.map(({ peakKb }) => peakKb)),
  })
  const sizes = { assetBytes: v110.assetBytes, deltaBytes: bytes.length }
  return { ...sizes, makeMs, full: middle(full), delta: middle(small) } satisfies DeltaResult
}

async function deltaOf(from: string, to: string): Promise<Buffer> {
  await using old = await open(from)
  await using made = await open(to)
  return await makeDelta(readable(old, (await stat(from)).size), readable(made, (await stat(to)).size))
}
