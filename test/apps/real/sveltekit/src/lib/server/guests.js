import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'

const db = new DatabaseSync(join(process.env.STATE_DIRECTORY ?? '.', 'guests.db'))
db.exec('CREATE TABLE IF NOT EXISTS guests (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL)')

export const add = (name) => Number(db.prepare('INSERT INTO guests (name) VALUES (?)').run(name).lastInsertRowid)
export const named = (id) => db.prepare('SELECT name FROM guests WHERE id = ?').get(id)?.name
export const all = () =>
  db
    .prepare('SELECT name FROM guests ORDER BY id')
    .all()
    .map(({ name }) => name)
export const newest = () =>
  db
    .prepare('SELECT id, name FROM guests ORDER BY id DESC LIMIT 20')
    .all()
    .map((row) => ({ ...row }))
