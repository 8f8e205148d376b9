// Whether a release is to blame for how its switch ended: what a host lacks is never remembered against it.

import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { hindranceOf, isBlameless, KILLED_FOR_MEMORY, KNOWS_NO_SWITCH } from '../agent/words/blame.ts'
import { switchFailure } from '../agent/handover/give/trial.ts'
import { equal, is, match } from './assert.ts'
import { journalOf } from './fixtures/evidence.ts'
import { install } from './fixtures/install.ts'
import { programRelease, publishTo } from './fixtures/releases.ts'
import { suite } from './suite.ts'

const test = suite('blame', { timeoutMs: 60_000 })
const ONLY = join(import.meta.dirname, 'fixtures/only.ts')

const SPACE = 'this host has no disk space or no inodes left'
const FILES = 'this host has no descriptors for open files left'
const MEMORY = 'this host has no memory left'
const LOCK = 'another process has a lock on the database'
const ENDS: readonly (readonly [how: string, said: string | null, lack: string | null])[] = [
  ['it exited with code 1', "Error: ENOSPC: no space left on device, open '/var/lib/svc/x'", SPACE],
  ['it exited with code 1', 'SqliteError: database or disk is full', SPACE],
  ['it exited with code 1', 'Error: EDQUOT: disk quota exceeded, write', SPACE],
  ["it says: ENOSPC: no space left on device, mkdir '/tmp/a'", null, SPACE],
  ['it exited with code 1', "Error: EMFILE: too many open files, open 'a.js'", FILES],
  ['it exited with code 1', 'Error: ENFILE: file table overflow', FILES],
  ['it exited with code 1', 'Error: ENOMEM: not enough memory, read', MEMORY],
  ['it exited with code 1', 'Error: spawn Cannot allocate memory', MEMORY],
  ['it exited with code 1', 'Error: spawn /bin/true EAGAIN', 'this host starts no more processes or threads'],
  [KILLED_FOR_MEMORY, null, MEMORY],
  ['it exited with code 1', 'Error: database is locked', LOCK],
  ['it exited with code 1', 'SqliteError [SQLITE_BUSY]: database is locked', LOCK],
  ['it exited with code 1', 'Error: database table is locked: notes', null],
  ['it exited with code 1', null, null],
  ['it exited with code 0', KNOWS_NO_SWITCH, 'it cannot take over from this release'],
  ['it exited with code 0', null, null],
  ['it exited with code 1', 'Error: half-way', null],
  ['it was ended by SIGKILL', null, null],
  ['it was ended by SIGSEGV', 'full of notes', null],
  ['it was not ready within 60000 ms: it answered with 503', null, null],
  ['it answers nobody', 'Error: read EAGAIN', null],
]

test('what a host lacks is no evidence against a release, and everything else is', () => {
  for (const [how, said, lack] of ENDS) is(hindranceOf({ how, said }), lack, `${how}, ${said}`)
})

test('a switch that failed for want of something says so, and is not held against the release', async () => {
  for (const [how, said, lack] of ENDS) {
    const child = { lastWords: () => Promise.resolve(said) }
    const failure = await switchFailure('restart_failed', 'v1.1.0', how, new Error(how), child)
    is(isBlameless(failure), lack !== null, `${how}, ${said}`)
    if (lack !== null) match(failure.message, new RegExp(`${lack}, which is not held against v1\\.1\\.0$`))
  }
})

test('a release that finds a full disk in a switch is put back, and `latest` tries it again', async () => {
  const [old, next] = [await programRelease('v1.0.0', ONLY), await programRelease('v1.1.0', ONLY)]
  await using home = await install({ release: old, update: { quietMs: 500, probationMs: 500, holdMs: 60_000 } })
  await publishTo(home.receipt.feed, [old, next])
  const fault = join(home.stateDirectory, 'fault')
  await writeFile(fault, 'disk-full')
  await home.start()
  is((await home.api('POST', '/admin/update')).status, 202)
  const ended = await home.settled()
  is(ended.outcome, 'reverted')
  match(
    ended.error?.message ?? '',
    /ENOSPC.*; this host has no disk space or no inodes left, which is not held against/,
  )
  equal((await journalOf(home)).bad, [])
  await rm(fault)
  is((await home.api('POST', '/admin/update')).status, 202)
  is((await home.settled()).outcome, 'updated')
})

test.run()
