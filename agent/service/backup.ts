// `beacon backup FILE` or `beacon backup -`: copies the whole database to a file or to stdout while the service uses it.
// Must hold: the copy is complete (a plain copy of a database in WAL mode is not); the command checks it before it succeeds.

import { createReadStream, existsSync } from 'node:fs'
import { open, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pipeline } from 'node:stream/promises'
import { BatonError, MEANINGS, reasonOf } from '../words.ts'
import { ownCommand, ownDatabase } from '../first.ts'
import type { Build } from './build.ts'
import { type Environment, readSettings } from './config.ts'

export async function backup(build: Build, argv: readonly string[], environment: Environment): Promise<number> {
  const [target = '', ...rest] = argv
  try {
    if (target === '' || (target.startsWith('-') && target !== '-')) {
      throw new BatonError('invalid_settings', 'expected a file to write, or `-` for stdout', {
        hint: `\`${build.service} ${ownCommand('backup /path/to/copy.db')}\``,
      })
    }
    const { stateDirectory } = readSettings(build.service, rest, environment)
    const database = ownDatabase(build.service, stateDirectory)
    if (database === null) {
      throw new BatonError('refused', `${build.service} ${build.tag} names no database`, {
        hint: '`database` in baton.config.json names one',
      })
    }
    if (!existsSync(database)) throw new BatonError('refused', `expected a database at ${database}, found none yet`)
    const path = target === '-' ? join(stateDirectory, `.backup-${process.pid}.db`) : resolve(target)
    try {
      await (await open(path, 'wx', 0o600)).close() // the copy is as secret as the database, from its first byte
      copyDatabase(database, path)
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

/** Copies a database that may be in use. `to` must be empty. Throws BatonError unexpected if that fails or the copy is damaged. */
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
    if (found !== 'ok') throw new BatonError('unexpected', `the copy ${to} is not whole: ${String(found)}`)
  } finally {
    copy.close()
  }
}
