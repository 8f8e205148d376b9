// `releases`: what the feed has, newest first, and what is known of each here. Changes nothing.

import { withoutWords } from '../../../agent/words.ts'
import { formatBytes } from '../../lib/progress.ts'
import type { ListedRelease } from '../service/releases.ts'
import { type Context, locate, sideOf } from './context.ts'

export async function releases(context: Context): Promise<number> {
  const located = await locate(context)
  await using open = await sideOf(context, located)
  const found = await open.side.releases(located.receipt)
  const more = found.isWhole ? [] : ['older releases are not shown']
  const lines = found.releases.length === 0 ? [`${found.feed} has no release`] : found.releases.map(lineOf)
  return context.report.result({ ...found }, [...lines, ...more])
}

function lineOf(release: ListedRelease): string {
  const { tag, publishedAt, sizeBytes, isRunning, isInstalled, isBackup, isOffered, bad, yanked, unusable } = release
  const here =
    isRunning && isInstalled ? 'running' : isRunning ? 'running, not installed' : isInstalled ? 'installed' : ''
  const marks = [
    here,
    isBackup ? 'backup' : '',
    bad === null ? '' : `bad: ${withoutWords(bad.why)} (${bad.at})`,
    yanked === null ? '' : `yanked: ${yanked}`,
    unusable === null ? '' : `cannot be used: ${unusable}`,
    isOffered ? '' : 'not in the feed',
  ]
  const size = sizeBytes === null ? '' : formatBytes(sizeBytes)
  const row = `${tag.padEnd(10)} ${(publishedAt ?? '').slice(0, 10).padEnd(10)} ${size.padStart(9)}  `
  return `${row}${marks.filter(Boolean).join(', ')}`.trimEnd()
}
