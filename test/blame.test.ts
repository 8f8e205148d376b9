// Whether a release is to blame for how its switch ended: what a host lacks is never remembered against it.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, rmSync } from 'node:fs'
import { chmod, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { writersIn } from '../agent/disk/own-lock.ts'
import { switchFailure } from '../agent/handover/give/trial.ts'
import { killsIn, memoryEventsOf, memoryKills } from '../agent/sockets/memory.ts'
import { rescue } from '../agent/update/rescue.ts'
import {
  hindranceOf,
  isBlameless,
  KILLED_FOR_MEMORY,
  KILLED_FOR_MEMORY_ONCE,
  KNOWS_NO_SWITCH,
} from '../agent/words/blame.ts'
import { withoutWords } from '../agent/words/wrote.ts'
import type { Operation, VersionReport } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { journalOf, processesBelow, until } from './fixtures/evidence.ts'
import { type Install, install } from './fixtures/install.ts'
import type { OnlyFault } from './fixtures/only.ts'
import { programRelease, publishTo } from './fixtures/releases.ts'
import { isLong, suite } from './suite.ts'

const test = suite('blame', { timeoutMs: 60_000 })
const ONLY = join(import.meta.dirname, 'fixtures/only.ts')

const SPACE = 'this host has no disk space or inodes left'
const FILES = 'this host has no file descriptors left'
const MEMORY = 'this host is out of memory'
const LOCK = 'another process has locked the database'
const ENDS: readonly (readonly [how: string, said: string | null, lack: string | null])[] = [
  ['it exited with code 1', "Error: ENOSPC: no space left on device, open '/var/lib/svc/x'", SPACE],
  ['it exited with code 1', 'SqliteError: database or disk is full', SPACE],
  [
    'it exited with code 1',
    'Error: EDQUOT: disk quota exceeded, write',
    'the service has used up its disk quota on this host',
  ],
  ["it reported: ENOSPC: no space left on device, mkdir '/tmp/a'", null, SPACE],
  ['it exited with code 1', "Error: EMFILE: too many open files, open 'a.js'", FILES],
  ['it exited with code 1', 'Error: ENFILE: file table overflow', FILES],
  ['it exited with code 1', 'Error: ENOMEM: not enough memory, read', MEMORY],
  ['it exited with code 1', 'Error: spawn Cannot allocate memory', MEMORY],
  ['it exited with code 1', 'Error: spawn /bin/true EAGAIN', 'this host cannot start any more processes or threads'],
  [KILLED_FOR_MEMORY, null, MEMORY],
  [KILLED_FOR_MEMORY_ONCE, null, MEMORY],
  ['oom-kill', null, MEMORY],
  ['it exited with code 1', 'Error: database is locked', LOCK],
  ['it exited with code 1', 'SqliteError [SQLITE_BUSY]: database is locked', LOCK],
  ['it exited with code 1', 'Error: database table is locked: notes', null],
  ['it exited with code 1', null, null],
  ['it exited with code 0', KNOWS_NO_SWITCH, 'it cannot take over from this release'],
  ['it exited with code 0', null, null],
  ['it exited with code 1', 'Error: half-way', null],
  ['it was killed by SIGKILL', null, null],
  ['it was killed by SIGSEGV', 'full of notes', null],
  ['it was not ready within 60000 ms: it answered with 503', null, null],
  ['it answers nobody', 'Error: read EAGAIN', null],
]

test('what a host lacks is no evidence against a release, and everything else is', () => {
  for (const [how, said, lack] of ENDS) is(hindranceOf({ how, said }), lack, `${how}, ${said}`)
})

test('a switch that failed for want of something says so, and is not held against the release', async () => {
  for (const [how, said, lack] of ENDS) {
    const child = { lastWords: () => Promise.resolve(said), metOwnLock: () => false }
    const failure = await switchFailure('restart_failed', 'v1.1.0', how, new Error(how), child)
    is(isBlameless(failure), lack !== null, `${how}, ${said}`)
    if (lack !== null) match(failure.message, new RegExp(`${lack}, so v1\\.1\\.0 is not marked as failed$`))
    const why = lack === null ? '' : `; ${lack}, so v1.1.0 is not marked as failed`
    is(withoutWords(failure.message), `v1.1.0 did not take over: ${how}${why}`, 'and in a list without its words')
  }
})

test('a lock that a release holds itself is held against it, and in a cage every lock is its own; a cage lacks memory', () => {
  const locked = { how: 'it exited with code 1', said: 'Error: database is locked' }
  is(hindranceOf({ ...locked, isOwnLock: true }), null)
  is(hindranceOf({ ...locked, isCaged: true }), null)
  const full = { how: 'it exited (SIGABRT)', said: 'FATAL ERROR: Reached heap limit - JavaScript heap out of memory' }
  equal(
    [hindranceOf(full), hindranceOf({ ...full, isCaged: true })],
    [null, 'the trial has less memory than the service would have'],
  )
  is(hindranceOf({ how: 'exit code 1', said: 'ENOSPC', isOwnLock: true }), SPACE)
})

test('the writers in /proc/locks are those of SQLite’s locks to write', () => {
  const locks = [
    '1: POSIX  ADVISORY  WRITE 812 08:01:1234 1073741825 1073741825',
    '1: -> POSIX  ADVISORY  WRITE 813 08:01:1234 1073741825 1073741825',
    '2: POSIX  ADVISORY  READ 814 08:01:1234 1073741826 1073742335',
    '3: FLOCK  ADVISORY  WRITE 815 08:01:1234 0 EOF',
    '4: POSIX  ADVISORY  WRITE 816 fd:00:77 120 120',
    '5: OFDLCK ADVISORY  WRITE -1 fd:00:77 120 120',
    '6: POSIX  ADVISORY  WRITE 817 fd:00:78 0 EOF',
  ]
  equal(writersIn(locks.join('\n')), [
    { pid: 812, inode: 1234 },
    { pid: 816, inode: 77 },
  ])
})

// texts of real files; this machine counts no memory of groups, so that no test ends a process there for want of memory
const EVENTS = 'low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n'
const CONTROL = 'oom_kill_disable 0\nunder_oom 0\noom_kill 4\n'

test('what the kernel has ended for want of memory is counted in the group of the process, if the kernel counts there', () => {
  const V1 = '12:memory:/system.slice/ledger.service\n1:name=systemd:/system.slice/ledger.service\n0::/system.slice\n'
  equal(memoryEventsOf('0::/system.slice/ledger.service\n'), [
    '/sys/fs/cgroup/system.slice/ledger.service/memory.events',
    '/sys/fs/cgroup/memory.events',
  ])
  equal(memoryEventsOf(V1), [
    '/sys/fs/cgroup/memory/system.slice/ledger.service/memory.oom_control',
    '/sys/fs/cgroup/memory/memory.oom_control',
  ])
  equal(memoryEventsOf('0::/\n'), ['/sys/fs/cgroup/memory.events'])
  equal(memoryEventsOf(''), [])
  equal([EVENTS, CONTROL, 'nr_free_pages 1\noom_kill 7\n', 'oom 3\n', ''].map(killsIn), [2, 4, 7, null, null])
  ok(Number.isInteger(memoryKills()) && memoryKills() >= 0)
})

test.long(
  'a release that is late is remembered with the time that it had, and `latest` tries it again with more',
  async () => {
    await using it = await installed('never-listens', { readyTimeout: '1500ms' })
    is((await it.updated()).outcome, 'reverted')
    const { bad } = await journalOf(it.home)
    equal(
      bad.map(({ tag, hadMs }) => [tag, hadMs]),
      [['v1.1.0', 1500]],
    )
    const latest = async () => (await it.home.api('POST', '/admin/update/check')).body as VersionReport
    const before = await latest()
    equal(
      [before.latest, before.skipped.map(({ tag, code }) => [tag, code])],
      ['v1.0.0', [['v1.1.0', 'restart_failed']]],
    )
    is((await it.updated()).outcome, 'up_to_date')
    await it.home.stop()
    const config = JSON.parse(await readFile(it.home.configPath, 'utf8')) as { update: object }
    await writeFile(it.home.configPath, JSON.stringify({ ...config, update: { ...config.update, readyTimeout: '8s' } }))
    await rm(it.fault)
    await it.home.start()
    const after = await latest()
    equal([after.latest, after.skipped], ['v1.1.0', []])
    is((await it.updated()).outcome, 'updated')
    match(
      await it.home.output(),
      /trying v1\.1\.0 again: it was not ready within 1\.5 s last time; the limit is now 8 s/,
    )
    equal((await journalOf(it.home)).bad, [])
  },
)

test('a release that locks its database out by a second connection of its own is bad; one that another process locks out is not', async () => {
  {
    await using it = await installed('locks-itself')
    const { outcome, error } = await it.updated()
    is(outcome, 'reverted')
    is(error?.message, 'v1.1.0 did not take over: it exited with code 1 after printing: Error: database is locked')
    equal(
      (await journalOf(it.home)).bad.map(({ tag, hadMs }) => [tag, hadMs]),
      [['v1.1.0', undefined]],
    )
  }
  for (const mode of isLong ? ['DELETE', 'WAL'] : ['WAL']) {
    await using it = await installed('needs-its-lock')
    const path = join(it.home.stateDirectory, 'locked.db')
    using foreign = await foreignLock(path, mode)
    const { outcome, error } = await it.updated()
    is(outcome, 'reverted')
    match(
      error?.message ?? '',
      /database is locked; another process has locked the database, so v1\.1\.0 is not marked as failed$/,
    )
    equal((await journalOf(it.home)).bad, [])
    await foreign.letGo()
    is((await it.updated()).outcome, 'updated')
  }
})

test('a crash that only the rescue counts has its last words, and what the host lacked is not held against the release', async () => {
  const crashes = [
    ['disk-full', false],
    ['exits', true],
  ] as const
  for (const [fault, isBad] of isLong ? crashes : crashes.slice(0, 1)) {
    await using it = await installed(null, { probation: '1m' })
    is((await it.home.api('POST', '/admin/update')).status, 202)
    await until('probation', async () => (await journalOf(it.home)).probation?.until ?? null)
    await killAll(it.home)
    await writeFile(it.fault, fault)
    const crash = async () => await it.home.start().then(fail, () => {})
    await crash()
    const failed = { failed: true, reason: 'it exited with code 1' }
    equal(await rescue(it.home.receipt, failed), { did: 'counted', failures: 1 })
    await crash()
    equal(await rescue(it.home.receipt, failed), { did: 'reverted', from: 'v1.1.0', to: 'v1.0.0' })
    const { history, bad } = await journalOf(it.home)
    const said = history[0]?.error?.message ?? ''
    if (isBad) match(said, /it exited with code 1 after printing: Error: it does not start$/)
    else match(said, /after printing: Error: ENOSPC.*; this host has no disk space or inodes left, so v1/)
    equal(
      bad.map(({ tag }) => tag),
      isBad ? ['v1.1.0'] : [],
    )
    equal(existsSync(join(it.home.stateDirectory, 'update/last-words.json')), false)
  }
})

test.long('a release that finds a full disk in a switch is put back, and `latest` tries it again', async () => {
  await using it = await installed('disk-full')
  const ended = await it.updated()
  is(ended.outcome, 'reverted')
  match(
    ended.error?.message ?? '',
    /ENOSPC.*; this host has no disk space or inodes left, so v1\.1\.0 is not marked as failed/,
  )
  equal((await journalOf(it.home)).bad, [])
  await rm(it.fault)
  is((await it.updated()).outcome, 'updated')
})

test.run()

interface Tried extends AsyncDisposable {
  home: Install
  /** path of the file that says what goes wrong in the new release */
  fault: string
  /** asks for the latest release, and resolves when that has ended */
  updated(): Promise<Operation>
}

/** An install of v1.0.0, of an application for one process, whose feed has v1.1.0. */
async function installed(fault: OnlyFault | null, update: object = {}): Promise<Tried> {
  const [old, next] = [await programRelease('v1.0.0', ONLY), await programRelease('v1.1.0', ONLY)]
  const home = await install({
    release: old,
    update: { quietTimeout: '500ms', probation: '500ms', maxPause: '1m', ...update },
  })
  await publishTo(home.receipt.feed, [old, next])
  const path = join(home.stateDirectory, 'fault')
  if (fault !== null) await writeFile(path, fault)
  await home.start()
  return {
    home,
    fault: path,
    async updated() {
      is((await home.api('POST', '/admin/update')).status, 202)
      return await home.settled()
    },
    [Symbol.asyncDispose]: () => home[Symbol.asyncDispose](),
  }
}

/**
 * Somebody in the middle of a transaction on the database at `path`: `sqlite3`, of another user if this one is root. Where there is none, Node
 * does the same.
 */
async function foreignLock(path: string, mode: string): Promise<Disposable & { letGo(): Promise<void> }> {
  const shared = await mkdtemp(join(tmpdir(), 'baton-shared-'))
  await chmod(shared, 0o777) // that user makes files beside the database
  const database = join(shared, 'locked.db')
  const made = new DatabaseSync(database)
  made.exec(`PRAGMA journal_mode = ${mode}; CREATE TABLE notes(text)`)
  made.close()
  await chmod(database, 0o666)
  await symlink(database, path)
  const sql = 'BEGIN EXCLUSIVE;'
  const inNode = `const { DatabaseSync } = require('node:sqlite'); const one = new DatabaseSync(${JSON.stringify(database)});
    one.exec('${sql}'); process.stdout.write('is locked'); setInterval(() => one, 1e6)`
  const has = (name: string) => spawnSync('sh', ['-c', `command -v ${name}`]).status === 0
  const isOther = process.getuid?.() === 0 && has('setpriv')
  const command = [
    ...(isOther ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : []),
    ...(has('sqlite3') ? ['sqlite3', '-interactive', database] : [process.execPath, '-e', inNode]),
  ]
  const child = spawn(command[0] ?? '', command.slice(1), { cwd: '/', stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin.write(`${sql}\nSELECT 'is ' || 'locked';\n`)
  let said = ''
  child.stdout.on('data', (part) => (said += String(part)))
  await until('the lock', () => said.includes('is locked'))
  const gone = child.exitCode === null ? once(child, 'exit') : Promise.resolve()
  return {
    async letGo() {
      child.kill('SIGKILL')
      await gone
    },
    [Symbol.dispose]() {
      child.kill('SIGKILL')
      rmSync(shared, { recursive: true, force: true })
    },
  }
}

async function killAll(home: Install): Promise<void> {
  for (let left; (left = processesBelow(home.home)).length > 0; await sleep(20))
    for (const pid of left) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        continue // it has ended meanwhile
      }
    }
}

function fail(): never {
  throw new Error('expected a start that fails')
}
