// Images of the reference service in a lab's registry, and images that are made of them.

import { copyFile, cp, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { buildImage } from '../../deploy/image.ts'
import { createProgress } from '../../deploy/lib/progress.ts'
import { run } from '../../deploy/lib/shell.ts'
import { prepareBase } from '../../deploy/make/base.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { madeOnce, publishTo, releases } from '../fixtures/releases.ts'
import { labFolder, type LabEngine, publishBase, type Registry } from '../lab/docker.ts'

/** The images of two releases of the reference service, `v1.0.0` and `v1.1.0`, with their holder; returns their repository. */
export async function serviceImages({ docker, environment }: LabEngine, { host, data }: Registry): Promise<string> {
  const repository = `${host}/beacon`
  const made = await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  // half a minute of processor to build and to compress: the next lab's registry begins with the files of this one
  const kept = await madeOnce('images', async (folder) => {
    const base = await publishBase(host)
    const dist = await publishTo(join(labFolder(), 'dist'), made)
    const flags = ['--out', dist, '--base', base, '--repository', repository, '--push']
    for (const { tag } of made)
      await run(['npm', 'run', '-s', 'image', '--', tag, ...flags], { cwd: PROJECT, env: environment })
    await cp(data, folder, { recursive: true })
  })
  await cp(kept, data, { recursive: true })
  await docker('pull', '-q', `${repository}:holder`)
  return repository
}

/**
 * Publishes images of the releases of scripts in `dist`, the oldest first, on a base that has Node and a shell. Only Node is large, and is
 * packed once. `holder`: the one of the newest release comes with them.
 */
export async function scriptImages(
  { environment }: LabEngine,
  { host }: Registry,
  {
    dist,
    repository,
    tags,
    holder = false,
  }: { dist: string; repository: string; tags: readonly string[]; holder?: boolean },
): Promise<void> {
  const { executable: node } = await prepareBase()
  const base = await publishBase(host, { '/bin/sh': '/bin/sh', '/usr/local/bin/node': node })
  const about = { dist, repository, base, arch: process.arch, push: true, revision: '', source: '' }
  const progress = createProgress({ quiet: true })
  for (const tag of tags)
    await buildImage({ ...about, tag, holder: holder && tag === tags.at(-1), progress, environment })
}

/** Makes an image of another one, with more lines of a Dockerfile, and publishes it. `busybox` is there to be copied. */
export async function derivedImage(
  engine: LabEngine,
  { from, reference, lines }: { from: string; reference: string; lines: string },
): Promise<void> {
  const folder = await mkdtemp(join(labFolder(), 'derived-'))
  await copyFile('/bin/busybox', join(folder, 'busybox'))
  await writeFile(join(folder, 'Dockerfile'), `FROM ${from}\n${lines}\n`)
  await engine.docker('build', '-q', '-t', reference, folder)
  await engine.docker('push', '-q', reference)
}

/** Repository of the same two images and the holder's, which say of their switch what they are told. */
export async function switching(engine: LabEngine, repository: string, kind: string): Promise<string> {
  const own = `${repository}-${kind === '' ? 'older' : kind}`
  for (const tag of ['v1.0.0', 'v1.1.0'])
    await derivedImage(engine, {
      from: `${repository}:${tag}`,
      reference: `${own}:${tag}`,
      lines: `LABEL baton.order=${JSON.stringify(kind)}`,
    })
  await engine.docker('tag', `${repository}:holder`, `${own}:holder`)
  return own
}
