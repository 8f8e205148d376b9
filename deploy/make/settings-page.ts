// Draws the table of settings: as a JSON Schema for editors, and as a page for people. Pure.

import { DURATION_PATTERN, durationBounds, LISTENER, PLAIN_FORM, type Setting, SETTINGS } from '../../agent/words.ts'

const INTRODUCTION = `# Settings of an installed service

Set these in [\`config.json\`](../operator/install.md#one-host), which \`<service> doctor\` checks. Those that most operators set come first (\`healthPath\` and
\`order\` are set by the author). Changes apply at the next start, except those to \`update.trial\`, \`update.auto\` and \`update.onOutcome\`, which apply at once.
Defaults and allowed values are in parentheses. Editors can use [settings.schema.json](../../settings.schema.json). Written by \`npm run pages\`.
`

export function settingsSchema(): string {
  const { listen, feed, ...properties } = SETTINGS.properties
  const others = schemaOf({ ...SETTINGS, properties }) as { properties: object }
  /** one may stand for a list of one */
  const oneOrMore = (setting: Extract<Setting, { type: 'array' }>) => {
    const { description, ...list } = schemaOf(setting) as { description: string }
    return { description, oneOf: [list, schemaOf(setting.items)] }
  }
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'config.json',
    description: 'Settings for the operator of an installed service',
    type: 'object',
    properties: { ...others.properties, listen: oneOrMore(listen), feed: oneOrMore(feed) },
  }
  return `${JSON.stringify(schema, null, 2)}\n`
}

function schemaOf(setting: Setting): object {
  const { form: _, isCheckedLater: __, isUsual: ___, ...all } = setting
  const { timeMs, ...rest } = all.type === 'string' ? all : { ...all, timeMs: undefined }
  if (timeMs !== undefined) return { ...rest, pattern: DURATION_PATTERN.source }
  if (rest.type === 'array') return { ...rest, items: schemaOf(rest.items) }
  if (rest.type !== 'object') return rest
  const properties = Object.fromEntries(
    Object.entries(rest.properties ?? {}).map(([name, one]) => [name, schemaOf(one)]),
  )
  const isListener = setting === LISTENER
  const { additionalProperties: others = false, propertyNames: names } = rest
  return {
    ...rest,
    properties,
    additionalProperties: others === false ? false : schemaOf(others),
    ...(names === undefined ? {} : { propertyNames: { pattern: names.pattern } }),
    ...(isListener ? { not: { required: ['path'], anyOf: [{ required: ['host'] }, { required: ['port'] }] } } : {}),
  }
}

export function settingsPage(): string {
  const rows = rowsOf(SETTINGS, '')
  const list = (isUsual: boolean) =>
    `\n${rows
      .filter((row) => row.isUsual === isUsual)
      .map(({ text }) => text)
      .join('\n')}\n`
  return `${INTRODUCTION}${list(true)}\n## Advanced\n${list(false)}`
}

interface Row {
  text: string
  isUsual: boolean
}

/** One line for each member, and for the members of a member that is an object. */
function rowsOf(setting: Setting, name: string): Row[] {
  if (setting.type === 'array' && setting.items.type === 'object')
    return [rowOf(setting, name), ...rowsOf({ ...setting.items, description: '' }, `${name}[]`)]
  if (setting.type !== 'object') return [rowOf(setting, name)]
  const rows = Object.entries(setting.properties ?? {}).flatMap(([key, one]) =>
    rowsOf(one, name === '' ? key : `${name}.${key}`),
  )
  return setting.description === undefined || setting.description === '' ? rows : [rowOf(setting, name), ...rows]
}

function rowOf(setting: Setting, name: string): Row {
  const { description = '', default: usual = '' } = setting
  const normal = usual === '' ? [] : [`\`${String(usual)}\``]
  const facts = [...normal, ...expectedOf(setting)].join('; ')
  const text = `- \`${name}\`${facts === '' ? '' : ` (${facts})`}: ${description}`
  return { text, isUsual: setting.isUsual === true }
}

/** What a value has to be, if its description does not say so already. */
function expectedOf(setting: Setting): string[] {
  if (setting.enum !== undefined) return [listed(setting.enum)]
  switch (setting.type) {
    case 'integer':
      return [`${setting.minimum.toLocaleString('en')} to ${setting.maximum.toLocaleString('en')}`]
    case 'string':
      if (setting.timeMs !== undefined) return [durationBounds(...setting.timeMs)]
      return setting.form === undefined || setting.form === PLAIN_FORM ? [] : [setting.form]
    case 'array':
      if (setting.items.enum !== undefined) return [`list of ${listed(setting.items.enum)}`]
      return [
        `list of ${setting.minItems ?? 0} to ${setting.maxItems ?? 'any number'}${setting.items.type === 'string' ? ' strings' : ' items'}`,
      ]
    case 'object':
    case 'boolean':
    case undefined:
      return []
  }
}

function listed(values: readonly unknown[]): string {
  return values.map((one) => `\`${String(one)}\``).join(', ')
}
