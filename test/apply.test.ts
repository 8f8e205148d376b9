// What an install changes on the disk, and that a failure puts it back.

import { readlink, stat, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { type Carrier, carryOut } from '../deploy/host/plan/apply.ts'
import type { Step } from '../deploy/host/plan/step.ts'
import { whoCanChange } from '../deploy/lib/trusted.ts'
import { is, rejects } from './assert.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('install: apply')

/** For steps that change files as the user of this command. */
const CARRIER = { say() {} } as unknown as Carrier

for (const before of ['/opt/beacon/beacon', null]) {
  test(`an install that fails ${before === null ? 'removes its link' : 'points the command back to what it was'}`, async () => {
    await using made = await temporary('apply')
    const folder = made.path
    const path = join(folder, 'beacon')
    if (before !== null) await symlink(before, path)
    const steps: Step[] = [
      { do: 'link', path, target: '/usr/local/lib/beacon/beacon' },
      { do: 'run', command: ['false'] },
    ]
    await rejects(carryOut(steps, CARRIER))
    is(await readlink(path).catch(() => null), before)
  })
}

test('whatever the umask, only its owner can write in what an install makes', async () => {
  await using made = await temporary('apply')
  const folder = join(made.path, 'bin')
  const inherited = process.umask(0)
  try {
    await carryOut([{ do: 'link', path: join(folder, 'beacon'), target: '/usr/local/lib/beacon/beacon' }], CARRIER)
    is(process.umask(), 0, 'expected the umask that it found')
  } finally {
    process.umask(inherited)
  }
  is((await stat(folder)).mode & 0o7777, 0o755)
})

const OTHERS: [who: { uid: number; mode: number }, said: string][] = [
  [{ uid: 1000, mode: 0o100755 }, 'user id 1000'],
  [{ uid: 0, mode: 0o040777 }, 'everyone (mode 0777)'],
  [{ uid: 0, mode: 0o041777 }, 'everyone (mode 1777)'],
  [{ uid: 0, mode: 0o040775 }, 'the owning group (mode 0775)'],
]

test('who can change what is not trusted is told by number, or by the mode that lets others write', () => {
  for (const [who, said] of OTHERS) is(whoCanChange(who), said)
})

test.run()
