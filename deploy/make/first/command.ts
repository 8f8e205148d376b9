// Which arguments of a release are the operator's, and what they mean where an operator has put a flag before the word. Pure.
// Must hold: a word is the kit's only if it stands where it belongs; whatever else is typed reaches the application, unless it is
// plainly meant for the kit.

import type { OwnWords } from './release.ts'

/**
 * The operator's words. The kit takes one if it is exactly the first argument; if the release has `commands: 'baton'`, only behind
 * `baton`. After a `--`, every argument is the application's.
 */
export const OPERATOR_WORDS: readonly string[] = [
  'install',
  'upgrade',
  'rollback',
  'status',
  'uninstall',
  'doctor',
  'start',
  'stop',
  'rescue',
  'healthcheck',
  'snapshot',
  'deploy',
  'cancel',
  'check',
  'releases',
  'logs',
  'restart',
  'help',
  'state',
  'as-service', // what root starts as the service's user
]

/** Whoever types one of these alone looks for commands, and must not start a service. */
const ASKS = ['--help', '-h', '-v']

/** The operator's command in these arguments; null: they are the application's. Pure. */
export function commandIn(
  argv: readonly string[],
  { commands = null }: { commands?: OwnWords['commands'] },
  isSaid: boolean,
): string[] | null {
  const [first = '', ...rest] = argv
  if (commands === 'baton' && first === 'baton') return rest
  const isOurs = commands !== 'baton' || isSaid || isInternal(argv)
  const isAsked = ASKS.includes(first) && (argv.length === 1 || argv[1] === '--all')
  return isOurs && (isAsked || OPERATOR_WORDS.includes(first)) ? [...argv] : null
}

/**
 * What units, supervisors, root's end and images call an executable with. They are older or newer than the release that they call,
 * and cannot change with it. So these exact arguments are the kit's in every release: no application means them.
 */
function isInternal(argv: readonly string[]): boolean {
  const said = argv.join('\0')
  return INTERNAL.has(said) || (process.env['BATON_CONTAINER'] === '1' && INTERNAL_IN_IMAGES.has(said))
}

const INTERNAL = new Set([
  'rescue',
  'rescue\0--given-up',
  'start\0--supervise',
  'as-service',
  'as-service\0in-unit',
  'as-service\0in-cage',
])
const INTERNAL_IN_IMAGES = new Set(['healthcheck', 'snapshot\0--for-update'])

/** Flags of the operator's words; `true`: a value follows. */
export const OPERATOR_FLAGS: Readonly<Record<string, boolean>> = {
  ...flags(
    false,
    'system user json quiet verbose dry-run yes allow-irreversible unpause trial restore-state now accept-unit service start',
  ),
  ...flags(false, 'no-service no-start purge supervise given-up follow all'),
  ...flags(
    true,
    'prefix pause-until state-dir feed listen run-as confirm lines try health-url health-timeout lock-timeout',
  ),
  '-q': false,
  '-v': false,
  '-n': false,
  '-f': false,
  '-y': false,
}

/**
 * The arguments as they were meant, if an operator's word stands behind flags of such words and nothing else: `--user status` is
 * `status --user`. Null: they are the application's.
 */
export function misplacedIn(
  argv: readonly string[],
  release: { commands?: OwnWords['commands'] },
  isSaid: boolean,
): string[] | null {
  let at = 0
  while (at < argv.length) {
    const [name = '', value] = (argv[at] ?? '').split('=', 2)
    const takesValue = Object.hasOwn(OPERATOR_FLAGS, name) ? OPERATOR_FLAGS[name] : undefined
    if (takesValue === undefined) break
    at += takesValue && value === undefined ? 2 : 1
  }
  const said = argv.slice(at)
  const isBehind = release.commands === 'baton' && said[0] === 'baton'
  const isOurs = isBehind || ((release.commands !== 'baton' || isSaid) && OPERATOR_WORDS.includes(said[0] ?? ''))
  if (at === 0 || !isOurs) return null
  const words = isBehind ? 2 : 1
  return [...said.slice(0, words), ...argv.slice(0, at), ...said.slice(words)]
}

function flags(takesValue: boolean, names: string): Record<string, boolean> {
  return Object.fromEntries(names.split(' ').map((name) => [`--${name}`, takesValue]))
}
