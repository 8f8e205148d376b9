// What an operator has asked for, beside what is remembered of the service from an earlier run. Pure.

import { createHash } from 'node:crypto'
import { BatonError, compareTags, serviceName } from '../../agent/words.ts'
import {
  ADVANCED,
  durationOf,
  flag,
  type Flags,
  IRREVERSIBLE_FLAG,
  option,
  SCRIPT_FLAGS,
  usage,
  WAITING_FLAGS,
  word,
  YES,
} from '../lib/flags.ts'
import { formatCommand } from '../lib/shell.ts'
import { isPackageName, type Recipe } from './recipe.ts'
import type { PackageVersion } from './registry.ts'
import type { ServiceRecord, Workshop } from './workshop.ts'

const ANOTHER = { hint: 'to install another service, use `--name`' }
const MIN_AGE = '3d'
const AGE_MAX_MS = 365 * 86_400_000

/** What may be typed behind `deploy-npm.sh`. */
export const ARGUMENTS = {
  package: word(
    'package name, optionally with a range or tag to stay within: `node-red`, `node-red@4`, `node-red@latest`',
  ),
  release: option('X.Y.Z|latest', 'package version', { default: 'latest' }),
  name: option('name', "name of the service (default: the package's name)"),
  recipe: option('file', "file that says how to start the package and where its data is (default: Baton's own recipe)"),
  'allow-scripts': option('names', 'packages whose install scripts may run', ADVANCED),
  listen: option('host:port', 'listen address for a first install'),
  'build-only': flag('build the release into the releases folder, but do not install it', ADVANCED),
  dir: option('dir', 'releases folder (the feed)', ADVANCED),
  update: flag('build newer versions of all services installed from npm, or only of the one given with `--name`'),
  'min-age': option('3d', 'minimum age of a version that `--update` installs (3d)', ADVANCED),
  timer: {
    advanced: true,
    type: 'boolean',
    default: true,
    negativeDescription: 'do not set up the timer that looks for newer versions',
  },
  service: {
    advanced: true,
    type: 'boolean',
    negativeDescription: 'on a first install, do not create a systemd service',
  },
  adopt: flag(
    'take over the data of an existing unit, pm2 app or `npm -g` install; the old one is stopped but not removed',
    ADVANCED,
  ),
  data: option('dir', 'with --adopt, where the existing data is (default: as in the recipe)', ADVANCED),
  ...YES,
  home: option('dir', 'where releases are built', ADVANCED),
  kit: option('file', 'the Baton package file that `npm run pack` made', ADVANCED),
  [IRREVERSIBLE_FLAG]: flag('allow an update that cannot be rolled back', ADVANCED),
  ...WAITING_FLAGS,
  ...SCRIPT_FLAGS,
} as const satisfies Flags

export interface Wish {
  package: string
  /** `*`: any; null: none was typed */
  range: string | null
  service: string
  release: string
  recipe: Recipe | null
  args: string[]
  allowed: string[]
  /** as it was typed */
  minAge: string | undefined
}

/** `node-red@4`, as it was typed. Throws BatonError invalid_request. */
export function packageIn(typed: string, isRange: (text: string) => boolean): Pick<Wish, 'range'> & { name: string } {
  const [, name = '', said] = /^(@?[^@]+)(?:@(.+))?$/.exec(typed) ?? []
  if (!isPackageName(name)) throw usage(`expected the name of a package, got ${JSON.stringify(typed)}`)
  if (said === undefined) return { name, range: null }
  const range = said === 'latest' ? '*' : said
  if (isRange(range)) return { name, range }
  throw usage(`expected a version range after \`${name}@\`, got ${JSON.stringify(range)}`)
}

/** What a service is called if nobody names it: `@shop/cli` says who it is in its scope. */
export function usualService(packageName: string): string {
  const [, scope, name = packageName] = /^@([^/]+)\/(.+)$/.exec(packageName) ?? []
  return serviceName(scope !== undefined && /^(cli|server|app)$/.test(name) ? scope : name)
}

/** How old a version must be before it is taken by itself; as before, unless it is typed. */
export function minAgeOf(typed: string | undefined, before: number | null): number {
  return typed === undefined && before !== null
    ? before
    : durationOf('--min-age', typed ?? MIN_AGE, { most: AGE_MAX_MS })
}

/** What was typed now counts; what was not stays as it was. */
export function keptNow(before: ServiceRecord | null, asked: Wish): Omit<ServiceRecord, 'feed'> {
  const { package: name, service } = asked
  if (before !== null && before.package !== name)
    throw new BatonError(
      'refused',
      `the service ${service} on this host was created from ${before.package}, not from ${name}`,
      ANOTHER,
    )
  // what was typed without a recipe, or for a run that made nothing, may be what a recipe now says
  const { recipe } = asked
  const isFirst = before?.recipe === null && recipe !== null
  const isOther = isFirst || (before?.built.length === 0 && !isSame(before.recipe, recipe))
  const isAnew = asked.args.length > 0 || before === null || isOther
  return {
    format: 1,
    package: name,
    service,
    range: asked.range ?? before?.range ?? '*',
    args: isAnew ? asked.args : before.args,
    recipe: recipe ?? before?.recipe ?? null,
    allowed: asked.allowed.length > 0 ? asked.allowed : (before?.allowed ?? []),
    minAgeMs: minAgeOf(asked.minAge, before?.minAgeMs ?? null),
    seen: before?.seen ?? {},
    shown: before?.shown ?? null,
    built: before?.built ?? [],
    told: before?.told ?? [],
    adopted: before?.adopted ?? null,
  }
}

/** What was typed once and counts no more, since a recipe has come: a sentence; none if it counts, or was typed anew. */
export function droppedOf(before: ServiceRecord | null, { args, recipe }: Omit<ServiceRecord, 'feed'>): string[] {
  if (before === null || before.args.length === 0 || args.length > 0 || recipe === null) return []
  const typed = formatCommand(before.args)
  return [
    `the recipe sets its own arguments, so those typed earlier are no longer used; to keep them, add \`-- ${typed}\``,
  ]
}

const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other)

/** Of all that an operator has said about how a release is made. */
export function madeOf({ args, recipe, allowed }: Pick<ServiceRecord, 'args' | 'recipe' | 'allowed'>): string {
  const { tried: _, clients: __, ...said } = recipe ?? { tried: null, clients: null }
  return createHash('sha256')
    .update(JSON.stringify([args, recipe === null ? null : said, allowed]))
    .digest('hex')
}

/** A release that is there already was made as it was said then: a sentence; none if nothing else is said now. */
export function lateChange(before: ServiceRecord | null, kept: ServiceRecord, tag: string): string[] {
  const made =
    kept.built.find(({ version }) => `v${version}` === tag)?.madeOf ?? (before === null ? null : madeOf(before))
  if (made === null || made === madeOf(kept)) return []
  const { service } = kept
  return [
    `${tag} was built with other arguments, another recipe or other install scripts: yours apply from the next version on; to apply them now, run this command with \`--build-only\` to try them, then \`${service} uninstall\` (the data stays), then this command again`,
  ]
}

/** The newest version that was ever made here, of those that `counts` is true for. */
export function newestOf({ built }: ServiceRecord, counts = (_version: string) => true): string | null {
  const all = built.map(({ version }) => version).filter(counts)
  return all.toSorted((a, b) => compareTags(`v${a}`, `v${b}`)).at(-1) ?? null
}

/** Of versions that are kept on the disk. */
export function seenOf({ built, seen }: ServiceRecord): Record<string, string> {
  return Object.fromEntries(
    built.flatMap(({ version }) => (seen[version] === undefined ? [] : [[version, seen[version]]])),
  )
}

export function refuseReplaced({ package: name, seen }: ServiceRecord, { version, integrity }: PackageVersion): void {
  const before = seen[version]
  if (before === undefined || before === integrity) return
  throw new BatonError(
    'verify_failed',
    `${name} ${version} was replaced under the same version number: its integrity hash was ${before} and is now ${integrity}`,
    {
      hint: 'ask the maintainers of the package why, and choose another version with `--release`',
    },
  )
}

/** An install that takes its releases from elsewhere would get none of those that are made here. */
export function refuseOtherFeed({ service, feed }: Pick<Workshop, 'service' | 'feed'>, installed: string): void {
  if (installed === feed) return
  const why = `${service} is already installed here with the feed ${installed}, not ${feed}`
  throw new BatonError('refused', why, ANOTHER)
}

/** Whoever names no version goes to none that is older than what was made here: the newest may have been deprecated since. */
export function refuseOlder(kept: ServiceRecord, { version }: Pick<PackageVersion, 'version'>): void {
  const newest = newestOf(kept)
  if (newest === null || compareTags(`v${version}`, `v${newest}`) >= 0) return
  throw new BatonError(
    'refused',
    `the newest usable version of ${kept.package} is ${version}, but the newer ${newest} has already been built here`,
    { hint: `to go back to ${version}, use \`--release ${version}\`` },
  )
}

/** What a range means that was typed once: a sentence; none without a range. */
export function withinOf({ package: name, range }: Pick<ServiceRecord, 'package' | 'range'>): string[] {
  return range === '*' ? [] : [`updates stay within ${name}@${range}; to allow any version, use ${name}@latest`]
}

/** `end`: what is done with the release; null: it stays in the folder. */
export function planLines(
  kept: ServiceRecord,
  { version }: Pick<PackageVersion, 'version'>,
  { builder, feed }: Pick<Workshop, 'builder' | 'feed'>,
  registry: string,
  end: 'install' | 'upgrade' | null,
): { text: string }[] {
  const { package: name, service, recipe } = kept
  const who = builder === null ? 'as you' : `as user id ${builder}`
  const scripts = [...(recipe?.scripts ?? []), ...kept.allowed]
  return [
    `resolve ${name} ${version} at ${registry}, ${who}`,
    ...withinOf(kept),
    `npm ci --ignore-scripts, ${who}, isolated from this host`,
    scripts.length === 0
      ? 'run no install scripts'
      : `run the install scripts of ${scripts.join(', ')}, if any, without network access`,
    recipe === null
      ? 'start it once without a recipe, with an empty state directory, and see what it does'
      : `follow the recipe for ${recipe.package}`,
    `build ${service} v${version}, then try one start and one switch`,
    `put it into ${feed}`,
    end === null ? 'install nothing' : `${end} ${service}${end === 'upgrade' ? ' to' : ''} v${version}`,
  ].map((text) => ({ text }))
}
