// `beacon snapshot FILE` or `beacon snapshot -`: copies the whole database to a file or to stdout while the service uses it.
// Must hold: the copy is complete (a plain copy of a database in WAL mode is not); the command checks it before it succeeds.

import { createReadStream, existsSync } from 'node:fs'
import { open, rm, statfs } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pipeline } from 'node:stream/promises'
import { BatonError, codeOf, MEANINGS, reasonOf } from '../words.ts'
import { ownDatabase, ownWords } from '../first.ts'
import type { Build } from './build.ts'
import { type Environment, readSettings } from './config.ts'

export async function snapshot(build: Build, argv: readonly string[], environment: Environment): Promise<number> {
  const [target = '', ...rest] = argv
  try {
    if (target === '' || (target.startsWith('-') && target !== '-')) {
      throw new BatonError('invalid_settings', 'expected a file to write, or `-` for stdout', {
        hint: `\`${build.service} ${ownWords('snapshot /path/to/copy.db')}\``,
      })
    }
    const { stateDirectory } = readSettings(build.service, rest, environment)
    const database = ownDatabase(build.service, stateDirectory)
    if (database === null) {
      throw new BatonError(
        'refused',
        `expected an SQLite database to copy, but ${build.service} ${build.tag} has none configured`,
        {
          hint: 'the author can set `database` in baton.config.json; to copy other data, use its own tools, or copy the files',
        },
      )
    }
    if (!existsSync(database)) throw new BatonError('refused', `there is no database at ${database} yet`)
    const path = target === '-' ? join(stateDirectory, `.snapshot-${process.pid}.db`) : resolve(target)
    try {
      const made = await open(path, 'wx', 0o600).catch((cause: unknown) => {
        if (codeOf(cause) !== 'EEXIST') throw cause
        throw new BatonError('refused', `${path} already exists`, { hint: 'specify a new file for the copy' })
      })
      await made.close() // the copy is as secret as the database, from its first byte
      await copyOrNothing(database, path)
      if (target === '-') await pipeline(createReadStream(path), process.stdout)
      else process.stdout.write(`${path}\n`)
    } finally {
      if (target === '-') await rm(path, { force: true })
    }
    return 0
  } catch (error) {
    process.stderr.write(`error: ${reasonOf(error)}\n`)
    if (error instanceof BatonError && error.hint !== null) process.stderr.write(`hint: ${error.hint}\n`)
    return error instanceof BatonError ? MEANINGS[error.code].exit : 1
  }
}

/** Half a copy must not be taken for one later. Throws refused if a disk is full. */
async function copyOrNothing(from: string, to: string): Promise<void> {
  try {
    copyDatabase(from, to)
  } catch (cause) {
    const { errcode = 0 } = ((cause as Error).cause ?? {}) as { errcode?: number }
    const full = errcode === SQLITE_FULL ? dirname(to) : await fullOf([dirname(from), dirname(to)])
    for (const suffix of ['', '-journal']) await rm(to + suffix, { force: true })
    if (full === null) throw cause
    throw new BatonError('refused', `there is no room for a copy of ${from} in ${full}: the disk is full`, {
      hint: 'the incomplete copy was removed; free up space, or name a file on another disk',
    })
  }
}

const SQLITE_FULL = 13

/** The first of the folders whose disk has no room: SQLite calls that a failure of the disk where it makes the index of a log. */
async function fullOf(folders: readonly string[]): Promise<string | null> {
  for (const folder of folders) if ((await statfs(folder)).bavail === 0) return folder
  return null
}

/** Copies a database that may be in use. `to` must be empty. Throws BatonError unexpected if it cannot, or if the copy is not whole. */
function copyDatabase(from: string, to: string): void {
  const source = new DatabaseSync(from, { readOnly: true, timeout: 5000 })
  try {
    source.prepare('vacuum into ?').run(to)
  } catch (cause) {
    throw new BatonError('unexpected', `copying ${from} to ${to}: ${reasonOf(cause)}`, { cause })
  } finally {
    source.close()
  }
  const copy = new DatabaseSync(to, { readOnly: true })
  try {
    const found = copy.prepare('pragma integrity_check').get()?.['integrity_check']
    if (found !== 'ok') throw new BatonError('unexpected', `the copy ${to} is damaged: ${String(found)}`)
  } finally {
    copy.close()
  }
}
