// The route from source: fetch the tag, build it in a clean worktree, verify what was built, then deploy it to this host
// like any other release. What is built goes into `dist/` of this clone, which is the feed of the install.

import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asBatonError, BatonError, EXIT, MEANINGS, parseTag, reasonOf } from '../agent/words.ts'
import { BUILD } from '../agent/service/build.ts'
import { type Deployment, deployHere, findInstalled } from './host/deploy.ts'
import { describe, type Step } from './host/plan/step.ts'
import { makeReport, type Report } from './host/report.ts'
import { run } from './lib/shell.ts'
import {
  asksForHelp,
  type Command,
  parseFlags,
  SCRIPT_FLAGS,
  secondsOf,
  usage,
  usageOf,
  WAITING_FLAGS,
} from './lib/flags.ts'

const COMMAND = {
  name: 'deploy-source.sh',
  description: 'builds a tag from source and deploys it to this host',
  args: {
    ref: { type: 'string', valueHint: 'tag', description: 'tag to build and deploy, such as v1.1.0' },
    remote: {
      type: 'string',
      valueHint: 'name',
      default: 'origin',
      description: 'where to fetch it from; `none` fetches nothing',
    },
    'verify-signature': {
      type: 'boolean',
      default: false,
      description: 'the tag must be signed by a key that git trusts',
    },
    'build-only': { type: 'boolean', default: false, description: 'build and verify, deploy nothing' },
    listen: { type: 'string', valueHint: 'host:port', description: 'for a first install: where the service listens' },
    service: {
      type: 'boolean',
      description: 'for a first install: with a systemd service',
      negativeDescription: 'for a first install: without systemd',
    },
    ...WAITING_FLAGS,
    'lock-timeout': { ...WAITING_FLAGS['lock-timeout'], default: '60' },
    ...SCRIPT_FLAGS,
  },
} as const satisfies Command

const PROJECT = join(import.meta.dirname, '..')
const DIST = join(PROJECT, 'dist')

interface Build {
  tag: string
  remote: string
  signed: boolean
  /** the clean worktree; made for this build, gone after it */
  worktree: string
  modules: 'installed' | 'shared'
}

async function main(argv: readonly string[]): Promise<number> {
  const about = { command: 'deploy', service: BUILD.service }
  let report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false, about })
  try {
    if (asksForHelp(argv)) {
      process.stdout.write(await usageOf(COMMAND))
      return EXIT.done
    }
    const values = parseFlags(argv, COMMAND)
    report = makeReport({ json: values.json, quiet: values.quiet, verbose: false, about })
    if (values.ref === undefined) throw usage('expected --ref')
    const tag = parseTag(values.ref)
    for (const flag of ['health-timeout', 'lock-timeout'] as const) secondsOf(`--${flag}`, values[flag])
    const dryRun = values['dry-run']
    const deployment: Deployment = {
      service: BUILD.service,
      release: tag,
      rollback: false,
      feed: DIST,
      healthUrl: values['health-url'] ?? null,
      healthTimeout: values['health-timeout'],
      lockTimeout: values['lock-timeout'],
      installFlags: [
        ...(values.listen === undefined ? [] : ['--listen', values.listen]),
        ...(values.service === false ? ['--no-service'] : []),
      ],
      dryRun,
    }
    const receipt = values['build-only'] ? null : await findInstalled(BUILD.service)
    if (receipt !== null && receipt.feed !== DIST) {
      throw new BatonError('refused', `the feed of the install is ${receipt.feed}, not ${DIST}`, {
        hint: `\`install.sh --feed ${DIST}\` and a restart make this clone its feed`,
      })
    }
    const parent = await mkdtemp(join(tmpdir(), 'baton-source-'))
    try {
      const build: Build = {
        tag,
        remote: values.remote,
        signed: values['verify-signature'],
        worktree: join(parent, 'tree'),
        modules: 'installed',
      }
      if (dryRun) {
        report.plan([...buildSteps(build), { do: 'update', service: BUILD.service, to: tag }])
        report.result({ outcome: 'planned', to: tag, exit: EXIT.done }, [])
        return EXIT.done
      }
      await buildRelease(build, report)
    } finally {
      await run(['git', '-C', PROJECT, 'worktree', 'remove', '--force', join(parent, 'tree')], { allowFailure: true })
      await rm(parent, { recursive: true, force: true })
    }
    if (values['build-only']) {
      report.result({ outcome: 'built', to: tag, exit: EXIT.done }, [`built ${join(DIST, tag)}`])
      return EXIT.done
    }
    const { outcome, from, to } = await deployHere(deployment, report)
    report.result({ outcome, from, to, exit: EXIT.done }, [`${BUILD.service}: ${outcome ?? ''} ${to ?? tag}`])
    return EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'deploying from source')
    report.failed(error)
    return MEANINGS[error.code].exit
  }
}

/** Pure: the commands, in order. */
function buildSteps({ tag, remote, signed, worktree, modules }: Build): Extract<Step, { do: 'run' }>[] {
  const git = ['git', '-C', PROJECT]
  const commands: string[][] = []
  if (remote !== 'none') commands.push([...git, 'fetch', '--quiet', remote, `refs/tags/${tag}:refs/tags/${tag}`])
  if (signed) commands.push([...git, 'verify-tag', tag])
  commands.push([...git, 'worktree', 'add', '--quiet', '--detach', worktree, `refs/tags/${tag}`])
  if (modules === 'installed')
    commands.push(['npm', '--prefix', worktree, 'ci', '--ignore-scripts', '--no-audit', '--no-fund'])
  commands.push([
    'npm',
    '--prefix',
    worktree,
    'run',
    'build',
    '--',
    '--tag',
    tag,
    '--out',
    DIST,
    '--feed',
    DIST,
    '--force',
    '--compress',
    'fast',
    '--quiet',
  ])
  return commands.map((command) => ({ do: 'run', command }))
}

async function buildRelease(build: Build, report: Report): Promise<void> {
  for (const step of buildSteps(build)) {
    // the very packages that the tag locks may be here already
    if (step.command[3] === 'ci' && (await sharesModules(build.worktree))) {
      await symlink(join(PROJECT, 'node_modules'), join(build.worktree, 'node_modules'))
      continue
    }
    report.step(step)
    try {
      await run(step.command, { env: { npm_config_update_notifier: 'false' } })
    } catch (cause) {
      const code = step.command.includes('verify-tag')
        ? 'verify_failed'
        : step.command.includes('fetch')
          ? 'release_not_found'
          : 'unexpected'
      throw new BatonError(code, `${describe(step)}: ${reasonOf(cause)}`, { cause })
    }
  }
  await verify(build.tag)
}

async function sharesModules(worktree: string): Promise<boolean> {
  if (!existsSync(join(PROJECT, 'node_modules'))) return false
  const [theirs, ours] = await Promise.all(
    [worktree, PROJECT].map((tree) => readFile(join(tree, 'package-lock.json'), 'utf8')),
  )
  return theirs === ours
}

/** Every file of the release against its sums: what is deployed is what was built. */
async function verify(tag: string): Promise<void> {
  const sums = await readFile(join(DIST, tag, 'SHA256SUMS'), 'utf8')
  for (const line of sums.split('\n').filter(Boolean)) {
    const [expected = '', name = ''] = line.split(/ [ *]/)
    const got = createHash('sha256')
      .update(await readFile(join(DIST, tag, name)))
      .digest('hex')
    if (got !== expected) throw new BatonError('verify_failed', `sha256 of ${name}: expected ${expected}, got ${got}`)
  }
}

process.exitCode = await main(process.argv.slice(2))
