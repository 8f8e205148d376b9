// What a command is going to do, as data. `--dry-run` prints it and `apply.ts` carries it out. No other code changes a host, so the
// two cannot differ. Pure. No step holds a secret.

import type { Receipt } from '../../../agent/install.ts'
import { compareTags, isTag } from '../../../agent/words.ts'
import { formatCommand } from '../../lib/shell.ts'
import { formatListen } from '../place/choices.ts'

export type Step =
  | { do: 'create-user'; user: string; service: string; home: string }
  /** `owner` null: the user of the command */
  | { do: 'make-directory'; path: string; mode: number; owner: string | null; group: string | null }
  | { do: 'lock'; path: string }
  /** adds a random `dashboard.password`, made while the step is carried out */
  | { do: 'write-config'; path: string; owner: string | null; config: FirstConfiguration }
  /** in the service's directory, as the service's user */
  | { do: 'place-executable'; path: string; stateDirectory: string; tag: string; sha256: string }
  /** root's own copy, which the command runs */
  | { do: 'place-program'; from: string; path: string; tag: string; sha256: string }
  | { do: 'write-receipt'; path: string; receipt: Receipt }
  /** `gives`: a right that the file gives to the service */
  | { do: 'write-file'; path: string; content: string; does?: string }
  /** what the author asks of the unit, and this plan's unit gives: `to write /srv/media` */
  | { do: 'allow'; asks: string }
  | { do: 'link'; path: string; target: string }
  /** `of` service: removed as the service's user; root: as the user of the command, in a folder that only root or that user writes */
  | { do: 'remove'; path: string; of: 'service' | 'root' }
  /** only if it is empty */
  | { do: 'remove-directory'; path: string; of: 'service' | 'root' }
  /** everything in it; only after the operator has typed the service's name */
  | { do: 'purge'; path: string; of: 'service' | 'root' }
  | { do: 'remove-user'; user: string }
  | { do: 'run'; command: string[]; cwd?: string }
  | { do: 'start'; service: string }
  | { do: 'stop'; service: string }
  | { do: 'restart'; service: string }
  | { do: 'update'; service: string; to: string | null; from?: string }
  | { do: 'rollback'; service: string; to: string | null; from?: string }
  | { do: 'wait-healthy'; service: string; tag: string }

/** What a first install writes, except the password. */
export interface FirstConfiguration {
  listen: { host: string; port: number }
  stateDirectory: string
  /** the author's wish; absent: none */
  basePath?: string
}

type Told = { readonly [Do in Step['do']]: (step: Extract<Step, { do: Do }>) => string }

/** Each step as a person reads it, in one line. */
const TOLD: Told = {
  'create-user': ({ user }) => `create the system user ${user}`,
  'make-directory': ({ path, mode, owner }) =>
    `create the directory ${path} (${octal(mode)}${owner === null ? '' : `, ${owner}`})`,
  lock: ({ path }) => `take the lock in ${path}`,
  'write-config': ({ path, config }) =>
    `write ${path} (0600): listen on ${formatListen(config.listen)}, with a random dashboard.password`,
  'place-executable': ({ path, sha256 }) => `put the executable at ${path} (sha256 ${sha256.slice(0, 12)}…)`,
  'place-program': ({ tag, path }) => `put root's own copy of ${tag} at ${path}`,
  'write-receipt': ({ path }) => `record the install in ${path}`,
  'write-file': ({ path, does }) => `write ${path}${does === undefined ? '' : `, which ${does}`}`,
  allow: ({ asks }) => `allow: this service requests ${asks}`,
  link: ({ path, target }) => `link ${path} to ${target}`,
  remove: ({ path }) => `remove ${path}`,
  'remove-directory': ({ path }) => `remove the directory ${path} if it is empty`,
  purge: ({ path }) => `remove ${path} and everything in it`,
  'remove-user': ({ user }) => `remove the system user ${user}`,
  run: ({ command, cwd }) => `run ${formatCommand(command)}${cwd === undefined ? '' : ` in ${cwd}`}`,
  start: ({ service }) => `start ${service}`,
  stop: ({ service }) => `stop ${service}`,
  restart: ({ service }) => `restart ${service}`,
  update: ({ service, from, to }) =>
    `update ${service}${fromOf(from)} to ${to ?? 'the latest release'}: check, download, verify, replace the executable, switch`,
  rollback: ({ service, from, to }) => {
    const isNewer = isTag(from) && isTag(to) && compareTags(to, from) > 0
    const goes = isNewer ? `return ${service}` : `roll ${service} back`
    return `${goes}${fromOf(from)} to ${to ?? 'its backup executable'}, without a download: replace the executable, switch`
  },
  'wait-healthy': ({ service, tag }) => `wait until ${service} ${tag} answers`,
}

export function describe(step: Step): string {
  return (TOLD[step.do] as (step: Step) => string)(step)
}

function fromOf(tag: string | undefined): string {
  return tag === undefined ? '' : ` from ${tag}`
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0')
}
