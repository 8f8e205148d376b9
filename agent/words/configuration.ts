// The one reader of an installed service's `config.json`: the service, the first code of an application and the commands use it.
// Pure: text in, settings and faults out.
// Must hold: no message repeats a value of `dashboard`, which holds the password (`table.ts`).

import { type Busy, CONFIGURATION_MAX_BYTES, type PasswordHeader, type TIME_SETTINGS } from './bounds.ts'
import type { Duration } from './duration.ts'
import type { ReleaseChannel } from './feed-choice.ts'
import { SETTINGS } from './settings-table.ts'
import { type Faults, keep, kindOf } from './table.ts'
import { isObject, parsedJson } from './untrusted.ts'

/** `path` is a unix socket. */
export interface Listen {
  host?: string
  port?: number
  path?: string
  /** octal */
  mode?: string
  group?: string
  tls?: { key: string; cert: string }
}

/** The times under `update`. */
export type UpdateTimes = { [K in keyof typeof TIME_SETTINGS]?: Duration }

/** What stands in the file and is valid. */
export interface Configuration {
  dashboard?: {
    password?: string
    passwordHeader?: PasswordHeader
    trustedProxy?: { from: string[]; header: string }
  }
  /** at least one; default: `127.0.0.1:8080` */
  listen: Listen[]
  basePath?: string
  stateDirectory?: string
  /** at least one */
  feed?: string[]
  channel?: ReleaseChannel
  downloadPrefix?: string
  update?: UpdateTimes & { busy?: Busy } & Record<string, unknown>
}

export interface Reading extends Faults {
  /** false: the text is no JSON object, or too long; `faults` says which */
  isRead: boolean
  /** without what `faults` names */
  configuration: Configuration
}

/** Where it ceases to be JSON. The parser's whole message would quote the text, which has a password. */
function placeIn(text: string): string {
  try {
    JSON.parse(text)
    return ''
  } catch (cause) {
    return / \(line[^"]+$/.exec(String(cause))?.[0] ?? ''
  }
}

/** Any text: what is not valid is a fault. */
export function readConfiguration(text: string): Reading {
  const none: Reading = { isRead: false, configuration: { listen: [{}] }, faults: [], unknown: [] }
  if (text.length > CONFIGURATION_MAX_BYTES)
    return { ...none, faults: [`expected at most ${CONFIGURATION_MAX_BYTES} bytes, got ${text.length}`] }
  const value = parsedJson(text)
  if (value === undefined) return { ...none, faults: [`expected JSON${placeIn(text)}`] }
  if (!isObject(value)) return { ...none, faults: [`expected an object, got ${kindOf(value)}`] }
  // one may stand for a list of one
  const isOne = (name: string) => value[name] !== undefined && value[name] !== null && !Array.isArray(value[name])
  const ones = ['listen', 'feed'].filter(isOne)
  const lists = Object.fromEntries(ones.map((name) => [name, [value[name]]]))
  const reading: Faults = { faults: [], unknown: [] }
  const kept = keep(SETTINGS, { ...value, ...lists }, '', reading) as Partial<Configuration>
  const { listen: listeners = [], feed: sources = [], ...others } = kept
  for (const [at, { path, host, port }] of listeners.entries()) {
    if (path !== undefined && (host ?? port) !== undefined)
      reading.faults.push(`expected \`path\`, or \`host\` and \`port\`, in \`listen[${at}]\`, not both`)
  }
  const named = (text: string) => ones.reduce((all, name) => all.replace(`${name}[0]`, name), text)
  return {
    isRead: true,
    configuration: {
      ...others,
      ...(sources.length === 0 ? {} : { feed: sources }),
      listen: listeners.length === 0 ? [{}] : listeners,
    },
    faults: reading.faults.map(named),
    unknown: reading.unknown.map(({ name, expected }) => ({ name: named(name), expected })),
  }
}
