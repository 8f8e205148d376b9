// Looks at the copy of a database, in the cage. Only the performer calls this: no application runs in its process.

import type { DatabaseSync } from 'node:sqlite'
import { reasonOf } from '../../words/errors.ts'
import type { ColumnShape, Schema } from './schema-difference.ts'
import { quotedName, type RowValues, valuesIn } from './values.ts'

export interface CopyLook {
  schema: Schema
  /** by table */
  rows: Readonly<Record<string, number>>
  values: RowValues
  /** what `PRAGMA integrity_check` reports; null: ok, or the check needs an extension of the application */
  fault: string | null
  /** rows that refer to missing rows, by `PRAGMA foreign_key_check`; null: the check is not possible */
  orphans: number | null
}

const FAULT_MAX = 200

/** Looks at the database; or returns why it cannot, for instance because the application encrypts it. */
export function lookAtDatabase(path: string): CopyLook | string {
  const database = openDatabase(path)
  try {
    const [schema, fault] = [schemaIn(database), faultIn(database)]
    return { schema, ...contentsIn(database), fault, orphans: orphansIn(database) }
  } catch (cause) {
    return `the database cannot be read: ${reasonOf(cause)}`
  } finally {
    database.close()
  }
}

export type Contents = Pick<CopyLook, 'rows' | 'values'>

/** Looks while the application has the database open; null: not readable, for instance because it is locked. */
export function contentsNow(path: string): Contents | null {
  try {
    return reading(path, contentsIn)
  } catch {
    return null
  }
}

/** What `PRAGMA integrity_check` finds; null if the database is whole. */
export function integrityOf(path: string): string | null {
  try {
    return reading(path, faultIn)
  } catch (cause) {
    return reasonOf(cause).slice(0, FAULT_MAX)
  }
}

/** Runs the author's `prepare`. Returns why that failed; null if it ran. */
export function prepareDatabase(path: string, sql: string): string | null {
  const database = openDatabase(path)
  try {
    database.exec(sql)
    return null
  } catch (cause) {
    return `\`prepare\` failed: ${reasonOf(cause)}`
  } finally {
    database.close()
  }
}

function reading<T>(path: string, read: (database: DatabaseSync) => T): T {
  const database = openDatabase(path)
  try {
    return read(database)
  } finally {
    database.close()
  }
}

function openDatabase(path: string): DatabaseSync {
  const { DatabaseSync } = process.getBuiltinModule('node:sqlite')
  return new DatabaseSync(path, { timeout: 5000 })
}

type Row = Record<string, unknown>

function all(database: DatabaseSync, sql: string): Row[] {
  return database.prepare(sql).all()
}

/** Without the shadow tables of virtual tables: FTS5 merges their rows at any time. */
function tablesIn(database: DatabaseSync): { name: string; sql: string }[] {
  const shadows = all(database, "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'")
  const isShadow = new Set(shadows.map(({ name }) => name))
  const tables = all(
    database,
    "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
  )
  return tables
    .filter(({ name }) => !isShadow.has(name))
    .map(({ name, sql }) => ({ name: String(name), sql: text(sql ?? '') }))
}

function schemaIn(database: DatabaseSync): Schema {
  const tables = tablesIn(database).map(({ name, sql }) => {
    return [name, { sql, columns: columnsOf(database, name), parents: parentsOf(database, name) }] as const
  })
  const rules = all(
    database,
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger', 'index') AND sql IS NOT NULL",
  ).map(
    ({ type, name, tbl_name: table, sql }) =>
      [`the ${String(type)} ${String(name)}`, { table: String(table), sql: String(sql) }] as const,
  )
  const marks = MARKS.map((name) => [name, all(database, `PRAGMA ${name}`)[0]?.[name]] as const)
  return { tables: Object.fromEntries(tables), rules: Object.fromEntries(rules), marks: Object.fromEntries(marks) }
}

/** Pragmas of the file that an application may read. Not `user_version`: each migration changes that. */
const MARKS = ['application_id', 'encoding'] as const

function parentsOf(database: DatabaseSync, table: string): { table: string; onDelete: string }[] {
  const keys = orElse([], () => all(database, `PRAGMA foreign_key_list(${quotedName(table)})`))
  return keys.map((key) => ({ table: String(key['table']), onDelete: String(key['on_delete']).toUpperCase() }))
}

function columnsOf(database: DatabaseSync, table: string): ColumnShape[] {
  const columns = orElse([], () => all(database, `PRAGMA table_xinfo(${quotedName(table)})`))
  return columns.map((column) => ({
    name: String(column['name']),
    type: String(column['type']).toUpperCase(),
    isNotNull: Number(column['notnull']) === 1,
    fallback: column['dflt_value'] === null ? null : text(column['dflt_value']),
    isKey: Number(column['pk']) > 0,
  }))
}

function contentsIn(database: DatabaseSync): Contents {
  const tables = tablesIn(database)
    .filter(({ sql }) => !/^create virtual/i.test(sql))
    .map(({ name }) => {
      const columns = columnsOf(database, name)
      const key = columns.filter(({ isKey }) => isKey).map((column) => column.name)
      return { name, columns: columns.map((column) => column.name), key }
    })
  return { rows: rowsIn(database), values: valuesIn(database, tables) }
}

function rowsIn(database: DatabaseSync): Record<string, number> {
  return Object.fromEntries(
    tablesIn(database).flatMap(({ name }) => {
      return orElse<[string, number][]>([], () => [
        [name, Number(all(database, `SELECT count(*) AS n FROM ${quotedName(name)}`)[0]?.['n'])],
      ])
    }),
  )
}

function faultIn(database: DatabaseSync): string | null {
  const check = () => String(all(database, 'PRAGMA integrity_check(1)')[0]?.['integrity_check'])
  const said = orElse('ok', check)
  return said === 'ok' ? null : said.slice(0, FAULT_MAX)
}

function orphansIn(database: DatabaseSync): number | null {
  const count = () => Number(all(database, 'SELECT count(*) AS n FROM pragma_foreign_key_check')[0]?.['n'])
  return orElse(null, count)
}

/** Returns `other` on SQLITE_ERROR: the query needs a part that only the application has, or a foreign key is not valid. */
function orElse<T>(other: T, act: () => T): T {
  try {
    return act()
  } catch (cause) {
    if (((cause as { errcode?: number }).errcode ?? 0) % 256 === SQLITE_ERROR) return other
    throw cause
  }
}

const SQLITE_ERROR = 1

function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
