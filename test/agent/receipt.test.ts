// The receipt: what makes an executable a managed install, and what does not.

import { chown, readdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeDisk } from '../../agent/disk/disk.ts'
import { decideManagement } from '../../agent/managed.ts'
import { isNamedBy, parseReceipt, readReceiptBeside, type Receipt, writeReceipt } from '../../agent/disk/receipt.ts'
import { receiptPath } from '../../agent/disk/places.ts'
import { equal, is, match, ok, throws, withCode } from '../assert.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

async function inFolder(body: (executable: string, receipt: Receipt, folder: string) => Promise<void>): Promise<void> {
  await using made = await temporary('receipt')
  const folder = made.path
  const executable = join(folder, 'beacon')
  await writeFile(executable, '#!/bin/sh\n', { mode: 0o755 })
  await body(executable, receiptOf(executable), folder)
}

function receiptOf(executable: string): Receipt {
  return {
    format: 1,
    service: 'beacon',
    executable,
    scope: 'user',
    supervisor: 'none',
    user: 'somebody',
    stateDirectory: '/var/lib/beacon',
    configPath: '/etc/beacon/config.json',
    feed: 'github:acme/beacon',
    installedAt: '2026-11-21T09:00:00.000Z',
    options: { start: true },
  }
}

const test = suite('receipt')

test('is read as it was written, beside its executable, for everybody to read', async () => {
  await inFolder(async (executable, receipt, folder) => {
    is(await readReceiptBeside(executable), null)
    await writeReceipt(makeDisk(), receipt)
    equal(await readReceiptBeside(executable), receipt)
    is((await stat(receiptPath(executable))).mode & 0o777, 0o644)
    equal((await readdir(folder)).toSorted(), ['beacon', 'receipt.json'])
  })
})

test('one that lacks anything, or has it of a wrong type, is refused with what is wrong', () => {
  const good = receiptOf('/opt/beacon/beacon') as unknown as Record<string, unknown>
  equal(parseReceipt(JSON.stringify(good), 'x'), good)
  for (const key of Object.keys(good)) {
    for (const value of [undefined, null, 7, [], '']) {
      if (value === '' && !['executable', 'scope', 'supervisor'].includes(key)) continue
      if (key === 'options' && Array.isArray(value)) continue
      const text = JSON.stringify({ ...good, [key]: value })
      const { message } = throws(() => parseReceipt(text, '/opt/receipt.json'), withCode('refused'))
      ok(message.includes(key === 'format' ? 'format 1' : `\`${key}\``), `${key}: ${message}`)
      ok(message.includes('/opt/receipt.json'))
    }
  }
  const others = ['', '{', 'null', '[]', '1', JSON.stringify({ ...good, executable: 'beacon' }), ' '.repeat(70_000)]
  for (const text of others) throws(() => parseReceipt(text, 'x'), withCode('refused'))
})

test('names an executable through links, and no other', async () => {
  await inFolder(async (executable, receipt, folder) => {
    const link = join(folder, 'link')
    await symlink(executable, link)
    ok(await isNamedBy(receipt, executable))
    ok(await isNamedBy(receipt, link))
    ok(await isNamedBy({ ...receipt, executable: link }, executable))
    ok(!(await isNamedBy({ ...receipt, executable: join(folder, 'other') }, executable)))
    ok(!(await isNamedBy({ ...receipt, executable: receiptPath(executable) }, executable)))
  })
})

test.run()

const managed = suite('managed')

managed('with a receipt that names this very executable, and only then', async () => {
  await inFolder(async (executable, receipt, folder) => {
    const why = async (own: string | null = executable, environment = {}, platform: NodeJS.Platform = 'linux') => {
      const management = await decideManagement('beacon', own, { environment, platform })
      if (management.managed) return 'managed'
      ok(management.route.length > 20 && !management.route.includes('docs/'), management.route)
      ok(management.reason.length > 20, management.reason)
      return management.why
    }
    ok(['by_hand', 'container'].includes(await why()), 'without a receipt') // a host may itself be a container
    await writeReceipt(makeDisk(), receipt)
    is(await why(), 'managed')
    is(await why(executable, {}, 'darwin'), 'managed')
    is(await why(executable, {}, 'win32'), 'windows')
    is(await why(null), 'source')
    is(await why(executable, { BATON_CONTAINER: '1' }), 'container')
    is(await why(executable, { BATON_CONTAINER: '0' }), 'managed')
    const link = join(folder, 'link')
    await symlink(executable, link)
    is(await why(link), 'managed')
    const old = await decideManagement('beacon', executable, {
      environment: {},
      platform: 'linux',
      missing: ['node:ffi'],
    })
    ok(!old.managed && old.why === 'node', 'a Node that cannot hand over makes no managed install')
    await writeReceipt(makeDisk(), { ...receipt, service: 'lighthouse' })
    is(await why(), 'other_executable')
    await writeFile(receiptPath(executable), JSON.stringify({ ...receipt, executable: '/opt/beacon/beacon' }))
    is(await why(), 'other_executable')
    // for the whole host root's own receipt decides, wherever another one lies
    await writeFile(receiptPath(executable), JSON.stringify({ ...receipt, scope: 'system' }))
    is(await why(), 'other_executable')
    await writeFile(receiptPath(executable), JSON.stringify(receipt))
    is(await why(), 'managed')
    if (process.getuid?.() !== 0) return
    // the word of somebody else about our executable
    await chown(receiptPath(executable), 12_345, 12_345)
    is(await why(), 'other_executable')
  })
})

managed('a receipt that cannot be used keeps updates off, not the service', async () => {
  await inFolder(async (executable, receipt) => {
    for (const text of ['', '{"format":2}', JSON.stringify({ ...receipt, scope: 'galaxy' })]) {
      await writeFile(receiptPath(executable), text)
      const management = await decideManagement('beacon', executable, { environment: {}, platform: 'linux' })
      ok(!management.managed)
      if (management.managed) continue
      is(management.why, 'other_executable')
      match(management.reason, /receipt\.json cannot be used: /)
      match(management.route, /install\.sh/)
    }
  })
})

managed.run()
