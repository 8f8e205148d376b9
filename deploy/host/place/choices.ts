// The operator's choices, and which source wins: flags beat environment beat receipt beat defaults. Pure.
// Must never break: a re-run with fewer flags changes nothing that was chosen before.

import { isAbsolute, resolve } from 'node:path'
import { BatonError, isTag } from '../../../agent/words.ts'

export type Scope = 'system' | 'user'

/** Each key is also a flag (`--state-dir`), a variable (`BEACON_INSTALL_STATE_DIR`) and a key in the receipt. */
export interface Choices {
  scope: Scope
  /** directory of the executable; null: the layout's default */
  prefix: string | null
  'state-dir': string | null
  feed: string
  /** `host:port` that a first install writes into the configuration */
  listen: string
  /** name of the user that runs a system service; null: the service's name */
  'run-as': string | null
  /** false: no systemd unit, the service runs detached */
  service: boolean
  /** false: install only, start nothing */
  start: boolean
}

export type ChoiceName = keyof Choices
export type ChoiceOrigin = 'flag' | 'environment' | 'receipt' | 'default'
/** What one source says. For a key that it lacks, the next source decides. */
export type Said = { [K in ChoiceName]?: Choices[K] }

export interface Chosen {
  choices: Choices
  origins: Record<ChoiceName, ChoiceOrigin>
  /** the choices of flags and environment, which the receipt adds to its own; a default is never stored */
  remembered: Record<string, string | boolean>
}

export const KEYS = ['scope', 'prefix', 'state-dir', 'feed', 'listen', 'run-as', 'service', 'start'] as const
const PATHS: readonly ChoiceName[] = ['prefix', 'state-dir']
const BOOLEANS: readonly ChoiceName[] = ['service', 'start']

export type Environment = Readonly<Record<string, string | undefined>>

export function choose(flags: Said, environment: Said, receipt: Said, defaults: Choices): Chosen {
  const sources: [ChoiceOrigin, Said][] = [
    ['flag', flags],
    ['environment', environment],
    ['receipt', receipt],
  ]
  const choices: Record<string, unknown> = { ...defaults }
  const origins = {} as Record<ChoiceName, ChoiceOrigin>
  const remembered: Record<string, string | boolean> = {}
  for (const key of KEYS) {
    const [origin, said] = sources.find(([, source]) => source[key] !== undefined && source[key] !== null) ?? [
      'default',
      {},
    ]
    origins[key] = origin
    if (origin === 'default') continue
    const value = said[key] as string | boolean
    choices[key] = value
    if (origin !== 'receipt') remembered[key] = value
  }
  return { choices: choices as unknown as Choices, origins, remembered }
}

/** `beacon` -> `BEACON_INSTALL_` */
export function environmentPrefix(service: string): string {
  return `${service.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}_INSTALL_`
}

/** `BEACON_INSTALL_STATE_DIR=/srv/x` and the like; also `…_RELEASE` and `…_ACCEPT_UNIT`, which the receipt does not remember. */
export function fromEnvironment(
  service: string,
  environment: Environment,
): { said: Said; release: string | null; acceptUnit: boolean } {
  const prefix = environmentPrefix(service)
  const read = (key: string) => environment[prefix + key.toUpperCase().replaceAll('-', '_')] || undefined
  const said: Record<string, string | boolean> = {}
  for (const key of KEYS) {
    const value = read(key)
    if (value !== undefined) said[key] = BOOLEANS.includes(key) ? toBoolean(prefix + key.toUpperCase(), value) : value
  }
  for (const key of BOOLEANS) {
    const value = read(`no-${key}`)
    if (value !== undefined) said[key] = !toBoolean(`${prefix}NO_${key.toUpperCase()}`, value)
  }
  const accept = read('accept-unit')
  const acceptUnit = accept !== undefined && toBoolean(`${prefix}ACCEPT_UNIT`, accept)
  return { said: checked(said), release: read('release') ?? null, acceptUnit }
}

/** The choices in a receipt. Skips unknown keys and values of another type. */
export function fromReceipt(options: Readonly<Record<string, unknown>>): Said {
  const said: Record<string, unknown> = {}
  for (const key of KEYS) {
    const value = options[key]
    if (typeof value === (BOOLEANS.includes(key) ? 'boolean' : 'string')) said[key] = value
  }
  return said
}

/** Makes paths absolute and checks the form of each value. Throws BatonError invalid_settings. */
export function checked(said: Record<string, unknown>): Said {
  const result: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(said)) {
    if (value === undefined) continue
    if (value === '') throw invalid(`expected a value for \`--${key}\``)
    if (PATHS.includes(key as ChoiceName)) result[key] = checkedPath(key, typeof value === 'string' ? value : '')
    else result[key] = value
  }
  const { scope, listen, 'run-as': user } = result as Said
  if (scope !== undefined && scope !== 'system' && scope !== 'user') {
    throw invalid(`expected \`system\` or \`user\` as the scope, got ${shown(scope)}`)
  }
  if (typeof listen === 'string') {
    result['listen'] = listen.replace(/^:/, '0.0.0.0:')
    parseListen(result['listen'] as string)
  }
  if (typeof user === 'string' && !/^[a-z_][a-z0-9_-]{0,30}$/.test(user)) {
    throw invalid(`expected a user name in \`--run-as\`, got ${shown(user)}`)
  }
  return result
}

/** A tag; null for `latest`. Throws BatonError invalid_tag. */
export function parseRelease(release: string | null): string | null {
  if (release === null || release === 'latest') return null
  if (isTag(release)) return release
  throw new BatonError('invalid_tag', `expected a tag of the form vX.Y.Z or \`latest\`, got ${shown(release)}`)
}

export function parseListen(listen: string): { host: string; port: number } {
  const match = /^(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})$/.exec(listen)
  const port = Number(match?.[3])
  if (match === null || port > 65535)
    throw invalid(`expected \`host:port\` or \`:port\` in \`--listen\`, got ${shown(listen)}`)
  return { host: match[1] ?? match[2] ?? '', port }
}

/** As `parseListen` reads it. */
export function formatListen({ host, port }: { host: string; port: number }): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

/** systemd splits and expands the values in a unit. So a path that would need quoting there is refused everywhere. */
export function checkedPath(key: string, value: string): string {
  const path = isAbsolute(value) ? value.replace(/(?<=.)\/+$/, '') : resolve(value)
  if (!/^\/[A-Za-z0-9@._+/-]*$/.test(path) || path === '/' || path.split('/').includes('..')) {
    throw invalid(`expected a plain path (letters, digits and @._+-) in \`--${key}\`, got ${shown(value)}`)
  }
  return path
}

function toBoolean(name: string, value: string): boolean {
  if (['1', 'true', 'yes'].includes(value)) return true
  if (['0', 'false', 'no'].includes(value)) return false
  throw invalid(`expected 1 or 0 in ${name}, got ${shown(value)}`)
}

function invalid(message: string): BatonError {
  return new BatonError('invalid_settings', message)
}

function shown(value: unknown): string {
  return JSON.stringify(String(value).slice(0, 80))
}
