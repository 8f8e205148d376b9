// Reads the service's configuration: one JSON file, read once into one frozen record. It reports all faults at once.
// Path: `--config FILE`, else `<SERVICE>_CONFIG`, else where the installer puts it. Only the last file may be missing.
// Must hold: no message repeats a value that may be the password.

import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { BatonError, reasonOf } from '../words.ts'
import { ownRelease } from '../first.ts'
import { BUSY, type Busy, socketPathFault, type TrustedProxy, UPDATE_BOUNDS, type UpdateSettings } from '../index.ts'

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
  /** prefix of the agent's routes: '' or '/something' */
  basePath: string
  listeners: readonly Listener[]
  stateDirectory: string
  /** null if not set: then the feed in the receipt counts */
  feed: string | null
  update: Readonly<UpdateSettings>
  /** null if not set */
  busy: Busy | null
}

export const CONFIG_MAX_BYTES = 256 * 1024
const LISTENERS_MAX = 16
const PASSWORD_MAX = 1024

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
    const missing = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT'
    if (missing && !named) return parseSettings('{}', { service, configPath: null, environment })
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
  /** whether this file knows every member, so that another one is a fault; default true */
  isOurs?: boolean
}

/** Pure: text in, settings out. Relative paths are relative to the working directory. */
export function parseSettings(text: string, context: Context): Readonly<Settings> {
  const where = context.configPath ?? 'the defaults'
  if (text.length > CONFIG_MAX_BYTES) {
    throw invalid(where, [`expected at most ${CONFIG_MAX_BYTES} bytes, got ${text.length}`])
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // the parser's own message quotes the text, and the text holds the password
    throw invalid(where, ['expected JSON'])
  }
  const faults: string[] = []
  const all = context.isOurs === false ? null : ['dashboard', 'basePath', 'listen', 'stateDirectory', 'feed', 'update']
  const fields = known(value, 'the file', all, faults)
  const ofDashboard = all && ['password', 'trustedProxy']
  const dashboard = known(fields['dashboard'] ?? {}, '`dashboard`', ofDashboard, faults)
  const stateDirectory = directoryFrom(fields['stateDirectory'], context, faults)
  const settings: Settings = {
    configPath: context.configPath,
    password: passwordFrom(dashboard['password'], faults),
    trustedProxy: (dashboard['trustedProxy'] ?? null) as TrustedProxy | null,
    basePath: basePathFrom(fields['basePath'], faults),
    listeners: listenersFrom(fields['listen'], faults),
    stateDirectory,
    feed: textFrom(fields['feed'], '`feed`', 4096, faults),
    ...updateFrom(fields['update'], faults),
  }
  if (faults.length > 0) throw invalid(where, faults)
  return deepFreeze(settings)
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

/** Where the installer puts the file: /etc for root, the XDG directory for any other user. */
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

/** The members of an object; adds a fault for each unknown one. `keys` null: any member is allowed. */
function known(
  value: unknown,
  name: string,
  keys: readonly string[] | null,
  faults: string[],
): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    faults.push(`expected an object in ${name}, got ${typeName(value)}`)
    return {}
  }
  const fields = value as Record<string, unknown>
  if (keys === null) return fields
  for (const key of Object.keys(fields)) {
    if (!keys.includes(key)) {
      faults.push(`unknown setting \`${key.slice(0, 40)}\` in ${name}, expected one of ${keys.join(', ')}`)
    }
  }
  return fields
}

function passwordFrom(value: unknown, faults: string[]): string | null {
  if (value === undefined || value === null || value === '') return null
  // a bearer header can carry visible ASCII without spaces
  if (typeof value === 'string' && value.length <= PASSWORD_MAX && /^[!-~]+$/.test(value)) return value
  const got = typeof value === 'string' ? 'another text' : typeName(value)
  faults.push(
    `expected 1 to ${PASSWORD_MAX} visible ASCII characters without spaces in \`dashboard.password\`, got ${got}`,
  )
  return null
}

function basePathFrom(value: unknown, faults: string[]): string {
  if (value === undefined || value === '' || value === '/') return ''
  if (typeof value === 'string' && /^(\/[A-Za-z0-9._~-]{1,64}){1,8}$/.test(value)) return value
  faults.push(`expected a path such as \`/beacon\` in \`basePath\`, got ${shown(value)}`)
  return ''
}

function listenersFrom(value: unknown, faults: string[]): Listener[] {
  if (value === undefined) return [{ host: '127.0.0.1', port: 8080, tls: null }]
  const list: unknown[] = Array.isArray(value) ? value : [value]
  if (list.length === 0 || list.length > LISTENERS_MAX) {
    faults.push(`expected 1 to ${LISTENERS_MAX} listeners in \`listen\`, got ${list.length}`)
    return []
  }
  const listeners = list.map((one, i) =>
    listenerFrom(one, Array.isArray(value) ? `\`listen[${i}]\`` : '`listen`', faults),
  )
  const seen = new Set<string>()
  for (const [i, listener] of listeners.entries()) {
    if (listener === null) continue
    const key = 'path' in listener ? listener.path : `${listener.host} ${listener.port}`
    if (seen.has(key) && !key.endsWith(' 0')) faults.push(`\`listen[${i}]\` repeats an earlier one`)
    seen.add(key)
  }
  return listeners.filter((listener) => listener !== null)
}

function listenerFrom(value: unknown, name: string, faults: string[]): Listener | null {
  const before = faults.length
  const fields = known(value, name, ['host', 'port', 'path', 'tls'], faults)
  if (faults.length > before) return null
  const tls = tlsFrom(fields['tls'], name, faults)
  if (fields['path'] !== undefined) {
    if (fields['host'] !== undefined || fields['port'] !== undefined) {
      faults.push(`expected either \`path\` or \`host\` and \`port\` in ${name}, got both`)
    }
    const path = fields['path']
    const fault = typeof path === 'string' && path !== '' ? socketPathFault(resolve(path)) : 'expected a path'
    if (typeof path !== 'string' || fault !== null) {
      faults.push(`${fault} in \`path\` of ${name}: ${shown(path)}`)
      return null
    }
    return { path: resolve(path), tls }
  }
  const host = fields['host'] ?? '127.0.0.1'
  const port = fields['port']
  if (typeof host !== 'string' || !/^[A-Za-z0-9.:_%-]{1,255}$/.test(host)) {
    faults.push(`expected a host name or an address in \`host\` of ${name}, got ${shown(host)}`)
  }
  if (typeof port !== 'number' || !Number.isInteger(port) || port < 0 || port > 65535) {
    faults.push(`expected a number from 0 to 65535 in \`port\` of ${name}, got ${shown(port)}`)
  }
  return faults.length > before ? null : { host: host as string, port: port as number, tls }
}

function tlsFrom(value: unknown, name: string, faults: string[]): { key: string; cert: string } | null {
  if (value === undefined || value === null) return null
  const fields = known(value, `\`tls\` of ${name}`, ['key', 'cert'], faults)
  const [key, cert] = [textFrom(fields['key'], `\`tls.key\` of ${name}`, 4096, faults), fields['cert']]
  const certificate = textFrom(cert, `\`tls.cert\` of ${name}`, 4096, faults)
  if (key === null || certificate === null) {
    faults.push(`expected the paths of two PEM files in \`tls.key\` and \`tls.cert\` of ${name}`)
    return null
  }
  return { key: resolve(key), cert: resolve(certificate) }
}

function directoryFrom(value: unknown, context: Context, faults: string[]): string {
  const path = textFrom(value, '`stateDirectory`', 4096, faults)
  return path === null ? defaultStateDirectory(context.service, context.environment) : resolve(path)
}

function textFrom(value: unknown, name: string, maxLength: number, faults: string[]): string | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'string' && value.length > 0 && value.length <= maxLength && !/\p{Cc}/u.test(value)) return value
  faults.push(`expected 1 to ${maxLength} characters in ${name}, got ${shown(value)}`)
  return null
}

function updateFrom(value: unknown, faults: string[]): Pick<Settings, 'update' | 'busy'> {
  const names = Object.keys(UPDATE_BOUNDS) as (keyof UpdateSettings)[]
  const fields = known(value ?? {}, '`update`', [...names, 'busy', 'rehearse', 'auto', 'onOutcome'], faults)
  const update: UpdateSettings = {}
  for (const name of names) {
    const [least, most] = UPDATE_BOUNDS[name]
    const number = fields[name]
    if (number === undefined) continue
    if (typeof number === 'number' && Number.isInteger(number) && number >= least && number <= most)
      update[name] = number
    else faults.push(`expected a whole number from ${least} to ${most} in \`update.${name}\`, got ${shown(number)}`)
  }
  const given = fields['busy'] ?? null
  const busy = BUSY.find((one) => one === given) ?? null
  if (busy !== given) faults.push(`expected ${BUSY.join(' or ')} in \`update.busy\`, got ${shown(given)}`)
  return { update, busy }
}

function typeName(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'an array' : typeof value
}

function shown(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? JSON.stringify(value).slice(0, 60) : typeName(value)
}

function deepFreeze<T>(value: T): Readonly<T> {
  if (typeof value === 'object' && value !== null) {
    for (const inner of Object.values(value)) deepFreeze(inner)
    Object.freeze(value)
  }
  return value
}
