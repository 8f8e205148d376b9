// The lock in one process: what it leaves on the disk, and what it says where it cannot be taken. Between processes: test/lock.test.ts.

import { mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeDisk } from '../../agent/disk/disk.ts'
import { makeJournal } from '../../agent/disk/journal.ts'
import { readHolder, takeLock } from '../../agent/disk/lock.ts'
import { startTimeOf } from '../../agent/sockets/process.ts'
import { equal, is, match, ok, rejects, withCode } from '../assert.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

const test = suite('lock in one process')

async function inFolder(body: (folder: string) => Promise<void>): Promise<void> {
  await using made = await temporary('lock')
  await body(made.path)
}

test('is for its owner only, and says who holds it since when only as long as somebody does', async () => {
  await inFolder(async (folder) => {
    is(await readHolder(folder), null)
    const lock = await takeLock(makeDisk(), folder, 'a test')
    const holder = await readHolder(folder)
    equal({ pid: holder?.pid, who: holder?.who }, { pid: process.pid, who: 'a test' })
    ok(Math.abs(Date.parse(holder?.since ?? '') - Date.now()) < 60_000)
    is((await stat(join(folder, 'update', 'lock.db'))).mode & 0o777, 0o600)
    await lock.release()
    await lock.release()
    equal(await readdir(join(folder, 'update')), ['lock.db'])
  })
})

test('releasing it twice does not free the one that somebody else has taken since', async () => {
  await inFolder(async (folder) => {
    const first = await takeLock(makeDisk(), folder, 'the first')
    await first.release()
    await using _second = await takeLock(makeDisk(), folder, 'the second')
    await first.release()
    is((await readHolder(folder))?.who, 'the second')
    await rejects(takeLock(makeDisk(), folder, 'the third'), withCode('locked'))
  })
})

test('a free lock is refused while the process lives that the journal names as its owner, and is given to that process', async () => {
  await inFolder(async (folder) => {
    const journal = makeJournal(makeDisk(), folder)
    const owned = async (pid: number, startTime: string | null) => {
      await journal.change((state) => void (state.holder = { pid, startTime }))
      return await takeLock(makeDisk(), folder, 'a test')
    }
    await rejects(owned(process.ppid, startTimeOf(process.ppid)), withCode('locked'))
    await (await owned(process.pid, startTimeOf(process.pid))).release()
    await (await owned(process.ppid, '1')).release() // the kernel has given the pid to another
  })
})

test('what a dead holder has left decides nothing', async () => {
  await inFolder(async (folder) => {
    await mkdir(join(folder, 'update'))
    for (const text of ['{"pid":1,"who":"a ghost","since":"2020-01-01T00:00:00.000Z"}', 'garbage', '']) {
      await writeFile(join(folder, 'update', 'lock.json'), text)
      await using _lock = await takeLock(makeDisk(), folder, 'me')
      is((await readHolder(folder))?.who, 'me')
    }
  })
})

test('where it cannot be written the refusal says so, and a later try may succeed', async () => {
  await inFolder(async (folder) => {
    const update = join(folder, 'update')
    await writeFile(update, 'a file where the directory should be')
    const error = await rejects(
      takeLock(makeDisk(), folder, 'me', { refusal: 'update_in_flight' }),
      withCode('refused'),
    )
    match(error.message, /^taking the lock .*lock\.db: /)
    await rm(update)
    await mkdir(join(update, 'lock.db'), { recursive: true })
    await rejects(takeLock(makeDisk(), folder, 'me'), withCode('refused'))
    await rm(update, { recursive: true })
    await using _lock = await takeLock(makeDisk(), folder, 'me')
  })
})

test.run()
