// What an install changes on the disk, and that a failure puts it back.

import { readlink, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { type Carrier, carryOut } from '../deploy/host/plan/apply.ts'
import type { Step } from '../deploy/host/plan/step.ts'
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

test.run()
