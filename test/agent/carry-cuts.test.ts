// A WebSocket is carried with its stream cut at every byte: heads of each length, fragments in each state, control frames between
// them, compressed and not. What was begun in one process ends in the other, once, whole and in order.

import { constants, deflateRawSync } from 'node:zlib'
import { equal } from '../assert.ts'
import { echo, frame, rawClient, twoSides, until } from '../fixtures/two-sides.ts'
import { fc, fuzz } from '../lab/fuzz.ts'
import { suite } from '../suite.ts'

const test = suite('carry cuts', { timeoutMs: 120_000 })
const FORGETFUL = { threshold: 0, clientNoContextTakeover: true, serverNoContextTakeover: true }
const OFFER = 'permessage-deflate; client_no_context_takeover; server_no_context_takeover'

type Sides = Awaited<ReturnType<typeof twoSides>>
interface Script {
  bytes: Buffer
  /** the messages that are in it */
  texts: string[]
}

test('cut at every byte of heads, masks, payloads, fragments and control frames (each cut once)', async () => {
  const sides = await twoSides((side, name) => echo(side, name))
  const scripts = [
    scriptOf([message('hello'), message(''), ping('p'), message('x'.repeat(125))]),
    scriptOf([message('y'.repeat(126)), fragments(['one', 'two', 'three'], true)]),
    scriptOf([fragments(['', 'two', ''], true), fragments(['', '', ''], false), message('last')]),
  ]
  for (const script of scripts) for (let cut = 0; cut <= script.bytes.length; cut++) await cutAt(sides, script, cut)
  await sides.close()
})

test('cut at every byte of a head with a length of 64 bits, alone and as a fragment', async () => {
  const sides = await twoSides((side, name) => echo(side, name))
  const long = 'z'.repeat(65_536)
  for (const script of [scriptOf([message(long)]), scriptOf([fragments(['a', long], false)])]) {
    for (let cut = 0; cut <= 24; cut++) await cutAt(sides, script, cut)
    for (let left = 0; left <= 2; left++) await cutAt(sides, script, script.bytes.length - left)
  }
  await sides.close()
})

test('cut at every byte of compressed messages: those in fragments end first, and nothing is lost', async () => {
  const sides = await twoSides((side, name) => echo(side, name, { perMessageDeflate: FORGETFUL }))
  const script = scriptOf([
    message('compressed '.repeat(9), true),
    ping('between'),
    fragments(['fragments ', 'of a message ', 'that is compressed'], true, true),
    message('not compressed'),
  ])
  for (let cut = 0; cut <= script.bytes.length; cut++) await cutAt(sides, script, cut, OFFER)
  await sides.close()
})

test('any messages, cut at any byte (property)', async () => {
  const size = fc.constantFrom(0, 1, 5, 125, 126, 300, 66_000)
  const piece = fc.oneof(
    fc.record({ kind: fc.constant('message' as const), size, deflated: fc.boolean() }),
    fc.record({ kind: fc.constant('fragments' as const), size, deflated: fc.boolean() }),
    fc.record({ kind: fc.constant('ping' as const), size, deflated: fc.boolean() }),
  )
  const pieces = fc.array(piece, { minLength: 1, maxLength: 4 })
  for (const perMessageDeflate of [false, FORGETFUL]) {
    const sides = await twoSides((side, name) => echo(side, name, { perMessageDeflate }))
    await fuzz(
      fc.tuple(pieces, fc.double({ min: 0, max: 1, noNaN: true })),
      async ([list, where]) => {
        const script = scriptOf(
          list.map(({ kind, size, deflated }, at) => {
            const text = `${at}:${'x'.repeat(size)}`
            const isDeflated = deflated && perMessageDeflate !== false
            if (kind === 'ping') return ping(text.slice(0, 100))
            return kind === 'message' ? message(text, isDeflated) : fragments(inThree(text), true, isDeflated)
          }),
        )
        await cutAt(sides, script, Math.round(where * script.bytes.length), perMessageDeflate === false ? '' : OFFER)
      },
      { runs: 60 },
    )
    await sides.close()
  }
})

test.run()

/** One client: sends up to the cut, is carried as soon as that is possible, sends the rest, and has every answer once. */
async function cutAt(sides: Sides, { bytes, texts }: Script, cut: number, extensions = ''): Promise<void> {
  const client = await rawClient(sides.port, extensions)
  client.socket.write(bytes.subarray(0, cut))
  await until(() => client.entry(sides.before)?.socket.bytesRead === client.handshakeBytes + cut)
  let carried = 0
  // what must end first cannot be carried yet: it ends with the rest
  for (let tries = 0; carried === 0 && tries < (extensions === '' ? Infinity : 20); tries++) {
    carried = sides.carry()
    if (carried === 0) await new Promise(setImmediate)
  }
  client.socket.write(bytes.subarray(cut))
  await until(() => carried === 1 || sides.carry() === 1)
  await until(() => client.messages().length === texts.length)
  equal(
    client.messages().map((text) => text.split('|').slice(0, 2).join('|')),
    texts.map((text, at) => `${text}|${at + 1}`),
    `cut at ${cut} of ${bytes.length}`,
  )
  client.socket.destroy()
  await until(() => sides.after.sockets.size === 0)
}

interface Piece {
  frames: Buffer
  text: string | null
}

function scriptOf(pieces: Piece[]): Script {
  return {
    bytes: Buffer.concat(pieces.map(({ frames }) => frames)),
    texts: pieces.flatMap(({ text }) => (text === null ? [] : [text])),
  }
}

function ping(text: string): Piece {
  return { frames: frame(0x89, Buffer.from(text)), text: null }
}

function message(text: string, isDeflated = false): Piece {
  return { frames: frame(isDeflated ? 0xc1 : 0x81, isDeflated ? deflated(text) : Buffer.from(text)), text }
}

/** `isPinged`: with a ping behind the first. */
function fragments(parts: string[], isPinged: boolean, isDeflated = false): Piece {
  const text = parts.join('')
  const whole = isDeflated ? deflated(text) : Buffer.from(text)
  const ends = isDeflated ? inThree(whole) : parts.map((part) => Buffer.from(part))
  const frames = ends.map((part, at) => {
    const first = (at === 0 ? (isDeflated ? 0x41 : 0x01) : 0) | (at === ends.length - 1 ? 0x80 : 0)
    return frame(first, Buffer.from(part))
  })
  if (isPinged) frames.splice(1, 0, frame(0x89, Buffer.from('between')))
  return { frames: Buffer.concat(frames), text }
}

function inThree<T extends string | Buffer>(whole: T): T[] {
  const third = Math.ceil(whole.length / 3)
  return [whole.slice(0, third), whole.slice(third, 2 * third), whole.slice(2 * third)] as T[]
}

/** RFC 7692, 7.2.1 */
function deflated(text: string): Buffer {
  return deflateRawSync(text, { finishFlush: constants.Z_SYNC_FLUSH }).subarray(0, -4)
}
