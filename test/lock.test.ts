// The lock between processes: real ones, because what SQLite and POSIX do at the border of a process is the point.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { makeDisk } from '../agent/disk/disk.ts'
import { readHolder, takeLock } from '../agent/disk/lock.ts'
import { BatonError } from '../agent/words/errors.ts'
import { equal, is, match, rejects, withCode } from './assert.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const PROGRAM = `
  const [, folder] = process.argv
  const { takeLock } = await import(${JSON.stringify(join(import.meta.dirname, '../agent/disk/lock.ts'))})
  const { makeDisk } = await import(${JSON.stringify(join(import.meta.dirname, '../agent/disk/disk.ts'))})
  try {
    await takeLock(makeDisk(), folder, 'another process')
    console.log('taken')
    setInterval(() => {}, 1000)
  } catch (error) {
    console.log(error.code)
  }
`

const test = suite('lock')

async function inFolder(body: (folder: string) => Promise<void>): Promise<void> {
  await using made = await temporary('lock')
  const folder = made.path
  await body(folder)
}

/** Another process that tries to take the lock: what it says first, and how to end it like a power cut. */
async function another(folder: string): Promise<{ said: string; kill(): Promise<void> }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, folder], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL')
    await exited
  }
  const [chunk] = (await once(child.stdout, 'data')) as [Buffer]
  return { said: chunk.toString().trim(), kill }
}

const refusedElsewhere = async (folder: string): Promise<void> => {
  const other = await another(folder)
  await other.kill()
  is(other.said, 'locked')
}

test('refuses a second taker, in this process and in another, and says who holds it since when', async () => {
  await inFolder(async (folder) => {
    await using _lock = await takeLock(makeDisk(), folder, 'the first')
    const error = await rejects(takeLock(makeDisk(), folder, 'the second'), withCode('locked'))
    match(error.message, new RegExp(`held by the first \\(pid ${process.pid}, since 20`))
    await refusedElsewhere(folder)
  })
})

test('stays held when this very process tries again or looks: closing its file would free it', async () => {
  await inFolder(async (folder) => {
    const takers = Array.from({ length: 50 }, () => takeLock(makeDisk(), folder, 'one of fifty'))
    const settled = await Promise.allSettled(takers)
    const locks = settled.filter((one) => one.status === 'fulfilled').map(({ value }) => value)
    is(locks.length, 1)
    is(await isLocked(folder), true)
    await refusedElsewhere(folder)
    await locks[0]?.release()
    is(await isLocked(folder), false)
  })
})

test('is free again when its holder is killed', async () => {
  await inFolder(async (folder) => {
    const other = await another(folder)
    is(other.said, 'taken')
    is(await isLocked(folder), true)
    await rejects(takeLock(makeDisk(), folder, 'me', { refusal: 'update_in_flight' }), withCode('update_in_flight'))
    await other.kill()
    is(await isLocked(folder), false)
    await using _lock = await takeLock(makeDisk(), folder, 'me')
    equal((await readHolder(folder))?.who, 'me')
  })
})

test('waits for a lock that is freed in time', async () => {
  await inFolder(async (folder) => {
    const first = await takeLock(makeDisk(), folder, 'the first')
    const second = takeLock(makeDisk(), folder, 'the second', { waitMs: 10_000 })
    await first.release()
    await (await second).release()
    is(await readHolder(folder), null)
  })
})

test.run()

/** Whether somebody holds it, told by taking it for a moment. */
async function isLocked(folder: string): Promise<boolean> {
  try {
    await (await takeLock(makeDisk(), folder, 'somebody who looks')).release()
    return false
  } catch (error) {
    if (error instanceof BatonError && error.code === 'locked') return true
    throw error
  }
}
