// Builds a release of the reference service: kind `bundle`, with a main script that is itself the first code.
// bundle -> base -> inject -> check -> compress -> publish.
// Must hold: the same commit and tag give the same bytes. Nothing is published before it has run and printed its tag.

import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Anchor } from '../../agent/publish.ts'
import { parseTag } from '../../agent/words.ts'
import { formatBytes, type ProgressReport } from '../lib/progress.ts'
import { type Base, prepareBase } from './base.ts'
import { bundle } from './bundle.ts'
import { PROJECT } from './place.ts'
import { type PublishedRelease, type PublishOptions, publishRelease } from './release-folder.ts'
import { readRoot } from './root.ts'
import { checkVersion, injectBundle } from './sea.ts'
import { temporaryDirectory } from './temporary.ts'

export interface BuildOptions extends Omit<PublishOptions, 'executable'> {
  /** absolute path of the module that is the executable's main */
  entry: string
  /** path of the root.json that the feed is signed by; null or absent: not signed */
  root?: string | null
}

export interface BuiltRelease extends PublishedRelease {
  node: string
  stripped: boolean
}

export const DEFAULT_SERVICE = 'beacon'
export const DEFAULT_ENTRY = join(PROJECT, 'deploy', 'executable.ts')

export async function buildRelease(options: BuildOptions): Promise<BuiltRelease> {
  const { tag, service, progress } = options
  parseTag(tag)

  const trust = await readRoot(options.root ?? null, service, options.publishedAt)
  if (trust === null)
    progress.note('not signed: built without a trust root, so hosts trust whatever their feed contains')

  progress.stage('bundle')
  const texts = {}
  const authors = options.entry !== DEFAULT_ENTRY
  const script = await bundle({ entry: options.entry, define: definitions(service, tag, trust), texts, authors })
  progress.end('done', formatBytes(script.length))

  const base = await showBase(progress)

  await using work = await temporaryDirectory(options.out)
  const executable = join(work.path, 'executable')
  progress.stage('embed')
  await injectBundle(base, script, executable, { assets: texts })
  progress.end('done', formatBytes((await stat(executable)).size))

  progress.stage('version', `${service} ${tag}`)
  await checkVersion(executable, `${service} ${tag}`)

  const published = await publishRelease({
    ...options,
    deltas: options.deltas ? { ...options.deltas, trust } : null,
    executable,
  })
  return { ...published, node: base.version, stripped: base.stripped }
}

export function definitions(service: string, tag: string, trust: Anchor | null = null): Record<string, string> {
  return { __BATON_SERVICE__: service, __BATON_TAG__: tag, __BATON_TRUST__: JSON.stringify(trust) }
}

export async function showBase(progress: ProgressReport): Promise<Base> {
  progress.stage('runtime')
  const base = await prepareBase()
  const { before, after } = base.sizeBytes
  const size = base.stripped ? `, ${formatBytes(before)} stripped to ${formatBytes(after)}` : ''
  progress.end('done', `Node ${base.version}${size}`)
  if (!base.stripped) progress.note('warning: there is no `strip` on this machine, so the executable keeps its symbols')
  return base
}
