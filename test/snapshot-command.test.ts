// The commands and folders of `snapshot`: what refuses an update and leaves nothing, the moment in which no process of the application
// lives, folders as a set, and kills.

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statfsSync } from 'node:fs'
import { mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { copyName } from '../agent/disk/copies.ts'
import type { JournalState } from '../agent/disk/journal.ts'
import { journalPath, owedPath } from '../agent/disk/places.ts'
import { makeDisk } from '../agent/disk/disk.ts'
import { readOwed } from '../agent/disk/owed.ts'
import { openInstall } from '../agent/disk/managed-install.ts'
import { openFeed } from '../agent/update/feed/open.ts'
import { newOperation } from '../agent/update/operation.ts'
import { rehearsalFolder } from '../agent/update/rehearsal/ask-cage.ts'
import { rehearseOnScratch } from '../agent/update/rehearsal/scratch.ts'
import { makeCopies } from '../agent/update/steps/dump.ts'
import type { Release } from '../agent/words/release.ts'
import { DUMP, planOf, scratchOf, snapshotFaults } from '../agent/words/snapshot.ts'
import type { Operation, StateCopy, Status } from '../agent/words/state.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match, not, ok, rejects, throws, withCode } from './assert.ts'
import { processesBelow, until } from './fixtures/evidence.ts'
import { type Stranger, stranger } from './fixtures/stranger.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('snapshot command', { timeoutMs: 120_000 })

/** Its data: the file `rows`, the folder `uploads` and the folder `level/db`. A POST adds to each. */
const TEXT = `
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
const state = process.env.STATE_DIRECTORY
for (const name of ['uploads', 'level/db']) mkdirSync(state + '/' + name, { recursive: true })
writeFileSync(state + '/lives', String(process.pid))
appendFileSync(state + '/rows', 'TAG begins\\n')
createServer((request, response) => {
  if (request.method === 'POST') {
    appendFileSync(state + '/rows', request.url + '\\n')
    for (const name of ['uploads', 'level/db']) writeFileSync(state + '/' + name + request.url, 'of TAG')
  }
  response.end('TAG ' + process.pid)
}).listen(process.env.PORT)
`
const node = (script: string) => [process.execPath, '-e', script, '{file}']
const COPY = "process.getBuiltinModule('fs').copyFileSync('rows', process.argv[1])"
const RESTORE = "process.getBuiltinModule('fs').copyFileSync(process.argv[1], 'rows')"
const GOOD = { command: node(COPY), restore: node(RESTORE) }

test('a command that fails, hangs, writes nothing, or is not there: the update is refused with its last words, and nothing is left', async () => {
  await using it = await stranger({ text: TEXT, update: {} })
  await it.release('v1.1.0', TEXT)
  const fails = "console.error('pg_dump: error: connection refused'); process.exit(3)"
  const hangs = "process.getBuiltinModule('fs').writeFileSync(process.argv[1], 'half'); setInterval(() => {}, 1000)"
  const lateChild = `process.getBuiltinModule('child_process').spawn('sleep', ['30'], { stdio: 'inherit' }); ${hangs}`
  const besides = `for (const end of ['', '.tmp', '-journal']) process.getBuiltinModule('fs').writeFileSync(process.argv[1] + end, ''); process.exit(1)`
  const aFolder = "process.getBuiltinModule('fs').mkdirSync(process.argv[1] + '/in', { recursive: true })"
  const aLink = "process.getBuiltinModule('fs').symlinkSync('/etc/passwd', process.argv[1])"
  const cases: [object, RegExp][] = [
    [{ command: node(fails) }, /exited with code 3, saying "pg_dump: error: connection refused"/],
    [{ command: node(hangs), timeout: '1s' }, /did not finish within 1s/],
    [{ command: node(lateChild), timeout: '1s' }, /did not finish within 1s/],
    [{ command: node('') }, /succeeded, but did not create \{file\}/],
    [{ command: node("process.getBuiltinModule('fs').writeFileSync(process.argv[1], '')") }, /left \{file\} empty/],
    [{ command: node(aFolder) }, /but \{file\} is not a regular file/],
    [{ command: node(aLink) }, /but \{file\} is not a regular file/],
    [{ command: node(besides) }, /exited with code 1/],
    [{ command: ['no-such-program', '{file}'] }, /program `no-such-program` not found/],
    [{ command: ['/etc/passwd', '{file}'] }, /running \/etc\/passwd/],
    [{ command: node('process.kill(process.pid, "SIGSEGV")') }, /was killed by SIGSEGV/],
    [{ check: node("console.error('no archive'); process.exit(1)") }, /checking the copy: .*saying "no archive"/],
    [{ command: ['relative/path', '{file}'] }, /absolute path or the plain name of a program/],
    [{ command: [process.execPath, '-e', ''] }, /an argument with \{file\}/],
    [{ timeout: '0' }, /update\.snapshot\.timeout/],
    [{ comand: node(COPY) }, /unknown setting `update\.snapshot\.comand`/],
  ]
  for (const [wrong, says] of cases) {
    await operatorSays(it, { ...GOOD, ...wrong })
    const { outcome, error, stage } = await it.operate('/admin/update', { tag: 'v1.1.0' })
    equal(
      [outcome, error?.code === 'refused' || error?.code === 'invalid_settings'],
      ['failed', true],
      `${says}: ${error?.message}`,
    )
    match(error?.message ?? '', says)
    ok(['check', 'swap'].includes(stage), stage)
    equal(left(it), [], `${says}: ${error?.message}`)
    match(await it.get('/'), /^v1\.0\.0 /)
  }
  equal(processesBelow(it.home.stateDirectory, 'dump'), [], 'no command is left')
  await operatorSays(it, GOOD)
  const { outcome, copies = [] } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([outcome, copies.length, left(it).length], ['updated', 1, 1], 'nothing is held against the release')
})

test('rules that are not valid refuse an update at its check also while no service runs: nothing is downloaded first', async () => {
  await using it = await stranger({ text: TEXT, config: { snapshot: GOOD } })
  const { stateDirectory, executable } = it.home
  await it.release('v1.1.0', TEXT)
  const env = { ...process.env, BATON_NODE: process.execPath }
  const command = (...words: string[]) => spawnSync(executable, [...words, '--json'], { env, encoding: 'utf8' })
  is(command('stop').status, 0)
  await operatorSays(it, { timeout: '0' })
  const { stderr, stdout } = command('upgrade', 'v1.1.0')
  const { history } = JSON.parse(await readFile(journalPath(stateDirectory), 'utf8')) as JournalState
  const [{ stage, bytes, error } = {}] = history
  equal([stage, bytes, error?.code], ['check', 0, 'invalid_settings'], `${error?.message}\n${stdout}${stderr}`)
})

test.long('a rollback goes on without a snapshot; of dumps two releases and one small one stay', async () => {
  await using it = await stranger({ text: TEXT, config: { snapshot: GOOD } })
  for (const tag of ['v1.1.0', 'v1.2.0', 'v1.3.0', 'v1.4.0']) {
    await it.release(tag, TEXT)
    is((await it.operate('/admin/update', { tag })).outcome, 'updated')
  }
  equal(
    left(it).map((name) => name.split('.').slice(0, 4).join('.')),
    ['dump.v1.1.0', 'dump.v1.2.0', 'dump.v1.3.0'],
  )
  await operatorSays(it, { command: node('process.exit(1)') })
  const { outcome, copies } = await it.operate('/admin/update/rollback')
  equal([outcome, copies], ['rolled_back', undefined])
})

/** notes who lives, and how the copy is made */
const WHO_LIVES = `const fs = process.getBuiltinModule('fs'); let lives = true
  try { lives = !/^\\d+ \\(.*\\) Z/.test(fs.readFileSync('/proc/' + fs.readFileSync('lives', 'utf8') + '/stat', 'utf8')) } catch { lives = false }
  fs.appendFileSync('seen', lives + '\\n')`

test('`stopped`: it is copied while no process of the application lives; if it fails, the old release serves again and nothing is held against the new one', async () => {
  const snapshot = { ...GOOD, command: node(`${WHO_LIVES}; ${COPY}`), when: 'stopped' }
  await using it = await stranger({ text: TEXT, config: { snapshot } })
  await it.release('v1.1.0', TEXT)
  await operatorSays(it, { command: node(`${WHO_LIVES}; console.error('no room'); process.exit(1)`) })
  const failed = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([failed.outcome, failed.error?.code], ['reverted', 'restart_failed'], failed.error?.message)
  equal((JSON.parse(await readFile(journalPath(it.home.stateDirectory), 'utf8')) as JournalState).bad, [])
  match(failed.error?.message ?? '', /copying the data: .* exited with code 1, saying "no room"/)
  match(await it.get('/'), /^v1\.0\.0 /)
  equal(left(it), [])
  await until('nothing to be owed', () => !existsSync(owedPath(it.home.stateDirectory))) // a moment after the outcome is said
  await operatorSays(it, {})
  const { outcome, copies = [], error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([outcome, copies.map(({ name }) => name), error], ['updated', left(it), null])
  is(readFileSync(join(it.home.stateDirectory, 'seen'), 'utf8'), 'false\nfalse\n')
  not.match(readFileSync(copyOf(it), 'utf8'), /v1\.1\.0/)
  match(readFileSync(join(it.home.stateDirectory, 'rows'), 'utf8'), /v1\.1\.0 begins/)
})

test.long(
  '`stopped`, and everything is killed while it is copied: the new release does not begin before the copy is there',
  async () => {
    const waits = `const fs = process.getBuiltinModule('fs'); if (!fs.existsSync('go')) for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000)`
    const snapshot = { ...GOOD, command: node(`${waits}; ${COPY}`), when: 'stopped' }
    await using it = await stranger({ text: TEXT, config: { snapshot }, isSupervised: false })
    await it.release('v1.1.0', TEXT)
    const { stateDirectory } = it.home
    is((await it.ask('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
    const copying = () => processesBelow(stateDirectory, 'Atomics.wait')
    await until('the command', () => copying().length > 0, 20_000)
    for (const pid of it.home.pids()) process.kill(pid, 'SIGKILL')
    for (const pid of copying()) process.kill(pid, 'SIGKILL')
    await until('all to be gone', () => it.home.pids().length === 0)
    is(readOwed(stateDirectory)?.owes, 'snapshot')
    await writeFile(join(stateDirectory, 'go'), '')
    // a manager that gives a start 90 s would end the copy, at each start anew
    await it.home.start({ BATON_NODE: process.execPath, ...(await notified(stateDirectory)) }, stateDirectory)
    match(readFileSync(join(stateDirectory, 'told'), 'utf8'), /EXTEND_TIMEOUT_USEC=1830000000 /)
    await until(
      'an answer',
      async () =>
        await it.get('/').then(
          (text) => text.startsWith('v1.1.0'),
          () => false,
        ),
      20_000,
    )
    const done = await settled(it)
    equal([done.outcome, done.copies?.length], ['updated', 1], done.error?.message)
    is(readFileSync(copyOf(it), 'utf8'), 'v1.0.0 begins\n')
    equal([left(it).length, existsSync(owedPath(stateDirectory))], [1, false])
  },
)

test.long(
  'a restore that has begun is finished by the next start, whose manager is told how long four commands may take',
  async () => {
    await using it = await stranger({ text: TEXT, config: { snapshot: GOOD }, isSupervised: false })
    const { stateDirectory } = it.home
    await it.home.stop()
    const name = copyName(DUMP, 'v1.0.0', new Date())
    const aside = join(stateDirectory, 'update/aside', name)
    await mkdir(join(stateDirectory, 'update/snapshots'), { recursive: true })
    await writeFile(join(stateDirectory, 'update/snapshots', name), 'restored\n')
    const owed = { owes: 'restore', name, aside, plan: planOf(GOOD, null), container: 'another' }
    await writeFile(owedPath(stateDirectory), JSON.stringify(owed))
    await it.home.start({ BATON_NODE: process.execPath, ...(await notified(stateDirectory)) }, stateDirectory)
    match(readFileSync(join(stateDirectory, 'told'), 'utf8'), /EXTEND_TIMEOUT_USEC=2430000000 /)
    match(readFileSync(join(stateDirectory, 'rows'), 'utf8'), /^restored\nv1\.0\.0 begins\n$/)
    is(readOwed(stateDirectory), null)
  },
)

test('folders are copied and taken back as a set; what was there is put aside; a command that is killed in the middle is finished', async () => {
  await using it = await stranger({
    text: TEXT,
    config: { snapshot: { folders: ['uploads', 'level/db', 'absent'], when: 'stopped' } },
  })
  const { stateDirectory } = it.home
  await it.release('v1.1.0', TEXT)
  for (const name of ['/one', '/two']) await it.ask('POST', name)
  const { outcome, copies = [], error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([outcome, copies.length], ['updated', 1], error?.message)
  const [{ name = '', bytes = 0 } = {}] = copies
  match(name, /^folders\.v1\.0\.0\./)
  is(bytes, 4 * 'of v1.0.0'.length)
  await it.ask('POST', '/three')
  await rm(join(stateDirectory, 'uploads/one'))
  const command = (...words: string[]) => it.typed(...words, '--json')
  is((await command('stop')).exitCode, 0)
  await writeFile(owedPath(stateDirectory), JSON.stringify({ owes: 'restore', name, aside: null }))
  const early = await command('start')
  const says = `the restore of ${name} did not finish`
  await until(says, async () => `${early.stdout}${early.stderr}${await it.home.output()}`.includes(says))
  await command('stop')
  await rm(owedPath(stateDirectory))
  const restored = await command('state', 'restore', name)
  is(restored.exitCode, 0, restored.stderr)
  const { aside } = JSON.parse(restored.stdout.trim().split('\n').at(-1) ?? '') as { aside: string }
  const names = (folder: string) => readdirSync(join(stateDirectory, folder)).toSorted()
  equal(
    [names('uploads'), names('level/db')],
    [
      ['one', 'two'],
      ['one', 'two'],
    ],
  )
  equal(
    [readdirSync(join(aside, 'uploads')).toSorted(), readdirSync(join(aside, 'level/db')).toSorted()],
    [
      ['three', 'two'],
      ['one', 'three', 'two'],
    ],
  )
  const list = JSON.parse((await command('state', 'list')).stdout.trim().split('\n').at(-1) ?? '') as {
    copies: StateCopy[]
  }
  equal(
    list.copies.map(({ kind, of }) => [kind, of]),
    [
      ['aside', 'folders'],
      ['snapshot', 'folders'],
    ],
  )
  equal(
    names('update').filter((one) => ['incoming', 'owed.json'].includes(one)),
    [],
  )
  is((await command('state', 'restore', aside.split('/').at(-1) ?? '')).exitCode, 0)
  equal(
    [names('uploads'), names('level/db')],
    [
      ['three', 'two'],
      ['one', 'three', 'two'],
    ],
  )
})

test.long(
  'folders that are named twice, or one in the other, are taken back; so is what a killed command had not yet put aside',
  async () => {
    await using it = await stranger({
      text: TEXT,
      config: { snapshot: { folders: ['level', './uploads', 'level/db', 'uploads/'] } },
    })
    const { stateDirectory } = it.home
    await it.release('v1.1.0', TEXT)
    await it.ask('POST', '/one')
    const { copies = [], error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
    const [{ name = '' } = {}] = copies
    ok(name !== '', error?.message)
    await it.ask('POST', '/two')
    const command = (...words: string[]) => it.typed(...words, '--json')
    is((await command('stop')).exitCode, 0)
    const there = () => ['uploads', 'level/db'].map((folder) => readdirSync(join(stateDirectory, folder)).toSorted())
    const restored = await command('state', 'restore', name)
    is(restored.exitCode, 0, restored.stderr)
    equal(there(), [['one'], ['one']])
    // as a kill leaves it between the two: one folder has gone aside, the other has not
    const { aside } = JSON.parse(restored.stdout.trim().split('\n').at(-1) ?? '') as { aside: string }
    await rm(join(stateDirectory, 'uploads'), { recursive: true })
    await rename(join(aside, 'uploads'), join(stateDirectory, 'uploads'))
    await writeFile(owedPath(stateDirectory), JSON.stringify({ owes: 'restore', name, aside }))
    const back = await command('state', 'restore', basename(aside))
    is(back.exitCode, 0, back.stderr)
    equal(there(), [
      ['one', 'two'],
      ['one', 'two'],
    ])
  },
)

test.long('a folder that is a link, or a file, refuses the update: nothing of it would be copied', async () => {
  await using it = await stranger({ text: TEXT, config: { snapshot: { folders: ['uploads', 'pictures'] } } })
  const { stateDirectory } = it.home
  await it.release('v1.1.0', TEXT)
  await symlink('uploads', join(stateDirectory, 'pictures'))
  const refused = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([refused.outcome, refused.error?.code, left(it)], ['failed', 'refused', []])
  match(refused.error?.message ?? '', /expected `pictures` in `snapshot\.folders` to be a folder, got a link/)
  await rm(join(stateDirectory, 'pictures'))
  await writeFile(join(stateDirectory, 'pictures'), '')
  match(
    (await it.operate('/admin/update', { tag: 'v1.1.0' })).error?.message ?? '',
    /expected `pictures` in `snapshot\.folders` to be a folder, got a file/,
  )
})

test.long('a command that removes the folder of its copy fails, and harms nothing else', async () => {
  await using folder = await temporary('removed')
  const removes = `process.getBuiltinModule('fs').rmSync('update', { recursive: true }); setTimeout(() => process.exit(1), 300)`
  const plan = planOf({ command: node(removes), restore: node(RESTORE) }, null)
  ok(plan !== null)
  const about = { disk: makeDisk(), stateDirectory: folder.path, tag: 'v1.0.0', executable: '' }
  const refused = await rejects(makeCopies({ ...about, plan }), withCode('refused'))
  match(refused.message, /exited with code 1/)
})

test.long('a cage that cannot be asked tries nothing, says so, and the update goes on', async () => {
  if (process.getuid?.() !== 0) return // nobody else can make a folder in /var/lib
  const service = `asked-${process.pid}-`.padEnd(100, 'x') // its socket has too long a path
  const stateDirectory = join('/var/lib', service)
  const [cage, configPath] = [rehearsalFolder(stateDirectory), join(stateDirectory, 'config.json')]
  try {
    await mkdir(cage, { recursive: true })
    await mkdir(stateDirectory)
    await writeFile(join(stateDirectory, 'rows'), 'v1.0.0 begins\n')
    const scratch = { restore: node(''), environment: { ROWS: 'scratch' } }
    await writeFile(configPath, JSON.stringify({ update: { snapshot: GOOD, scratch } }))
    await using feed = openFeed(stateDirectory, { service, stateDirectory, trust: null })
    const receipt = { supervisor: 'systemd', configPath } as const
    const about = { service, executable: process.execPath, current: 'v1.0.0', stateDirectory, database: null }
    const install = openInstall({ ...about, receipt, feed, log: () => {} })
    const [kind, from, to] = ['update', 'v1.0.0', 'v1.1.0'] as const
    const operation = newOperation({ id: 'op', kind, from, to, startedAt: '2026-11-28T09:00:00Z' })
    const release = { tag: to, asset: { sha256: 'a'.repeat(64) } } as Release
    const what = { install, operation, release, candidate: process.execPath, signal: undefined }
    await rehearseOnScratch({ ...what, allowIrreversible: false })
    is(operation.trial?.verdict, 'untried')
    match(operation.trial?.reason ?? '', /listen/)
    equal(readdirSync(cage), [])
  } finally {
    for (const path of [cage, stateDirectory]) await rm(path, { recursive: true, force: true })
  }
})

test.long(
  'a command that fills the disk, slowly or at once, is ended: the room that it took is free again',
  async () => {
    if (process.getuid?.() !== 0) return // nobody else can mount a small disk
    await using folder = await temporary('small')
    is(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=96m', 'tmpfs', folder.path]).status, 0)
    try {
      const free = () => statfsSync(folder.path).bavail
      const before = free()
      const [fs, some] = [
        "const fs = process.getBuiltinModule('fs')",
        'fs.appendFileSync(process.argv[1], Buffer.alloc(1 << 20))',
      ]
      for (const command of [`${fs}; setInterval(() => ${some}, 4)`, `${fs}; for (;;) ${some}`]) {
        const plan = planOf({ command: node(command), restore: node(RESTORE) }, null)
        const about = { disk: makeDisk(), stateDirectory: folder.path, tag: 'v1.0.0', executable: '' }
        ok(plan !== null)
        const refused = await rejects(makeCopies({ ...about, plan }), withCode('refused'))
        match(refused.message, /would have filled the disk|exited with code/)
        equal([readdirSync(join(folder.path, 'update/snapshots')), before - free() < 64], [[], true])
      }
    } finally {
      spawnSync('umount', ['--lazy', folder.path])
    }
  },
)

test('what no copy can be made by, or says a secret to every user, is refused when it is read', () => {
  const rules = (more: object) => snapshotFaults({ ...GOOD, ...more })
  equal(rules({}), [])
  equal(planOf(null, null), null)
  for (const word of [
    'postgres://shop:secret@db/shop',
    '--password=secret',
    'PGPASSWORD=secret',
    '--dbname=postgresql://u:p@h/d',
    '-passwd=x',
  ])
    match(rules({ command: ['pg_dump', word, '{file}'] }).join(), /no password in `snapshot\.command`/, word)
  for (const word of [
    'postgres:///shop?host=/run/postgresql',
    '--dbname=shop',
    '-p5432',
    'mongodb://db/shop',
    '--no-password',
  ])
    equal(rules({ command: ['pg_dump', word, '{file}'] }), [], word)
  for (const folder of ['/etc', '../other', '.', 'update', 'a/../../b', './update/x', '', 'a\0b'])
    match(rules({ folders: [folder] }).join(), /folders below the state directory/, folder)
  match(snapshotFaults({ command: ['pg_dump', '{file}'] }).join(), /both `command` and `restore`/)
  throws(() => planOf(null, { folders: '/etc' }), withCode('invalid_settings'))
  throws(
    () => scratchOf({ restore: ['psql', '{file}'], environment: { BATON_WORD: 'x' } }),
    withCode('invalid_settings'),
  )
  const project = (more: object) => () => parseProject({ service: 'shop', entry: 'a.js', ...more }, '/srv')
  throws(
    project({ snapshot: { ...GOOD, when: 'stopped' }, order: 'start-first' }),
    /expected `order` to be `stop-first` when `snapshot\.when` is `stopped`/,
  )
  throws(project({ snapshot: GOOD, database: 'x/dump' }), /a `database` with a name other than dump/)
  throws(project({ snapshot: GOOD, state: 'none' }), /no `snapshot` when `state` is `none`/)
  throws(project({ snapshot: { ...GOOD, shell: true } }), /unknown setting `snapshot\.shell`/)
  equal(project({ snapshot: GOOD })().snapshot, GOOD)
})

test.run()

async function operatorSays({ home }: Stranger, snapshot: object): Promise<void> {
  const config = JSON.parse(await readFile(home.configPath, 'utf8')) as { update: object }
  await writeFile(home.configPath, JSON.stringify({ ...config, update: { ...config.update, snapshot } }))
}

/** Variables of a start: what its manager is told is in the file `told`. */
async function notified(folder: string): Promise<{ NOTIFY_SOCKET: string; PATH: string }> {
  await writeFile(join(folder, 'systemd-notify'), '#!/bin/sh\necho "$@" >> told\n', { mode: 0o755 })
  return { NOTIFY_SOCKET: join(folder, 'none'), PATH: `${folder}:${process.env['PATH']}` }
}

/** what is in the folder of snapshots, and of what nobody knows */
function left({ home }: Stranger): string[] {
  const folder = join(home.stateDirectory, 'update/snapshots')
  return existsSync(folder) ? readdirSync(folder).toSorted() : []
}

function copyOf(it: Stranger): string {
  return join(it.home.stateDirectory, 'update/snapshots', left(it)[0] ?? '')
}

async function settled(it: Stranger): Promise<Operation> {
  return await until(
    'the outcome',
    async () => {
      const { operation } = JSON.parse((await it.ask('GET', '/admin/update/status')).text) as Status
      return operation === null || operation.outcome === null ? null : operation
    },
    30_000,
    100,
  )
}
