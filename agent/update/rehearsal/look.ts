// Looks at the copy of a database, in the cage. Only the conductor calls this: no application runs in its process.

import type { DatabaseSync } from 'node:sqlite'
import type { Schema } from './schema-difference.ts'

export interface CopyLook {
  schema: Schema
  /** by table */
  rows: Readonly<Record<string, number>>
  /** what `PRAGMA integrity_check` says; null: ok */
  fault: string | null
  /** rows that point at none, by `PRAGMA foreign_key_check` */
  orphans: number
}

const FAULT_MAX = 200

/** Opens, reads and closes it. Throws what SQLite throws. */
export function lookAtDatabase(path: string): CopyLook {
  const database = openDatabase(path)
  try {
    return {
      schema: schemaIn(database),
      rows: rowsIn(database),
      fault: faultIn(database),
      orphans: all(database, 'PRAGMA foreign_key_check').length,
    }
  } finally {
    database.close()
  }
}

/** Runs the author's SQL. Throws what SQLite throws. */
export function prepareDatabase(path: string, sql: string): void {
  const database = openDatabase(path)
  try {
    database.exec(sql)
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

function tablesIn(database: DatabaseSync): { name: string; sql: string }[] {
  return all(
    database,
    "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
  ).map(({ name, sql }) => ({ name: String(name), sql: text(sql ?? '') }))
}

function schemaIn(database: DatabaseSync): Schema {
  const tables = tablesIn(database).map(({ name, sql }) => {
    const columns = all(database, `PRAGMA table_xinfo(${quote(name)})`).map((column) => ({
      name: String(column['name']),
      type: String(column['type']).toUpperCase(),
      isNotNull: Number(column['notnull']) === 1,
      fallback: column['dflt_value'] === null ? null : text(column['dflt_value']),
      isKey: Number(column['pk']) > 0,
    }))
    return [name, { sql, columns }] as const
  })
  const rules = all(
    database,
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger') OR (type = 'index' AND sql LIKE 'create unique%')",
  ).map(
    ({ type, name, tbl_name: table, sql }) =>
      [`the ${String(type)} ${String(name)}`, { table: String(table), sql: String(sql) }] as const,
  )
  return { tables: Object.fromEntries(tables), rules: Object.fromEntries(rules) }
}

function rowsIn(database: DatabaseSync): Record<string, number> {
  return Object.fromEntries(
    tablesIn(database).flatMap(({ name }) => {
      try {
        return [[name, Number(all(database, `SELECT count(*) AS n FROM ${quote(name)}`)[0]?.['n'])]]
      } catch {
        return [] // a virtual table whose module is an extension of the application's
      }
    }),
  )
}

function faultIn(database: DatabaseSync): string | null {
  const said = String(all(database, 'PRAGMA integrity_check(1)')[0]?.['integrity_check'])
  return said === 'ok' ? null : said.slice(0, FAULT_MAX)
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
