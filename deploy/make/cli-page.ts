// Draws the tables of the command lines as a page for people. Pure.

import { EXITS } from '../../agent/words.ts'
import { type CommandLine, type Flags, OUTPUT_FLAGS, SCRIPT_FLAGS, shownOf, WAITING_FLAGS, YES } from '../lib/flags.ts'

export interface ListedProgram {
  name: string
  about: string
  commands: readonly CommandLine[]
}

const PLACE = ['system', 'user', 'prefix', 'verbose']
/** listed once */
const SHARED = { ...SCRIPT_FLAGS, ...OUTPUT_FLAGS, ...YES, ...WAITING_FLAGS }

const INTRODUCTION = `# Commands

Made from the tables that the commands are parsed by: \`npm run pages\` writes this page. \`help COMMAND\` shows what is set most,
\`--help --all\` all of it.

A release is a word of its own: \`upgrade v1.1.0\`. A duration has its unit: \`300ms\`, \`30s\`, \`5m\`, \`2h\`, \`7d\`; 0 needs none. A flag's
value follows it, or a \`=\`.

| exit | means |
|---|---|
`

/** Content of docs/reference/cli.md. */
export function cliPage(programs: readonly ListedProgram[]): string {
  const exits = Object.entries(EXITS).map(([code, means]) => `| ${code} | ${means} |`)
  const place = programs
    .flatMap(({ commands }) => commands)
    .find(({ args }) => PLACE.every((name) => name in args))?.args
  const kept = Object.fromEntries(PLACE.flatMap((name) => (place?.[name] === undefined ? [] : [[name, place[name]]])))
  const parts = programs.map(({ name, about, commands }) => {
    const shown = commands.filter(({ hidden }) => hidden !== true)
    const often = oftenIn(shown)
    const most = Object.keys(often).length === 0 ? '' : `\n\nMost of these take:\n\n${tableOf(often).trimEnd()}`
    return `## \`${name}\`\n\n${about}${most}\n\n${shown.map((one) => partOf(name, one, often)).join('\n')}`
  })
  const shared = `## Everywhere\n\nMost commands take some of these too.\n\n${tableOf({ ...SHARED, ...kept })}`
  return `${INTRODUCTION}${exits.join('\n')}\n\n${parts.join('\n')}\n${shared}`
}

/** What at least this many commands of a program take is listed once. */
const OFTEN = 4

function oftenIn(commands: readonly CommandLine[]): Flags {
  const all = commands.flatMap(({ args }) => Object.entries(args)).filter(([flag, it]) => isOwn(flag, it))
  const count = ([flag, it]: (typeof all)[number]) =>
    all.filter(([name, other]) => name === flag && other.description === it.description).length
  return Object.fromEntries(all.filter((one) => count(one) >= OFTEN))
}

function partOf(program: string, { name, description, args }: CommandLine, often: Flags): string {
  const words = Object.entries(args).filter(([, { type }]) => type === 'positional')
  const typed = [
    program,
    name,
    ...words.map(([word, { required }]) => (required === false ? `[${word.toUpperCase()}]` : word.toUpperCase())),
  ].join(' ')
  const own = Object.entries(args).filter(
    ([flag, it]) => isOwn(flag, it) && (often[flag] === undefined || often[flag].description !== it.description),
  )
  const about = words.map(([word, it]) => ` \`${word.toUpperCase()}\`: ${it.description ?? ''}.`).join('')
  return `**\`${typed}\`**: ${description}.${about}\n${own.length === 0 ? '' : `\n${tableOf(Object.fromEntries(own))}`}`
}

function isOwn(flag: string, { type, description }: Flags[string]): boolean {
  const shared = Object.hasOwn(SHARED, flag) ? SHARED[flag as keyof typeof SHARED].description : null
  return type !== 'positional' && shared !== description && !PLACE.includes(flag)
}

function tableOf(flags: Flags): string {
  const rows = Object.entries(shownOf(flags, true)).map(([name, flag]) => {
    const hint = flag.valueHint === undefined ? '' : ` ${flag.valueHint}`
    const alias = 'alias' in flag && flag.alias !== undefined ? `-${String(flag.alias)}, ` : ''
    const normal = typeof flag.default === 'string' ? `\`${flag.default}\`` : ''
    return `| \`${cell(`${alias}--${name}${hint}`)}\` | ${normal} | ${cell(flag.description ?? '')} |`
  })
  return `| flag | default | |\n|---|---|---|\n${rows.join('\n')}\n`
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|')
}
