// Whether a migration has changed values in rows that were there before: the release before reads them in its own way, for instance
// cents as euros, and no request of the author need show it.
// Must hold: the work is bounded. Of a large table the first and the last rows are read, and a change says so.

import { hash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'

/** A table as it is asked for. */
export interface TableOfRows {
  name: string
  columns: readonly string[]
  /** the columns of its declared key; empty: it has none */
  key: readonly string[]
}

/** What was read of a table. */
interface TableValues {
  columns: readonly string[]
  /** by a row's key: a hash of each column's value */
  rows: ReadonlyMap<string, Uint32Array>
  /** every row was read */
  isWhole: boolean
  /** the key is declared: no migration gives it to another row by chance, as it may with SQLite's own row number */
  hasKey: boolean
}

/** by table */
export type RowValues = Readonly<Record<string, TableValues>>

/** from each end of a table */
const ROWS_MAX = 10_000
const READ_MS = 2000
const TABLES_MAX = 3

/** Reads what `changedIn` compares, in `mostMs` for all tables together. Leaves out a table that SQLite cannot read without the application. */
export function valuesIn(database: DatabaseSync, tables: readonly TableOfRows[], mostMs = READ_MS): RowValues {
  const end = performance.now() + mostMs
  const found: Record<string, TableValues> = {}
  for (const [at, table] of tables.entries()) {
    const now = performance.now()
    const values = tableValues(database, table, now + (end - now) / (tables.length - at))
    if (values !== null) found[table.name] = values
  }
  return found
}

/** by table and column: rows whose value is another than before, in rows that were there before */
export type Changed = Readonly<Record<string, { looked: number; isWhole: boolean; columns: Record<string, number> }>>

/** Pure. */
export function changedIn(before: RowValues, after: RowValues): Changed {
  const changed: Record<string, Changed[string]> = {}
  for (const [name, old] of Object.entries(before)) {
    const now = after[name]
    if (now === undefined) continue
    const shared = old.columns.filter((column) => now.columns.includes(column))
    const both = [...old.rows.keys()].filter((key) => now.rows.has(key))
    const isWhole = old.isWhole && now.isWhole
    const counts = shared.map((column) => {
      const [was, is] = [valuesOf(old, column), valuesOf(now, column)]
      const byKey = both.filter((key) => was(key) !== is(key)).length
      // a table that was made anew may have other row numbers than before, and the same values
      const anyhow =
        old.hasKey || !isWhole ? byKey : missing([...old.rows.keys()].map(was), [...now.rows.keys()].map(is))
      return [column, Math.min(byKey, anyhow)] as const
    })
    const columns = Object.fromEntries(counts.filter(([, count]) => count > 0))
    if (Object.keys(columns).length > 0) changed[name] = { looked: both.length, isWhole, columns }
  }
  return changed
}

/** One clause about what the new release has changed; null: nothing but what the release before changes by `itself` when it runs. Pure. */
export function whyValuesChanged(changed: Changed, itself: Changed): string | null {
  const told = Object.entries(changed).flatMap(([name, { looked, isWhole, columns }]) => {
    const more = Object.entries(columns).filter(([column, count]) => count > (itself[name]?.columns[column] ?? 0))
    if (more.length === 0) return []
    const [names, rows] = [more.map(([column]) => column), Math.max(...more.map(([, count]) => count))]
    return [`${rows} of ${looked}${isWhole ? '' : ' checked'} rows of ${name} (${names.join(', ')})`]
  })
  if (told.length === 0) return null
  const rest = told.length - TABLES_MAX
  const others = rest > 0 ? ` and in ${rest} more ${rest === 1 ? 'table' : 'tables'}` : ''
  return `values changed in ${told.slice(0, TABLES_MAX).join(', in ')}${others}`
}

function tableValues(database: DatabaseSync, table: TableOfRows, endMs: number): TableValues | null {
  const { name, columns, key } = table
  const rows = new Map<string, Uint32Array>()
  const selected = columns.map((column, at) => `${quotedName(column)} AS c${at}`)
  const isKey = columns.map((column) => key.includes(column))
  const read = (order: string, isNumbered: boolean): boolean => {
    const statement = database.prepare(
      `SELECT ${[...(isNumbered ? ['_rowid_ AS n'] : []), ...selected].join(', ')} FROM ${quotedName(name)} ORDER BY ${order} LIMIT ${ROWS_MAX}`,
    )
    statement.setReadBigInts(true)
    let count = 0
    for (const row of statement.iterate() as Iterable<Record<string, unknown>>) {
      const values = columns.map((_, at) => row[`c${at}`])
      const keyed = key.length === 0 ? [row['n']] : values.filter((_, at) => isKey[at])
      rows.set(keyed.map((value) => digest(value)).join(), Uint32Array.from(values, digest))
      if (++count % 64 === 0 && performance.now() > endMs) return false
    }
    return count < ROWS_MAX
  }
  const readBoth = (order: string, isNumbered: boolean): boolean => {
    if (read(order, isNumbered)) return true
    if (performance.now() < endMs) read(backwards(order), isNumbered)
    return false
  }
  for (const [order, isNumbered] of [
    ['_rowid_', true],
    [key.map(quotedName).join(', '), false],
  ] as const) {
    if (order === '') continue
    rows.clear()
    try {
      return { columns, isWhole: readBoth(order, isNumbered), rows, hasKey: key.length > 0 }
    } catch {
      continue // WITHOUT ROWID; or a collation or a function that only the application has
    }
  }
  return null
}

function backwards(order: string): string {
  return order
    .split(', ')
    .map((column) => `${column} DESC`)
    .join(', ')
}

function valuesOf({ columns, rows }: TableValues, column: string): (key: string) => number | undefined {
  const at = columns.indexOf(column)
  return (key) => rows.get(key)?.[at]
}

/** How many of `before` are not in `after`, each counted as often as it is there. */
function missing(before: readonly unknown[], after: readonly unknown[]): number {
  const left = new Map<unknown, number>()
  for (const value of after) left.set(value, (left.get(value) ?? 0) + 1)
  return before.filter((value) => {
    const count = left.get(value) ?? 0
    left.set(value, count - 1)
    return count <= 0
  }).length
}

/** The same for 5 and 5.0: SQLite gives a column's affinity to a number, and no application sees a difference. */
function digest(value: unknown): number {
  const bytes =
    value instanceof Uint8Array
      ? value
      : `${value === null ? 'null' : typeof value === 'string' ? 's' : 'n'}${String(value)}`
  return Number.parseInt(hash('sha1', bytes, 'hex').slice(0, 8), 16)
}

/** For SQL. */
export function quotedName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
