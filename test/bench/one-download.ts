// The download stage of one release by the real steps, in a process of its own so that its memory is its own.
// `node one-download.cjs <feed> <installed executable> <where to> <deltas as JSON>`; prints milliseconds and the peak of its memory.

import { makeDisk } from '../../agent/disk/disk.ts'
import { openFeed } from '../../agent/update/feed/open.ts'
import { memoryOf } from './processes.ts'
import { makeDownload } from '../../agent/update/steps/download.ts'
import type { Delta } from '../../agent/words/release.ts'

const [setting = '', installedPath = '', partialPath = '', deltas = '[]'] = process.argv.slice(2)

void (async () => {
  await using feed = openFeed(setting, { service: 'beacon', stateDirectory: null })
  const release = { ...(await feed.byTag('v1.1.0')), deltas: JSON.parse(deltas) as Delta[] }
  const onDeltaFailed = (line: string): never => {
    throw new Error(line)
  }
  const means = { feed, disk: makeDisk(), partialPath, installedPath, stallMs: 30_000, onProgress: () => undefined }
  const since = performance.now()
  await using _candidate = await makeDownload({ ...means, onDeltaFailed })(release)
  const ms = performance.now() - since
  process.stdout.write(`${JSON.stringify({ ms, peakKb: memoryOf(process.pid).peakKb })}\n`)
})()
