// One download of one asset by the real steps, in a process of its own so that its memory is its own.
// `node pipeline.cjs <feed> <url> <bytes> <sha256> <where to>`; prints milliseconds and the peak of its memory as JSON.

import { makeDisk } from '../../agent/disk/disk.ts'
import { openFeed } from '../../agent/update/feed/open.ts'
import { memoryOf } from './processes.ts'
import { makeDownload } from '../../agent/update/steps/download.ts'

const [setting = '', url = '', bytes = '0', sha256 = '', partialPath = ''] = process.argv.slice(2)

void (async () => {
  const sizeBytes = Number(bytes)
  await using feed = openFeed(setting, { service: 'beacon', stateDirectory: null })
  const download = makeDownload({ feed, disk: makeDisk(), partialPath, stallMs: 30_000, onProgress: () => undefined })
  const asset = {
    name: 'bench',
    url,
    sizeBytes,
    sha256,
    compression: 'none',
    executable: { sizeBytes, sha256 },
  } as const
  const since = performance.now()
  await using candidate = await download({
    tag: 'v1.0.0',
    asset,
    deltas: [],
  })
  const ms = performance.now() - since
  if (candidate.assetSha256 !== sha256) throw new Error(`expected sha256 ${sha256}, got ${candidate.assetSha256}`)
  process.stdout.write(`${JSON.stringify({ ms, peakKb: memoryOf(process.pid).peakKb })}\n`)
})()
