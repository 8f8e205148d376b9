// That a database was locked, as SQLite and its bindings say it. Apart from `said.ts`, which needs Node: the panel's types refer to `blame.ts`.

export const LOCKED = /\b(?:SQLITE_BUSY|database is locked)\b/i
