// Draws the table of settings: as a JSON Schema for editors, and as a page for people. Pure.

import { durationBounds, LISTENER, type Setting, SETTINGS } from '../../agent/words.ts'

const INTRODUCTION = `# Settings of an installed service

Six are decided about each service. Four stand in the first table below; \`healthPath\` and \`order\` are the author's, in
\`baton.config.json\`. The rest have defaults that fit.

They are members of \`config.json\`, which install.sh names and \`<service> doctor\` checks. They count from the next start; \`update.rehearse\`,
\`update.auto\` and \`update.onOutcome\` are read when they are needed. Editors know them by [settings.schema.json](../../settings.schema.json).
\`npm run pages\` makes both from \`agent/words/settings-table.ts\`, by which the file is also read. Other members may be the application's.
`

const HEAD = `
| | default | expected | |
|---|---|---|---|
`

/** Content of settings.schema.json. */
export function settingsSchema(): string {
  const { listen, ...properties } = SETTINGS.properties
  const others = schemaOf({ ...SETTINGS, properties }) as { properties: object }
  const { description, ...list } = schemaOf(listen) as { description: string }
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'config.json',
    description: 'What the operator of an installed service decides',
    type: 'object',
    properties: { ...others.properties, listen: { description, oneOf: [list, schemaOf(LISTENER)] } },
  }
  return `${JSON.stringify(schema, null, 2)}\n`
}

function schemaOf(setting: Setting): object {
  const { form: _, isCheckedLater: __, isUsual: ___, ...all } = setting
  const { timeMs, ...rest } = all.type === 'string' ? all : { ...all, timeMs: undefined }
  if (timeMs !== undefined) return { ...rest, pattern: '^(0|\\d{1,6}(ms|s|m|h|d))$' }
  if (rest.type === 'array') return { ...rest, items: schemaOf(rest.items) }
  if (rest.type !== 'object') return rest
  const properties = Object.fromEntries(
    Object.entries(rest.properties ?? {}).map(([name, one]) => [name, schemaOf(one)]),
  )
  const isListener = setting === LISTENER
  return {
    ...rest,
    properties,
    additionalProperties: false,
    ...(isListener ? { not: { required: ['path'], anyOf: [{ required: ['host'] }, { required: ['port'] }] } } : {}),
  }
}

/** Content of docs/reference/settings.md. */
export function settingsPage(): string {
  const rows = rowsOf(SETTINGS, '')
  const table = (isUsual: boolean) =>
    `${HEAD}${rows
      .filter((row) => row.isUsual === isUsual)
      .map(({ text }) => text)
      .join('\n')}\n`
  return `${INTRODUCTION}${table(true)}\n## Advanced\n${table(false)}`
}

interface Row {
  text: string
  isUsual: boolean
}

/** One row for each member, and for the members of a member that is an object. */
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
  const { description = '' } = setting
  const { default: usual = '' } = setting
  const normal = usual === '' ? '' : `\`${String(usual)}\``
  const text = `| \`${name}\` | ${normal} | ${expectedOf(setting).replaceAll('|', '\\|')} | ${description.replaceAll('|', '\\|')} |`
  return { text, isUsual: setting.isUsual === true }
}

function expectedOf(setting: Setting): string {
  if (setting.enum !== undefined) return setting.enum.map((one) => `\`${String(one)}\``).join(', ')
  switch (setting.type) {
    case 'integer':
      return `${setting.minimum.toLocaleString('en')} to ${setting.maximum.toLocaleString('en')}`
    case 'string':
      if (setting.timeMs !== undefined) return durationBounds(...setting.timeMs)
      return setting.form ?? 'text'
    case 'array':
      return setting.items.enum !== undefined
        ? `list of ${expectedOf(setting.items)}`
        : `list of ${setting.minItems ?? 0} to ${setting.maxItems ?? 'any number'}`
    case 'object':
    case 'boolean':
    case undefined:
      return setting.type ?? 'anything'
  }
}
