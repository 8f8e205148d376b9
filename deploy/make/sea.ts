// Makes a Node single executable application: a stripped Node 26 with the bundle inside.
// Must hold: the base is stripped before the bundle goes in (a strip after it gives SIGSEGV). There is no code cache (its bytes
// differ each time). No absolute path goes into the file. So the same bundle and the same Node give the same bytes.

import { chmod, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import type { Base } from './base.ts'
import { temporaryDirectory } from './temporary.ts'
import { run } from '../lib/shell.ts'

/** the text by which Node finds the place for the application in its own file, which must hold it once */
const FUSE = ['NODE_SEA_FUSE', 'fce680ab2cc467b6e072b8b5df1996b2'].join('_')

/**
 * `bytes` without that text, which the types of Node and tools that build executables contain: makes its first letter lower case.
 * `fuses`: the positions of these letters, for the code that unpacks.
 */
export function withoutFuse(bytes: Buffer): { bytes: Buffer; fuses: number[] } {
  const fuses: number[] = []
  for (let at = bytes.indexOf(FUSE); at >= 0; at = bytes.indexOf(FUSE, at + 1)) fuses.push(at)
  if (fuses.length === 0) return { bytes, fuses }
  const masked = Buffer.from(bytes)
  for (const at of fuses) masked.write('n', at)
  return { bytes: masked, fuses }
}

export interface SeaOptions {
  /** name -> bytes, for `sea.getAsset()` */
  assets?: Readonly<Record<string, string | Uint8Array>>
  /** whether the executable obeys NODE_OPTIONS, as an author's application does */
  nodeOptions?: boolean
  /** flags of Node that every process of the executable has; they count more than NODE_OPTIONS */
  nodeFlags?: readonly string[]
}

/** Writes `output`: the base with `bundle`, a CommonJS script, inside. */
export async function injectBundle(
  base: Base,
  bundle: Uint8Array,
  output: string,
  { assets = {}, nodeOptions = false, nodeFlags = [] }: SeaOptions = {},
): Promise<void> {
  await using work = await temporaryDirectory(dirname(output))
  // Relative names, and always the same ones: the executable stores the path of its main script.
  await writeFile(join(work.path, 'main.cjs'), bundle)
  for (const [name, bytes] of Object.entries(assets)) await writeFile(join(work.path, `${name}.asset`), bytes)
  await writeFile(
    join(work.path, 'sea.json'),
    JSON.stringify({
      main: 'main.cjs',
      mainFormat: 'commonjs',
      executable: base.executable,
      output: 'executable',
      disableExperimentalSEAWarning: true,
      useCodeCache: false,
      useSnapshot: false,
      execArgv: ['--disable-warning=ExperimentalWarning', ...nodeFlags],
      execArgvExtension: nodeOptions ? 'env' : 'none',
      assets: Object.fromEntries(Object.keys(assets).map((name) => [name, `${name}.asset`])),
    }),
  )
  await run([base.node, '--build-sea', 'sea.json'], { cwd: work.path, env: { NODE_OPTIONS: undefined } })
  const built = join(work.path, 'executable')
  await chmod(built, 0o755)
  if (process.platform === 'darwin') await run(['codesign', '--sign', '-', '--force', built])
  await rename(built, output)
}

/** Runs the executable with `--version` and throws if it does not print `expected`. `node`: path of the Node that runs a script. */
export async function checkVersion(executable: string, expected: string, node?: string): Promise<void> {
  const env = node === undefined ? {} : { BATON_NODE: node }
  const command = [executable, '--version']
  const { stdout, stderr, exitCode } = await run(command, { allowFailure: true, timeoutMs: 30_000, env })
  if (exitCode === 0 && stdout === `${expected}\n`) return
  const got = `${JSON.stringify(stdout.slice(0, 200))} and exit code ${exitCode}`
  throw new BatonError(
    'unexpected',
    `running the executable with --version: expected \`${expected}\`, got ${got}${stderr === '' ? '' : `; stderr: ${stderr.slice(0, 500)}`}`,
  )
}
