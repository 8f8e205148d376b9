// Makes dist folders quickly: their executables are small scripts, real files that really run and print their tag.
// The layout is that of `npm run build`.

import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import type { ReleaseManifest } from '../../agent/words/release.ts'

export interface DistOptions {
  service?: string
  /** content of a tag's executable; default: a shell script that prints its name and tag */
  executable?: (tag: string) => string | Buffer
  os?: string
  arch?: string
  notes?: string
  publishedAt?: string | null
  /** more members of release.json */
  about?: Pick<ReleaseManifest, 'from' | 'security'>
}

export interface Dist extends AsyncDisposable {
  dir: string
  /** adds the release, or replaces it */
  add(tag: string, options?: DistOptions): Promise<ReleaseManifest>
  /** writes the sums of a release again, after a test has changed a file of it */
  sum(tag: string): Promise<void>
}

/** Makes a dist folder in a new temporary folder, which disposing removes. */
export async function makeDist(tags: string[], options: DistOptions = {}): Promise<Dist> {
  const dir = await mkdtemp(join(tmpdir(), 'baton-dist-'))
  const dist: Dist = {
    dir,
    async add(tag, own = {}) {
      const manifest = await addRelease(dir, tag, { ...options, ...own })
      await sumAll(join(dir, tag))
      await listAll(dir)
      return manifest
    },
    sum: (tag) => sumAll(join(dir, tag)),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }),
  }
  for (const tag of tags) await dist.add(tag)
  return dist
}

export function script(service: string, tag: string): string {
  return `#!/bin/sh\nif [ "$1" = --version ]; then echo "${service} ${tag}"; exit 0; fi\nexec sleep 1000\n`
}

async function addRelease(dir: string, tag: string, options: DistOptions): Promise<ReleaseManifest> {
  const { service = 'beacon', os = process.platform, arch = process.arch, notes = `What is new in ${tag}` } = options
  const executable = Buffer.from(options.executable?.(tag) ?? script(service, tag))
  const folder = join(dir, tag)
  await mkdir(folder, { recursive: true })
  const assets: ReleaseManifest['assets'] = []
  for (const [compression, ending, compress] of [
    ['zstd', 'zst', zstdCompressSync],
    ['gzip', 'gz', gzipSync],
  ] as const) {
    const name = `${service}-${os}-${arch}.${ending}`
    const bytes = compress(executable)
    await writeFile(join(folder, name), bytes)
    assets.push({ name, os, arch, compression, ...measured(bytes), executable: measured(executable) })
  }
  const { publishedAt = '2026-11-01T12:00:00Z' } = options
  const manifest: ReleaseManifest = { format: 1, service, tag, schema: 1, notes, publishedAt, ...options.about, assets }
  await writeFile(join(folder, 'release.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  await writeFile(join(folder, 'install.sh'), '#!/bin/sh\nexit 0\n')
  return manifest
}

async function sumAll(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name !== 'SHA256SUMS').toSorted()
  const lines = await Promise.all(
    names.map(async (name) => `${measured(await readFile(join(folder, name))).sha256}  ${name}\n`),
  )
  await writeFile(join(folder, 'SHA256SUMS'), lines.join(''))
}

async function listAll(dir: string): Promise<void> {
  const tags = (await readdir(dir)).filter((name) => /^v\d/.test(name))
  const releases = tags.map((tag) => ({ tag, draft: false, prerelease: false }))
  await writeFile(join(dir, 'releases.json'), `${JSON.stringify({ format: 1, releases }, null, 2)}\n`)
}

function measured(bytes: Buffer): { sizeBytes: number; sha256: string } {
  return { sizeBytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') }
}
