// Deploys from source: fetches the tag, builds it in a clean worktree, verifies the release, then deploys it to this host like any
// other. The release goes into a folder of the clone (`dist/` in this one, `releases/` in an author's), the feed of the install.

import { existsSync } from 'node:fs'
import { readFile, realpath, symlink } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { asBatonError, BatonError, compareTags, isPrerelease, isTag, parseTag, reasonOf } from '../agent/words.ts'
import { BUILD } from '../agent/service/build.ts'
import { detect } from './make/detect.ts'
import { IS_PACKAGED, PROJECT } from './make/place.ts'
import { CONFIG, readProject, RELEASES_FOLDER } from './make/project.ts'
import { sumsFault } from './make/release-folder.ts'
import { assertSupervised, type Deployment, deployHere, findInstalled } from './host/deploy.ts'
import { describe, type Step } from './host/plan/step.ts'
import { makeReport, type HostReport } from './host/report.ts'
import { run } from './lib/shell.ts'
import { rehearsalLines } from './lib/switch.ts'
import { assertTrusted, temporaryFolder } from './lib/trusted.ts'
import {
  ADVANCED,
  type CommandLine,
  durationOf,
  flag,
  IRREVERSIBLE,
  IRREVERSIBLE_FLAG,
  option,
  parseFlags,
  RELEASE_FLAGS,
  releaseIn,
  SCRIPT_FLAGS,
  usage,
  WAITING_FLAGS,
} from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'

export const COMMAND = {
  name: IS_PACKAGED ? 'baton deploy source' : 'deploy-source.sh',
  description: 'builds a tag from source and deploys it to this host',
  args: {
    ...RELEASE_FLAGS,
    dir: option(
      'dir',
      "git clone of the service's repository (default: the one that this script is in; for `baton deploy source`, the working directory)",
    ),
    remote: option('name', 'git remote to fetch from, or `none`', { default: 'origin', advanced: true }),
    'verify-signature': flag('require a tag signed by a key that git trusts', ADVANCED),
    'build-only': flag('build and verify, but do not deploy'),
    listen: option('host:port', 'listen address for a first install'),
    service: { type: 'boolean', negativeDescription: 'on a first install, do not create a systemd service' },
    ...IRREVERSIBLE,
    ...WAITING_FLAGS,
    ...SCRIPT_FLAGS,
  },
} as const satisfies CommandLine

/** A clone to build from, and how to build it. */
interface Source {
  /** the clone's folder */
  folder: string
  service: string
  /** folder that gets the releases; it is the feed of the install */
  dist: string
  /** command that installs the packages of the worktree's lock file */
  install: string[]
  /** command that builds, without its flags */
  build: string[]
  /** whether the build may use the clone's packages if both lock files are the same */
  shares: boolean
}

/** Reads a clone of this repository, or of another one that has a baton.config.json. */
async function sourceAt(given: string | undefined): Promise<Source> {
  const folder = resolve(given ?? (IS_PACKAGED ? '.' : PROJECT))
  if (!existsSync(join(folder, CONFIG)) && !IS_PACKAGED && folder === resolve(PROJECT)) {
    const install = ['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund']
    return {
      folder,
      service: BUILD.service,
      dist: join(folder, 'dist'),
      install,
      build: ['npm', 'run', 'build', '--'],
      shares: true,
    }
  }
  const { service } = await readProject(folder)
  const { packageManager } = detect(folder)
  const install = {
    npm: ['npm', 'ci', '--no-audit', '--no-fund'],
    pnpm: ['pnpm', 'install', '--frozen-lockfile'],
    yarn: ['yarn', 'install', '--immutable'],
    bun: ['bun', 'install', '--frozen-lockfile'],
  }[packageManager]
  return {
    folder,
    service,
    dist: join(folder, RELEASES_FOLDER),
    install,
    build: ['npx', '--no', 'baton', 'build'],
    shares: false,
  }
}

interface Build extends Source {
  tag: string
  remote: string
  signed: boolean
  /** the clean worktree, which is made for this build and removed after it */
  worktree: string
}

async function main(argv: readonly string[]): Promise<number> {
  const about = { command: 'deploy', service: BUILD.service }
  let report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false, about })
  try {
    const help = await helpFor(argv, COMMAND)
    if (help !== null) return printHelp(help)
    const values = parseFlags(argv, COMMAND)
    if (process.geteuid?.() === 0) await assertRootsClone(resolve(values.dir ?? (IS_PACKAGED ? '.' : PROJECT)))
    const source = await sourceAt(values.dir)
    const { service, dist } = source
    about.service = service
    report = makeReport({ json: values.json, quiet: values.quiet, verbose: false, about })
    const release = releaseIn(values)
    if (release === null) throw usage('expected a release, such as v1.1.0 or latest')
    const tag = release === 'latest' ? await newestTag(source.folder, values.remote) : parseTag(release)
    const healthTimeoutMs = durationOf('--health-timeout', values['health-timeout'])
    const lockTimeoutMs = durationOf('--lock-timeout', values['lock-timeout'])
    const dryRun = values['dry-run']
    const deployment: Deployment = {
      service,
      release: tag,
      rollback: false,
      allowIrreversible: values[IRREVERSIBLE_FLAG],
      feed: dist,
      healthUrl: values['health-url'] ?? null,
      healthTimeoutMs,
      lockTimeoutMs,
      installFlags: [
        ...(values.listen === undefined ? [] : ['--listen', values.listen]),
        ...(values.service === false ? ['--no-service'] : []),
      ],
      dryRun,
    }
    const receipt = values['build-only'] ? null : await findInstalled(service)
    if (receipt !== null && receipt.feed !== dist) {
      throw new BatonError('refused', `this install uses the feed ${receipt.feed}, not ${dist}`, {
        hint: `to use this clone as the feed, run \`install.sh --feed ${dist}\` and restart the service`,
      })
    }
    // fail before a minute of building, not after it
    if (receipt === null && !values['build-only']) await assertSupervised(values.service !== false)
    {
      await using parent = await temporaryFolder('baton-source-')
      const worktree = join(parent.path, 'tree')
      try {
        const build: Build = {
          ...source,
          tag,
          remote: values.remote,
          signed: values['verify-signature'],
          worktree,
        }
        if (dryRun) {
          const update = { do: 'update', service, to: tag } as const
          report.plan([...buildSteps(build), ...(values['build-only'] ? [] : [update])])
          return report.result({ outcome: 'planned', to: tag }, [])
        }
        await buildRelease(build, report)
        report.leave() // the release stays built, even if the deployment fails
      } finally {
        await run(['git', '-C', source.folder, 'worktree', 'remove', '--force', worktree], {
          allowFailure: true,
        })
      }
    }
    if (values['build-only']) return report.result({ outcome: 'built', to: tag }, [`built ${join(dist, tag)}`])
    const { outcome, from, to, operation } = await deployHere(deployment, report)
    const lines = [`${service}: ${outcome ?? ''} ${to ?? tag}`, ...rehearsalLines(operation?.trial ?? null)]
    return report.result({ outcome, from, to }, lines)
  } catch (cause) {
    return report.failed(asBatonError(cause, 'unexpected', 'deploying from source'))
  }
}

/** The newest tag of a release that the remote has, or with `none` the clone. */
async function newestTag(folder: string, remote: string): Promise<string> {
  const where = remote === 'none' ? folder : remote
  const command = remote === 'none' ? ['tag', '--list'] : ['ls-remote', '--tags', '--refs', remote]
  const { stdout } = await run(['git', '-C', folder, ...command]).catch((cause: unknown) => {
    throw new BatonError('release_not_found', `cannot list the tags of ${where}: ${reasonOf(cause)}`, { cause })
  })
  const tags = stdout.split('\n').map((line) => line.replace(/^.*refs\/tags\//, ''))
  const newest = tags
    .filter((tag) => isTag(tag) && !isPrerelease(tag))
    .toSorted(compareTags)
    .at(-1)
  if (newest !== undefined) return newest
  throw new BatonError('release_not_found', `${where} has no tag of the form vX.Y.Z`)
}

/**
 * Throws BatonError refused if anybody but root can change the clone or anything in it: its scripts, and the hooks and the configuration of its git,
 * are about to run as root. `install.sh --clone` asks the same.
 */
async function assertRootsClone(given: string): Promise<void> {
  const hint =
    'clone into a folder owned by root, such as /root; or build as yourself with `--build-only`, and pass the releases to `install.sh --feed`'
  const folder = await realpath(given).catch(() => given)
  await assertTrusted(folder, 'a clone', hint)
  if (!existsSync(folder)) return // what reads it says so
  const others = ['(', '-perm', '-002', '-o', '-perm', '-020', '!', '-group', '0', ')']
  const find = ['find', folder, '(', '!', '-user', '0', '-o', '!', '-type', 'l', ...others, ')', '-print', '-quit']
  const { stdout, stderr } = await run(find, { allowFailure: true })
  const [found = ''] = (stdout + stderr).split('\n') // what cannot be looked at is not known to be root's
  if (found === '') return
  const message = `expected a clone that only root can change, got ${given}: someone else can change ${found.slice(0, 300)}`
  throw new BatonError('refused', message, { hint })
}

/** Pure: the commands, in order. */
function buildSteps({
  folder,
  dist,
  install,
  build,
  tag,
  remote,
  signed,
  worktree,
}: Build): Extract<Step, { do: 'run' }>[] {
  const git = ['git', '-C', folder]
  const at = (command: string[]) => ({ do: 'run' as const, command, cwd: worktree })
  const steps: ReturnType<typeof buildSteps> = []
  const commit = (command: string[]) => void steps.push({ do: 'run', command })
  if (remote !== 'none') commit([...git, 'fetch', '--quiet', remote, `refs/tags/${tag}:refs/tags/${tag}`])
  if (signed) commit([...git, 'verify-tag', tag])
  commit([...git, 'worktree', 'add', '--quiet', '--detach', worktree, `refs/tags/${tag}`])
  steps.push(at(install))
  const flags = [tag, '--out', dist, '--feed', dist, '--force', '--compress', 'fast', '--quiet']
  steps.push(at([...build, ...flags]))
  return steps
}

async function buildRelease(build: Build, report: HostReport): Promise<void> {
  for (const step of buildSteps(build)) {
    // the packages that the tag locks may be here already
    if (step.command[1] === 'ci' && build.shares && (await sharesModules(build.worktree))) {
      await symlink(join(PROJECT, 'node_modules'), join(build.worktree, 'node_modules'))
      continue
    }
    report.step(step)
    try {
      await run(step.command, {
        ...(step.cwd === undefined ? {} : { cwd: step.cwd }),
        env: { npm_config_update_notifier: 'false' },
      })
    } catch (cause) {
      const code = step.command.includes('verify-tag')
        ? 'verify_failed'
        : step.command.includes('fetch')
          ? 'release_not_found'
          : 'unexpected'
      throw new BatonError(code, `${describe(step)}: ${reasonOf(cause)}`, { cause })
    }
  }
  await verify(build)
}

async function sharesModules(worktree: string): Promise<boolean> {
  if (!existsSync(join(PROJECT, 'node_modules'))) return false
  const [theirs, ours] = await Promise.all(
    [worktree, PROJECT].map((tree) => readFile(join(tree, 'package-lock.json'), 'utf8')),
  )
  return theirs === ours
}

/** Only what was built is deployed. */
async function verify({ dist, tag }: Build): Promise<void> {
  const fault = await sumsFault(join(dist, tag))
  if (fault !== null) throw new BatonError('verify_failed', fault)
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
