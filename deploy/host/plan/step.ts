// What a command is going to do, as data. `--dry-run` prints it and `apply.ts` carries it out. No other code changes a host, so the
// two cannot differ. Pure. No step holds a secret.

import type { Receipt } from '../../../agent/install.ts'
import { formatCommand } from '../../lib/shell.ts'

export type Step =
  | { do: 'create-user'; user: string; home: string }
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
  | { do: 'write-file'; path: string; content: string; gives?: string }
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

/** The step as a person reads it, in one line. */
export function describe(step: Step): string {
  switch (step.do) {
    case 'create-user':
      return `create the system user ${step.user}`
    case 'make-directory':
      return `make the directory ${step.path} (${octal(step.mode)}${step.owner === null ? '' : `, ${step.owner}`})`
    case 'lock':
      return `take the lock in ${step.path}`
    case 'write-config':
      return `write ${step.path} (0600): listen on ${addressOf(step.config.listen)}, with a random dashboard.password`
    case 'place-executable':
      return `put the executable at ${step.path} (sha256 ${step.sha256.slice(0, 12)}…)`
    case 'place-program':
      return `put root's own copy of ${step.tag} at ${step.path}`
    case 'write-receipt':
      return `write down the install in ${step.path}`
    case 'write-file':
      return `write ${step.path}${step.gives === undefined ? '' : `, which gives the service ${step.gives}`}`
    case 'allow':
      return `allow: this service asks ${step.asks}`
    case 'link':
      return `link ${step.path} to ${step.target}`
    case 'remove':
      return `remove ${step.path}`
    case 'remove-directory':
      return `remove the directory ${step.path} if it is empty`
    case 'purge':
      return `remove ${step.path} and everything in it`
    case 'remove-user':
      return `remove the system user ${step.user}`
    case 'run':
      return `run ${formatCommand(step.command)}${step.cwd === undefined ? '' : ` in ${step.cwd}`}`
    case 'start':
      return `start ${step.service}`
    case 'stop':
      return `stop ${step.service}`
    case 'restart':
      return `restart ${step.service}`
    case 'update':
      return `update ${step.service}${from(step.from)} to ${step.to ?? 'the latest release'}: check, download, verify, swap, restart`
    case 'rollback':
      return `roll ${step.service} back${from(step.from)} to ${step.to ?? 'its backup executable'}, without a download: swap, restart`
    case 'wait-healthy':
      return `wait until ${step.service} ${step.tag} answers`
    default:
      return step satisfies never
  }
}

function from(tag: string | undefined): string {
  return tag === undefined ? '' : ` from ${tag}`
}

function addressOf({ host, port }: FirstConfiguration['listen']): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0')
}
