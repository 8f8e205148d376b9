// The blocks of a tar. Pure.

const BLOCK = 512

/** what ends a tar */
export const TAR_END = Buffer.alloc(2 * BLOCK)
/** a tar of one file is at most this much longer than the file: its headers, its padding and its end */
export const TAR_EXTRA_BYTES = 64 * 1024

/** `type`: a file, a link, a folder, or a pax record. Without times and owners. */
export function tarHeader(
  name: string,
  size: number,
  mode: number,
  type: '0' | '2' | '5' | 'x' = '0',
  link = '',
): Buffer {
  const block = Buffer.alloc(BLOCK)
  const octal = (value: number, at: number, width: number) =>
    block.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at)
  block.write(name, 0, 100)
  octal(mode, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  octal(size, 124, 12)
  octal(0, 136, 12)
  block.write(' '.repeat(8), 148)
  block.write(type, 156)
  block.write(link, 157, 100)
  block.write('ustar\x0000', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}

export function tarPadded(body: Buffer): Buffer {
  const rest = body.length % BLOCK
  return rest === 0 ? body : Buffer.concat([body, Buffer.alloc(BLOCK - rest)])
}

/** The contents of the first entry, if that is a file and whole; else null. */
export function firstFileIn(tar: Buffer): Buffer | null {
  const size = Number.parseInt(tar.toString('latin1', 124, 136), 8)
  const type = tar.toString('latin1', 156, 157)
  if (tar.length < BLOCK || !Number.isSafeInteger(size) || !['0', '\0'].includes(type)) return null
  const body = tar.subarray(BLOCK, BLOCK + size)
  return body.length === size ? body : null
}
