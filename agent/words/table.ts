// Reads a value by a table, which is the part of JSON Schema that this project uses: `config.json` of an installed service, the rules of the
// schedule in it, and an author's `baton.config.json`. Pure.
// Must hold: no message repeats a value of `dashboard`, which holds the password; every message is fit for a terminal.

import { durationFault } from './duration.ts'
import { series } from './series.ts'
import { isObject, quoted } from './untrusted.ts'

/** `null` counts as absent, unless any value will do. A table without `type` and `enum` takes any. */
export type Setting = {
  description?: string
  default?: unknown
  /** what is expected, for a person, if the rest of the table would say it worse */
  form?: string
  /** one of the few that an operator sets */
  isUsual?: true
  /** the reader does not check this member: the code that uses it does */
  isCheckedLater?: true
  enum?: readonly (string | null)[]
} & (
  | {
      type: 'object'
      properties?: Readonly<Record<string, Setting>>
      required?: readonly string[]
      /** of the members that `properties` does not have; false: those are unknown */
      additionalProperties?: false | Setting
      propertyNames?: { pattern: string; form: string }
    }
  | { type: 'array'; items: Setting; minItems?: number; maxItems?: number }
  | {
      type: 'string'
      minLength?: number
      maxLength?: number
      pattern?: string
      /** a time (`duration.ts`): lowest and highest, milliseconds */
      timeMs?: readonly [lowest: number, highest: number]
    }
  | { type: 'integer'; minimum: number; maximum: number }
  | { type: 'boolean' }
  | { type?: undefined }
)

export interface Faults {
  /** one sentence for each member that is not as the table says */
  faults: string[]
  /** members that the table does not have, such as `update.probationMS` */
  unknown: { name: string; expected: string[] }[]
}

/** One sentence about a member that the table does not have. */
export function formatUnknown({ name, expected }: Faults['unknown'][number]): string {
  return `unknown setting \`${name}\`, expected one of ${expected.join(', ')}`
}

const NAME_MAX = 40

/** The valid part of a value; undefined if nothing of it is. `name`: where it stands; empty: it is the whole. */
export function keep(setting: Setting, value: unknown, name: string, reading: Faults): unknown {
  const expected = expectedInstead(setting, value)
  if (expected !== null) {
    const isSecret = name.startsWith('dashboard')
    const got = !isSecret ? quoted(value) : typeof value === 'string' ? 'other text (not shown)' : kindOf(value)
    reading.faults.push(`expected ${expected}${name === '' ? '' : ` in \`${name}\``}, got ${got}`)
    return undefined
  }
  if (setting.isCheckedLater === true) return value
  if (setting.type === 'array') {
    const all = (value as unknown[]).map((one, at) => keep(setting.items, one, `${name}[${at}]`, reading))
    return all.filter((one) => one !== undefined)
  }
  return setting.type === 'object' ? keepMembers(setting, value as object, name, reading) : value
}

function keepMembers(
  { properties = {}, additionalProperties, propertyNames, required = [] }: Extract<Setting, { type: 'object' }>,
  value: object,
  name: string,
  { faults, unknown }: Faults,
): object | undefined {
  const kept: [string, unknown][] = []
  for (const [key, member] of Object.entries(value)) {
    const below = `${name === '' ? '' : `${name}.`}${key.slice(0, NAME_MAX).replaceAll(/[^\x20-\x7e]/g, '?')}`
    const known = Object.hasOwn(properties, key) ? properties[key] : additionalProperties || undefined
    if (known === undefined) unknown.push({ name: below, expected: Object.keys(properties) })
    else if (member !== null || isAny(known)) kept.push([key, keep(known, member, below, { faults, unknown })])
    if (propertyNames !== undefined && !new RegExp(propertyNames.pattern, 'u').test(key))
      faults.push(`expected ${propertyNames.form} in \`${name}\`, got ${quoted(key)}`)
  }
  const members = Object.fromEntries(kept.filter(([, member]) => member !== undefined))
  const lacks = required.filter((key) => !Object.hasOwn(members, key))
  for (const key of lacks) if (kept.every(([have]) => have !== key)) faults.push(`expected \`${key}\` in \`${name}\``)
  return lacks.length === 0 ? members : undefined
}

/** What was expected instead of the value itself; null if it is that. The members of an object or a list are another question. */
function expectedInstead(setting: Setting, value: unknown): string | null {
  const { form, enum: choices } = setting
  if (setting.isCheckedLater === true) return null
  if (choices !== undefined)
    return choices.some((one) => one === value)
      ? null
      : series(
          choices.flatMap((one) => (one === null ? [] : `\`${one}\``)),
          'or',
        )
  switch (setting.type) {
    case 'object':
      return isObject(value) ? null : (form ?? 'an object')
    case 'array': {
      const { minItems = 0, maxItems = Infinity } = setting
      if (Array.isArray(value) && value.length >= minItems && value.length <= maxItems) return null
      const most =
        maxItems === Infinity
          ? ''
          : minItems > 0
            ? ` of ${minItems} to ${maxItems} items`
            : ` of at most ${maxItems} items`
      return form ?? `a list${most}`
    }
    case 'integer': {
      const { minimum, maximum } = setting
      const isFit = Number.isInteger(value) && Number(value) >= minimum && Number(value) <= maximum
      return isFit ? null : `a whole number from ${minimum} to ${maximum}`
    }
    case 'string': {
      const { minLength = 0, maxLength = Infinity, pattern = '', timeMs } = setting
      if (timeMs !== undefined) return durationFault(value, timeMs)
      const isFit = typeof value === 'string' && value.length >= minLength && value.length <= maxLength
      if (isFit && new RegExp(pattern, 'u').test(value)) return null
      return `${form ?? 'text'}${Number.isFinite(maxLength) ? ` (at most ${maxLength} characters)` : ''}`
    }
    case 'boolean':
      return typeof value === 'boolean' ? null : 'true or false'
    case undefined:
      return null
  }
}

function isAny({ type, enum: choices }: Setting): boolean {
  return type === undefined && choices === undefined
}

/** For a message that must not repeat the value. */
export function kindOf(value: unknown): string {
  if (typeof value === 'string') return 'a string'
  return value === null ? 'null' : Array.isArray(value) ? 'a list' : `a ${typeof value}`
}
