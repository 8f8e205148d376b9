// What a container has printed, as its engine sends it: of however much, only the end is kept. Without a terminal, stdout and stderr
// come in frames: eight bytes, then as many as these announce.

/** kept of what a container prints: its engine sends all, and a command of an application may print for as long as it runs */
const KEPT_BYTES = 64 * 1024
const HEAD_BYTES = 8

/** The last `KEPT_BYTES` of it. Reads to the end. */
export async function outputEnd(response: AsyncIterable<Buffer>): Promise<string> {
  const kept = keepEnd()
  const head = Buffer.alloc(HEAD_BYTES)
  let [headBytes, left, isFramed] = [0, 0, null as boolean | null]
  for await (let piece of response) {
    while (piece.length > 0) {
      if (isFramed === false || left > 0) {
        const part = isFramed === false ? piece : piece.subarray(0, left)
        kept.add(part)
        left -= isFramed === false ? 0 : part.length
        piece = piece.subarray(part.length)
        continue
      }
      const part = piece.subarray(0, HEAD_BYTES - headBytes)
      headBytes += part.copy(head, headBytes)
      piece = piece.subarray(part.length)
      if (headBytes < HEAD_BYTES) continue
      isFramed ??= head.readUInt8(0) <= 2 && head.readUIntBE(1, 3) === 0
      if (isFramed) [left, headBytes] = [head.readUInt32BE(4), 0]
      else kept.add(head)
    }
  }
  if (isFramed === null) kept.add(head.subarray(0, headBytes)) // too short for a frame
  return kept.text()
}

function keepEnd() {
  const room = Buffer.alloc(2 * KEPT_BYTES)
  let filled = 0
  return {
    add(piece: Buffer): void {
      const last = piece.subarray(-KEPT_BYTES)
      if (filled + last.length > room.length) {
        room.copyWithin(0, filled - KEPT_BYTES, filled)
        filled = KEPT_BYTES
      }
      filled += last.copy(room, filled)
    },
    text: () => room.toString('utf8', Math.max(0, filled - KEPT_BYTES), filled),
  }
}
