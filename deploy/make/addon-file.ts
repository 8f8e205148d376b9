// Reads out of a native addon's own file for which system it was made, and for which Nodes: an ELF file on Linux, Mach-O on macOS.
// Pure: bytes in, a verdict out; nothing is run. Must hold: it answers in bounded time for any bytes. A file that cannot be read to its
// end is `untold`: only loading it can tell.

/** What an addon must have been made for. */
export interface AddonHost {
  /** as `process.platform` */
  platform: string
  /** as `process.arch` */
  arch: string
  /** whether Node is linked with glibc; otherwise it is musl, or no Linux */
  glibc: boolean
}

/** `node-api`: fits every Node. A number: only a Node of this ABI (`process.versions.modules`). `untold`: the file does not say. */
export type AddonAbi = 'node-api' | 'untold' | number

interface AddonSymbol {
  name: string
  /** exported by the file; otherwise the file imports it */
  defined: boolean
}

const ELF_MACHINES: Record<string, number> = { x64: 62, arm64: 183 }
const MACH_CPUS: Record<string, number> = { x64: 0x0100_0007, arm64: 0x0100_000c }
const NAME_MAX_BYTES = 256
const SLICES_MAX = 16
const COMMANDS_MAX = 1000

/**
 * What `file` says of the Nodes that can load it. Null if it is no addon for `host`: made for another system, or something else that
 * is named `.node`. `modules`: the ABI that is looked for first, if the file was made for several.
 */
export function abiOf(file: Uint8Array, host: AddonHost, modules: number): AddonAbi | null {
  try {
    const format = host.platform === 'darwin' ? machSlice(file, host.arch) : isElfFor(file, host) ? file : null
    if (format === null) return null
    return host.platform === 'darwin'
      ? abiAmong(machSymbols(format), modules)
      : elfAbi(file, elfSections(file), host, modules)
  } catch (error) {
    // the header fits, and what follows is cut short or points outside of the file
    if (error instanceof RangeError) return 'untold'
    throw error
  }
}

/** https://nodejs.org/api/addons.html#context-aware-addons, https://nodejs.org/api/n-api.html#module-registration */
function abiAmong(symbols: Iterable<AddonSymbol>, modules: number): AddonAbi | null {
  let registers = false
  const abis: number[] = []
  for (const { name, defined } of symbols) {
    if (defined ? name === 'napi_register_module_v1' : name === 'napi_module_register') return 'node-api'
    const abi = defined ? /^node_register_module_v(\d{1,6})$/.exec(name)?.[1] : undefined
    if (abi !== undefined) abis.push(Number(abi))
    // a constructor registers it while it is loaded; the ABI is then a number in its data
    if (!defined && name === 'node_module_register') registers = true
  }
  const [first] = abis
  if (first !== undefined) return abis.includes(modules) ? modules : first
  return registers ? 'untold' : null
}

// ---- ELF: https://gabi.xinuos.com/elf/

const SECTION_BYTES = 64
const SHT_DYNAMIC = 6
const SHT_DYNSYM = 11
const DT_NEEDED = 1

interface ElfSection {
  type: number
  offset: number
  size: number
  /** index of the section with its names */
  link: number
}

function isElfFor(file: Uint8Array, { platform, arch }: AddonHost): boolean {
  if (platform !== 'linux' || file.length < SECTION_BYTES) return false
  const view = viewOf(file)
  const is64LittleEndian = view.getUint32(0) === 0x7f45_4c46 && file[4] === 2 && file[5] === 1
  return is64LittleEndian && view.getUint16(18, true) === ELF_MACHINES[arch]
}

function elfSections(file: Uint8Array): ElfSection[] {
  const view = viewOf(file)
  const table = Number(view.getBigUint64(40, true))
  return Array.from({ length: table === 0 ? 0 : view.getUint16(60, true) }, (_, i) => {
    const start = table + i * SECTION_BYTES
    return {
      type: view.getUint32(start + 4, true),
      offset: Number(view.getBigUint64(start + 24, true)),
      size: Number(view.getBigUint64(start + 32, true)),
      link: view.getUint32(start + 40, true),
    }
  })
}

function elfAbi(file: Uint8Array, sections: ElfSection[], host: AddonHost, modules: number): AddonAbi | null {
  const dynsym = sections.find(({ type }) => type === SHT_DYNSYM)
  if (dynsym === undefined) return 'untold'
  const dynamic = sections.find(({ type }) => type === SHT_DYNAMIC)
  const needed = dynamic === undefined ? [] : [...elfNeeded(file, sections, dynamic)]
  const libc = needed.find((name) => name.startsWith('libc.'))
  if (libc !== undefined && (libc === 'libc.so.6') !== host.glibc) return null
  return abiAmong(elfSymbols(file, sections, dynsym), modules)
}

/** The libraries that an ELF file wants to be loaded with it. */
function* elfNeeded(file: Uint8Array, sections: ElfSection[], { offset, size, link }: ElfSection): Generator<string> {
  const view = viewOf(file)
  const names = sections[link]?.offset ?? 0
  for (let at = offset; at + 16 <= offset + size; at += 16) {
    const tag = view.getBigUint64(at, true)
    if (tag === 0n) return
    if (tag === BigInt(DT_NEEDED)) yield textAt(file, names + Number(view.getBigUint64(at + 8, true)))
  }
}

function* elfSymbols(
  file: Uint8Array,
  sections: ElfSection[],
  { offset, size, link }: ElfSection,
): Generator<AddonSymbol> {
  const view = viewOf(file)
  const names = sections[link]?.offset ?? 0
  for (let at = offset; at + 24 <= offset + size; at += 24)
    yield { name: textAt(file, names + view.getUint32(at, true)), defined: view.getUint16(at + 6, true) !== 0 }
}

// ---- Mach-O: <mach-o/loader.h>, <mach-o/fat.h>, <mach-o/nlist.h>

const MACH_64 = 0xfeed_facf
const FAT = 0xcafe_babe
const LC_SYMTAB = 2
const N_STAB = 0xe0
const N_TYPE = 0x0e

/** The part of `file` for one architecture: the file itself, or a slice of a universal one. */
function machSlice(file: Uint8Array, arch: string): Uint8Array | null {
  if (file.length < 32) return null
  const view = viewOf(file)
  if (view.getUint32(0, true) === MACH_64) return view.getUint32(4, true) === MACH_CPUS[arch] ? file : null
  if (view.getUint32(0) !== FAT) return null
  const slices = Math.min(view.getUint32(4), SLICES_MAX)
  for (let at = 8; at < 8 + slices * 20; at += 20) {
    if (view.getUint32(at) !== MACH_CPUS[arch]) continue
    const start = view.getUint32(at + 8)
    return file.subarray(start, start + view.getUint32(at + 12))
  }
  return null
}

function* machSymbols(file: Uint8Array): Generator<AddonSymbol> {
  const view = viewOf(file)
  const commands = Math.min(view.getUint32(16, true), COMMANDS_MAX)
  for (let at = 32, i = 0; i < commands; i++, at += view.getUint32(at + 4, true)) {
    if (view.getUint32(at, true) !== LC_SYMTAB) continue
    const [symbols, count, names] = [8, 12, 16].map((from) => view.getUint32(at + from, true)) as [
      number,
      number,
      number,
    ]
    for (let symbol = symbols; symbol < symbols + count * 16; symbol += 16) {
      const type = view.getUint8(symbol + 4)
      if ((type & N_STAB) !== 0) continue
      const name = textAt(file, names + view.getUint32(symbol, true))
      yield { name: name.replace(/^_/, ''), defined: (type & N_TYPE) !== 0 }
    }
  }
}

// ---- bytes

function viewOf(file: Uint8Array): DataView {
  return new DataView(file.buffer, file.byteOffset, file.byteLength)
}

/** The text at `start`, up to its NUL. Longer names than those that are looked for are cut. */
function textAt(file: Uint8Array, start: number): string {
  if (start >= file.length) throw new RangeError('a name outside of the file')
  const bytes = file.subarray(start, start + NAME_MAX_BYTES)
  const end = bytes.indexOf(0)
  return Buffer.from(end < 0 ? bytes : bytes.subarray(0, end)).toString('latin1')
}
