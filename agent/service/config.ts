// Reads the service's configuration: one JSON file, read once into one frozen record. It reports all faults at once.
// Path: `--config FILE`, else `<SERVICE>_CONFIG`, else the installer's path. Only a file at the installer's path may be missing.
// Must hold: no message repeats a value that may be the password.

import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import {
  BatonError,
  codeOf,
  type ReleaseChannel,
  type Configuration,
  formatUnknown,
  type Listen,
  type PasswordHeader,
  readConfiguration,
  reasonOf,
} from '../words.ts'
import { ownRelease } from '../first.ts'
import { type Busy, socketPathFault, type TrustedProxy, type UpdateSettings } from '../index.ts'

/** An address to listen on; `tls` makes it https. `path` is a unix socket. */
export type Listener = ({ host: string; port: number } | { path: string }) & {
  tls: { key: string; cert: string } | null
}

export interface Settings {
  /** null if no file was read: then everything is at its default */
  configPath: string | null
  /** the admin bearer token; null turns the update endpoints off */
  password: string | null
  /** the proxy that may name a client's address; the agent checks this value */
  trustedProxy: TrustedProxy | null
  passwordHeader: PasswordHeader
  /** prefix of the agent's routes: '' or '/something' */
  basePath: string
  listeners: readonly Listener[]
  stateDirectory: string
  /** null if not set: then the feed in the receipt counts */
  feed: readonly string[] | null
  channel?: ReleaseChannel
  downloadPrefix?: string
  update: Readonly<UpdateSettings>
  /** null if not set */
  busy: Busy | null
}

export type Environment = Readonly<Record<string, string | undefined>>

/** Reads and checks the configuration. Throws BatonError invalid_settings that lists every fault. */
export function readSettings(service: string, argv: readonly string[], environment: Environment): Readonly<Settings> {
  const named = configArgument(argv) ?? environment[variableName(service)]
  const path = named === undefined || named === '' ? defaultConfigPath(service, environment) : resolve(named)
  // in another author's service the file may hold the author's own settings too
  const isOurs = ownRelease().kind === 'source'
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT' && !named) return parseSettings('{}', { service, configPath: null, environment })
    throw new BatonError('invalid_settings', `reading the configuration ${path}: ${reasonOf(cause)}`, { cause })
  }
  return parseSettings(text, { service, configPath: path, environment, isOurs })
}

/** `beacon` -> `BEACON_CONFIG` */
export function variableName(service: string): string {
  return `${service.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}_CONFIG`
}

interface Context {
  service: string
  configPath: string | null
  environment: Environment
  /** whether an unknown member is a fault: not in another author's service; default true */
  isOurs?: boolean
}

/** Pure: text in, settings out. Relative paths are relative to the working directory. */
export function parseSettings(text: string, context: Context): Readonly<Settings> {
  const { configuration, faults, unknown } = readConfiguration(text)
  const {
    dashboard = {},
    basePath = '',
    feed = null,
    channel,
    downloadPrefix,
    stateDirectory,
    update = {},
  } = configuration
  if (context.isOurs !== false) faults.push(...unknown.map(formatUnknown))
  const listeners = listenersFrom(configuration, faults)
  if (faults.length > 0) throw invalid(context.configPath ?? 'the defaults', faults)
  const { busy = null, trial: _, auto: __, onOutcome: ___, ...times } = update
  return deepFreeze({
    configPath: context.configPath,
    password: dashboard.password === undefined || dashboard.password === '' ? null : dashboard.password,
    trustedProxy: dashboard.trustedProxy ?? null,
    passwordHeader: dashboard.passwordHeader ?? 'authorization',
    basePath: basePath === '/' ? '' : basePath,
    listeners,
    stateDirectory:
      stateDirectory === undefined
        ? defaultStateDirectory(context.service, context.environment)
        : resolve(stateDirectory),
    feed,
    ...(channel === undefined ? {} : { channel }),
    ...(downloadPrefix === undefined ? {} : { downloadPrefix }),
    update: times,
    busy,
  })
}

function invalid(where: string, faults: string[]): BatonError {
  return new BatonError('invalid_settings', `the configuration (${where}) is not valid: ${faults.join('; ')}`)
}

function configArgument(argv: readonly string[]): string | null {
  let path: string | null = null
  for (let i = 0; i < argv.length; i++) {
    const argument = argv[i] ?? ''
    if (argument === 'serve' && i === 0) continue
    if (argument === '--config') path = argv[++i] ?? ''
    else if (argument.startsWith('--config=')) path = argument.slice('--config='.length)
    else throw new BatonError('invalid_settings', `expected \`--config FILE\`, got \`${argument.slice(0, 80)}\``)
    if (path === '') throw new BatonError('invalid_settings', 'expected a path after `--config`')
  }
  return path
}

/** The installer's path: in /etc for root, in the XDG directory for any other user. */
function defaultConfigPath(service: string, environment: Environment): string {
  if (process.getuid?.() === 0) return join('/etc', service, 'config.json')
  return join(absolute(environment['XDG_CONFIG_HOME']) ?? join(homedir(), '.config'), service, 'config.json')
}

function defaultStateDirectory(service: string, environment: Environment): string {
  const systemd = absolute(environment['STATE_DIRECTORY']?.split(':')[0]) // set by systemd for `StateDirectory=`
  if (systemd !== null) return systemd
  if (process.getuid?.() === 0) return join('/var/lib', service)
  return join(absolute(environment['XDG_STATE_HOME']) ?? join(homedir(), '.local', 'state'), service)
}

/** The path; null if it is relative: XDG says to ignore relative values. */
function absolute(path: string | undefined): string | null {
  return path !== undefined && isAbsolute(path) ? path : null
}

function listenersFrom({ listen }: Configuration, faults: string[]): Listener[] {
  const listeners = listen.map((one, at) => listenerFrom(one, `\`listen[${at}]\``, faults))
  const seen = new Set<string>()
  for (const [at, listener] of listeners.entries()) {
    const key = 'path' in listener ? listener.path : `${listener.host} ${listener.port}`
    if (seen.has(key) && !key.endsWith(' 0')) faults.push(`\`listen[${at}]\` repeats an earlier entry`)
    seen.add(key)
  }
  return listeners
}

function listenerFrom(
  { host = '127.0.0.1', port = 8080, path, tls }: Listen,
  name: string,
  faults: string[],
): Listener {
  const secure = tls === undefined ? null : { key: resolve(tls.key), cert: resolve(tls.cert) }
  if (path === undefined) return { host, port, tls: secure }
  const fault = socketPathFault(resolve(path))
  if (fault !== null) faults.push(`${fault} in \`path\` of ${name}: ${path.slice(0, 60)}`)
  return { path: resolve(path), tls: secure }
}

function deepFreeze<T>(value: T): Readonly<T> {
  if (typeof value === 'object' && value !== null) {
    for (const inner of Object.values(value)) deepFreeze(inner)
    Object.freeze(value)
  }
  return value
}
