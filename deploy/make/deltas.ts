// The deltas of a release: made from the releases before it, so that a host downloads what has changed. Must hold: a delta counts only
// after it was applied; without any the release is whole, so whatever keeps one from being made is a note.

import { createHash } from 'node:crypto'
import { open, rm, stat, writeFile } from 'node:fs/promises'
import { isAbsolute, join, resolve } from 'node:path'
import {
  type Anchor,
  applyDelta,
  BETWEEN_MAX,
  DELTA_MAX_BYTES,
  makeDisk,
  makeDownload,
  openFeedWith,
  readable,
} from '../../agent/publish.ts'
import { BatonError, reasonOf, type Release, type ReleaseManifest } from '../../agent/words.ts'
import { formatBytes, type ProgressReport } from '../lib/progress.ts'
import { makeDelta } from './delta.ts'
import { measure } from './pack.ts'

export interface DeltasFrom {
  /** a feed, or a folder of releases */
  from: string
  /** at most so many, from the newest releases before this one */
  most: number
  /** what the feed is signed by; a folder of this machine is not asked for signatures */
  trust?: Anchor | null
}

export type DeltaEntry = NonNullable<ReleaseManifest['deltas']>[number]

/** for all of them, with fetching what they begin at */
const MAKING_MS = 60_000
/** a delta that is larger is not worth its place: share of the asset */
const WORTH = 0.5

interface Made {
  /** the new executable */
  executable: string
  tag: string
  service: string
  /** name of the asset without its ending */
  asset: string
  assetBytes: number
  /** where the deltas are written */
  folder: string
  /** for what is in use for a moment */
  work: string
  progress: ProgressReport
}

/** A folder by its path from here, as other flags take it; a feed as a host has it. */
export function deltasFrom(value: unknown, most: unknown): DeltasFrom | null {
  if (value === undefined || value === '') return null
  const count = Number(most)
  if (typeof value !== 'string' || !Number.isInteger(count) || count < 1 || count > BETWEEN_MAX)
    throw new BatonError('invalid_request', `expected 1 to ${BETWEEN_MAX} for --deltas, got ${JSON.stringify(most)}`)
  return { from: /^(github:|https?:|file:)/.test(value) ? value : resolve(value), most: count }
}

export async function writeDeltas({ from, most, trust = null }: DeltasFrom, made: Made): Promise<DeltaEntry[]> {
  const { progress, service, tag } = made
  progress.stage('deltas', from)
  const began = performance.now()
  const target = { service, os: process.platform, arch: process.arch }
  const means = {
    target,
    environment: process.env,
    trust: isAbsolute(from) ? null : trust,
    stateDirectory: null,
    onPassedOver: () => {},
  }
  const deltas: DeltaEntry[] = []
  const late = AbortSignal.timeout(MAKING_MS)
  try {
    await using feed = openFeedWith(from, means)
    const earlier = (await feed.notes({ after: 'v0.0.0', before: tag })).slice(0, most)
    const { sha256: sum } = await measure(made.executable)
    for (const { tag: old } of earlier) {
      if (late.aborted) break
      progress.detail(`from ${old}`)
      const path = join(made.work, 'old')
      try {
        const release = await feed.byTag(old)
        await fetchExecutable(feed, release, path, late)
        const delta = await deltaOf(path, sum, made, late)
        if (!deltas.some((one) => one.name === delta.name)) deltas.push(delta)
      } catch (cause) {
        const why = late.aborted ? `the limit of ${MAKING_MS / 1000} s for all deltas was reached` : reasonOf(cause)
        progress.note(`note: no delta from ${old}: ${why}`)
      }
      await rm(path, { force: true })
    }
    if (earlier.length === 0) progress.note(`note: no delta: ${from} has no release of ${service} before ${tag}`)
  } catch (cause) {
    progress.note(`warning: no delta: ${reasonOf(cause)}`)
  }
  progress.end('done', formatCost(deltas, performance.now() - began))
  return deltas
}

/** `2 deltas, 300 kB, in 4.1 s (2.0 s to make), at most 410 MB of memory` */
function formatCost(deltas: readonly DeltaEntry[], ms: number): string {
  const bytes = deltas.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
  const memory = formatBytes(process.resourceUsage().maxRSS * 1024)
  const count = `${deltas.length} delta${deltas.length === 1 ? '' : 's'}`
  return `${count}, ${formatBytes(bytes)}, in ${(ms / 1000).toFixed(1)} s; the build used at most ${memory} of memory`
}

async function fetchExecutable(
  feed: ReturnType<typeof openFeedWith>,
  release: Release,
  path: string,
  signal: AbortSignal,
): Promise<void> {
  const onProgress = () => {}
  await makeDownload({ feed, disk: makeDisk(), partialPath: path, onProgress })(release, signal)
  const { sha256 } = await measure(path)
  if (sha256 !== release.asset.executable?.sha256)
    throw new Error('its executable does not match its published checksum')
}

/** `sum`: of the new executable. Throws why it is of no use. */
async function deltaOf(path: string, sum: string, made: Made, signal: AbortSignal): Promise<DeltaEntry> {
  await using old = await open(path)
  await using to = await open(made.executable)
  const [before, after] = [readable(old, (await stat(path)).size), readable(to, (await stat(made.executable)).size)]
  const { sha256: from } = await measure(path)
  if (from === sum) throw new Error('it has the same executable')
  const bytes = await makeDelta(before, after, signal)
  if (bytes.length > Math.min(DELTA_MAX_BYTES, made.assetBytes * WORTH))
    throw new Error(`it would be too large: ${formatBytes(bytes.length)}`)
  const hash = createHash('sha256')
  for await (const part of applyDelta(bytes, before, after.sizeBytes)) hash.update(part)
  const got = hash.digest('hex')
  if (got !== sum)
    throw new BatonError(
      'unexpected',
      `the delta does not reproduce the new executable: expected SHA-256 ${sum}, got ${got}`,
    )
  const name = `${made.asset}.from-${from.slice(0, 12)}.delta`
  await writeFile(join(made.folder, name), bytes)
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  return { name, from, to: sum, sizeBytes: bytes.length, sha256 }
}
