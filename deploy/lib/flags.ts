// Parses the arguments of the commands in deploy/, and draws their usage. The one importer of citty. `serve`, `healthcheck` and
// `snapshot` of the reference service read their own.
// Must hold: an argument that a command line does not know is a usage error (exit code 2); nothing is guessed.

import { BatonError, DAY_MS, durationForm, isTag, msOf } from '../../agent/words.ts'
import { type ArgDef, defineCommand, type ParsedArgs, parseArgs, renderUsage } from 'citty'

/** `advanced`: nobody would set it at first, so it stands under `--help --all` only. `former`: the name that it had, which is refused. */
export type Flags = Record<string, ArgDef & { advanced?: boolean; former?: string }>
export type Values<T extends Flags> = ParsedArgs<T>

/** One command line: a script's own, or one of a program's commands. */
export interface CommandLine<T extends Flags = Flags> {
  name: string
  description: string
  args: T
  /** not shown in the usage */
  hidden?: boolean
}

/** with it a person allows a release with no way back from what it does to the data */
export const IRREVERSIBLE_FLAG = 'allow-irreversible'

export const ADVANCED = { advanced: true } as const

/** A flag that is there or not. */
export function flag<const More extends object>(description: string, more: More = {} as More) {
  return { type: 'boolean', default: false, description, ...more } as const
}

/** A flag that a value follows, which help calls `valueHint`. */
export function option<const More extends object>(valueHint: string, description: string, more: More = {} as More) {
  return { type: 'string', valueHint, description, ...more } as const
}

export function duration<const More extends object>(description: string, more: More = {} as More) {
  return option('30s|5m|2h|1d', description, more)
}

/** A word that may be left out. */
export function word(description: string) {
  return { type: 'positional', required: false, description } as const
}

/** for every command that prints its progress */
export const OUTPUT_FLAGS = {
  json: flag('one JSON object per line on stdout'),
  quiet: flag('print errors only', { alias: 'q', advanced: true }),
} as const satisfies Flags

/** for every deploy script */
export const SCRIPT_FLAGS = {
  ...OUTPUT_FLAGS,
  'dry-run': flag('print the plan and change nothing', { alias: 'n' }),
} as const satisfies Flags

export const YES = {
  yes: flag('do not ask for confirmation', { alias: 'y' }),
} as const satisfies Flags

export const IRREVERSIBLE = {
  [IRREVERSIBLE_FLAG]: flag('allow an update that cannot be rolled back'),
} as const satisfies Flags

/** for commands that move a service to another release */
export const WAITING_FLAGS = {
  'health-url': option('url', 'additional URL that must return 2xx, checked from the start of probation', ADVANCED),
  'health-timeout': duration('how long the new version may take to answer', { default: '60s', advanced: true }),
  'lock-timeout': duration('how long to wait for another operation to end; 0: do not wait', {
    default: '0',
    advanced: true,
  }),
} as const satisfies Flags

/** for `baton build` and `npm run build` */
export const DELTA_FLAGS = {
  'delta-from': option(
    'dir|feed',
    'where to find earlier releases; hosts that run one of them download only what has changed',
  ),
  deltas: option('number', 'how many earlier releases to make deltas from', { default: '5', advanced: true }),
} as const satisfies Flags

/** the release that a deployment is for: a word of its own, or a flag for scripts */
export const RELEASE_FLAGS = {
  tag: word('the release: latest, or a tag such as v1.1.0'),
  release: option('tag|latest', 'the same as TAG, for scripts', ADVANCED),
} as const satisfies Flags

/** The release that is named, in either form. Throws BatonError invalid_request if both are there. */
export function releaseIn({ tag, release }: { tag?: string | undefined; release?: string | undefined }): string | null {
  if (tag !== undefined && release !== undefined)
    throw usage(`expected one release, got ${JSON.stringify(tag)} and --release`)
  return tag ?? release ?? null
}

/** Whether help is asked for; arguments after `--` are for another program. */
export function asksForHelp(argv: readonly string[]): boolean {
  const own = argv.includes('--') ? argv.slice(0, argv.indexOf('--')) : argv
  return own.includes('--help') || own.includes('-h')
}

/** The values of a command's flags in `argv`. Throws BatonError invalid_request if a flag is unknown or a value is missing. */
export function parseFlags<T extends Flags>(
  argv: readonly string[],
  { args }: Pick<CommandLine<T>, 'args'>,
): Values<T> {
  refuseUnknown(argv, args)
  try {
    const values = parseArgs<T>([...argv], args)
    for (const [name, { type }] of Object.entries(args)) {
      if (type === 'string' && values[name] === '') throw usage(`expected a value for \`--${name}\``)
    }
    return values
  } catch (cause) {
    if (cause instanceof BatonError) throw cause
    // citty's class of errors is not exported, and its texts are coloured
    const text = plain(cause instanceof Error ? cause.message : String(cause))
    throw usage(text.replace(/^Missing required (?:positional )?argument: (.*)$/, 'expected `$1`'))
  }
}

interface Usage {
  /** the program that the command belongs to */
  parent?: Pick<CommandLine, 'name' | 'description'>
  /** of the command itself */
  commands?: readonly CommandLine[]
  /** advanced flags too */
  all?: boolean
}

/** The text of `--help`. */
export async function usageOf(
  command: CommandLine,
  { parent, commands = [], all = false }: Usage = {},
): Promise<string> {
  const define = ({ name, description, args, hidden = false }: CommandLine) =>
    defineCommand({ meta: { name, description, hidden }, args: shownOf(args, all) })
  const words = Object.fromEntries(commands.map((word) => [word.name, define(word)]))
  const own = { ...define(command), ...(commands.length === 0 ? {} : { subCommands: words }) }
  const text = await renderUsage(own, parent === undefined ? undefined : define({ ...parent, args: {} }))
  const hidden = Object.keys(command.args).length - Object.keys(shownOf(command.args, all)).length
  const more = hidden === 0 ? [] : [`\`--help --all\` shows ${hidden} more flag${hidden === 1 ? '' : 's'}`]
  // citty colours whatever it writes to
  const coloured = process.stdout.isTTY && !process.env['NO_COLOR']
  const end = [...more, '`help exit-codes` explains the exit codes, `help CODE` the code of an error'].join('; ')
  return `${(coloured ? text : plain(text)).trimEnd()}\n\n${end}\n`
}

/** The flags as they are shown. One that is only ever taken back (`--no-service`) has no description, and is shown by that name. */
export function shownOf(args: Flags, all: boolean): Flags {
  const rows = Object.entries(args).filter(([, { advanced }]) => all || advanced !== true)
  return Object.fromEntries(
    rows.map(([name, flag]) => {
      if ('negativeDescription' in flag && flag.description === undefined)
        return [`no-${name}`, { type: 'boolean', description: flag.negativeDescription ?? '' }]
      const { default: normal, ...rest } = flag
      return [name, normal === false ? rest : flag]
    }),
  )
}

/** Milliseconds from `30s`, `5m`, `2h`, also `300ms` and `7d`, or 0. Throws BatonError invalid_request if more than `most` or less than `least`. */
export function durationOf(flag: string, value: unknown, { least = 0, most = DAY_MS } = {}): number {
  const text = typeof value === 'string' ? value : ''
  const ms = msOf(text)
  if (ms >= least && ms <= most) return ms
  throw usage(`expected ${durationForm(least, most)} for ${flag}, got ${JSON.stringify(text.slice(0, 40))}`)
}

/** A release that must be named. Throws BatonError invalid_request, invalid_tag. */
export function tagOf(value: unknown): string {
  if (isTag(value)) return value
  if (value === undefined) throw usage('expected a release tag, such as v1.0.0')
  throw new BatonError(
    'invalid_tag',
    `expected a tag of the form vX.Y.Z, got ${JSON.stringify(String(value).slice(0, 40))}`,
  )
}

export function usage(message: string, hint = 'see --help'): BatonError {
  return new BatonError('invalid_request', message, { hint })
}

/** A first word that is none of `commands`. */
export function unknownCommand(word: string, commands: readonly string[]): BatonError {
  return usage(`unknown command \`${word.slice(0, 40)}\``, suggestion(word, commands))
}

/** citty accepts and ignores unknown flags; here they are an error. */
function refuseUnknown(argv: readonly string[], args: Flags): void {
  const types = new Map<string, string | undefined>()
  let positionals = 0
  for (const [name, definition] of Object.entries(args)) {
    const { type } = definition
    if (type === 'positional') positionals++
    else {
      types.set(`--${name}`, type)
      const alias = 'alias' in definition ? definition.alias : undefined
      for (const one of alias === undefined ? [] : [alias].flat()) types.set(`-${one}`, type)
      // only a flag with a `negativeDescription` can be negated
      if ('negativeDescription' in definition) types.set(`--no-${name}`, 'boolean')
    }
  }
  for (let i = 0; i < argv.length; i++) {
    const argument = argv[i] ?? ''
    const [name = ''] = argument.split('=', 1)
    if (!argument.startsWith('-')) {
      if (positionals-- <= 0) throw usage(`unexpected argument ${JSON.stringify(argument.slice(0, 40))}`)
      continue
    }
    const type = types.get(name)
    if (type === undefined) throw unknownFlag(argument, argv[i + 1], args, [...types.keys()])
    if (type === 'boolean' && argument.includes('=')) throw usage(`expected no value for \`${name}\``)
    if (type !== 'boolean' && !argument.includes('=') && ++i >= argv.length)
      throw usage(`expected a value for \`${name}\``)
  }
}

/** A release is a word of its own, and who has typed it as a flag is told so. */
function unknownFlag(argument: string, next: string | undefined, args: Flags, known: readonly string[]): BatonError {
  const [name = '', value = next] = argument.split('=', 2)
  const now = Object.keys(args).find((flag) => name.replace(/^--(no-)?/, '') === args[flag]?.former)
  if (now !== undefined)
    return usage(`unknown flag \`${name}\``, `it is now \`${name.startsWith('--no-') ? '--no-' : '--'}${now}\``)
  const asFlag = args['tag']?.type === 'positional' ? ['--release', '--tag'] : []
  const shown = Object.entries(shownOf(args, false)).flatMap(([flag, { type, description }]) =>
    type === 'positional' || description === undefined ? [] : [flag],
  )
  const listed = shown.map((flag) => `--${flag}`)
  const hint = suggestion(name, [...known, ...asFlag, '--help'], listed)
  const tag = isTag(value) || value === 'latest' ? value : 'v1.1.0'
  const isRelease = asFlag.some((flag) => !known.includes(flag) && hint.includes(`\`${flag}\``))
  return usage(
    `unknown flag \`${name.slice(0, 40)}\``,
    isRelease ? `pass the release without a flag: \`${tag}\`` : hint,
  )
}

function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- citty colours its messages
  return text.replaceAll(/\u001B\[[0-9;]*m/g, '')
}

const [FAULTS_MAX, TYPED_MAX] = [2, 40]

/** Which of `known` was meant by a word that is none of them; null: that is not plain. */
export function nearestOf(word: string, known: readonly string[], faultsMax: number): string | null {
  const near = word.length > TYPED_MAX ? [] : known.map((one) => ({ one, faults: faultsBetween(word, one) }))
  const [best] = near.toSorted((a, b) => a.faults - b.faults)
  const isPlain = best !== undefined && best.faults <= faultsMax && best.faults < best.one.replace(/^-+/, '').length / 2
  return isPlain ? best.one : null
}

/** what other tools call a command */
const SYNONYMS: Readonly<Record<string, string>> = { update: 'upgrade', downgrade: 'rollback', remove: 'uninstall' }

/** The hint for a word that is none of `known`: the one that was meant, if that is plain, else those that are `listed`. */
function suggestion(word: string, known: readonly string[], listed = known): string {
  const meant = known.find((one) => one === SYNONYMS[word]) ?? nearestOf(word, known, FAULTS_MAX)
  if (meant !== null) return `did you mean \`${meant}\`? see --help`
  if (listed.length < 2) return listed.length === 0 ? 'see --help' : `only ${listed[0]} is accepted here; see --help`
  return `choose from ${listed.join(', ')}; see --help`
}

/** How many letters of one word are missing, too many, wrong or exchanged with their neighbour, to make the other of it. */
function faultsBetween(one: string, other: string): number {
  const rows = Array.from({ length: one.length + 1 }, (_, i) =>
    Array.from({ length: other.length + 1 }, (__, j) => i || j),
  )
  const at = (i: number, j: number) => rows[i]?.[j] ?? Infinity
  for (let i = 1; i <= one.length; i++) {
    for (let j = 1; j <= other.length; j++) {
      const isSame = one[i - 1] === other[j - 1]
      const isExchanged = one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]
      const ways = [at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (isSame ? 0 : 1)]
      rows[i]![j] = Math.min(...ways, isExchanged ? at(i - 2, j - 2) + 1 : Infinity)
    }
  }
  return at(one.length, other.length)
}
