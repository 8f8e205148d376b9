// Where a close frame may go: between two frames of a server, wherever its bytes were cut into writes.

import { makeFrames } from '../../agent/handover/carry/close-frame.ts'
import { equal, is } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('close frame')

/** A server's frame with a body of this length, in the shortest form of the length. */
function frame(opcode: number, length: number, first = 0x80): Buffer {
  const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10)
  head[0] = first | opcode
  head[1] = length < 126 ? length : length < 65_536 ? 126 : 127
  if (head.length === 4) head.writeUInt16BE(length, 2)
  if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2)
  return Buffer.concat([head, Buffer.alloc(length, 0x81)])
}

test('it is between two frames after each of them, and nowhere else, however they are cut', () => {
  const all = [
    frame(1, 0),
    frame(2, 125),
    frame(9, 3),
    frame(1, 126, 0xc0),
    frame(2, 70_000),
    frame(0, 300, 0),
    frame(10, 0),
  ]
  const ends = new Set<number>()
  let whole = 0
  for (const { length } of all) ends.add((whole += length))
  const bytes = Buffer.concat(all)
  for (const size of [1, 2, 3, 7, 1000, bytes.length]) {
    const frames = makeFrames()
    for (let at = 0; at < bytes.length; at += size) {
      frames.see(bytes.subarray(at, at + size))
      const seen = Math.min(at + size, bytes.length)
      if (frames.at() !== (ends.has(seen) ? 'between' : 'inside')) is(frames.at(), `at ${seen} in steps of ${size}`)
    }
    is(frames.at(), 'between')
  }
})

test('what no server sends is no frame: there is no place for a close frame any more', () => {
  const wrong = [
    [0x81, 0x85], // masked
    [0x91, 0x01], // a reserved bit
    [0x83, 0x01], // a reserved opcode
    [0x8b, 0x00],
    [0x89, 126], // a long control frame
    [0x08, 0x00], // a control frame in fragments
  ]
  const seen = wrong.map((head) => {
    const frames = makeFrames()
    frames.see(Buffer.from(head))
    frames.see(frame(1, 5))
    return frames.at()
  })
  equal(
    seen,
    wrong.map(() => 'lost'),
  )
})

test.run()
