// The publisher's command line: `npm run trust -- WORD`; in an author's project `baton trust WORD`.
// Must hold: every command ends with an exit code of the table. It throws nothing. No argument is a secret.

import { readdir } from 'node:fs/promises'
import { delimiter, join, resolve } from 'node:path'
import { METADATA_FOLDER, type Role, ROLES } from '../../agent/publish.ts'
import { asBatonError, BatonError, DAY_MS, EXIT, MEANINGS, ROLLOUT_STEPS_MAX } from '../../agent/words.ts'
import {
  ADVANCED,
  type CommandLine,
  duration,
  durationOf,
  flag,
  type Flags,
  option,
  OUTPUT_FLAGS,
  parseFlags,
  usage,
  word,
} from '../lib/flags.ts'
import { commandOf } from '../lib/help.ts'
import { printable } from '../lib/printer.ts'
import { DAYS } from './change.ts'
import * as commands from './commands.ts'
import { openHub } from './github.ts'
import { WORK } from './keys.ts'
import { passphrases } from './passphrase.ts'
import { type Days, versionsOf } from './repository.ts'
import { type Verified, verifyFeed } from './verify.ts'

type Values = Record<string, unknown>

/** What a run reads and writes besides files. */
export interface Io {
  environment: NodeJS.ProcessEnv
  /** base of relative paths */
  cwd: string
  write(text: string): void
  complain(text: string): void
  /** scrypt's cost N for new keys; tests take a small one to be fast */
  work: number
}

const PROCESS: Io = {
  environment: process.env,
  cwd: process.cwd(),
  write: (text) => void process.stdout.write(printable(text)),
  complain: (text) => void process.stderr.write(printable(text)),
  work: WORK,
}

interface TrustWord extends CommandLine {
  act(context: commands.TrustContext, values: Values): Promise<unknown>
}

const FEED = {
  dir: option('dir', 'feed folder, which contains the releases and a `verified/` folder', { default: 'dist' }),
} as const satisfies Flags

const SIGNING = {
  ...OUTPUT_FLAGS,
  ...FEED,
  keys: option('dirs', 'key folders, separated by colons (in CI, set $BATON_TRUST_KEYS instead)'),
  'passphrase-file': option(
    'file',
    'file with the passphrase (default: the passphrase in $BATON_TRUST_PASSPHRASE, or a prompt)',
    ADVANCED,
  ),
  offline: option('365d', 'how long the signatures stay valid, for hosts updated from a USB stick', ADVANCED),
} as const satisfies Flags

const DAYS_MAX = 3650
const expiry = (role: Role): string => `${role}-expiry`

const WORDS: readonly TrustWord[] = [
  {
    name: 'init',
    description: 'create the signing keys, and the root metadata that is built into executables',
    args: {
      ...SIGNING,
      service: option('name', 'name of the service', { required: true }),
      'root-keys': option('n', 'number of root keys', { default: '3' }),
      'root-threshold': option('n', 'how many root keys must sign', { default: '2' }),
      ...Object.fromEntries(
        ROLES.map(
          (role) =>
            [expiry(role), duration(`how long the ${role} metadata is valid (${DAYS[role]}d)`, ADVANCED)] as const,
        ),
      ),
    },
    act(context, values) {
      const rootKeys = countOf('--root-keys', values['root-keys'], 16)
      const rootThreshold = countOf('--root-threshold', values['root-threshold'], rootKeys)
      const own: Partial<Days> = {}
      for (const role of ROLES) {
        const value = values[expiry(role)]
        if (value !== undefined) own[role] = daysOf(`--${expiry(role)}`, value)
      }
      return commands.init(context, { service: String(values['service']), rootKeys, rootThreshold, days: own })
    },
  },
  {
    name: 'sign',
    description: 'sign every new release in the folder',
    args: {
      ...SIGNING,
      image: option('name@sha256:…', 'container image of these releases'),
      again: flag('also sign each release.json that has changed since it was signed'),
    },
    act: (context, values) =>
      commands.sign(context, { image: imageOf(values['image']), again: values['again'] === true }),
  },
  {
    name: 'refresh',
    description: 'renew the snapshot and timestamp metadata before it expires',
    args: SIGNING,
    act: (context) => commands.refresh(context),
  },
  {
    name: 'rotate',
    description: 'replace the keys of a role: all, or only those lost or stolen',
    args: {
      role: { type: 'positional', description: ROLES.join(', ') },
      ...SIGNING,
      replace: option('keys', 'IDs or names of the keys to replace, separated by commas'),
      threshold: option('n', 'how many keys must sign from now on'),
    },
    act(context, values) {
      const role = ROLES.find((one) => one === values['role'])
      if (role === undefined)
        throw usage(`expected a role (${ROLES.join(', ')}), got ${JSON.stringify(values['role'])}`)
      const lost = typeof values['replace'] === 'string' ? values['replace'].split(',') : []
      const threshold = values['threshold'] === undefined ? null : countOf('--threshold', values['threshold'], 16)
      return commands.rotate(context, role, { lost, threshold })
    },
  },
  {
    name: 'yank',
    description: 'keep every host from installing this release',
    args: {
      tag: { type: 'positional', description: 'the release, such as v1.1.0' },
      ...SIGNING,
      why: option('text', 'reason to show to operators, in one sentence'),
      undo: flag('let hosts install the release again'),
    },
    act(context, values) {
      const undo = values['undo'] === true
      const why = typeof values['why'] === 'string' ? values['why'] : null
      if (undo === (why !== null)) throw usage('expected `--why TEXT` or `--undo`')
      if (why !== null && !/^[\x20-\x7e]{1,200}$/.test(why))
        throw usage('expected 1 to 200 printable ASCII characters for --why')
      return commands.yank(context, String(values['tag']), why)
    },
  },
  {
    name: 'rollout',
    description: 'have hosts update to a release automatically, in steps',
    args: {
      tag: { type: 'positional', description: 'the release' },
      ...SIGNING,
      percent: option('5,25,100', 'percentage of all hosts at each step'),
      every: option('30m|12h|2d', 'how long to wait between steps'),
      all: flag('release to all hosts at once instead of in steps'),
    },
    act: (context, values) => commands.rollout(context, String(values['tag']), rolloutOf(values)),
  },
  {
    name: 'pull',
    description: 'fetch the metadata of a feed on GitHub into the feed folder',
    args: { feed: { type: 'positional', description: 'github:owner/name' }, ...OUTPUT_FLAGS, ...FEED },
    async act({ feed, environment, say }, values) {
      const names = await openHub(String(values['feed']), environment).pull(feed)
      say(names.length === 0 ? 'there was nothing to fetch' : `fetched ${names.join(', ')}`)
    },
  },
  {
    name: 'push',
    description: 'publish the metadata in the folder to GitHub, timestamp.json last',
    args: { feed: { type: 'positional', description: 'github:owner/name' }, ...OUTPUT_FLAGS, ...FEED },
    async act({ feed, environment, say }, values) {
      say(`published ${(await openHub(String(values['feed']), environment).push(feed)).join(', ')}`)
    },
  },
  {
    name: 'verify',
    description: 'show whether a host would accept the feed, and when each role expires',
    args: {
      feed: word('the feed, as set on the hosts (default: the feed folder)'),
      ...OUTPUT_FLAGS,
      ...FEED,
      root: option('file', "root.json built into the hosts' executables (default: the oldest root.json in the folder)"),
      os: option('os', "the hosts' operating system (default: this machine's)", ADVANCED),
      arch: option('arch', "the hosts' architecture (default: this machine's)", ADVANCED),
    },
    async act({ feed, environment, cwd }, values) {
      const root = typeof values['root'] === 'string' ? resolve(cwd, values['root']) : await oldestRoot(feed)
      const named = typeof values['feed'] === 'string' ? values['feed'] : feed
      const { os = process.platform, arch = process.arch } = values
      const platform = { os: String(os), arch: String(arch) }
      return await verifyFeed(named, root, platform, environment)
    },
  },
  {
    name: 'show',
    description: 'show keys, expiry dates and releases',
    args: { ...OUTPUT_FLAGS, ...FEED, keys: SIGNING.keys },
    act: (context) => commands.show(context),
  },
]

/** The commands, where releases are in `folder` unless `--dir` says another. */
export function trustWords(folder: string): readonly TrustWord[] {
  return WORDS.map((word) => ({ ...word, args: { ...word.args, dir: { ...FEED.dir, default: folder } } }))
}

/** Runs one word and returns its exit code; never throws. `name` is the program's, and `folder` where its releases are. */
export async function runTrust(
  argv: readonly string[],
  io: Io = PROCESS,
  { name, folder }: { name: string; folder: string } = { name: 'trust', folder: FEED.dir.default },
): Promise<number> {
  const [first = ''] = argv
  const json = argv.includes('--json')
  const description = 'signs releases, so that an attacker who takes over the feed cannot run code on a host'
  try {
    const found = await commandOf(argv, { name, description, commands: trustWords(folder) })
    if ('text' in found) {
      if (found.exit === EXIT.done) io.write(found.text)
      else io.complain(found.text)
      return found.exit
    }
    const { word } = found
    const values: Values = parseFlags(found.rest, word)
    const lines: string[] = []
    const say = (line: string): void => {
      lines.push(line)
      if (!json && values['quiet'] !== true) io.write(`${line}\n`)
    }
    const result = await word.act(contextFrom(values, io, say), values)
    if (json) io.write(`${JSON.stringify(result ?? { said: lines })}\n`)
    else if (first === 'verify') io.write(told(result as Verified))
    else if (first === 'show') io.write(toldShown(result as commands.Shown))
    return first === 'verify' ? (result as Verified).exit : EXIT.done
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', `trust ${first}`)
    if (json) io.write(`${JSON.stringify({ error: { code: error.code, message: error.message, hint: error.hint } })}\n`)
    io.complain(`error: ${error.message}\n${error.hint === null ? '' : `hint: ${error.hint}\n`}`)
    return MEANINGS[error.code].exit
  }
}

function contextFrom(
  values: Values,
  { environment, cwd, work }: Io,
  say: (line: string) => void,
): commands.TrustContext {
  const { dir, keys, offline } = values
  const path = values['passphrase-file']
  return {
    feed: resolve(cwd, String(dir)),
    keyFolders: typeof keys === 'string' ? keys.split(delimiter).map((one) => resolve(cwd, one)) : [],
    keyText: environment['BATON_TRUST_KEYS'] ?? '',
    environment,
    passphrases: passphrases(typeof path === 'string' ? resolve(cwd, path) : null, environment),
    cwd,
    work,
    offlineDays: offline === undefined ? null : daysOf('--offline', offline),
    now: new Date(),
    say,
  }
}

function told({ feed, root, latest, image, trust, passedOver, problem }: Verified): string {
  const lines = [
    `${feed}, as seen by a host whose ${root.service} was built with version ${root.version} of root.json:`,
    ...trust.metadata.map(
      ({ role, version, expiresAt }) => `  ${role.padEnd(10)} version ${version}, expires ${expiresAt}`,
    ),
    ...passedOver.map(({ tag, why }) => `  not using ${tag}: ${why}`),
    ...trust.yanked.map(({ tag, why }) => `  yanked ${tag}: ${why}`),
    problem === null ? `  latest     ${latest ?? 'none'}${image === null ? '' : `, ${image}`}` : null,
    trust.warning === null ? null : `warning: ${trust.warning.message}`,
    problem === null ? null : `refused: ${problem.message} (${problem.code})`,
    problem?.hint === undefined || problem.hint === null ? null : `hint: ${problem.hint}`,
  ]
  return lines
    .filter((line) => line !== null)
    .map((line) => `${line}\n`)
    .join('')
}

function toldShown({ service, roles, releases }: commands.Shown): string {
  const lines = [`${service}:`]
  for (const { role, version, expiresAt, threshold, keys } of roles) {
    lines.push(
      `  ${role.padEnd(10)} version ${version}, expires ${expiresAt}, ${threshold} of ${keys.length} must sign: ${keys.join(', ')}`,
    )
  }
  for (const { tag, yanked, image, rollout } of releases) {
    const steps = rollout?.map(({ at, percent }) => `${percent}% from ${at}`).join(', ')
    const more = [...(yanked === null ? [] : [`yanked: ${yanked}`]), ...(image === null ? [] : [image])]
    lines.push(`  ${[tag, ...more, ...(steps === undefined ? [] : [steps])].join(', ')}`)
  }
  return lines.map((line) => `${line}\n`).join('')
}

async function oldestRoot(feed: string): Promise<string> {
  const folder = join(feed, METADATA_FOLDER)
  const names = await readdir(folder).catch(() => [])
  const versions = versionsOf('root', names)
  if (versions.length > 0) return join(folder, `${Math.min(...versions)}.root.json`)
  throw new BatonError('refused', `there is no file N.root.json in ${folder}`, {
    hint: "specify the root built into the hosts' executables: --root FILE",
  })
}

function rolloutOf({ percent, every, all }: Values): commands.Rollout {
  if ((all === true) === (percent !== undefined))
    throw usage('expected `--all`, or `--percent` with `--every`, such as `--percent 5,25,100 --every 12h`')
  if (all === true) return { percents: [], everyMs: 0 }
  const percents = /^[\d,]{1,250}$/.test(String(percent)) ? String(percent).split(',').map(Number) : []
  const isRising = percents.every((one, at) => one <= 100 && one > (percents[at - 1] ?? 0))
  if (percents.length === 0 || percents.length > ROLLOUT_STEPS_MAX || !isRising)
    throw usage(
      `expected increasing whole numbers up to 100 for --percent, such as 5,25,100, got ${JSON.stringify(percent)}`,
    )
  if (percents.length === 1 && every === undefined) return { percents, everyMs: 0 }
  if (every === undefined)
    throw usage('expected --every with the time between two rollout steps, such as `--every 12h`')
  return { percents, everyMs: durationOf('--every', every, { least: 60_000, most: DAYS_MAX * DAY_MS }) }
}

function imageOf(value: unknown): { repository: string; digest: string } | null {
  if (typeof value !== 'string') return null
  const [repository = '', digest = '', ...more] = value.split('@')
  const whole = more.length === 0 && /^[a-z0-9][a-z0-9._:/-]{0,254}$/.test(repository)
  if (whole && /^sha256:[0-9a-f]{64}$/.test(digest)) return { repository, digest }
  throw usage('expected an image with its digest for --image, such as `ghcr.io/owner/name@sha256:…`')
}

/** Whole days: metadata have no shorter life. */
function daysOf(flag: string, value: unknown): number {
  return Math.ceil(durationOf(flag, value, { least: DAY_MS, most: DAYS_MAX * DAY_MS }) / DAY_MS)
}

function countOf(flag: string, value: unknown, max: number): number {
  const count = typeof value === 'string' && /^\d{1,4}$/.test(value) ? Number(value) : Number.NaN
  if (count >= 1 && count <= max) return count
  throw usage(
    `expected ${max === 1 ? '1' : `a whole number from 1 to ${max}`} for ${flag}, got ${JSON.stringify(value)}`,
  )
}
