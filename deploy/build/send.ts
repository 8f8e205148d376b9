// `baton publish`: brings a release to where feeds read it, in an order in which no reader ever sees half of one: the release's
// files first, whole; then the list that names it; what is signed last. Must hold: a release that is there already and differs
// is never replaced.

import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tmpdir } from 'node:os'
import { BatonError, compareTags, isTag } from '../../agent/words.ts'
import type { Progress } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { RELEASES, updateReleases } from './publish.ts'

export interface SendOptions {
  /** folder with `<tag>/` and releases.json */
  from: string
  tag: string
  service: string
  /** `/folder`, `user@host:/folder` or `github:owner/name` */
  to: string
  progress: Progress
}

const SIGNED = 'verified'

/** What a person reads. */
export async function send(options: SendOptions): Promise<string> {
  const sums = await readFile(join(options.from, options.tag, 'SHA256SUMS'), 'utf8').catch(() => null)
  if (sums === null) {
    throw new BatonError('release_not_found', `expected the release ${options.tag} in ${options.from}, found none`, {
      hint: `\`baton build --tag ${options.tag}\` makes it`,
    })
  }
  const { to } = options
  if (to.startsWith('github:')) return await toGitHub(options, to.slice('github:'.length))
  if (/^[^/]+:/.test(to)) return await toHost(options)
  return await toFolder(options, sums)
}

async function toFolder({ from, tag, service, to, progress }: SendOptions, sums: string): Promise<string> {
  progress.stage('publish', join(to, tag))
  await mkdir(to, { recursive: true })
  const there = await readFile(join(to, tag, 'SHA256SUMS'), 'utf8').catch(() => null)
  if (there !== null && there !== sums) throw different(join(to, tag), tag)
  if (there === null) {
    const partial = await mkdtemp(join(to, '.partial-'))
    try {
      await cp(join(from, tag), join(partial, tag), { recursive: true })
      await rename(join(partial, tag), join(to, tag))
    } finally {
      await rm(partial, { recursive: true, force: true })
    }
  }
  await updateReleases(to, service)
  await copySigned(from, to)
  progress.end('done', `${join(to, tag)}${there === null ? '' : ' (was there already, the same)'}`)
  return join(to, tag)
}

async function copySigned(from: string, to: string): Promise<void> {
  await cp(join(from, SIGNED), join(to, SIGNED), { recursive: true }).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause
  })
}

/** rsync writes each file beside its name and renames it: https://download.samba.org/pub/rsync/rsync.1 */
async function toHost({ from, tag, to, progress }: SendOptions): Promise<string> {
  const base = to.replace(/\/+$/, '')
  const work = await mkdtemp(join(tmpdir(), 'baton-publish-'))
  try {
    progress.stage('publish', `${base}/${tag}`)
    await run(['rsync', '-a', '--ignore-missing-args', `${base}/${RELEASES}`, `${base}/${tag}/SHA256SUMS`, `${work}/`])
    const there = await readFile(join(work, 'SHA256SUMS'), 'utf8').catch(() => null)
    if (there !== null && there !== (await readFile(join(from, tag, 'SHA256SUMS'), 'utf8')))
      throw different(`${base}/${tag}`, tag)
    await run(['rsync', '-a', '--mkpath', '--chmod=D755,F644', `${join(from, tag)}/`, `${base}/${tag}/`])
    const list = merged(await readList(join(work, RELEASES)), tag)
    await writeFile(join(work, RELEASES), `${JSON.stringify(list, null, 2)}\n`)
    await run(['rsync', '-a', '--chmod=F644', join(work, RELEASES), `${base}/${RELEASES}`])
    await run(['rsync', '-a', '--ignore-missing-args', join(from, SIGNED), `${base}/`])
    progress.end('done', `${base}/${tag}`)
    return `${base}/${tag}`
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

interface List {
  format: 1
  releases: { tag: string; draft: boolean; prerelease: boolean }[]
}

async function readList(path: string): Promise<List> {
  const text = await readFile(path, 'utf8').catch(() => null)
  return text === null ? { format: 1, releases: [] } : (JSON.parse(text) as List)
}

/** Pure. */
export function merged({ releases }: List, tag: string): List {
  const others = releases.filter((release) => isTag(release.tag) && release.tag !== tag)
  const own = releases.find((release) => release.tag === tag) ?? { tag, draft: false, prerelease: false }
  return { format: 1, releases: [own, ...others].toSorted((a, b) => compareTags(b.tag, a.tag)) }
}

/** A draft until every asset is there. */
async function toGitHub({ from, tag, progress }: SendOptions, repository: string): Promise<string> {
  const gh = ['gh', '--repo', repository, 'release']
  const folder = join(from, tag)
  progress.stage('draft', `${repository} ${tag}`)
  const exists = await run([...gh.slice(0, 1), 'release', 'view', tag, '--repo', repository], { allowFailure: true })
  const { notes } = JSON.parse(await readFile(join(folder, 'release.json'), 'utf8')) as { notes: string }
  const repo = ['--repo', repository]
  if (exists.exitCode !== 0)
    await run(['gh', 'release', 'create', tag, ...repo, '--draft', '--title', tag, '--notes-file', '-'], {
      input: notes,
    })
  progress.stage('upload')
  const sums = await readFile(join(folder, 'SHA256SUMS'), 'utf8')
  const names = sums.split('\n').flatMap((line) => (line === '' ? [] : [line.slice(66)]))
  await run(['gh', 'release', 'upload', tag, ...repo, ...[...names, 'SHA256SUMS'].map((name) => join(folder, name))])
  progress.stage('publish')
  await run(['gh', 'release', 'edit', tag, ...repo, '--draft=false'])
  progress.end('done', `${repository} ${tag}`)
  return `https://github.com/${repository}/releases/tag/${tag}`
}

function different(where: string, tag: string): BatonError {
  return new BatonError('refused', `${where} holds a different ${tag}`, {
    hint: 'choose another tag: what was published is never replaced',
  })
}
