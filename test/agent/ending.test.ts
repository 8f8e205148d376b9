// What a start and the next operation make of an operation that nobody is at any more: real files, a real journal, and executables that
// print their tag. What a kill leaves at each change of the disk is in test/crash.test.ts.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { copyName } from '../../agent/disk/copies.ts'
import { type ManagedInstall, openInstall } from '../../agent/disk/managed-install.ts'
import { snapshotDirectory } from '../../agent/disk/places.ts'
import type { Receipt } from '../../agent/disk/receipt.ts'
import { noteStart } from '../../agent/own.ts'
import { closeInterrupted, recover, settleProbation } from '../../agent/update/ending.ts'
import { begin } from '../../agent/update/operation.ts'
import { snapshotFor } from '../../agent/update/own-data.ts'
import { openFeed } from '../../agent/update/feed/open.ts'
import { rescue } from '../../agent/update/rescue.ts'
import { takeBack } from '../../agent/update/steps/swap.ts'
import { BatonError } from '../../agent/words/errors.ts'
import type { Outcome } from '../../agent/words/state.ts'
import { equal, is, match, ok, rejects, withCode } from '../assert.ts'
import { temporary } from '../lab/temporary.ts'
import { suite } from '../suite.ts'

const test = suite('ending', { timeoutMs: 30_000 })

interface World {
  install: ManagedInstall
  receipt: Receipt
  /** what the executable in place says beside its tag */
  inPlace(): Promise<string>
}

/** A rollback that is left in probation: to another executable of the same tag, whose bytes differ if `bytes` do. */
async function rolledBack(bytes: readonly [own: string, backup: string], body: (world: World) => Promise<void>) {
  await using made = await temporary('ending')
  const executable = join(made.path, 'svc')
  const write = async (path: string, text: string) =>
    await writeFile(path, `#!/bin/sh\necho "svc v1.0.0" # ${text}\n`, { mode: 0o755 })
  await write(executable, bytes[0])
  await write(`${executable}.backup`, bytes[1])
  const stateDirectory = join(made.path, 'state')
  const feed = openFeed(made.path, { service: 'svc', stateDirectory: null })
  const about = { service: 'svc', executable, current: 'v1.0.0', stateDirectory, database: null }
  const install = openInstall({ ...about, feed, log: () => {} })
  const left = await begin(install, { kind: 'rollback', tag: null, who: 'a test' }, async () => ({ open: true }))
  await left.done
  is((await install.journal.read()).operation?.outcome, null)
  const text = async () => (await readFile(executable, 'utf8')).split('# ')[1]?.trim() ?? ''
  const receipt = { service: 'svc', executable, stateDirectory } as Receipt
  await body({ install, receipt, inPlace: text })
}

async function ended({ install }: World): Promise<[Outcome | null | undefined, string[]]> {
  const { operation, bad, probation } = await install.journal.read()
  if (operation?.outcome !== null) is(probation, null)
  return [operation?.outcome, bad.map(({ reason }) => reason)]
}

/** As the holder does: first the disk, then the note. */
async function putBack({ install: { disk, places, journal } }: World, isNoted: boolean): Promise<void> {
  await takeBack(disk, places, 'exchange')
  await journal.change(({ operation, probation }) => {
    if (operation !== null) operation.stage = 'restart'
    if (probation !== null && isNoted)
      probation.failed = { code: 'restart_failed', message: 'it died', isBlameless: false }
  })
}

test('one tag and other bytes: what was put back is reverted, whether the holder could note why or not', async () => {
  for (const isNoted of [true, false]) {
    await rolledBack(['one', 'other'], async (world) => {
      is(await world.inPlace(), 'other')
      await putBack(world, isNoted)
      is(await world.inPlace(), 'one')
      is(await recover(world.install), null)
      equal(await ended(world), ['reverted', isNoted ? ['it died'] : []])
      is(await world.inPlace(), 'one')
    })
  }
})

test('one tag and the same bytes: what the holder has put back is reverted, and only then', async () => {
  await rolledBack(['same', 'same'], async (world) => {
    await putBack(world, true)
    is(await recover(world.install), null)
    equal(await ended(world), ['reverted', ['it died']])
  })
  await rolledBack(['same', 'same'], async (world) => {
    ok((await recover(world.install)) !== null)
    await settleProbation(world.install)
    equal(await ended(world), ['rolled_back', []])
  })
})

test('a rollback that fails names the way back with the data, if there is a snapshot of them', async () => {
  await using made = await temporary('ending')
  const [executable, stateDirectory] = [join(made.path, 'svc'), join(made.path, 'state')]
  await writeFile(executable, '#!/bin/sh\necho svc v1.1.0\n', { mode: 0o755 })
  await writeFile(`${executable}.backup`, '#!/bin/sh\necho svc v1.0.0\n', { mode: 0o755 })
  const feed = openFeed(made.path, { service: 'svc', stateDirectory: null })
  const about = { service: 'svc', executable, current: 'v1.1.0', stateDirectory }
  const install = openInstall({ ...about, database: join(stateDirectory, 'svc.db'), feed, log: () => {} })
  const hintOf = async () => {
    const dies = () => Promise.reject(new BatonError('restart_failed', 'it died'))
    await (
      await begin(install, { kind: 'rollback', tag: null, who: 'a test' }, dies)
    ).done
    const { operation } = await install.journal.read()
    equal([operation?.outcome, operation?.error?.code], ['reverted', 'restart_failed'])
    return operation?.error?.hint ?? ''
  }
  for (const bad of ['', 'x'.repeat(501), 5 as unknown as string])
    await rejects(
      begin(install, { kind: 'rollback', tag: null, who: 'a test', bad }, () => Promise.resolve({})),
      withCode('invalid_request'),
    )
  is(await hintOf(), '')
  const folder = snapshotDirectory(stateDirectory)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, copyName('svc.db', 'v1.0.0', new Date())), '')
  is(await hintOf(), '', 'without the first code of a release, nothing could restore it')
  const { message, hint } = (await rejects(snapshotFor(install, 'v1.0.0'), withCode('refused'))) as BatonError
  match(`${message}; ${hint}`, /was not made by `baton build`; run `.*stop`, `.*state restore NAME`, then `.*start`$/)
  noteStart({ argv: [], executable, isChild: false, directory: null, configuration: null })
  match(await hintOf(), /^if v1\.0\.0 cannot read the data written by v1\.1\.0, use `rollback --restore-state`/)
})

test('one tag: the one in place goes on with its probation, and the rescue puts the other back', async () => {
  await rolledBack(['one', 'other'], async (world) => {
    ok((await recover(world.install)) !== null)
    const failed = { failed: true, reason: 'killed' }
    is((await rescue(world.receipt, failed)).did, 'counted')
    is((await rescue(world.receipt, failed)).did, 'reverted')
    is(await world.inPlace(), 'one')
    const [outcome, reasons] = await ended(world)
    is(outcome, 'reverted')
    match(reasons.join(), /v1\.0\.0 failed 2 times during probation: killed/)
  })
  await rolledBack(['one', 'other'], async (world) => {
    await putBack(world, false)
    equal(await rescue(world.receipt, { failed: true, reason: 'killed' }), {
      did: 'nothing',
      why: 'the previous build of v1.0.0 is installed',
    })
  })
})

test('the next operation: what never failed is done; what crashed and stays in place is not reverted, but it is remembered', async () => {
  await rolledBack(['one', 'other'], async (world) => {
    await closeInterrupted(world.install)
    equal(await ended(world), ['rolled_back', []])
  })
  await rolledBack(['one', 'other'], async (world) => {
    is((await rescue(world.receipt, { failed: true, reason: 'killed' })).did, 'counted')
    await closeInterrupted(world.install)
    const [outcome, reasons] = await ended(world)
    is(outcome, 'failed')
    match(reasons.join(), /^interrupted during the restart stage: the next operation found it unfinished$/)
    is(await world.inPlace(), 'other')
  })
})

test.run()
