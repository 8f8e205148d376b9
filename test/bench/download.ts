// What the clients of a service notice while it downloads and verifies a release, beside what they wait without: an open loop, and a feed
// that brings twelve megabytes a second. The release has another sum than it should, so the update ends before its switch, each time.

import { createHash } from 'node:crypto'
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../fixtures/install.ts'
import { spawnOpenLoad } from '../lab/open-load.ts'
import { releaseServer } from '../lab/release-server.ts'
import { buildReleases, createClient, install, SERVICE_ENTRY } from './baton.ts'
import { untilAnswers } from './processes.ts'
import { CACHE } from './setup.ts'
import { median } from './statistics.ts'
import { RATES } from './waits.ts'

export interface DownloadResult {
  rounds: number
  /** ms, medians of the rounds */
  rows: { rate: number; steadyP999Ms: number; downloadP999Ms: number; ratio: number; lost: number }[]
  /** for docs/about/performance.md */
  markdown: string
}

const BYTES_PER_S = 12e6
const [CONNECTIONS, STEADY_MS, WARM_UP_MS, LOOK_EVERY_MS] = [32, 2500, 1500, 400]

export async function run({ long, say }: { long: boolean; say: (line: string) => void }): Promise<DownloadResult> {
  const releases = await buildReleases('bench-releases', SERVICE_ENTRY, 'fast')
  const rounds = long ? 12 : 6
  const folder = join(CACHE, 'run', 'download')
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  await cp(releases.feed, join(folder, 'feed'), { recursive: true })
  await misstate(join(folder, 'feed', releases.v110.tag), releases.v110.executableBytes)
  const rows: DownloadResult['rows'] = []
  for (const rate of RATES.slice(0, 2)) {
    say(`download: ${rate} requests/s`)
    const port = await freePort()
    await using feed = await releaseServer({ dir: join(folder, 'feed'), bytesPerSecond: BYTES_PER_S })
    const place = { folder: join(folder, String(rate)), port, backendPort: 0, drainMs: 2000 }
    await mkdir(place.folder)
    await using _installed = await install(place, releases, { feed: feed.staticUrl })
    await untilAnswers(port, null, performance.now())
    rows.push(await measure(port, rate, rounds, releases.v110.tag))
  }
  return { rounds, rows, markdown: markdownOf(rows) }
}

async function measure(
  port: number,
  rate: number,
  rounds: number,
  tag: string,
): Promise<DownloadResult['rows'][number]> {
  const client = createClient(port)
  const load = await spawnOpenLoad({ port, rate, connections: CONNECTIONS })
  await sleep(WARM_UP_MS)
  for (let round = 0; round < rounds; round++) {
    load.mark('steady')
    await sleep(STEADY_MS)
    load.mark('download')
    const { id } = await client.order('/admin/update', { tag })
    for (;;) {
      await sleep(LOOK_EVERY_MS)
      const { operation } = await client.status()
      if (operation?.id !== id || operation.outcome === null) continue
      if (operation.stage !== 'verify') throw new Error(`expected the end in verify, got ${JSON.stringify(operation)}`)
      break
    }
    load.mark(null)
  }
  const slices = await load.stop()
  const p999 = (name: string) => median(slices.filter((one) => one.name === name).map(({ p999Ms }) => p999Ms))
  const [steadyP999Ms, downloadP999Ms] = [p999('steady'), p999('download')]
  const lost = slices.reduce((sum, one) => sum + one.lost, 0)
  return { rate, steadyP999Ms, downloadP999Ms, ratio: downloadP999Ms / steadyP999Ms, lost }
}

/** The manifest in `folder` gets another sum of its executable, and is listed as that. */
async function misstate(folder: string, executableBytes: number): Promise<void> {
  const [path, sums] = [join(folder, 'release.json'), join(folder, 'SHA256SUMS')]
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
  const text = await readFile(path, 'utf8')
  const other = text.replaceAll(
    new RegExp(`("sizeBytes": ${executableBytes},\\s+"sha256": ")[0-9a-f]{64}`, 'g'),
    `$1${'0'.repeat(64)}`,
  )
  if (other === text) throw new Error(`expected an executable of ${executableBytes} bytes in ${path}`)
  await writeFile(path, other)
  await writeFile(sums, (await readFile(sums, 'utf8')).replace(sha256(text), sha256(other)))
}

function markdownOf(rows: DownloadResult['rows']): string {
  const told = rows.map(
    ({ rate, steadyP999Ms, downloadP999Ms, ratio, lost }) =>
      `of ${rate} requests/s ${downloadP999Ms.toFixed(1)} ms, ${ratio.toFixed(2)} times the ${steadyP999Ms.toFixed(1)} without, ${lost} lost`,
  )
  return `p99.9 while a release is downloaded at 12 MB/s and verified, medians: ${told.join('; ')}.`
}
