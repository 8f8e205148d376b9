// `baton publish`: copies a release to the place that a feed reads. The order keeps readers from ever seeing half of a release:
// first the release's files, whole; then the list that names it; the signed metadata last.
// Must hold: a different release of the same tag is never replaced.

import { createHash } from 'node:crypto'
import { cp, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError, compareTags, isPrerelease, isTag } from '../../agent/words.ts'
import type { ProgressReport } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { temporaryFolder } from '../lib/trusted.ts'
import { publishToGitHub } from './github.ts'
import { type ReleaseList, RELEASES, updateReleases } from './release-folder.ts'
import { temporaryDirectory } from './temporary.ts'

export interface SendOptions {
  /** folder with `<tag>/` and releases.json */
  from: string
  tag: string
  service: string
  /** `/folder`, `user@host:/folder` or `github:owner/name` */
  to: string
  /** whether its hosts accept only signed releases */
  signed: boolean
  progress: ProgressReport
  /** environment with the token for GitHub; default: this process's own */
  environment?: NodeJS.ProcessEnv
}

const SIGNED = 'verified'

/** Resolves to where the release is now, for a person. Throws BatonError release_not_found, refused or check_failed. */
export async function sendRelease(options: SendOptions): Promise<string> {
  const sums = await readFile(join(options.from, options.tag, 'SHA256SUMS'), 'utf8').catch(() => null)
  if (sums === null) {
    throw new BatonError('release_not_found', `there is no release ${options.tag} in ${options.from}`, {
      hint: `run \`baton build ${options.tag}\` first`,
    })
  }
  if (options.signed) await assertSigned(options)
  const { to } = options
  if (to.startsWith('github:')) return await publishToGitHub({ ...options, folder: join(options.from, options.tag) })
  if (/^[^/]+:/.test(to)) return await toHost(options)
  return await toFolder(options, sums)
}

async function toFolder({ from, tag, service, to, progress }: SendOptions, sums: string): Promise<string> {
  progress.stage('publish', join(to, tag))
  const there = await readFile(join(to, tag, 'SHA256SUMS'), 'utf8').catch(() => null)
  if (there !== null && there !== sums) throw different(join(to, tag), tag)
  if (there === null) {
    await using partial = await temporaryDirectory(to)
    await cp(join(from, tag), join(partial.path, tag), { recursive: true })
    await rename(join(partial.path, tag), join(to, tag))
  }
  await updateReleases(to, service)
  await copySigned(from, to)
  progress.end('done', `${join(to, tag)}${there === null ? '' : ' (already there, identical)'}`)
  return join(to, tag)
}

interface Signed {
  /** of timestamp.json and of a snapshot: what they lead to */
  meta?: Record<string, { version: number }>
  targets?: Record<string, { hashes: { sha256: string } }>
}

/**
 * Refuses a release that the targets of the folder do not sign: a host with a root ignores every other release. It reads those that
 * timestamp.json leads to, as a host does: a newer file may be left of a change that was cut short.
 */
async function assertSigned({ from, tag }: SendOptions): Promise<void> {
  const signed = async (name: string): Promise<Signed> => {
    const text = await readFile(join(from, SIGNED, name), 'utf8').catch(() => '{}')
    return (JSON.parse(text) as { signed?: Signed }).signed ?? {}
  }
  const versionIn = ({ meta }: Signed, name: string) => meta?.[name]?.version ?? 0
  const snapshot = `${versionIn(await signed('timestamp.json'), 'snapshot.json')}.snapshot.json`
  const targets = `${versionIn(await signed(snapshot), 'targets.json')}.targets.json`
  const newest = join(from, SIGNED, targets)
  const expected = (await signed(targets)).targets?.[`${tag}/release.json`]?.hashes.sha256
  const got = createHash('sha256').update(await readFile(join(from, tag, 'release.json')))
  if (expected === got.digest('hex')) return
  throw new BatonError('refused', `${tag} is not signed: ${newest} has no entry that matches its release.json`, {
    hint: `run \`baton trust sign\`; without \`root\` in the configuration, no signature is needed`,
  })
}

/** Copies each file whole or not at all. timestamp.json sorts last, so everything that it refers to is there before it. */
async function copySigned(from: string, to: string): Promise<void> {
  const names = await readdir(join(from, SIGNED)).catch(() => [])
  if (names.length > 0) await mkdir(join(to, SIGNED), { recursive: true })
  for (const name of names.toSorted()) {
    const partial = join(to, SIGNED, `.${name}.partial`)
    await cp(join(from, SIGNED, name), partial)
    await rename(partial, join(to, SIGNED, name))
  }
}

/** rsync writes each file beside its name and renames it: https://download.samba.org/pub/rsync/rsync.1 */
async function toHost({ from, tag, to, progress }: SendOptions): Promise<string> {
  const base = to.replace(/\/+$/, '')
  await using folder = await temporaryFolder('baton-publish-')
  const work = folder.path
  progress.stage('publish', `${base}/${tag}`)
  await fetchWhatIsThere(base, tag, work)
  const there = await readFile(join(work, tag, 'SHA256SUMS'), 'utf8').catch(() => null)
  if (there !== null && there !== (await readFile(join(from, tag, 'SHA256SUMS'), 'utf8')))
    throw different(`${base}/${tag}`, tag)
  await run(['rsync', '-a', '--mkpath', '--chmod=D755,F644', `${join(from, tag)}/`, `${base}/${tag}/`])
  const listed = await readFile(join(work, RELEASES), 'utf8').catch(() => '{"releases":[]}')
  const list = merged(JSON.parse(listed) as ReleaseList, tag)
  await writeFile(join(work, RELEASES), `${JSON.stringify(list, null, 2)}\n`)
  await run(['rsync', '-a', '--chmod=F644', join(work, RELEASES), `${base}/${RELEASES}`])
  await run(['rsync', '-a', '--ignore-missing-args', join(from, SIGNED), `${base}/`])
  progress.end('done', `${base}/${tag}`)
  return `${base}/${tag}`
}

async function fetchWhatIsThere(base: string, tag: string, to: string): Promise<void> {
  const wanted = [RELEASES, `${tag}/`, `${tag}/SHA256SUMS`].map((path) => `--include=/${path}`)
  const command = ['rsync', '-a', ...wanted, '--exclude=*', `${base}/`, `${to}/`]
  const { exitCode, stderr } = await run(command, { allowFailure: true })
  // before the first release the feed has no folder
  if (exitCode === 0 || (exitCode === 23 && /No such file or directory/.test(stderr))) return
  throw new BatonError(
    'check_failed',
    `rsync could not read ${base} (exit code ${exitCode}): ${stderr.trim().slice(0, 500)}`,
  )
}

export function merged({ releases }: ReleaseList, tag: string): ReleaseList {
  const others = releases.filter((release) => isTag(release.tag) && release.tag !== tag)
  const own = releases.find((release) => release.tag === tag) ?? { tag, draft: false, prerelease: isPrerelease(tag) }
  return { format: 1, releases: [own, ...others].toSorted((a, b) => compareTags(b.tag, a.tag)) }
}

function different(where: string, tag: string): BatonError {
  return new BatonError('refused', `${where} already contains a different ${tag}`, {
    hint: 'choose another tag: a published release is never replaced',
  })
}
