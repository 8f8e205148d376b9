// Whether a migration has only added to a schema: then a release that knows the old one can go on reading and writing. Pure.
// Must hold: anything that may refuse or change a statement of the release before is a difference, even if no request of the author
// shows it.

/** One table: its `CREATE TABLE` text, its columns in order, and the tables that its foreign keys refer to. */
export interface TableShape {
  sql: string
  columns: readonly ColumnShape[]
  parents: readonly { table: string; onDelete: string }[]
}

export interface ColumnShape {
  name: string
  type: string
  isNotNull: boolean
  /** text of its default; null: none */
  fallback: string | null
  isKey: boolean
}

export interface Schema {
  tables: Readonly<Record<string, TableShape>>
  /** `CREATE` texts, by name, of views, triggers and indexes */
  rules: Readonly<Record<string, { table: string; sql: string }>>
  /** values of pragmas of the whole file, by the pragma's name */
  marks: Readonly<Record<string, unknown>>
}

/** Null if the tables of `before` are unchanged, except for new columns that an insert may leave out. Else one clause. */
export function whyNotAdditive(before: Schema, after: Schema): string | null {
  const mark = Object.keys(before.marks).find((name) => before.marks[name] !== after.marks[name])
  if (mark !== undefined) return `\`PRAGMA ${mark}\` has changed`
  for (const [name, table] of Object.entries(before.tables)) {
    const now = after.tables[name]
    if (now === undefined) return `the table ${name} no longer exists`
    const why = whyTableNotAdditive(name, table, now)
    if (why !== null) return why
  }
  return whyRulesNotAdditive(before, after) ?? whyParentsNotFree(before, after)
}

function whyRulesNotAdditive(before: Schema, after: Schema): string | null {
  for (const [name, { sql }] of Object.entries(before.rules)) {
    const now = after.rules[name]
    // a missing rule refuses nothing, but the present release may rely on it, also by ON CONFLICT or INDEXED BY
    if (now === undefined || plain(now.sql) !== plain(sql)) return `${name} was changed or removed`
  }
  const known = tableNames(before)
  for (const name of Object.keys(before.rules)) known.add(name.replace(/^the view /, '').toLowerCase())
  for (const [name, { table, sql }] of Object.entries(after.rules)) {
    const isNew = before.rules[name] === undefined && !name.startsWith('the view ')
    if (isNew && known.has(table.toLowerCase()) && !isPlainIndex(sql))
      return `${name} was added to the existing table ${table}`
  }
  return null
}

/** Whether an index refuses no write: it has only columns, and no function that may fail or that only the new release has. */
function isPlainIndex(sql: string): boolean {
  const text = plain(sql)
  return (
    /^create index [^(]*\([^()]*\)(?: ?where [^()]*)?$/.test(text) &&
    !/->|\b(?:match|regexp)\b|\bcollate (?!(?:nocase|binary|rtrim)\b)/.test(text)
  )
}

/** With foreign keys in force, the release before cannot delete a row that a row of a new table refers to. */
function whyParentsNotFree(before: Schema, after: Schema): string | null {
  const known = tableNames(before)
  for (const [name, { parents }] of Object.entries(after.tables)) {
    if (before.tables[name] !== undefined) continue
    const holds = parents.find(({ table, onDelete }) => known.has(table.toLowerCase()) && !FREEING.includes(onDelete))
    if (holds !== undefined) return `the new table ${name} keeps rows of ${holds.table} from being deleted`
  }
  return null
}

/** In small letters: SQLite keeps a table's name in a trigger or a foreign key as it was typed. */
function tableNames({ tables }: Schema): Set<string> {
  return new Set(Object.keys(tables).map((name) => name.toLowerCase()))
}

const FREEING = ['CASCADE', 'SET NULL', 'SET DEFAULT']
/** names of the number that each row has: a column with such a name hides it */
const ROW_NUMBERS = ['rowid', 'oid', '_rowid_']

function whyTableNotAdditive(name: string, before: TableShape, now: TableShape): string | null {
  for (const [at, column] of before.columns.entries()) {
    const other = now.columns[at]
    if (other?.name !== column.name) return `the table ${name} has different columns than before`
    if (JSON.stringify(other) !== JSON.stringify(column)) return `the column ${name}.${column.name} has changed`
  }
  for (const column of now.columns.slice(before.columns.length)) {
    if (column.isKey) return `the new column ${name}.${column.name} is part of the key`
    if (column.isNotNull && (column.fallback ?? 'null').toLowerCase() === 'null')
      return `the new column ${name}.${column.name} needs a value`
    if (column.fallback?.includes('(') === true)
      return `the default of the new column ${name}.${column.name} calls a function`
    if (ROW_NUMBERS.includes(column.name.toLowerCase())) return `the new column ${name}.${column.name} hides the row id`
  }
  return whyTextNotAdditive(name, plain(before.sql), plain(now.sql))
}

/** ALTER TABLE ADD COLUMN puts the new column behind the old text; any other text may have new constraints in it. */
function whyTextNotAdditive(name: string, before: string, now: string): string | null {
  if (now === before) return null
  const differs = [...rulesOf(before, now), ...rulesOf(now, before)].slice(0, RULES_MAX)
  const anew = `the definition of the table ${name} has changed${differs.length > 0 ? ` in \`${differs.join('`, `')}\`` : ''}`
  if (before.startsWith('create virtual')) return anew // only its module knows what its arguments mean
  const end = /\)[^()]*$/.exec(before)?.[0] ?? ''
  const stem = before.slice(0, before.length - end.length)
  // behind `)` are the table's options, such as STRICT; a word before it belongs to the last column
  if (!now.startsWith(`${stem},`) || !now.endsWith(end)) return anew
  const rest = now.slice(stem.length)
  return /\b(?:check|unique|references|foreign|constraint|generated|primary|as)\b/i.test(rest)
    ? `the table ${name} has a new constraint`
    : null
}

const RULES_MAX = 3

/** Collations, constraints and options that `text` has and `other` has not. */
function rulesOf(text: string, other: string): string[] {
  const rules = (one: string) => one.match(RULES) ?? []
  const has = new Set(rules(other))
  return [...new Set(rules(text))].filter((rule) => !has.has(rule))
}

const RULES =
  /\bcollate \w+|\bcheck ?\((?:[^()]|\([^()]*\))*\)|\bunique\b|\breferences \w+(?: ?\([^()]*\))?|\bon (?:conflict|delete|update) \w+|\bnot null\b|\bprimary key\b|\bautoincrement\b|\bstrict$|\bwithout rowid$/g

/** A text to compare: small letters and no insignificant spaces, except inside quotes. */
function plain(sql: string): string {
  const parts = sql.split(/('(?:[^']|'')*')/).map((part, at) => (at % 2 === 1 ? part : plainly(part)))
  return parts.join('').trim()
}

function plainly(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ ?([(),]) ?/g, '$1')
}
