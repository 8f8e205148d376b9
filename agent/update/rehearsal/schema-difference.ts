// Whether a migration has only added to a schema: then a release that knows the old one can go on reading and writing. Pure.

/** One table: its `CREATE TABLE` text, and its columns in order. */
export interface TableShape {
  sql: string
  columns: readonly ColumnShape[]
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
  /** `CREATE` texts, by name, of views, triggers and UNIQUE indexes, which can refuse writes */
  rules: Readonly<Record<string, { table: string; sql: string }>>
}

/** Null if the tables of `before` are unchanged, except for new columns that an insert may leave out. Else one clause. */
export function whyNotAdditive(before: Schema, after: Schema): string | null {
  for (const [name, table] of Object.entries(before.tables)) {
    const now = after.tables[name]
    if (now === undefined) return `the table ${name} is gone`
    const why = whyTableNotAdditive(name, table, now)
    if (why !== null) return why
  }
  for (const [name, { sql }] of Object.entries(before.rules)) {
    const now = after.rules[name]
    // a missing rule refuses nothing, but the present release may rely on a view or a trigger
    if (now === undefined || plain(now.sql) !== plain(sql)) return `${name} has changed or is gone`
  }
  for (const [name, { table }] of Object.entries(after.rules)) {
    if (before.rules[name] === undefined && before.tables[table] !== undefined)
      return `${name} is new on the table ${table}, which was there before`
  }
  return null
}

function whyTableNotAdditive(name: string, before: TableShape, now: TableShape): string | null {
  for (const [at, column] of before.columns.entries()) {
    const other = now.columns[at]
    if (other?.name !== column.name) return `the table ${name} has other columns than before`
    if (JSON.stringify(other) !== JSON.stringify(column))
      return `the column ${name}.${column.name} is another than before`
  }
  for (const column of now.columns.slice(before.columns.length)) {
    if (column.isKey) return `the new column ${name}.${column.name} is part of the key`
    if (column.isNotNull && column.fallback === null) return `the new column ${name}.${column.name} needs a value`
  }
  // ALTER TABLE ADD COLUMN puts the new column behind the old text; any other text may have new constraints in it
  const stem = plain(before.sql).replace(/\)[^()]*$/, '')
  if (!plain(now.sql).startsWith(stem)) return `the table ${name} was made anew`
  const rest = plain(now.sql).slice(stem.length)
  return /\b(check|unique|references|foreign|constraint|generated|primary)\b/.test(rest)
    ? `the table ${name} has a new constraint`
    : null
}

function plain(sql: string): string {
  return sql
    .toLowerCase()
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ ?([(),]) ?/g, '$1')
    .trim()
}
