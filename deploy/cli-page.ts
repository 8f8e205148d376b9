// The page of the commands, docs/reference/cli.md: what may be typed at each of the programs, drawn from the tables that they are
// parsed by. Pure.

import { EXITS } from '../agent/words.ts'
import { COMMAND as BUILD } from './build.ts'
import { COMMAND as CONTAINER } from './container/command.ts'
import { COMMAND as FLEET } from './deploy-fleet.ts'
import { COMMAND as NPM } from './deploy-npm.ts'
import { COMMAND as SOURCE } from './deploy-source.ts'
import { COMMAND as HOST } from './deploy-systemd.ts'
import { COMMANDS } from './host/tree.ts'
import { COMMAND as IMAGE } from './image.ts'
import {
  type CommandLine,
  type Flags,
  option,
  OUTPUT_FLAGS,
  SCRIPT_FLAGS,
  shownOf,
  WAITING_FLAGS,
  YES,
} from './lib/flags.ts'
import { GROUNDS, HOST_WORDS, OWN_WORDS, SCRIPT_WORDS } from './make/author-words.ts'
import { RELEASES_FOLDER } from './make/project.ts'
import { trustWords } from './trust/main.ts'

interface ListedProgram {
  name: string
  /** null: for a clone of Baton, and not on the page */
  about: string | null
  commands: readonly CommandLine[]
}

const named = (name: string, { args }: CommandLine, description: string): CommandLine => ({ name, args, description })

/** from a clone, as here, the default is the clone's */
const IN_APPLICATION = {
  ...IMAGE,
  args: { ...IMAGE.args, out: { ...IMAGE.args.out, default: RELEASES_FOLDER } },
} as const satisfies CommandLine

/** an executable reads these itself (operator.ts) */
const SNAPSHOT = {
  name: 'snapshot',
  description: 'copy the database to a file while the service uses it',
  args: {
    file: { type: 'positional', description: 'the copy; `-` for stdout' },
    try: option('new', 'then try this executable on the copy, and the current release on the result'),
  },
} as const satisfies CommandLine

export const PROGRAMS: readonly ListedProgram[] = [
  {
    name: '<service>',
    about: 'On a host with an install. `install.sh` has the same commands, except `snapshot`.',
    commands: [...COMMANDS, SNAPSHOT],
  },
  {
    name: 'baton',
    about: 'Run these in the application’s folder, or name it with `--dir`.',
    commands: [
      ...Object.values(OWN_WORDS),
      named('image', IN_APPLICATION, SCRIPT_WORDS.image),
      ...Object.entries(HOST_WORDS).map(([name, description]) => ({ name, description, args: {} })),
    ],
  },
  {
    name: 'baton deploy',
    about:
      'In a clone: `deploy/deploy-systemd.sh`, `deploy-source.sh`, `deploy-npm.sh`, `deploy-container.sh` and `deploy-fleet.sh`.',
    commands: [
      named('host', HOST, GROUNDS.host.description),
      named('source', SOURCE, GROUNDS.source.description),
      named('npm', NPM, GROUNDS.npm.description),
      named('container', CONTAINER, GROUNDS.container.description),
      named('fleet', FLEET, GROUNDS.fleet.description),
    ],
  },
  { name: 'baton trust', about: 'In a clone: `npm run trust --`.', commands: trustWords(RELEASES_FOLDER) },
  {
    name: 'npm run',
    about: null,
    commands: [named('build', BUILD, BUILD.description)],
  },
]

const PLACE = ['system', 'user', 'prefix', 'verbose']
/** listed once */
const SHARED = { ...SCRIPT_FLAGS, ...OUTPUT_FLAGS, ...YES, ...WAITING_FLAGS }

const INTRODUCTION = `# Commands

\`npm run pages\` writes this page. \`help COMMAND\` shows the most used flags, \`--help --all\` all of them.

\`TAG\` is a release, such as \`v1.1.0\`. A duration needs a unit: \`300ms\`, \`30s\`, \`5m\`, \`2h\`, \`7d\`; 0 needs none. A flag's
value follows a space or \`=\`. Defaults are in parentheses.

| exit | means |
|---|---|
`

export function cliPage(): string {
  const exits = Object.entries(EXITS).map(([code, means]) => `| ${code} | ${means} |`)
  const place = PROGRAMS.flatMap(({ commands }) => commands).find(({ args }) =>
    PLACE.every((name) => name in args),
  )?.args
  const kept = Object.fromEntries(PLACE.flatMap((name) => (place?.[name] === undefined ? [] : [[name, place[name]]])))
  const told = new Map<string, string>()
  const parts = PROGRAMS.filter(({ about }) => about !== null).map(({ name, about, commands }) => {
    const shown = commands.filter(({ hidden }) => hidden !== true)
    const often = oftenIn(shown)
    const most =
      Object.keys(often).length === 0 ? '' : `\n\nSeveral of these commands take:\n\n${listOf(often).trimEnd()}`
    return `## \`${name}\`\n\n${about}${most}\n\n${shown.map((one) => partOf(name, one, often, told)).join('\n')}`
  })
  const shared = `## Everywhere\n\nMost commands take some of these flags.\n\n${listOf({ ...SHARED, ...kept })}`
  return `${INTRODUCTION}${exits.join('\n')}\n\n${parts.join('\n')}\n${shared}`
}

/** What at least this many commands of a program take is listed once. */
const OFTEN = 3

function oftenIn(commands: readonly CommandLine[]): Flags {
  const all = commands.flatMap(({ args }) => Object.entries(args)).filter(([flag, it]) => isOwn(flag, it))
  const count = ([flag, it]: (typeof all)[number]) =>
    all.filter(([name, other]) => name === flag && other.description === it.description).length
  return Object.fromEntries(all.filter((one) => count(one) >= OFTEN))
}

function partOf(
  program: string,
  { name, description, args }: CommandLine,
  often: Flags,
  told: Map<string, string>,
): string {
  const words = Object.entries(args).filter(([, { type }]) => type === 'positional')
  const typed = [
    program,
    name,
    ...words.map(([word, { required }]) => (required === false ? `[${word.toUpperCase()}]` : word.toUpperCase())),
  ].join(' ')
  const own = Object.entries(args).filter(
    ([flag, it]) => isOwn(flag, it) && (often[flag] === undefined || often[flag].description !== it.description),
  )
  const about = words.map(([word, it]) => wordOf(word, it.description ?? '')).join('')
  return `**\`${typed}\`**: ${description}.${about}\n${own.length === 0 ? '' : `\n${listOf(Object.fromEntries(own), `${program} ${name}`, told)}`}`
}

function isOwn(flag: string, { type, description }: Flags[string]): boolean {
  const shared = Object.hasOwn(SHARED, flag) ? SHARED[flag as keyof typeof SHARED].description : null
  return type !== 'positional' && shared !== description && !PLACE.includes(flag)
}

/** A release needs no words but what is taken without one: the introduction explains it. */
function wordOf(word: string, description: string): string {
  if (word !== 'tag') return ` \`${word.toUpperCase()}\`: ${description}.`
  const [, normal] = /\(([^)]+)\)$/.exec(description) ?? []
  return normal === undefined ? '' : ` Without \`TAG\`: ${normal}.`
}

/** A line for each flag. Of one that `told` has already, only where: at which command. */
function listOf(flags: Flags, command = '', told = new Map<string, string>()): string {
  const again = new Map<string, string[]>()
  const lines = Object.entries(shownOf(flags, true)).flatMap(([name, flag]) => {
    const hint = flag.valueHint === undefined ? '' : ` ${flag.valueHint}`
    const alias = 'alias' in flag && flag.alias !== undefined ? `-${String(flag.alias)}, ` : ''
    const normal = typeof flag.default === 'string' ? ` (\`${flag.default}\`)` : ''
    const line = `- \`${alias}--${name}${hint}\`: ${flag.description ?? ''}${normal}`
    const where = told.get(line)
    if (where !== undefined) again.set(where, [...(again.get(where) ?? []), `\`--${name}\``])
    else told.set(line, command)
    return where === undefined ? [line] : []
  })
  const others = Array.from(again, ([where, names]) => `- ${names.join(', ')}: as for \`${where}\``)
  return `${[...lines, ...others].join('\n')}\n`
}
