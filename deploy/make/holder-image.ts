// Makes the holder's program from its one source, and what its image is built from. The program is static, so the image has nothing
// else (docs/decisions/0028-a-container-holds-the-door.md).
// Must hold: it names no shared library, whichever compiler made it.

import { chmod, copyFile, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { findProgram, run } from '../lib/shell.ts'
import { PROJECT } from './place.ts'

const FLAGS = ['-std=c11', '-Os', '-static', '-Wall', '-Wextra', '-Werror', '-fstack-protector-strong', '-s']
const MACHINES: Readonly<Record<string, string>> = { x64: 'x86_64', arm64: 'aarch64' }
const HINT = 'run `apt-get install musl-tools`, set CC to a compiler, or skip the holder image with `--no-holder`'

/** Fills `context`, an empty folder, for `container/holder/Dockerfile`. */
export async function fillHolderContext(context: string, arch: string): Promise<void> {
  const folder = join(context, 'run', 'hold')
  await mkdir(folder, { recursive: true })
  await chmod(folder, 0o750)
  await compileHolder(join(context, 'baton-holder'), arch)
  await copyFile(join(PROJECT, 'container', 'holder', 'Dockerfile'), join(context, 'Dockerfile'))
}

/** Throws BatonError unsupported_host if no compiler for this architecture is there. */
export async function compileHolder(file: string, arch: string = process.arch): Promise<void> {
  const compiler = await findCompiler(arch)
  await run([compiler, ...FLAGS, '-o', file, join(PROJECT, 'container', 'holder', 'holder.c')])
  await chmod(file, 0o755)
  if (isDynamic(await readFile(file)))
    throw new BatonError(
      'verify_failed',
      `expected a statically linked program from \`${compiler}\`, got a dynamically linked one`,
    )
}

async function findCompiler(arch: string): Promise<string> {
  const machine = MACHINES[arch] ?? arch
  const cross = [`${machine}-linux-musl-gcc`, `${machine}-linux-gnu-gcc`]
  const own = process.env['CC'] ?? ''
  const usual = arch === process.arch && process.platform === 'linux' ? ['musl-gcc', ...cross, 'cc', 'gcc'] : cross
  for (const name of own === '' ? usual : [own]) if ((await findProgram(name)) !== null) return name
  const names = own === '' ? usual.join(', ') : `CC=${own}`
  throw new BatonError(
    'unsupported_host',
    `found no C compiler for linux/${arch}, which the holder needs; looked for ${names}`,
    {
      hint: HINT,
    },
  )
}

/** Whether a 64-bit ELF file names an interpreter, which loads libraries (PT_INTERP, elf(5)). */
function isDynamic(file: Buffer): boolean {
  const [start, size, count] = [Number(file.readBigUInt64LE(32)), file.readUInt16LE(54), file.readUInt16LE(56)]
  return Array.from({ length: count }, (_, i) => file.readUInt32LE(start + i * size)).includes(3)
}
