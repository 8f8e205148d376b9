// Root's command names the process of another user that has the database open. A real process has it open.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { foreignHolder } from '../agent/disk/sqlite-locks.ts'
import { BatonError } from '../agent/words/errors.ts'
import { withOpener } from '../deploy/host/service/opener.ts'
import { equal, is, match } from './assert.ts'
import { suite } from './suite.ts'

const skip = process.getuid?.() === 0 ? null : 'only root sees what another user has open'
const test = suite('opener', { skip })

test('a process of another user that has the database open is told with its command, pid and user', async () => {
  const home = await mkdtemp(join(await realpath(tmpdir()), 'baton-opener-'))
  const database = join(home, 'ledger.db')
  await writeFile(database, '')
  const opener = spawn('/bin/sh', ['-c', `exec 3<"$0"; echo open; exec sleep 61 3<&3`, database], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  try {
    await once(opener.stdout, 'data')
    const found = await foreignHolder(database)
    match(found ?? '', new RegExp(`^\\w+ \\(pid ${opener.pid}\\)$`)) // root sees every process
    const said = (words: string) =>
      new BatonError('refused', words, { hint: 'end that first', members: { from: 'v1' } })
    const forms = [
      (who: string) => `the database cannot be replaced while ${who} has ${database} open`,
      (who: string) => `v2 did not take over: ${who} has ${database} open, so the database cannot be replaced`,
    ]
    for (const form of forms) {
      const named = await withOpener(said(form("another user's process")))
      is(named.message, form(`sleep 61 (pid ${opener.pid}, user root)`))
      equal([named.code, named.hint, named.members], ['refused', 'end that first', { from: 'v1' }])
    }
    opener.kill('SIGKILL')
    await once(opener, 'exit')
    is(
      (await withOpener(said(forms[0]?.("another user's process") ?? ''))).message,
      forms[0]?.("another user's process"),
    )
  } finally {
    opener.kill('SIGKILL')
    await rm(home, { recursive: true, force: true })
  }
})

test.run()
