// Provides this program as an image, for the switcher. If this program runs in a container, that container's image; else an image
// made of this program's own file, its libraries, and its sources or what the installed package has of them. Nothing is fetched, and
// no foreign image ever gets the engine's socket.

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, stat, symlink } from 'node:fs/promises'
import { isSea } from 'node:sea'
import { dirname, join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { ownContainerId, ownWords } from '../../agent/install.ts'
import { run } from '../lib/shell.ts'
import { temporaryFolder } from '../lib/trusted.ts'
import type { Engine } from './engine/engine.ts'
import type { Program } from './request.ts'

const REPOSITORY = 'baton-switch'
const ROOT = join(import.meta.dirname, '../..')
/** packages that this program's sources import before they know which command to run */
export const PACKAGES = ['citty', 'node-fetch-native', 'undici', 'zx']
const NODE_FLAGS = ['--disable-warning=ExperimentalWarning']

/** What this program is made of if it is no executable: the file that Node runs, and all that it needs, below the kit's root. */
export interface Sources {
  main: string
  parts: readonly string[]
}

export const SOURCES = {
  clone: {
    main: 'deploy/deploy-container.ts',
    parts: ['agent', 'deploy', 'package.json', ...PACKAGES.map((name) => `node_modules/${name}`)],
  },
  package: { main: 'lib/esm/deploy-container.js', parts: ['lib/esm', 'package.json'] },
} as const satisfies Record<string, Sources>

/** Throws BatonError unsupported_host if this program cannot run in a container of this engine. */
export async function programInImage(engine: Engine, sources: Sources): Promise<Program> {
  const id = ownContainerId()
  const self = id === null ? null : await engine.container(id)
  if (self !== null) {
    const mounted = self.Mounts.find(({ Destination }) => samePath(Destination, engine.socketPath))
    const entrypoint = isSea()
      ? [process.execPath, ...ownWords('deploy').split(' ')]
      : [process.execPath, ...NODE_FLAGS, ...process.argv.slice(1, 2)]
    return { image: self.Image, entrypoint, socket: mounted?.Source ?? engine.socketPath }
  }
  if (process.platform !== 'linux' || engine.kind !== 'docker')
    throw new BatonError(
      'unsupported_host',
      `a container for the switch needs Docker on Linux, but this is ${engine.kind} on ${process.platform}`,
    )
  const files = await ownFiles(sources)
  const tag = await fingerprint(Object.values(files))
  const reference = `${REPOSITORY}:${tag}`
  if ((await engine.image(reference)) === null) await importFiles(files, tag, engine)
  await removePrograms(engine, reference)
  const entrypoint = isSea()
    ? ['/baton/program', ...ownWords('deploy').split(' ')]
    : ['/baton/program', ...NODE_FLAGS, `/baton/${sources.main}`]
  return { image: reference, entrypoint, socket: engine.socketPath }
}

/** Removes the images of this program, which every state of the kit makes anew; not `but`, nor one that a switcher uses. */
export async function removePrograms(engine: Engine, but: string | null): Promise<string[]> {
  const old = (await programs(engine)).filter((name) => name !== but)
  const removed: string[] = []
  for (const name of old) if (await engine.removeImage(name)) removed.push(name)
  return removed
}

/** Names of the images of this program that the engine has. */
export async function programs(engine: Engine): Promise<string[]> {
  return await engine.named(REPOSITORY)
}

/** `/var/run` is a link to `/run`. */
function samePath(left: string, right: string): boolean {
  return left.replace(/^\/var\/run\//, '/run/') === right.replace(/^\/var\/run\//, '/run/')
}

/** Path in the image -> path on this host. */
async function ownFiles({ parts }: Sources): Promise<Record<string, string>> {
  const files: Record<string, string> = { 'baton/program': process.execPath }
  const { stdout } = await run(['ldd', process.execPath])
  for (const [, path = ''] of stdout.matchAll(/(\/\S+) \(0x/g)) files[path.slice(1)] = path
  if (isSea()) return files
  for (const path of parts) files[`baton/${path}`] = join(ROOT, path)
  return files
}

/** Changes when one of the files does. */
async function fingerprint(paths: readonly string[]): Promise<string> {
  const hash = createHash('sha256')
  for (const path of paths.toSorted()) {
    const found = await stat(path)
    const inside = found.isDirectory() ? await readdir(path, { recursive: true }) : ['']
    for (const name of inside.toSorted()) {
      const { size, mtimeMs } = await stat(join(path, name))
      hash.update(`${join(path, name)}\0${size}\0${mtimeMs}\n`)
    }
  }
  return hash.digest('hex').slice(0, 16)
}

async function importFiles(files: Readonly<Record<string, string>>, tag: string, engine: Engine): Promise<void> {
  await using stage = await temporaryFolder('baton-switch-')
  for (const [to, from] of Object.entries(files)) {
    await mkdir(dirname(join(stage.path, to)), { recursive: true })
    await symlink(from, join(stage.path, to))
  }
  const flags = ['--dereference', '--sort=name', '--owner=0', '--group=0', '--numeric-owner']
  const tar = spawn('tar', ['-C', stage.path, ...flags, '-cf', '-', '.'], { stdio: ['ignore', 'pipe', 'ignore'] })
  const ends = once(tar, 'close')
  await engine.importImage(REPOSITORY, tag, tar.stdout)
  const [code, signal] = (await ends) as [number | null, string | null]
  if (code === 0) return
  await engine.untag(`${REPOSITORY}:${tag}`)
  throw new BatonError('unexpected', `packing this program for the switcher: tar ended with ${code ?? signal}`)
}
