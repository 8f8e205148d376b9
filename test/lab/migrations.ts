// Migrations of the ledger, as authors write them, and what each ground must make of them: what the trial on a copy finds, what a dry run
// with a trial says beforehand, what the update does, and whether a host would do it by itself.

import type { Verdict } from '../../agent/words/rehearsal.ts'

export interface Migration {
  /** the code of the new release; `once`: each start runs it, and a real one does it once */
  text: string
  verdict: Verdict | 'fails'
  /** exit codes of `upgrade`, of which a dry run with a trial tells the same unless it is said apart, and with a person's word */
  exit: number
  foretold?: number
  allowed?: number
  /** goes without a person */
  goes: boolean
}

const RENAMED = `breaks.select = 'SELECT * FROM notes'; breaks.insert = 'INSERT INTO notes(author, body) VALUES (1, ?)'
  if (!database.prepare("SELECT 1 FROM pragma_table_info('notes') WHERE name = 'body'").get())
    database.exec('ALTER TABLE notes RENAME COLUMN text TO body')`
const DIES = `if (!about.isTrial) setTimeout(() => process.exit(9), 400)`

export const MIGRATIONS: Readonly<Record<string, Migration>> = {
  additive: {
    text: `if (!database.prepare("SELECT 1 FROM pragma_table_info('notes') WHERE name = 'colour'").get())
      database.exec('ALTER TABLE notes ADD COLUMN colour TEXT')`,
    verdict: 'reversible',
    exit: 0,
    goes: true,
  },
  renamed: { text: RENAMED, verdict: 'irreversible', exit: 7, allowed: 0, goes: false },
  'fails midway': {
    text: `database.exec('ALTER TABLE notes ADD COLUMN half TEXT'); throw new Error('half-way')`,
    verdict: 'fails',
    exit: 5,
    goes: false,
  },
  deletes: {
    text: `database.exec('DELETE FROM notes WHERE id % 2 = 0')`,
    verdict: 'irreversible',
    exit: 7,
    allowed: 0,
    goes: false,
  },
  'changes values': {
    text: `database.exec("UPDATE notes SET text = 'v2: ' || text WHERE text NOT LIKE 'v2: %'")`,
    verdict: 'unproven',
    exit: 0,
    goes: false,
  },
  slow: {
    text: 'return new Promise((resolve) => setTimeout(resolve, 20_000))',
    verdict: 'reversible',
    exit: 7,
    goes: false,
  },
  'a column that needs a value': {
    text: `if (!database.prepare("SELECT 1 FROM pragma_table_info('notes') WHERE name = 'owner'").get())
      database.exec("PRAGMA foreign_keys = OFF; CREATE TABLE n2(id INTEGER PRIMARY KEY, author INTEGER, text TEXT NOT NULL, owner TEXT NOT NULL); INSERT INTO n2 SELECT id, author, text, 'x' FROM notes; DROP TABLE notes; ALTER TABLE n2 RENAME TO notes")
      breaks.insert = "INSERT INTO notes(author, text, owner) VALUES (1, ?, 'x')"`,
    verdict: 'irreversible',
    exit: 7,
    allowed: 0,
    goes: false,
  },
  'dies later': { text: DIES, verdict: 'reversible', exit: 8, foretold: 0, goes: true },
  'renamed and dies': { text: `${RENAMED}\n${DIES}`, verdict: 'irreversible', exit: 7, allowed: 8, goes: false },
}
