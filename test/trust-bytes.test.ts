// Any single byte of any file of the metadata changed, cut or repeated: never accepted, never a crash; and what a host knows is
// on its disk as it was or as it is, wherever it is killed.

import { mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeDisk } from '../agent/disk/disk.ts'
import { BatonError } from '../agent/words/errors.ts'
import { formFault, type Role, signatureFault } from '../agent/update/trust/form.ts'
import { knownStore } from '../agent/update/trust/known.ts'
import { refreshMetadata } from '../agent/update/trust/refresh.ts'
import { canonicalize } from '../agent/update/trust/tuf.ts'
import { makeSigner } from '../deploy/trust/keys.ts'
import * as assert from './assert.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { makeSignedDist, stateFolder } from './lab/signed-dist.ts'
import { suite } from './suite.ts'

const test = suite('trust, byte by byte')

const NAMES = ['2.root.json', 'timestamp.json', '2.snapshot.json', '2.targets.json'] as const

/** A feed with a second root and two releases, in memory. */
async function filesOfFeed(): Promise<{ root: string; files: Map<string, Buffer> }> {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'], { counts: { targets: 2 } })
  await it.publishRoot((_root, keys) => void (keys.timestamp = [makeSigner()]))
  await it.publish()
  const files = new Map<string, Buffer>()
  for (const name of await readdir(it.folder)) files.set(name, await readFile(join(it.folder, name)))
  return { root: it.anchor.root, files }
}

type Change = 'changed' | 'cut' | 'repeated'

function mutated(bytes: Buffer, at: number, change: Change, by: number): Buffer {
  const [before, after] = [bytes.subarray(0, at), bytes.subarray(at + 1)]
  const byte = bytes[at] ?? 0
  if (change === 'cut') return Buffer.concat([before, after])
  if (change === 'repeated') return Buffer.concat([before, Buffer.of(byte, byte), after])
  return Buffer.concat([before, Buffer.of(byte ^ by), after])
}

for (const name of NAMES) {
  test(`${name}: every byte, changed, cut and repeated, is another file with no good form or signature`, async () => {
    const { root, files } = await filesOfFeed()
    const bytes = files.get(name) ?? assert.unreachable()
    const role = name.replace(/^2\.|\.json$/g, '') as Role
    const roots = [Buffer.from(root), files.get('2.root.json') ?? Buffer.alloc(0)]
    const fault = (file: Buffer): string | null =>
      formFault(role, file, canonicalize) ??
      signatureFault(role, file, role === 'root' ? [Buffer.from(root), file] : roots.slice(1), canonicalize)
    assert.is(fault(bytes as Buffer), null)
    const accepted: string[] = []
    for (let at = 0; at < (bytes as Buffer).length; at++) {
      for (const change of ['changed', 'cut', 'repeated'] as const) {
        const by = 1 << (at % 8)
        if (fault(mutated(bytes as Buffer, at, change, by)) === null) accepted.push(`${change} at ${at}`)
      }
    }
    assert.equal(accepted, [])
  })
}

test('the whole check refuses a mutated file with a code, and keeps what it knew', async () => {
  const { root, files } = await filesOfFeed()
  const disk = makeDisk()
  const run = async (of: ReadonlyMap<string, Buffer>): Promise<string> => {
    const store = knownStore(disk, null, root)
    const read = (name: string): Promise<Buffer | null> => Promise.resolve(of.get(name) ?? null)
    try {
      await refreshMetadata({ anchor: { root, builtAt: null }, service: 'beacon', store, read })
      return 'accepted'
    } catch (error) {
      assert.instance(error, BatonError)
      assert.is((await store.read()).files.targets, undefined)
      return (error as BatonError).code
    }
  }
  assert.is(await run(files), 'accepted')
  const cases = fc.record({
    name: fc.constantFrom(...NAMES),
    at: fc.nat(100_000),
    change: fc.constantFrom<Change>('changed', 'cut', 'repeated'),
    by: fc.integer({ min: 1, max: 255 }),
  })
  const property = async ({ name, at, change, by }: { name: string; at: number; change: Change; by: number }) => {
    const bytes = files.get(name) ?? Buffer.alloc(0)
    const code = await run(new Map(files).set(name, mutated(bytes, at % bytes.length, change, by)))
    assert.match(code, /^(metadata_|signature_|threshold_|root_)/)
  }
  await fuzz(cases, property, { runs: 80 })
})

test('a feed of any bytes at all is refused with a code', async () => {
  const { root } = await filesOfFeed()
  const anything = fc.oneof(
    fc.uint8Array({ maxLength: 2_000 }),
    fc.json().map((text) => Buffer.from(text)),
  )
  const property = async ([first, second]: [Uint8Array, Uint8Array]) => {
    const store = knownStore(makeDisk(), null, root)
    const read = async (name: string): Promise<Buffer> => Buffer.from(name.endsWith('root.json') ? first : second)
    const asking = refreshMetadata({ anchor: { root, builtAt: null }, service: 'beacon', store, read })
    await assert.rejects(() => asking, assert.withCode('metadata_invalid'))
  }
  await fuzz(fc.tuple(anything, anything), property, { runs: 100 })
})

test('a file that is much larger than what Baton writes is not read: this host starts again from its root', async () => {
  const { root } = await filesOfFeed()
  await using folder = await stateFolder()
  const path = join(folder.path, 'update', 'trust.json')
  await mkdir(join(folder.path, 'update'))
  await writeFile(path, '')
  await truncate(path, 3 * 1024 ** 3) // a hole: it takes no room on the disk
  const known = await knownStore(makeDisk(), folder.path, root).read()
  assert.equal(known.files, { root })
})

test('killed before and after each change of the disk, a host knows what it knew or what it had learned', async () => {
  const { root, files } = await filesOfFeed()
  const known = (version: number) => ({
    chain: [version === 1 ? 'a'.repeat(64) : 'b'.repeat(64)],
    files: { root, timestamp: JSON.stringify({ signed: { version } }) },
  })
  assert.ok(files.size > 0)
  for (let stop = 0, ended = false; !ended; stop++) {
    await using folder = await stateFolder()
    await mkdir(join(folder.path, 'update'))
    await knownStore(makeDisk(), folder.path, root).write(known(1))
    let moments = 0
    const disk = makeDisk(() => {
      if (moments++ === stop) throw new Error('killed')
    })
    ended = await knownStore(disk, folder.path, root)
      .write(known(2))
      .then(
        () => true,
        () => false,
      )
    const text = await readFile(join(folder.path, 'update', 'trust.json'), 'utf8')
    const { chain } = JSON.parse(text) as { chain: string[] }
    assert.ok(chain[0] === 'a'.repeat(64) || chain[0] === 'b'.repeat(64))
    if (ended) assert.is(chain[0], 'b'.repeat(64))
  }
})

test.run()
