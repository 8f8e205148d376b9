// Builds and pushes the container image of a release: `npm run image -- v1.2.0 --repository registry.example/beacon --push`.
// dist/<tag> -> verified and unpacked context -> build -> run it once -> tags vX.Y.Z and latest -> push. It also makes two more
// images: one updates containers of the service (tags vX.Y.Z-deploy and deploy), the other holds their sockets while they are
// recreated (vX.Y.Z-holder and holder).
// Must hold: the files in the image have the release's checksums. `latest` never goes back to an older release.

import { createReadStream, createWriteStream } from 'node:fs'
import { chmod, copyFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createZstdDecompress } from 'node:zlib'
import {
  asBatonError,
  BatonError,
  EXIT,
  compareTags,
  isPrerelease,
  isTag,
  MEANINGS,
  parseTag,
  type ReleaseManifest,
} from '../agent/words.ts'
import { GATE_MARK } from '../agent/first.ts'
import { variableName } from '../agent/service/config.ts'
import { IS_PACKAGED, PROJECT } from './make/place.ts'
import { ADVANCED, type CommandLine, flag, option, parseFlags, tagOf, usage, word } from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'
import { printError, printLine } from './lib/printer.ts'
import { createProgress, type ProgressReport } from './lib/progress.ts'
import { fillHolderContext } from './make/holder-image.ts'
import { CHUNK_BYTES, measure } from './make/pack.ts'
import { RELEASES_FOLDER } from './make/project.ts'
import { type ReleaseList, RELEASES } from './make/release-folder.ts'
import { temporaryDirectory } from './make/temporary.ts'
import { findProgram, run } from './lib/shell.ts'

export interface ImageOptions {
  tag: string
  /** folder with `<tag>/` and `releases.json` */
  dist: string
  repository: string
  /** base image; null: the Dockerfile's */
  base: string | null
  /** architecture as Node names it: x64, arm64 */
  arch: string
  push: boolean
  /** feed in which the panel looks for the newest release; null: the panel shows none */
  feed?: string | null
  revision: string
  source: string
  /** also the image that holds the sockets; default true */
  holder?: boolean
  progress: ProgressReport
  /** environment of the docker command */
  environment?: Record<string, string | undefined>
}

/** Resolves to what a person does next, a line each. Throws BatonError verify_failed if a file of the release has a wrong checksum. */
export async function buildImage(options: ImageOptions): Promise<string[]> {
  const { tag, repository, progress } = options
  parseTag(tag)
  const folder = join(options.dist, tag)
  const manifest = JSON.parse(await readBuilt(folder, 'release.json', tag)) as ReleaseManifest
  const docker = await findDocker()

  progress.stage('verify', `${manifest.service} ${tag} for linux/${options.arch}`)
  await using context = await temporaryDirectory(options.dist)
  await using holder = await temporaryDirectory(options.dist)
  const waits = await fillContext(folder, manifest, options, context.path)
  const hasHolder = options.holder ?? true
  if (hasHolder) await fillHolderContext(holder.path, options.arch)

  const environment = options.environment ?? {}
  const isLatest = await isNewest(tag, options.dist)
  const tagged = (suffix: string) => [`${tag}-${suffix}`, ...(isLatest ? [suffix] : [])]
  const own = `${manifest.service} ${tag}`
  const images = [
    ...(hasHolder ? [{ target: null, from: holder.path, tags: tagged('holder'), says: /^baton-holder / }] : []),
    { target: 'deploy', from: context.path, tags: tagged('deploy'), says: own },
    // last: if a registry has the service's image, it has the other two
    { target: 'service', from: context.path, tags: [tag, ...(isLatest ? ['latest'] : [])], says: own },
  ]
  for (const { target, from, tags, says } of images) {
    const reference = `${repository}:${tags[0]}`
    progress.stage('build', reference)
    await run(buildCommand(docker, { ...options, manifest, waits, target, reference }, from), {
      env: environment,
    }).catch(async (cause: unknown) => {
      await refuseBase(docker, options.base ?? (await usualBase()), environment)
      throw cause
    })
    progress.stage('check', 'running it once')
    const once = [docker, 'run', '--rm', '--network', 'none', '--read-only', reference, '--version']
    const said = (await run(once, { env: environment })).stdout.trim()
    if (typeof says === 'string' ? said !== says : !says.test(said))
      throw new BatonError('verify_failed', `expected the image to print \`${String(says)}\`, got \`${said}\``)
    for (const name of tags.slice(1))
      await run([docker, 'tag', reference, `${repository}:${name}`], { env: environment })
  }
  const names = images.flatMap(({ tags }) => tags)
  for (const name of options.push ? names : []) {
    progress.stage('push', `${repository}:${name}`)
    await run([docker, 'push', `${repository}:${name}`], { env: environment })
  }
  progress.end('done', options.push ? undefined : names.map((name) => `${repository}:${name}`).join(', '))
  return nextLines(manifest, options)
}

/** How a first container is made, behind its holder if there is one, and how one that runs is updated. Pure. */
export function nextLines(
  { service, port }: Pick<Built['manifest'], 'service' | 'port'>,
  { tag, repository, push, holder = true }: Pick<ImageOptions, 'tag' | 'repository' | 'push' | 'holder'>,
): string[] {
  const at = portOf({ port })
  const deploy = IS_PACKAGED ? 'npx baton deploy container' : 'deploy/deploy-container.sh'
  const begin = (name: string, own: string, command: string) =>
    `  docker run -d --name ${name} --restart always ${own} --read-only --cap-drop ALL --security-opt no-new-privileges ${repository}:${command}`
  const publish = `-p 127.0.0.1:${at}:${at}`
  const state = `-v ${service}-state:/var/lib/${service}`
  const sockets = `${service}-hold:/run/hold`
  const borrow = `-v ${sockets}:ro --group-add 65531 -e BATON_HOLDER=/run/hold/socket`
  return [
    'next, to start the first container:',
    ...(holder
      ? [
          begin(`${service}-holder`, `${publish} -v ${sockets}`, `${tag}-holder ${at}`),
          begin(service, `${borrow} ${state}`, tag),
        ]
      : [begin(service, `${publish} ${state}`, tag)]),
    'or, if a container is already running:',
    `  ${deploy} ${tag}${push ? '' : ' --pull never'}`,
  ]
}

/** After a build that has failed. Throws BatonError check_failed if there is no such base image here, and none can be pulled. */
async function refuseBase(docker: string, base: string, env: NonNullable<ImageOptions['environment']>): Promise<void> {
  const ask = (...words: string[]) => run([docker, ...words, base], { env, allowFailure: true })
  if ((await ask('image', 'inspect')).exitCode === 0) return
  const { exitCode, stderr } = await ask('pull', '--quiet')
  if (exitCode === 0) return
  const [last = ''] = stderr.trim().split('\n').slice(-1)
  const why = last.replace(/^Error(?: response from daemon)?: /, '').slice(0, 200)
  if (/docker daemon running/i.test(stderr))
    throw new BatonError('unsupported_host', `no container engine answers: ${why}`, {
      hint: 'start the engine, or name another one in DOCKER_HOST',
    })
  throw new BatonError('check_failed', `pulling the base image ${base}: ${why}`, {
    hint: 'choose another base image with `--base`; it must contain glibc, libstdc++ and libatomic',
  })
}

async function usualBase(): Promise<string> {
  const text = await readFile(join(PROJECT, 'container', 'Dockerfile'), 'utf8')
  return /^ARG BASE=(.+)$/m.exec(text)?.[1] ?? ''
}

/** Text of a file that the build writes. Throws BatonError release_not_found if the release was not built. */
async function readBuilt(folder: string, name: string, tag: string): Promise<string> {
  return await readFile(join(folder, name), 'utf8').catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT' && cause.code !== 'ENOTDIR') throw cause
    throw new BatonError('release_not_found', `there is no release ${tag} in ${folder}: ${name} is missing`, {
      cause,
      hint: `build it first: \`${IS_PACKAGED ? 'baton build' : 'npm run build --'} ${tag}\``,
    })
  })
}

/** The address without user name and password; '' if it is not a web address. */
export function publicUrl(text: string): string {
  if (!/^https?:/.test(text) || !URL.canParse(text)) return ''
  const { origin, pathname } = new URL(text)
  return origin + pathname
}

interface Built extends ImageOptions {
  manifest: Pick<ReleaseManifest, 'service' | 'healthPath' | 'port' | 'order' | 'from'>
  /** whether the first code of the release waits for the end of an old container */
  waits: boolean
  /** stage of container/Dockerfile; null: the holder's, which has one */
  target: string | null
  reference: string
}

export function buildCommand(docker: string, options: Built, context: string): string[] {
  const { manifest, waits, target, reference } = options
  const known = {
    SERVICE: manifest.service,
    TAG: options.tag,
    REVISION: options.revision,
    SOURCE: options.source,
  }
  const ofService = {
    CONFIG_VARIABLE: variableName(manifest.service),
    PORT: portOf(manifest),
    HEALTH_PATH: manifest.healthPath === undefined ? '/healthz' : (manifest.healthPath ?? '/'),
    ORDER: waits ? (manifest.order ?? 'stop-first') : '',
    ...(manifest.from === undefined ? {} : { OLDEST: manifest.from }),
    DEPLOY_IMAGE: `${options.repository}:deploy`,
    ...(options.base === null ? {} : { BASE: options.base }),
  }
  const values = target === null ? known : { ...known, ...ofService }
  const args = Object.entries(values).flatMap(([key, value]) => ['--build-arg', `${key}=${value}`])
  const stage = target === null ? [] : ['--target', target]
  return [docker, 'build', '--quiet', ...args, ...stage, '--tag', reference, context]
}

function portOf({ port }: { port?: number | undefined }): number {
  return port ?? 8080
}

/** Fills the build context. Resolves to whether the release's first code waits for an old container to end; an older kit's does not. */
async function fillContext(
  folder: string,
  manifest: ReleaseManifest,
  { arch, feed = null }: Pick<ImageOptions, 'arch' | 'feed'>,
  context: string,
): Promise<boolean> {
  const offers = manifest.assets.filter((asset) => asset.os === 'linux' && asset.arch === arch)
  const asset = offers.find(({ compression }) => compression === 'zstd') ?? offers[0]
  if (asset === undefined) {
    throw new BatonError('release_unusable', `${manifest.tag} has no executable for linux/${arch}`, {
      hint: 'build the release on a machine with that architecture first',
    })
  }
  const sums = await readBuilt(folder, 'SHA256SUMS', manifest.tag)
  for (const name of [asset.name, 'release.json']) await verifySum(folder, name, sums)
  const executable = join(context, 'service')
  const pieces = { chunkSize: CHUNK_BYTES }
  const unpack = asset.compression === 'zstd' ? createZstdDecompress(pieces) : createGunzip(pieces)
  await pipeline(createReadStream(join(folder, asset.name)), unpack, createWriteStream(executable))
  await chmod(executable, 0o755)
  const { sha256: got } = await measure(executable)
  if (got !== asset.executable.sha256)
    throw new BatonError('verify_failed', `sha256 of the executable: expected ${asset.executable.sha256}, got ${got}`)
  await mkdir(join(context, 'etc'))
  await mkdir(join(context, 'state'))
  const { basePath } = manifest
  const configuration = {
    listen: { host: '0.0.0.0', port: portOf(manifest) },
    ...(feed === null ? {} : { feed }),
    ...(basePath === undefined ? {} : { basePath }),
  }
  await writeFile(join(context, 'etc', 'config.json'), `${JSON.stringify(configuration, null, 2)}\n`)
  await copyFile(join(PROJECT, 'container', 'Dockerfile'), join(context, 'Dockerfile'))
  return (await readFile(executable)).includes(GATE_MARK)
}

async function verifySum(folder: string, name: string, sums: string): Promise<void> {
  const expected = sums
    .split('\n')
    .find((line) => line.endsWith(`  ${name}`))
    ?.slice(0, 64)
  if (expected === undefined) throw new BatonError('verify_failed', `SHA256SUMS has no line for ${name}`)
  const { sha256: got } = await measure(join(folder, name))
  if (got !== expected) throw new BatonError('verify_failed', `sha256 of ${name}: expected ${expected}, got ${got}`)
}

/** Whether dist/releases.json has no newer release, drafts and prereleases aside. */
async function isNewest(tag: string, dist: string): Promise<boolean> {
  const { releases } = JSON.parse(await readBuilt(dist, RELEASES, tag)) as ReleaseList
  const isOut = ({ draft, prerelease, tag: other }: ReleaseList['releases'][number]) =>
    draft || prerelease || !isTag(other) || isPrerelease(other)
  return !isPrerelease(tag) && releases.every((other) => isOut(other) || compareTags(other.tag, tag) <= 0)
}

async function findDocker(): Promise<string> {
  const found = (await findProgram('docker')) ?? (await findProgram('podman'))
  if (found !== null) return found
  throw new BatonError('unsupported_host', 'neither `docker` nor `podman` is on PATH')
}

// ---- the command line

export const COMMAND = {
  name: IS_PACKAGED ? 'baton image' : 'npm run image --',
  description:
    'builds the images of a release: the service, `deploy` (updates its containers) and `holder` (keeps their ports)',
  args: {
    tag: word('the release, such as v1.1.0; build it first'),
    repository: option('name', 'image repository, such as registry.example/beacon'),
    push: flag('push the images; if there is no newer release, also tag them `latest`, `deploy` and `holder`'),
    out: option('dir', 'releases folder', { default: IS_PACKAGED ? RELEASES_FOLDER : 'dist' }),
    feed: option('feed', 'where the panel looks for newer releases'),
    base: option('image', 'base image; must include glibc, libstdc++ and libatomic'),
    arch: option('x64|arm64', "architecture of the executable (default: this machine's)", ADVANCED),
    holder: {
      type: 'boolean',
      default: true,
      advanced: true,
      negativeDescription: 'do not build the holder image (building it needs a C compiler)',
    },
  },
} as const satisfies CommandLine

async function main(argv: string[]): Promise<number> {
  const progress = createProgress()
  try {
    const help = await helpFor(argv, COMMAND)
    if (help !== null) return printHelp(help)
    const values = parseFlags(argv, COMMAND)
    const { repository } = values
    if (repository === undefined)
      throw usage('expected `--repository`', 'name a repository, or set `image` in baton.config.json')
    const git = async (...args: string[]) =>
      (await run(['git', ...args], { cwd: PROJECT, allowFailure: true })).stdout.trim()
    const next = await buildImage({
      tag: tagOf(values.tag),
      repository,
      push: values.push,
      feed: values.feed ?? null,
      dist: resolve(values.out),
      base: values.base ?? null,
      arch: values.arch ?? process.arch,
      holder: values.holder,
      revision: await git('rev-parse', 'HEAD'),
      source: publicUrl(await git('config', '--get', 'remote.origin.url')),
      progress,
    })
    for (const line of ['', ...next]) printLine(line, process.stderr)
    return EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'building the image')
    progress.end('failed')
    printError(error)
    return MEANINGS[error.code].exit
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
