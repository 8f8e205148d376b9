// Every path that the installer touches, computed in one pure function.

import { dirname, isAbsolute, join } from 'node:path'
import { type Receipt, receiptPath, SYSTEM_DIRECTORY, systemReceiptPath } from '../../../agent/install.ts'
import { BatonError, parsedJson, type UnitWishes, wishesOf } from '../../../agent/words.ts'
import { unitFolderFor } from '../../lib/systemctl.ts'
import { xdgFolder } from '../../lib/xdg.ts'
import type { Choices, Environment, Scope } from './choices.ts'
import { environmentFileFor } from './environment-file.ts'

export interface Layout {
  service: string
  scope: Scope
  /** directory of the executable; the service's user owns it, because it must be able to rename inside it */
  directory: string
  executable: string
  backup: string
  /** the command: a link to `program` */
  command: string
  /** the file that the command runs: for the whole host a copy that only root can change, else the executable itself */
  program: string
  /** the receipt: root's own for the whole host, else beside the executable */
  receipt: string
  configDirectory: string
  configPath: string
  stateDirectory: string
  /** true if systemd's `StateDirectory=` makes the state directory itself */
  stateIsStandard: boolean
  unit: string
  rescueUnit: string
  /** the cage's units (cage.ts) */
  cageUnit: string
  cagePathUnit: string
  dropIns: string
  /** the operator's; never written */
  environmentFile: string
  user: string
  /** the feed, if it is a folder of this host: the sandbox must let the service read it; else null */
  feedFolder: string | null
  /** the port that an install for the whole host is to listen on, if only a process with CAP_NET_BIND_SERVICE may; else null */
  lowPort: number | null
  /** what the operator has confirmed that the service asks of its unit; null: nothing */
  asks: UnitWishes | null
  /** absolute path of the Node that runs a script, for the unit; null if the executable brings its own */
  node: string | null
}

export interface Person {
  name: string
  home: string
  environment: Environment
}

export function layoutOf(service: string, choices: Choices, person: Person): Layout {
  const at = choices.scope === 'system' ? systemPlaces(service) : userPlaces(service, person)
  const directory = choices.prefix ?? at.directory
  const stateDirectory = choices['state-dir'] ?? at.stateDirectory
  const executable = join(directory, service)
  const configPath = join(at.configDirectory, 'config.json')
  return {
    service,
    scope: choices.scope,
    directory,
    executable,
    backup: `${executable}.backup`,
    command: join(at.commands, service),
    program: choices.scope === 'system' ? join(SYSTEM_DIRECTORY, service, service) : executable,
    receipt: choices.scope === 'system' ? systemReceiptPath(service) : receiptPath(executable),
    configDirectory: at.configDirectory,
    configPath,
    stateDirectory,
    stateIsStandard: choices.scope === 'system' && stateDirectory === at.stateDirectory,
    unit: join(at.units, `${service}.service`),
    rescueUnit: join(at.units, `${service}-rescue.service`),
    cageUnit: join(at.units, `${service}-trial.service`),
    cagePathUnit: join(at.units, `${service}-trial.path`),
    dropIns: join(at.units, `${service}.service.d`),
    environmentFile: environmentFileFor({ scope: choices.scope, service, configPath }),
    user: choices.scope === 'system' ? (choices['run-as'] ?? service) : person.name,
    feedFolder: folderOf(choices.feed),
    lowPort: choices.scope === 'system' ? lowPortOf(choices.listen) : null,
    asks: null,
    node: null,
  }
}

/** Null for a feed that is fetched, and for a path that would need quoting in a unit. */
function folderOf(feed: string): string | null {
  const path = feed.replace(/^file:\/\//, '').replace(/(?<=.)\/+$/, '')
  return /^\/[A-Za-z0-9@._+/-]+$/.test(path) ? path : null
}

/** What the kernel keeps for processes with a capability, ip(7). */
const LOW_PORTS_END = 1024

function lowPortOf(listen: string): number | null {
  const port = Number(/:(\d{1,5})$/.exec(listen)?.[1] ?? 0)
  return port > 0 && port < LOW_PORTS_END ? port : null
}

function systemPlaces(service: string) {
  return {
    directory: join('/opt', service),
    commands: '/usr/local/bin',
    configDirectory: join('/etc', service),
    stateDirectory: join('/var/lib', service),
    units: '/etc/systemd/system',
  }
}

export function userPlaces(service: string, person: Person) {
  const { home } = person
  if (!isAbsolute(home))
    throw new BatonError('unsupported_host', `expected a home directory, got ${JSON.stringify(home)}`)
  const config = xdgFolder('XDG_CONFIG_HOME', person)
  return {
    directory: join(home, '.local/share', service),
    commands: join(home, '.local/bin'),
    configDirectory: join(config, service),
    stateDirectory: join(xdgFolder('XDG_STATE_HOME', person), service),
    units: unitFolderFor('user', person),
  }
}

/** The layout that a receipt describes, whatever today's flags and environment are. */
export function layoutOfReceipt(receipt: Receipt, person: Person): Layout {
  const { service, scope, executable, stateDirectory, configPath, user } = receipt
  const choices: Choices = {
    scope,
    prefix: dirname(executable),
    'state-dir': stateDirectory,
    feed: receipt.feed,
    listen: typeof receipt.options['listen'] === 'string' ? receipt.options['listen'] : '',
    'run-as': scope === 'system' ? user : null,
    service: receipt.supervisor !== 'none',
    start: true,
  }
  const layout = layoutOf(service, choices, person)
  const asks = acceptedIn(receipt)
  const environmentFile = environmentFileFor(receipt)
  const own = { configPath, configDirectory: dirname(configPath), environmentFile }
  return { ...layout, ...own, user, asks, node: receipt.node ?? null }
}

/** What the operator has confirmed before; null: nothing. */
export function acceptedIn({
  options,
  service,
  scope,
}: Pick<Receipt, 'options' | 'service' | 'scope'>): UnitWishes | null {
  const text = options[ACCEPTED]
  const value = scope === 'system' && typeof text === 'string' ? parsedJson(text) : null
  try {
    return wishesOf(value, service)
  } catch {
    return null // no installer has written that
  }
}

/** Key in the receipt's options: what was confirmed, as JSON. */
export const ACCEPTED = 'unit'
