// The one reader of an installed service's `config.json`: the service, the first code of an application and the commands use it.
// Pure: text in, settings and faults out.
// Must hold: no message repeats a value of `dashboard`, which holds the password.

import { type Busy, CONFIGURATION_MAX_BYTES, type UPDATE_BOUNDS } from './bounds.ts'
import { type Setting, SETTINGS } from './settings-table.ts'
import { isObject, parsedJson, quoted } from './untrusted.ts'

const NAME_MAX = 40

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

/** What stands in the file and is valid. */
export interface Configuration {
  dashboard?: { password?: string; trustedProxy?: { from: string[]; header: string } }
  /** at least one; default: `127.0.0.1:8080` */
  listen: Listen[]
  basePath?: string
  stateDirectory?: string
  feed?: string
  update?: { [K in keyof typeof UPDATE_BOUNDS]?: number } & { busy?: Busy } & Record<string, unknown>
}

export interface Reading {
  /** false: the text is no JSON object, or too long; `faults` says which */
  isRead: boolean
  configuration: Configuration
  /** one sentence for each member that is not as the table says; it is left out of `configuration` */
  faults: string[]
  /** members that the table does not have, such as `update.probationMS` */
  unknown: { name: string; expected: string[] }[]
}

/** Any text: what is not valid is a fault. */
export function readConfiguration(text: string): Reading {
  const none: Reading = { isRead: false, configuration: { listen: [{}] }, faults: [], unknown: [] }
  if (text.length > CONFIGURATION_MAX_BYTES)
    return { ...none, faults: [`expected at most ${CONFIGURATION_MAX_BYTES} bytes, got ${text.length}`] }
  const value = parsedJson(text)
  // the parser's own message would quote the text
  if (value === undefined) return { ...none, faults: ['expected JSON'] }
  if (!isObject(value)) return { ...none, faults: [`expected an object, got ${kindOf(value)}`] }
  const { listen } = value
  const isOne = listen !== undefined && listen !== null && !Array.isArray(listen)
  const reading = { faults: [] as string[], unknown: [] as Reading['unknown'] }
  const kept = keep(SETTINGS, isOne ? { ...value, listen: [listen] } : value, '', reading) as Partial<Configuration>
  const listeners = (kept.listen ?? []).filter((one) => one !== undefined)
  for (const [at, { path, host, port }] of listeners.entries()) {
    if (path !== undefined && (host ?? port) !== undefined)
      reading.faults.push(`expected either \`path\` or \`host\` and \`port\` in \`listen[${at}]\``)
  }
  const named = (text: string) => (isOne ? text.replace('listen[0]', 'listen') : text)
  return {
    isRead: true,
    configuration: { ...kept, listen: listeners.length === 0 ? [{}] : listeners },
    faults: reading.faults.map(named),
    unknown: reading.unknown.map(({ name, expected }) => ({ name: named(name), expected })),
  }
}

/** The valid part of a value; undefined if nothing of it is. */
function keep(setting: Setting, value: unknown, name: string, reading: Pick<Reading, 'faults' | 'unknown'>): unknown {
  const fault = faultOf(setting, value)
  if (fault !== null) {
    reading.faults.push(`${fault} in \`${name}\`, got ${name.startsWith('dashboard') ? kindOf(value) : quoted(value)}`)
    return undefined
  }
  if ('isCheckedLater' in setting) return value
  if (setting.type === 'array')
    return (value as unknown[]).map((one, at) => keep(setting.items, one, `${name}[${at}]`, reading))
  if (setting.type !== 'object') return value
  const { properties } = setting
  const before = reading.faults.length
  const below = (key: string) => (name === '' ? key : `${name}.${key.slice(0, NAME_MAX)}`)
  const kept: [string, unknown][] = []
  for (const [key, member] of Object.entries(value as object)) {
    const known = Object.hasOwn(properties, key) ? properties[key] : undefined
    if (known === undefined) reading.unknown.push({ name: below(key), expected: Object.keys(properties) })
    else if (member !== null) kept.push([key, keep(known, member, below(key), reading)])
  }
  const missing = (setting.required ?? []).filter((key) => kept.every(([have]) => have !== key))
  for (const key of missing) reading.faults.push(`expected \`${key}\` in \`${name}\``)
  if (setting.required !== undefined && reading.faults.length > before) return undefined
  return Object.fromEntries(kept.filter(([, member]) => member !== undefined))
}

/** What was expected of the value itself; null if it is that. The members of an object or a list are another question. */
function faultOf(setting: Setting, value: unknown): string | null {
  if ('isCheckedLater' in setting) return null
  switch (setting.type) {
    case 'object':
      return isObject(value) ? null : 'expected an object'
    case 'array': {
      const { minItems, maxItems } = setting
      const isFit = Array.isArray(value) && value.length >= minItems && value.length <= maxItems
      return isFit ? null : `expected a list of ${minItems} to ${maxItems}`
    }
    case 'integer': {
      const { minimum, maximum } = setting
      const isFit = Number.isInteger(value) && Number(value) >= minimum && Number(value) <= maximum
      return isFit ? null : `expected a whole number from ${minimum} to ${maximum}`
    }
    case 'string': {
      const { minLength = 0, maxLength = Infinity, pattern = '', form = 'text', enum: choices } = setting
      if (choices !== undefined) return choices.some((one) => one === value) ? null : `expected ${choices.join(' or ')}`
      const isFit = typeof value === 'string' && value.length >= minLength && value.length <= maxLength
      if (isFit && new RegExp(pattern, 'u').test(value)) return null
      return Number.isFinite(maxLength) ? `expected ${form}, at most ${maxLength} characters` : `expected ${form}`
    }
  }
}

function kindOf(value: unknown): string {
  if (typeof value === 'string') return 'another text'
  return value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value
}
