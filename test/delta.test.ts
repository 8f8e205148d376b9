// Deltas in memory: what comes out is the new file, or an error, whatever the delta is.

import { randomBytes } from 'node:crypto'
import { zstdCompressSync } from 'node:zlib'
import { applyDelta, SEGMENT_BYTES } from '../agent/update/steps/delta.ts'
import { makeDelta } from '../deploy/make/delta.ts'
import * as assert from './assert.ts'
import { inMemory } from './fixtures/in-memory.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { isLong, suite } from './suite.ts'

const test = suite('delta', { timeoutMs: 240_000 })

const MIB = 1024 ** 2
const BASE = randomBytes(4 * MIB)
const BOUNDS = /a segment is out of bounds/

async function applied(delta: Buffer, old: Buffer, sizeBytes: number): Promise<Buffer> {
  const parts: Buffer[] = []
  for await (const part of applyDelta(delta, inMemory(old), sizeBytes)) parts.push(part)
  return Buffer.concat(parts)
}

const made = (old: Buffer, to: Buffer) => makeDelta(inMemory(old), inMemory(to))

function edited(edits: readonly { at: number; cut: number; put: Uint8Array }[]): Buffer {
  let bytes = BASE
  for (const { at, cut, put } of edits) {
    const where = Math.min(at, bytes.length)
    bytes = Buffer.concat([bytes.subarray(0, where), put, bytes.subarray(where + cut)])
  }
  return bytes
}

const file: fc.Arbitrary<Buffer> = fc.oneof(
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  fc.nat(BASE.length).map((length) => BASE.subarray(length)),
  fc
    .array(fc.record({ at: fc.nat(BASE.length), cut: fc.nat(2 * MIB), put: fc.uint8Array({ maxLength: 5000 }) }), {
      maxLength: 4,
    })
    .map(edited),
)

test('property: for any two files, the delta made from both makes the second of the first', async () => {
  await fuzz(
    fc.tuple(file, file),
    async ([old, to]) => {
      const delta = await made(old, to)
      assert.ok((await applied(delta, old, to.length)).equals(to))
    },
    { runs: isLong ? 200 : 40 },
  )
})

test('a delta weighs its change: also where all that follows has moved by more than the dictionary reaches', async () => {
  const weigh = async (to: Buffer) => (await made(BASE, to)).length
  assert.ok((await weigh(BASE)) < 100)
  assert.ok((await weigh(edited([{ at: 1_500_000, cut: 100, put: randomBytes(200) }]))) < 1000)
  const moved = edited([{ at: 100_000, cut: 0, put: randomBytes(3 * MIB) }])
  const bytes = await weigh(moved)
  assert.ok(bytes < 3.1 * MIB, `${bytes} bytes`)
})

test('the same two files give the same delta', async () => {
  const to = edited([{ at: 1_500_000, cut: 100, put: Buffer.from('something else') }])
  assert.ok((await made(BASE, to)).equals(await made(BASE, to)))
})

test('every byte of a delta flipped, and every cut of it: never more than the new size, and no crash', async () => {
  const old = BASE.subarray(0, 3000)
  const to = Buffer.concat([old.subarray(0, 1000), Buffer.from('new'), old.subarray(1000)])
  const delta = await made(old, to)
  const tries = [...delta.keys()].flatMap((i) => {
    const flipped = Buffer.from(delta)
    flipped[i] = (flipped[i] ?? 0) ^ 0xff
    const other = Buffer.from(delta)
    other[i] = (other[i] ?? 0) ^ 1
    return [flipped, other, delta.subarray(0, i)]
  })
  let refused = 0
  for (const bad of tries) {
    const got = await applied(bad, old, to.length).catch(() => null)
    if (got === null) refused++
    else assert.is(got.length, to.length)
  }
  assert.ok(refused > tries.length / 2, `${refused} of ${tries.length} are refused`)
})

for (const [title, segment, body, why, newBytes = 8 * MIB] of [
  ['a bomb', [0, SEGMENT_BYTES, 0, 0], zstdCompressSync(Buffer.alloc(256 * MIB)), /larger than/, 4 * MIB],
  [
    'a segment that unpacks to less than it says',
    [0, 1000, 0, 0],
    zstdCompressSync(Buffer.alloc(999)),
    /1000 bytes, got 999/,
    4 * MIB,
  ],
  ['a segment that is too large', [0, 2 * MIB, 0, 0], zstdCompressSync(Buffer.alloc(2 * MIB)), BOUNDS],
  ['an empty segment', [0, 0, 0, 0], zstdCompressSync(Buffer.alloc(0)), BOUNDS],
  ['a segment that begins elsewhere than segments do', [5, 10, 0, 0], zstdCompressSync(Buffer.alloc(10)), BOUNDS],
  ['a dictionary outside the old file', [0, 10, 4 * MIB - 5, 10], zstdCompressSync(Buffer.alloc(10)), BOUNDS],
  ['a dictionary that is too large', [0, 10, 0, 4 * MIB], zstdCompressSync(Buffer.alloc(10)), BOUNDS],
  ['a segment behind the end', [4 * MIB, 10, 0, 0], zstdCompressSync(Buffer.alloc(10)), BOUNDS, 4 * MIB + 5],
  [
    'a piece that only a longer old file has',
    [0, 10, 0, 0],
    zstdCompressSync(Buffer.alloc(10)),
    /its segments do not cover the whole file/,
  ],
] as const) {
  test(`refuses ${title}`, async () => {
    const header = JSON.stringify({ format: 1, segments: [[...segment, body.length]] })
    const before = process.memoryUsage().rss
    await assert.rejects(applied(Buffer.concat([Buffer.from(`${header}\n`), body]), BASE, newBytes), why)
    assert.ok(process.memoryUsage().rss - before < 64 * MIB)
  })
}

test('refuses segments that overlap, and a header that is none', async () => {
  const one = zstdCompressSync(Buffer.alloc(10))
  const segments = [
    [0, 10, 0, 0, one.length],
    [0, 10, 0, 0, one.length],
  ]
  const header = `${JSON.stringify({ format: 1, segments })}\n`
  await assert.rejects(
    applied(Buffer.concat([Buffer.from(header), one, one]), BASE, BASE.length),
    'the delta is not valid',
  )
  for (const text of ['', '{}\n', '{"format":2,"segments":[]}\n', '[[[[\n', '{"format":1,"segments":[[0,-1,0,0,0]]}\n'])
    await assert.rejects(applied(Buffer.from(text), BASE, BASE.length), 'the delta is not valid')
})

test.run()
