// What an author's `trial.files` name is copied for a rehearsal, by a process of its own, while the service writes.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { copyFilesBy } from '../agent/disk/copy-database.ts'
import { equal, is, match, ok, rejects } from './assert.ts'
import { buildLedgers, unpackLedger } from './lab/ledger.ts'
import { suite } from './suite.ts'

const test = suite('copy beside', { timeoutMs: 60_000 })
let home: string
let from: string
let executable: string

test.before(async () => {
  home = await mkdtemp(join(tmpdir(), 'baton-beside-'))
  ;[from, executable] = [join(home, 'state'), join(home, 'ledger')]
  await mkdir(join(home, 'feed'))
  await buildLedgers(join(home, 'feed'), ['v1.0.0'])
  await unpackLedger(join(home, 'feed'), 'v1.0.0', executable)
  await mkdir(join(from, 'up loads/é'), { recursive: true })
  await writeFile(join(from, 'up loads/é/b.txt'), 'an upload')
  await symlink('/etc/passwd', join(from, 'up loads/link'))
})
test.after(async () => await rm(home, { recursive: true, force: true }))

test('files and folders with odd names are there, links and what is absent are not', async () => {
  const to = await copied(['up loads', 'absent', 'up loads/é/b.txt'])
  equal(await readdir(to, { recursive: true }), ['up loads', 'up loads/é', 'up loads/é/b.txt'])
  is(await readFile(join(to, 'up loads/é/b.txt'), 'utf8'), 'an upload')
})

test('another database is copied whole while it is written to, with a log larger than itself; its writer is refused nothing', async () => {
  const script = `const { DatabaseSync } = require('node:sqlite'); const d = new DatabaseSync(process.argv[1])
    d.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE one(n, b); CREATE TABLE two(n)')
    let n = 0; const write = () => { n++; d.exec(\`BEGIN; INSERT INTO one VALUES (\${n}, randomblob(5000)); INSERT INTO two VALUES (\${n}); COMMIT\`) }
    while (n < 2000) write()
    console.log('filled'); setInterval(write, 1)`
  const writer = spawn(process.execPath, ['-e', script, join(from, 'queue.db')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    await once(writer.stdout, 'data')
    const to = await copied(['queue.db', 'queue.db-wal', 'queue.db-shm'])
    equal(await readdir(to), ['queue.db'])
    const copy = new DatabaseSync(join(to, 'queue.db'))
    is(copy.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok')
    const { one, two } = copy.prepare('SELECT (SELECT max(n) FROM one) one, (SELECT max(n) FROM two) two').get() ?? {}
    copy.close()
    ok(Number(one) >= 2000 && one === two, `${String(one)}, ${String(two)}`)
    is(writer.exitCode, null)
  } finally {
    writer.kill('SIGKILL')
    await once(writer, 'close')
  }
})

test('a file that is emptied and written anew all the time is copied whole', async () => {
  const script = `const { writeFileSync } = require('node:fs'); const text = JSON.stringify(Array(2000).fill('a message'))
    const write = () => { writeFileSync(process.argv[1], ''); setTimeout(() => { writeFileSync(process.argv[1], text); setTimeout(write, 40) }, 10) }
    write(); console.log('writes')`
  const writer = spawn(process.execPath, ['-e', script, join(from, 'orders.json')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    await once(writer.stdout, 'data')
    for (let time = 0; time < 12; time++) {
      const to = await copied(['orders.json'])
      is((JSON.parse(await readFile(join(to, 'orders.json'), 'utf8')) as string[]).length, 2000)
    }
  } finally {
    writer.kill('SIGKILL')
    await once(writer, 'close')
  }
})

test('a temporary file that is renamed meanwhile does not fail the copy', async () => {
  const folder = join(from, 'queue')
  await mkdir(folder)
  await writeFile(join(folder, 'a.json'), '{}')
  const script = `const { renameSync, writeFileSync } = require('node:fs'); const at = process.argv[1]
    const write = () => { writeFileSync(at + '.tmp', ''); setTimeout(() => { writeFileSync(at + '.tmp', '[]'); renameSync(at + '.tmp', at); setTimeout(write, 5) }, 12) }
    write(); console.log('writes')`
  const writer = spawn(process.execPath, ['-e', script, join(folder, 'b.json')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    await once(writer.stdout, 'data')
    for (let time = 0; time < 6; time++) is(await readFile(join(await copied(['queue']), 'queue/a.json'), 'utf8'), '{}')
  } finally {
    writer.kill('SIGKILL')
    await once(writer, 'close')
  }
})

test.long('more files than there may be are refused, with what to look at', async () => {
  await mkdir(join(from, 'many'))
  for (let file = 0; file <= 10_000; file++) await writeFile(join(from, 'many', String(file)), '')
  match(
    (await rejects(copied(['many']), () => true)).message,
    /could not copy `trial.files`: `trial.files` covers more than .* or more than 10000 files$/,
  )
})

test.run()

let count = 0

/** Resolves to the folder with the copies. */
async function copied(files: string[]): Promise<string> {
  const to = join(home, `copy-${++count}`)
  await mkdir(to)
  await copyFilesBy(executable, { from, to, files })
  return to
}
