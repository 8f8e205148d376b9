// A disk that is full, a real one: in the middle of a download, and when somebody wants to go back because of it.

import type { FeedChoice } from '../agent/words/feed-choice.ts'
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmdirSync, statfsSync, statSync, writeFileSync } from 'node:fs'
import { mkdir, open, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { zstdCompressSync } from 'node:zlib'
import { makeDisk } from '../agent/disk/disk.ts'
import { openInstall } from '../agent/disk/managed-install.ts'
import { journalPath, markPath } from '../agent/disk/places.ts'
import { ownState, readMark } from '../agent/disk/state-mark.ts'
import { openFeed } from '../agent/update/feed/open.ts'
import { rehearsalFolder } from '../agent/update/rehearsal/ask-cage.ts'
import { rehearse } from '../agent/update/rehearsal/rehearse.ts'
import { type Operation, type Status } from '../agent/words/state.ts'
import { newOperation } from '../agent/update/operation.ts'
import { examine } from '../deploy/host/doctor/doctor.ts'
import { layoutOf } from '../deploy/host/place/layout.ts'
import { foresee } from '../deploy/host/service/foresee.ts'
import { equal, is, match, ok, rejects, throws, withCode } from './assert.ts'
import { sha256Of, until } from './fixtures/evidence.ts'
import { type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease } from './fixtures/releases.ts'
import { buildLedgers, unpackLedger } from './lab/ledger.ts'
import { releaseServer } from './lab/release-server.ts'
import { suite } from './suite.ts'

const noMounts = process.getuid?.() === 0 && process.platform === 'linux' ? null : 'needs root, to mount a small disk'
const test = suite('full disk', { skip: noMounts, timeoutMs: 60_000 })
const MIB = 1024 * 1024
const built = noMounts === null ? Promise.all(['v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag))) : null

test('full in the middle of a download: failed, nothing changed, what was fetched goes; with room the next one goes through', async () => {
  await using world = await onSmallDisk({ stallAfter: 20_000 })
  const { home, disk } = world
  const file = await sha256Of(home.executable)
  const beside = readdirSync(join(home.home, 'opt'))
  is((await home.api('POST', '/admin/update')).status, 202)
  await until('some bytes', async () => ((await statusOf(home)).operation?.bytes ?? 0) > 0)
  await disk.fill()
  world.goOn()
  const failed = await home.settled()
  equal([failed.outcome, failed.error?.code, failed.stage], ['failed', 'download_failed', 'download'])
  match(failed.error?.message ?? '', /space|room|full|ENOSPC/)
  equal([await sha256Of(home.executable), readdirSync(join(home.home, 'opt'))], [file, beside])
  is((await home.api('GET', '/healthz')).status, 200)
  await disk.empty()
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
})

test('a release that names no size and unpacks to more than there is: failed, and the room of the service was never touched', async () => {
  await using world = await onSmallDisk({}, makeBomb)
  const { home, disk } = world
  const beside = readdirSync(join(home.home, 'opt'))
  const before = disk.free()
  let least = before
  const timer = setInterval(() => (least = Math.min(least, disk.free())), 1)
  is((await home.api('POST', '/admin/update')).status, 202)
  const failed = await home.settled()
  clearInterval(timer)
  equal([failed.outcome, failed.error?.code, failed.stage], ['failed', 'download_failed', 'download'])
  match(failed.error?.message ?? '', /less than 32 MiB would be left .* for the service/)
  ok(least >= 32 * MIB && least < before - 8 * MIB, `${least} of ${before} were free`)
  equal(readdirSync(join(home.home, 'opt')), beside)
})

test('the update, its dry run and doctor say the same of the room: too little by 100 kB, and enough with 1 MiB more', async () => {
  await using world = await onSmallDisk({})
  const { home, disk } = world
  using database = new DatabaseSync(home.database)
  database.exec(`create table large (bytes blob); insert into large values (zeroblob(${8 * MIB}))`)
  const [, v110] = (await built) ?? []
  const sizes = ['', '-wal'].map((end) => statSync(`${home.database}${end}`).size)
  const snapshot = Math.ceil(sizes.reduce((sum, size) => sum + size) * 1.1)
  const needed = 32 * MIB + (v110?.sizeBytes ?? 0) + snapshot + MIB
  await disk.leave(needed - 100_000)
  const short = `, ${Math.ceil(needed / MIB)} MiB needed for`
  match((await rejects(dryRun(home), withCode('refused'))).message, short)
  match(await doctor(home), /^problem not enough space: /)
  is((await home.api('POST', '/admin/update')).status, 202)
  const failed = await home.settled()
  equal([failed.outcome, failed.error?.code, failed.stage], ['failed', 'refused', 'download'])
  match(failed.error?.message ?? '', short)
  await disk.empty()
  await disk.leave(needed + MIB)
  is((await dryRun(home)).would, 'updated')
  match(
    await doctor(home),
    /^ok \d+ MiB free in .* needed for the executable, a snapshot of the database and update records$/,
  )
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
  ok(disk.free() >= 32 * MIB, `${disk.free()} are free for the service`)
})

test('a snapshot is for its owner only', async () => {
  await using world = await onSmallDisk({})
  const { home } = world
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
  const folder = join(home.stateDirectory, 'update', 'snapshots')
  const names = readdirSync(folder)
  equal([names.length, statSync(folder).mode & 0o777], [1, 0o700])
  is(statSync(join(folder, names[0] ?? '')).mode & 0o777, 0o600)
})

test('full in the gap of a switch with no way back: nothing is lost, no half of a copy stays, and with room it goes on', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'baton-full-'))
  mount(folder)
  try {
    const [disk, state] = [smallDisk(folder), join(folder, 'state')]
    const database = join(state, 'ledger.db')
    await mkdir(join(state, 'update'), { recursive: true })
    fillLarge(database, 'old')
    const mark = { operationId: 'op', database, owner: 'v1.0.0', next: 'v1.1.0', other: null, exchanged: null }
    await writeFile(markPath(state), JSON.stringify({ ...mark, moving: null }))
    await writeFile(journalPath(state), JSON.stringify({ operation: { id: 'op', outcome: null } }))
    for (const [tag, rows] of [
      ['v1.1.0', ['old']],
      ['v1.0.0', ['old', 'new']],
    ] as const) {
      // the last of these has room for the copy, and none to note that the exchange begins
      for (const free of [0, 4 * MIB, statSync(readMark(state)?.other?.path ?? database).size]) {
        await disk.leave(free)
        const before = disk.free()
        const where = `${tag} with ${before} bytes`
        throws(() => ownState(state, tag), /ENOSPC/)
        is(disk.free(), before, where)
        await disk.empty()
        equal(textsIn(database), rows, where)
      }
      ownState(state, tag)
      if (tag === 'v1.1.0') fillLarge(database, 'new')
    }
    const { exchanged } = readMark(state) ?? {}
    equal([textsIn(database), textsIn(exchanged?.aside ?? '')], [['old'], ['old', 'new']])
  } finally {
    unmount(folder)
  }
})

test('full in the middle of the copy for a rehearsal: not tried, with the reason; no copy stays, and the update goes on', async () => {
  const [service, name] = [`full-${process.pid}`, 'ledger.db']
  const state = join('/var/lib', service)
  const cage = rehearsalFolder(state)
  const feed = mkdtempSync(join(tmpdir(), 'baton-feed-'))
  const small = mkdtempSync(join(tmpdir(), 'baton-full-'))
  mount(small)
  await mkdir(state)
  await mkdir(cage)
  await mkdir(join(small, 'cage'))
  is(spawnSync('mount', ['--bind', join(small, 'cage'), cage]).status, 0)
  mounted.add(cage)
  try {
    await buildLedgers(feed, ['v1.0.0', 'v1.1.0'], { service })
    const [present, candidate] = [join(state, 'present'), join(state, 'candidate')]
    await unpackLedger(feed, 'v1.0.0', present)
    await unpackLedger(feed, 'v1.1.0', candidate)
    fillLarge(join(state, name), 'old')
    for (const free of [0, 4 * MIB]) {
      // the disk was looked at, and now the copy begins
      const disk = makeDisk((moment, kind) => {
        if (moment === 'after' && kind === 'create') smallDisk(small).leaveAtOnce(free)
      })
      const receipt = { supervisor: 'systemd', configPath: join(state, 'config.json') } as const
      const about = { service, executable: present, current: 'v1.0.0', stateDirectory: state, receipt }
      await using from = openFeed(feed, { service, stateDirectory: state })
      const install = openInstall({ ...about, database: join(state, name), feed: from, log: () => {} })
      const known = {
        id: 'op',
        kind: 'update',
        from: 'v1.0.0',
        to: 'v1.1.0',
        startedAt: '2026-11-21T09:00:00Z',
      } as const
      const operation = newOperation(known)
      const release = await from.byTag('v1.1.0')
      const on = { ...install, disk }
      await rehearse({ install: on, operation, release, candidate, allowIrreversible: false, signal: undefined })
      is(operation.trial?.verdict, 'untried')
      match(operation.trial?.reason ?? '', /disk (is|I\/O)|full|ENOSPC|no space/i)
      equal(readdirSync(cage), [])
      equal(textsIn(join(state, name)), ['old'])
      await smallDisk(small).empty()
    }
  } finally {
    unmount(cage)
    unmount(small)
    await rm(state, { recursive: true })
    await rm(feed, { recursive: true })
  }
})

test('full to the last byte a rollback goes through, is in the journal, and the next update works again', async () => {
  await using world = await onSmallDisk({})
  const { home, disk } = world
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
  await disk.fill()
  is((await home.api('POST', '/admin/update', { tag: 'v1.0.0' })).status, 202)
  equal((await home.settled()).outcome, 'failed', 'an update needs room, and says so in what is kept for going back')
  is((await home.api('POST', '/admin/update/rollback')).status, 202)
  const back = await home.settled()
  equal([back.outcome, back.error], ['rolled_back', null])
  is((await statusOf(home)).instance.version, 'v1.0.0')
  await disk.empty()
  is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
  is((await home.settled()).outcome, 'updated')
  ok(readdirSync(join(home.stateDirectory, 'update')).includes('reserve'), 'there is room to go back again')
})

test('`snapshot` to a full disk, and to stdout with a full state directory: exit code 7, it says so, and nothing is left', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'baton-full-'))
  mount(folder)
  try {
    const disk = smallDisk(folder)
    const config = join(folder, 'config.json')
    await writeFile(config, JSON.stringify({ dashboard: { password: 'p'.repeat(32) }, stateDirectory: folder }))
    fillLarge(join(folder, 'beacon.db'), 'a row')
    await disk.fill()
    const before = readdirSync(folder)
    const module = join(import.meta.dirname, '../agent/service/snapshot.ts')
    const script = `import { snapshot } from ${JSON.stringify(module)}
      process.exitCode = await snapshot({ service: 'beacon', tag: 'v1.0.0' }, process.argv.slice(1), process.env)`
    for (const target of [join(folder, 'copy.db'), '-']) {
      const words = ['--import', 'tsx', '--input-type=module', '-e', script, '--', target, '--config', config]
      const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8' })
      equal([status, stdout], [7, ''], stderr)
      match(
        stderr,
        /error: there is no room for a copy of .*beacon\.db in .*: the disk is full\nhint: the incomplete copy was removed/,
      )
      equal(
        readdirSync(folder).filter((name) => !/-(wal|shm)$/.test(name)),
        before,
      )
    }
    await disk.empty()
    await writeFile(join(folder, 'copy.db'), 'theirs')
    const words = ['--import', 'tsx', '--input-type=module', '-e', script, '--', join(folder, 'copy.db')]
    is(spawnSync(process.execPath, [...words, '--config', config]).status, 7)
    is(readFileSync(join(folder, 'copy.db'), 'utf8'), 'theirs')
  } finally {
    unmount(folder)
  }
})

test.run()

/** `change`: what somebody publishes there, where the API alone tells sizes. */
async function onSmallDisk(faults: object, change: ((feed: string) => Promise<void>) | null = null) {
  const [v100, v110] = (await built) ?? []
  if (v100 === undefined || v110 === undefined) throw new Error('expected two releases')
  const folder = mkdtempSync(join(tmpdir(), 'baton-full-'))
  const feed = mkdtempSync(join(tmpdir(), 'baton-feed-'))
  mount(folder)
  await publishTo(feed, [v100, v110])
  await change?.(feed)
  const server = await releaseServer({ dir: feed, turns: [faults] })
  const home = await install({
    release: v100,
    feed: change === null ? server.staticUrl : server.feed,
    home: join(folder, 'home'),
  })
  await home.start()
  return {
    home,
    disk: smallDisk(folder),
    goOn: () => server.heal(),
    async [Symbol.asyncDispose]() {
      await home[Symbol.asyncDispose]()
      await server.close()
      unmount(folder)
      await rm(feed, { recursive: true })
    },
  }
}

/** Writes a row, and as many bytes again as a page cache does not hide. */
function fillLarge(path: string, text: string): void {
  using database = new DatabaseSync(path)
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t(x); CREATE TABLE IF NOT EXISTS large(bytes)')
  database.prepare('INSERT INTO t VALUES (?)').run(text)
  database.exec(`INSERT INTO large VALUES (randomblob(${8 * MIB}))`)
}

function textsIn(path: string): unknown[] {
  using database = new DatabaseSync(path)
  is(database.prepare('PRAGMA integrity_check').get()?.['integrity_check'], 'ok', path)
  return database
    .prepare('SELECT x FROM t')
    .all()
    .map(({ x }) => x)
}

/** v1.1.0 as a sum and nothing else, which unpacks to twice the disk. */
async function makeBomb(feed: string): Promise<void> {
  const folder = join(feed, 'v1.1.0')
  const name = readdirSync(folder).find((file) => file.endsWith('.zst')) ?? ''
  await rm(folder, { recursive: true })
  await mkdir(folder)
  const asset = zstdCompressSync(Buffer.alloc(192 * MIB))
  await writeFile(join(folder, name), asset)
  await writeFile(join(folder, 'SHA256SUMS'), `${createHash('sha256').update(asset).digest('hex')}  ${name}\n`)
}

function smallDisk(folder: string) {
  const path = join(folder, 'filler')
  return {
    async fill() {
      await using file = await open(path, 'w')
      for (const size of [MIB, 4096, 1]) {
        const piece = Buffer.alloc(size)
        while (
          await file.write(piece).then(
            ({ bytesWritten }) => bytesWritten === size,
            () => false,
          )
        );
      }
      is(statfsSync(folder).bavail, 0)
    },
    /** of this many bytes, in whole pages */
    leave: (bytes: number) => writeFile(path, allBut(bytes, folder)),
    leaveAtOnce: (bytes: number) => writeFileSync(path, allBut(bytes, folder)),
    empty: () => rm(path),
    /** bytes */
    free() {
      const { bavail, bsize } = statfsSync(folder)
      return bavail * bsize
    },
  }
}

function allBut(bytes: number, folder: string): Buffer {
  const { bavail, bsize } = statfsSync(folder)
  return Buffer.alloc(Math.max(0, Math.ceil((bavail * bsize - bytes) / bsize) * bsize), 1)
}

const mounted = new Set<string>()

function mount(folder: string): void {
  if (mounted.size === 0) {
    process.on('exit', () => mounted.forEach(unmount))
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => process.exit(1))
  }
  is(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=96m', 'tmpfs', folder]).status, 0)
  mounted.add(folder)
}

function unmount(folder: string): void {
  spawnSync('umount', ['--lazy', folder])
  mounted.delete(folder)
  rmdirSync(folder)
}

const QUIET = {
  stage() {},
  bytes() {},
  note() {},
  supervisor: () => null as never,
  feedAt: (choice: FeedChoice) => choice,
}

async function dryRun({ receipt }: Install) {
  const request = { kind: 'update', tag: null, who: 'a test', lockTimeoutMs: 0, healthTimeoutMs: 0, healthUrl: null }
  return await foresee(receipt, request as Parameters<typeof foresee>[1], QUIET)
}

/** What it says of the space; the feed is asked for the size. */
async function doctor({ receipt, executable }: Install): Promise<string> {
  const { service, stateDirectory, feed } = receipt
  const choices = { scope: 'user', prefix: join(executable, '..'), 'state-dir': stateDirectory, feed } as const
  const layout = layoutOf(service, choices as never, { name: 'nobody', home: '/nonexistent', environment: {} })
  const subject = { layout, receipt, feed, executableBytes: 200 * MIB, unpackedBytes: 0, withUnit: false, given: [] }
  const findings = await examine(subject, 'all', QUIET)
  const [space] = findings.filter(({ check }) => check === 'space')
  return `${space?.level} ${space?.message}`
}

async function statusOf(home: Install): Promise<Status> {
  return (await home.api('GET', '/admin/update/status')).body as Status & { operation: Operation | null }
}
