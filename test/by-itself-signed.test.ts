// A signed feed and the schedule: what is signed goes without the operator's word, and nothing of a feed that is not as it was signed.

import { execFile } from 'node:child_process'
import { appendFile, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { newMemory, type Remembered } from '../agent/update/schedule/memory.ts'
import { is, match, ok } from './assert.ts'
import type { LookOptions } from './crash/by-itself.ts'
import { inCopy, journalOf, makeWorld, versionOf, type World } from './crash/world.ts'
import { makeSignedDist, PAST, type SignedDist, targetsOf } from './lab/signed-dist.ts'
import { makeSigner } from '../deploy/trust/keys.ts'
import { suite } from './suite.ts'

const run = promisify(execFile)
const PROGRAM = fileURLToPath(new URL('crash/by-itself.ts', import.meta.url))
const DAY = 86_400_000
const NOW = Date.parse('2026-11-24T02:10:00Z')

const test = suite('by itself, signed', { timeoutMs: 60_000 })

/** Looks three times, on three days, at a signed feed that `spoil` has changed; resolves to what became of it. */
async function looked(auto: object, spoil: (signed: SignedDist) => Promise<void>, hostId: string | null = null) {
  const pristine = await makeWorld()
  await using signed = await makeSignedDist(['v1.0.0', 'v1.0.1'], { service: 'svc', signedAs: 'svc' })
  try {
    await spoil(signed)
    return await inCopy(pristine, async (world: World) => {
      const configPath = join(world.root, 'config.json')
      await writeFile(configPath, JSON.stringify({ update: { auto } }))
      const memory = { ...newMemory([], NOW), asked: { at: null, next: 0, problem: null, failures: 0 } }
      if (hostId !== null) memory.id = hostId
      await run('mkdir', ['-p', join(world.options.stateDirectory, 'update')])
      await writeFile(join(world.options.stateDirectory, 'update/schedule.json'), JSON.stringify(memory))
      let last: Remembered | null = null
      for (let day = 0; day < 3; day++) {
        const options: LookOptions = {
          ...world.options,
          feed: signed.dist.dir,
          trust: signed.anchor,
          configPath,
          now: NOW + day * DAY,
          dieAt: null,
        }
        const { stdout } = await run(process.execPath, [PROGRAM, JSON.stringify(options)], { timeout: 30_000 })
        last = (JSON.parse(stdout) as { memory: Remembered }).memory
      }
      const { history } = await journalOf(world.options.stateDirectory)
      return { version: await versionOf(world.options.executable), memory: last, history }
    })
  } finally {
    await rm(pristine.root, { recursive: true, force: true })
  }
}

const GO = { mode: 'patch', allow: ['untried'] }

test('a signed patch goes without `allow: unsigned`', async () => {
  const { version, history } = await looked(GO, async () => {})
  is(version, 'v1.0.1')
  is(history.length, 1)
})

const SPOILT: Record<string, [RegExp, (signed: SignedDist) => Promise<void>]> = {
  'signed by a stranger': [
    /not signed by any of the keys/,
    (signed) => signed.publish({ signers: { targets: [makeSigner()] } }),
  ],
  yanked: [
    /^$/,
    async (signed) =>
      await signed.publish({
        targets: await targetsOf(signed.dist.dir, 'svc', { 'v1.0.1': { yanked: 'eats data' } }),
      }),
  ],
  expired: [/expired on/, (signed) => signed.publish({ edit: { timestamp: (file) => void (file.expires = PAST) } })],
  'with another asset than was signed': [
    /sha256|bytes/,
    async ({ dist }) => {
      for (const name of await readdir(join(dist.dir, 'v1.0.1')))
        if (/\.(zst|gz)$/.test(name)) await appendFile(join(dist.dir, 'v1.0.1', name), 'x')
    },
  ],
}

for (const [what, [says, spoil]] of Object.entries(SPOILT)) {
  test(`a release that is ${what} changes nothing`, async () => {
    const { version, memory, history } = await looked(GO, spoil)
    is(version, 'v1.0.0')
    match(memory?.asked.problem ?? history[0]?.error?.message ?? '', says)
    ok(history.length <= 3, JSON.stringify(history.map(({ error }) => error)))
  })
}

test('a staged release goes on the day of the host’s own turn; by hand nobody waits', async () => {
  const steps = [
    { at: '2026-11-24T00:00:00Z', percent: 1 },
    { at: '2026-11-25T00:00:00Z', percent: 100 },
  ]
  const stage = async (signed: SignedDist) =>
    await signed.publish({ targets: await targetsOf(signed.dist.dir, 'svc', { 'v1.0.1': { rollout: steps } }) })
  const { version, history } = await looked(GO, stage, 'a'.repeat(32))
  is(version, 'v1.0.1')
  is(history.length, 1)
  const nobody = async (signed: SignedDist) =>
    await signed.publish({
      targets: await targetsOf(signed.dist.dir, 'svc', {
        'v1.0.1': { rollout: [{ at: '2026-11-24T00:00:00Z', percent: 0 }] },
      }),
    })
  is((await looked(GO, nobody)).version, 'v1.0.0')
})

test.run()
