// Removes from an ELF executable what is never loaded: symbols and debug sections. Pure: bytes in, bytes out.
// Why not strip(1): its output depends on the machine's binutils, it knows only the machine's own architecture, and it may be
// missing. This gives the same bytes everywhere (docs/decisions/0002-reproducible-build.md).
// Must hold: no byte that a segment maps moves or changes, except the header's pointer to the section table.

const SHT_NOBITS = 8
const SHF_ALLOC = 0x2n
const SHF_INFO_LINK = 0x40n
const SECTION_BYTES = 64
const SEGMENT_BYTES = 56

interface Section {
  type: number
  flags: bigint
  offset: number
  size: number
  link: number
  info: number
  raw: Uint8Array
}

/** The stripped executable, or null if `file` is not a 64-bit little-endian ELF executable. */
export function stripElf(file: Uint8Array): Uint8Array | null {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  const magic = file.length >= 64 && view.getUint32(0) === 0x7f454c46 && file[4] === 2 && file[5] === 1
  if (!magic || view.getUint16(58, true) !== SECTION_BYTES || view.getUint16(54, true) !== SEGMENT_BYTES) return null

  const sections = readSections(file, view)
  const namesIndex = view.getUint16(62, true)
  const kept = sections.flatMap((section, i) => (i === 0 || i === namesIndex || section.flags & SHF_ALLOC ? [i] : []))
  const names = sections[namesIndex]
  if (names === undefined || kept.length === sections.length) return null

  const mappedEnd = endOfMapped(view, sections)
  const namesStart = align(mappedEnd, 8)
  const tableStart = align(namesStart + names.size, 8)
  const stripped = new Uint8Array(tableStart + kept.length * SECTION_BYTES)
  stripped.set(file.subarray(0, mappedEnd))
  stripped.set(file.subarray(names.offset, names.offset + names.size), namesStart)

  const output = new DataView(stripped.buffer)
  for (const [to, from] of kept.entries()) {
    const section = sections[from] as Section
    const start = tableStart + to * SECTION_BYTES
    stripped.set(section.raw, start)
    if (from === namesIndex) output.setBigUint64(start + 24, BigInt(namesStart), true)
    output.setUint32(start + 40, Math.max(0, kept.indexOf(section.link)), true)
    if (section.flags & SHF_INFO_LINK) output.setUint32(start + 44, Math.max(0, kept.indexOf(section.info)), true)
  }
  output.setBigUint64(40, BigInt(tableStart), true)
  output.setUint16(60, kept.length, true)
  output.setUint16(62, kept.indexOf(namesIndex), true)
  return stripped
}

function readSections(file: Uint8Array, view: DataView): Section[] {
  const table = Number(view.getBigUint64(40, true))
  return Array.from({ length: view.getUint16(60, true) }, (_, i) => {
    const start = table + i * SECTION_BYTES
    return {
      type: view.getUint32(start + 4, true),
      flags: view.getBigUint64(start + 8, true),
      offset: Number(view.getBigUint64(start + 24, true)),
      size: Number(view.getBigUint64(start + 32, true)),
      link: view.getUint32(start + 40, true),
      info: view.getUint32(start + 44, true),
      raw: file.subarray(start, start + SECTION_BYTES),
    }
  })
}

/** Offset of the first byte after everything that is mapped. */
function endOfMapped(view: DataView, sections: Section[]): number {
  const segments = Number(view.getBigUint64(32, true))
  const ends = Array.from({ length: view.getUint16(56, true) }, (_, i) => {
    const start = segments + i * SEGMENT_BYTES
    return Number(view.getBigUint64(start + 8, true) + view.getBigUint64(start + 32, true))
  })
  for (const section of sections) {
    if (section.flags & SHF_ALLOC && section.type !== SHT_NOBITS) ends.push(section.offset + section.size)
  }
  return Math.max(64, ...ends)
}

function align(offset: number, to: number): number {
  return Math.ceil(offset / to) * to
}
