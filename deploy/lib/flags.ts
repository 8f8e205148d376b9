// Parses the arguments of the commands in deploy/, and prints their usage. The one importer of citty. `serve`, `healthcheck` and
// `backup` of the reference service read their own.
// Must hold: an argument that a command line does not know is a usage error (exit code 2); nothing is guessed.

import { BatonError, EXITS } from '../../agent/words.ts'
import { type ArgsDef, defineCommand, type ParsedArgs, parseArgs, renderUsage } from 'citty'

export type Flags = ArgsDef
export type Values<T extends Flags> = ParsedArgs<T>

/** One command line: a script's own, or one of a program's commands. */
export interface CommandLine<T extends Flags = Flags> {
  name: string
  description: string
  args: T
  /** not shown in the usage */
  hidden?: boolean
}

const SECONDS_MAX = 86_400

/** for every command that prints its progress */
export const OUTPUT_FLAGS = {
  json: { type: 'boolean', default: false, description: 'one JSON object a line on stdout' },
  quiet: { type: 'boolean', alias: 'q', default: false, description: 'say nothing but errors' },
} as const satisfies Flags

/** for every deploy script */
export const SCRIPT_FLAGS = {
  ...OUTPUT_FLAGS,
  'dry-run': { type: 'boolean', alias: 'n', default: false, description: 'print the plan and change nothing' },
} as const satisfies Flags

/** for commands that move a service to another release */
export const WAITING_FLAGS = {
  'health-url': { type: 'string', valueHint: 'url', description: 'must answer 2xx too, asked from probation on' },
  'health-timeout': {
    type: 'string',
    valueHint: 'seconds',
    default: '60',
    description: 'how long the new version may take to answer',
  },
  'lock-timeout': {
    type: 'string',
    valueHint: 'seconds',
    default: '0',
    description: 'how long to wait for an operation in flight',
  },
} as const satisfies Flags

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
    throw usage(plain(cause instanceof Error ? cause.message : String(cause)))
  }
}

/** The text of `--help`. `parent`: the program that `command` belongs to; `commands`: the commands of `command` itself. */
export async function usageOf(
  command: CommandLine,
  parent?: CommandLine,
  commands: readonly CommandLine[] = [],
): Promise<string> {
  const define = ({ name, description, args, hidden = false }: CommandLine) =>
    defineCommand({ meta: { name, description, hidden }, args })
  const words = Object.fromEntries(commands.map((word) => [word.name, define(word)]))
  const own = { ...define(command), ...(commands.length === 0 ? {} : { subCommands: words }) }
  const text = await renderUsage(own, parent === undefined ? undefined : define(parent))
  const exits = Object.entries(EXITS).map(([code, meaning]) => `${code} ${meaning}`)
  // citty colours whatever it writes to
  const coloured = process.stdout.isTTY && !process.env['NO_COLOR']
  return `${coloured ? text : plain(text)}\nexit: ${exits.join(' · ')}\n`
}

/** Milliseconds from seconds: 0 to 86,400 with at most three decimals. Throws BatonError invalid_request. */
export function secondsOf(flag: string, text: string): number {
  const seconds = Number(text)
  if (/^\d{1,5}(\.\d{1,3})?$/.test(text) && seconds <= SECONDS_MAX) return Math.round(seconds * 1000)
  throw usage(`expected 0 to ${SECONDS_MAX} seconds in ${flag}, got ${JSON.stringify(text.slice(0, 40))}`)
}

/** The message for a missing or malformed `--tag`. */
export function tagFault(tag: unknown): string {
  return `expected a tag of the form vX.Y.Z in --tag, ${tag === undefined ? 'which is not there' : `got ${JSON.stringify(tag)}`}`
}

export function usage(message: string, hint = 'see --help'): BatonError {
  return new BatonError('invalid_request', message, { hint })
}

/** A first word that is none of `commands`. */
export function unknownCommand(word: string, commands: readonly string[]): BatonError {
  return usage(`there is no command ${JSON.stringify(word.slice(0, 40))} here`, suggestion(word, commands))
}

/** The hint for a word that is none of `known`: the one that was meant, if that is plain, else all. */
function suggestion(word: string, known: readonly string[]): string {
  const near = word.length > TYPED_MAX ? [] : known.map((one) => ({ one, faults: faultsBetween(word, one) }))
  const [best] = near.toSorted((a, b) => a.faults - b.faults)
  if (best !== undefined && best.faults <= FAULTS_MAX && best.faults < best.one.replace(/^-+/, '').length / 2)
    return `did you mean \`${best.one}\`? see --help`
  return `there are ${known.filter((one) => !/^-[^-]/.test(one)).join(', ')}; see --help`
}

const [FAULTS_MAX, TYPED_MAX] = [2, 40]

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
      if (positionals-- <= 0) throw usage(`expected a flag, got ${JSON.stringify(argument.slice(0, 40))}`)
      continue
    }
    const type = types.get(name)
    if (type === undefined)
      throw usage(`there is no flag ${JSON.stringify(name.slice(0, 40))} here`, suggestion(name, [...types.keys()]))
    if (type === 'boolean' && argument.includes('=')) throw usage(`expected no value for \`${name}\``)
    if (type !== 'boolean' && !argument.includes('=') && ++i >= argv.length)
      throw usage(`expected a value for \`${name}\``)
  }
}

function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- citty colours its messages
  return text.replaceAll(/\u001B\[[0-9;]*m/g, '')
}
