// The download against what a person would type, `curl -o f && sha256sum f`, and one whole update of a real executable.

import { createHash, randomFillSync } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { freePort } from '../fixtures/install.ts'
import { buildReleases, createClient, install, SERVICE_ENTRY } from './baton.ts'
import { byDelta, type DeltaResult } from './delta.ts'
import { serveFolder } from './files.ts'
import type { FileServer } from './files.ts'
import { gone, peakOf, start, track, untilAnswers } from './processes.ts'
import { CACHE, writeBundle } from './setup.ts'
import type { Tools } from './setup.ts'
import { median, medianRatio } from './statistics.ts'
import { middle, type Transfer } from './transfer.ts'

export interface UpdateResult {
  servedBy: string
  rounds: number
  assetBytes: number
  baton: Transfer
  /** null where there is no curl */
  curl: (Transfer & { version: string }) | null
  /** throughput of Baton over that of curl and sha256sum, median of pairs; what people type does not flush to the disk */
  ratio: number | null
  /** the same with `&& sync f` at the end: Baton flushes what it has written */
  ratioFlushed: number | null
  small: { assetBytes: number; peakKb: number }
  whole: WholeUpdate
  /** absent: measured before there were deltas */
  delta?: DeltaResult
}

export interface WholeUpdate {
  assetBytes: number
  executableBytes: number
  stagesMs: Record<string, number>
  /** from the request until the new version answers */
  answersMs: number
  /** until it is committed, with a probation of a second */
  committedMs: number
}

export interface UpdateOptions {
  tools: Tools
  long: boolean
  say: (line: string) => void
}

const MIB = 1024 * 1024
const LARGE_BYTES = 1024 * MIB
const SMALL_BYTES = 128 * MIB

export async function run({ tools, long, say }: UpdateOptions): Promise<UpdateResult> {
  const place = join(CACHE, 'run', 'update')
  const folder = join(CACHE, 'assets')
  await rm(place, { recursive: true, force: true })
  await mkdir(place, { recursive: true })
  const rounds = long ? 9 : 3
  say('update: 1 GiB of random bytes')
  const large = await makeAsset(folder, LARGE_BYTES)
  const small = await makeAsset(folder, SMALL_BYTES)
  const bundle = await writeBundle('pipeline', join(PROJECT, 'test/bench/pipeline.ts'))
  await using server = await serveFolder(folder, place, tools)
  const target = join(place, 'file')

  const baton: Transfer[] = []
  const curl: Transfer[] = []
  const flushed: Transfer[] = []
  const smallPeaks: number[] = []
  for (let i = 0; i < rounds; i++) {
    say(`update: round ${i + 1} of ${rounds}`)
    baton.push(await byBaton(bundle, server, large, target))
    if (!('missing' in tools.curl)) {
      curl.push(await byCurl(tools.curl.path, server, large, target, false))
      flushed.push(await byCurl(tools.curl.path, server, large, target, true))
    }
    smallPeaks.push((await byBaton(bundle, server, small, target)).peakKb)
  }
  say('update: v1.0.0 -> v1.1.0')
  const whole = await wholeUpdate(place, tools)
  const more = join(PROJECT, 'test/bench/service-more.ts')
  const releases = await buildReleases('bench-releases-more', SERVICE_ENTRY, 'normal', more)
  const delta = await byDelta({ releases, place, tools, long, say })
  await rm(place, { recursive: true, force: true })
  const pairs = (others: Transfer[]) => others.map((other, i) => [other.ms, baton[i]?.ms ?? Number.NaN] as const)
  return {
    servedBy: server.by,
    rounds,
    assetBytes: LARGE_BYTES,
    baton: middle(baton),
    curl: 'missing' in tools.curl ? null : { ...middle(curl), version: tools.curl.version },
    ratio: curl.length === 0 ? null : hundredths(medianRatio(pairs(curl))),
    ratioFlushed: flushed.length === 0 ? null : hundredths(medianRatio(pairs(flushed))),
    small: { assetBytes: SMALL_BYTES, peakKb: median(smallPeaks) },
    whole,
    delta,
  }
}

interface AssetFile {
  name: string
  bytes: number
  sha256: string
}

/** Random bytes: nothing on the way can compress them. Made once. */
async function makeAsset(folder: string, bytes: number): Promise<AssetFile> {
  const name = `asset-${bytes / MIB}`
  const path = join(folder, name)
  await mkdir(folder, { recursive: true })
  const known = await readFile(`${path}.sha256`, 'utf8').catch(() => null)
  if (known !== null && (await stat(path)).size === bytes) {
    for await (const _ of createReadStream(path, { highWaterMark: MIB })); // into the page cache
    return { name, bytes, sha256: known }
  }
  const hash = createHash('sha256')
  await using file = await open(path, 'w')
  const chunk = Buffer.alloc(4 * MIB)
  for (let at = 0; at < bytes; at += chunk.length) {
    randomFillSync(chunk)
    hash.update(chunk)
    await file.write(chunk)
  }
  const sha256 = hash.digest('hex')
  await writeFile(`${path}.sha256`, sha256)
  return { name, bytes, sha256 }
}

async function byBaton(bundle: string, server: FileServer, asset: AssetFile, target: string): Promise<Transfer> {
  const url = `${server.url}${asset.name}`
  const args = [bundle, server.url, url, String(asset.bytes), asset.sha256, target]
  const child = start(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await child.exited
  if (child.child.exitCode !== 0) throw new Error(`the download failed: ${child.output()}`)
  return JSON.parse(child.output()) as Transfer
}

async function byCurl(
  curl: string,
  server: FileServer,
  asset: AssetFile,
  target: string,
  flush: boolean,
): Promise<Transfer> {
  const steps: [string, string[]][] = [
    [curl, ['-sS', '-o', target, `${server.url}${asset.name}`]],
    ['sha256sum', [target]],
  ]
  if (flush) steps.push(['sync', [target]])
  const since = performance.now()
  let peakKb = 0
  for (const [command, args] of steps) {
    const step = start(command, args)
    const peak = peakOf(step)
    await step.exited
    if (step.child.exitCode !== 0) throw new Error(`${command} failed: ${step.output()}`)
    if (command === 'sha256sum' && !step.output().startsWith(asset.sha256))
      throw new Error('curl brought something else')
    peakKb = Math.max(peakKb, peak())
  }
  const ms = performance.now() - since
  await rm(target)
  return { ms, peakKb }
}

/** An install of v1.0.0 is told to update to v1.1.0; the stages as the status endpoint shows them. */
export async function wholeUpdate(folder: string, tools: Tools): Promise<WholeUpdate> {
  const releases = await buildReleases('bench-releases-normal', SERVICE_ENTRY, 'normal')
  await using server = await serveFolder(releases.feed, folder, tools)
  const place = { folder, port: await freePort(), backendPort: 0, drainMs: 2000 }
  await using installed = await install(place, releases, { feed: server.url })
  await untilAnswers(place.port, null, performance.now())
  const client = createClient(place.port)
  const before = installed.pid

  const since = performance.now()
  const entered: [string, number][] = []
  installed.onLine((line) => {
    const stage = /: (check|download|verify|swap|restart)$/.exec(line)?.[1]
    if (stage !== undefined && entered.at(-1)?.[0] !== stage) entered.push([stage, performance.now() - since])
  })
  const ordered = await client.order('/admin/update', { tag: releases.v110.tag })
  const answersMs = await untilAnswers(place.port, releases.v110.tag, since, 120_000)
  const status = await client.ended(ordered.id)
  const committedMs = performance.now() - since
  installed.pid = status.instance.pid
  track(installed.pid)
  await gone(before, 10_000)
  const stagesMs: Record<string, number> = {}
  for (const [i, [stage, at]] of entered.entries()) {
    stagesMs[stage] = Math.round((entered[i + 1]?.[1] ?? answersMs) - at)
  }
  return {
    assetBytes: releases.v110.assetBytes,
    executableBytes: releases.v110.executableBytes,
    stagesMs,
    answersMs: Math.round(answersMs),
    committedMs: Math.round(committedMs),
  }
}

function hundredths(value: number): number {
  return Math.round(value * 100) / 100
}
