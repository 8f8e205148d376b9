// Answers whoever asks a command for help: `--help`, `-h`, `help`, `help VERB`, `help exit-codes`, `help CODE`, `--version`; and finds the command
// that was typed. Must hold: asking ends with 0; a command that is not there, and no command at all, end with 2.

import { type ErrorCode, EXIT, EXITS, MEANINGS } from '../../agent/words.ts'
import { asksForHelp, type CommandLine, unknownCommand, usageOf } from './flags.ts'
import { REMEDIES, plainFix } from './remedies.ts'

export interface Commands<Word extends CommandLine = CommandLine> {
  name: string
  description: string
  commands: readonly Word[]
  /** answers `--version` and `-v`, each alone; absent: it has none of its own */
  version?: () => Promise<string>
}

/** A text for whoever asked, or the command that was typed, with what follows it. */
export type Typed<Word> = { text: string; exit: number } | { word: Word; rest: string[] }

const EXIT_CODES = 'exit-codes'

/** Throws BatonError invalid_request if there is no such command. */
export async function commandOf<Word extends CommandLine>(
  argv: readonly string[],
  program: Commands<Word>,
): Promise<Typed<Word>> {
  const { name, description, commands, version } = program
  const [first = '', ...rest] = argv
  const all = argv.includes('--all')
  const isHelp = first === 'help' || first === '--help' || first === '-h'
  const named = isHelp ? rest.find((word) => !word.startsWith('-')) : first
  if (version !== undefined && argv.length === 1 && ['--version', '-v'].includes(first))
    return { text: `${await version()}\n`, exit: EXIT.done }
  if (named === undefined || named === '')
    return { text: await usageOf({ name, description, args: {} }, { commands }), exit: isHelp ? EXIT.done : EXIT.usage }
  const topic = isHelp ? topicOf(named) : null
  if (topic !== null) return { text: topic, exit: EXIT.done }
  const word = commands.find((one) => one.name === named)
  if (word === undefined) {
    const known = commands.filter(({ hidden }) => hidden !== true).map((one) => one.name)
    throw unknownCommand(named, [...known, 'help'])
  }
  if (isHelp || asksForHelp(rest)) return { text: await usageOf(word, { parent: program, all }), exit: EXIT.done }
  return { word, rest }
}

/** The help that is asked for of a program that is one command; null: none is. */
export async function helpFor(argv: readonly string[], command: CommandLine): Promise<string | null> {
  const [first, topic] = argv
  const told = first === 'help' && topic !== undefined ? topicOf(topic) : null
  if (told !== null) return told
  return first === 'help' || asksForHelp(argv) ? await usageOf(command, { all: argv.includes('--all') }) : null
}

/** Writes a help to stdout; to stderr if nobody has asked for it. */
export function printHelp(text: string, exit: number = EXIT.done): number {
  const to = exit === EXIT.done ? process.stdout : process.stderr
  to.write(text)
  return exit
}

/** Of what is no command: the exit codes, or the code of an error, as the log, the panel and `--json` have it. Null: it is neither. */
function topicOf(word: string): string | null {
  if (word === EXIT_CODES) return exitCodes()
  if (!Object.hasOwn(REMEDIES, word)) return null
  const code = word as ErrorCode
  const { cause, fix } = REMEDIES[code]
  return `${code} (HTTP ${MEANINGS[code].status}, exit code ${MEANINGS[code].exit})\n\n${cause}\n${plainFix(fix)}\n`
}

function exitCodes(): string {
  const rows = Object.entries(EXITS).map(([code, meaning]) => `  ${code}  ${meaning}\n`)
  return `Exit codes:\n\n${rows.join('')}`
}
