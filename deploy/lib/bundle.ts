// The one importer of esbuild: an entry and all that it imports become one CommonJS file.
// CommonJS because an ES module main starts 1.3 times slower; dynamic imports stay lazy, so `--version` loads nothing else.
// Must hold: the same sources give the same bytes, whatever folder they are in.

import { build } from 'esbuild'
import { fileURLToPath } from 'node:url'
import { BatonError } from '../../agent/errors.ts'
import { readAssets } from '../../agent/web/assets.ts'

export const PROJECT = fileURLToPath(new URL('../../', import.meta.url))

export interface BundleOptions {
  /** absolute path */
  entry: string
  /** names that become constants; the values are put in as JSON */
  define: Readonly<Record<string, string>>
  /** first line of the file, such as a shebang */
  banner?: string
  minify?: boolean
  /** what stays an import */
  external?: readonly string[]
}

export async function bundle({
  entry,
  define,
  banner = '',
  minify = true,
  external = [],
}: BundleOptions): Promise<Uint8Array> {
  const { outputFiles, errors, warnings } = await build({
    absWorkingDir: PROJECT,
    entryPoints: [entry],
    bundle: true,
    write: false,
    platform: 'node',
    target: 'node26',
    format: 'cjs',
    minify,
    charset: 'utf8',
    external: [...external],
    legalComments: 'eof',
    logLevel: 'silent',
    define: {
      ...Object.fromEntries(Object.entries(define).map(([name, value]) => [name, JSON.stringify(value)])),
      // the panel's files travel inside: one string, of JSON
      __BATON_WEB__: JSON.stringify(JSON.stringify(readAssets())),
      // CommonJS has none. No module of a bundle is the program that was started, whatever its path is compared with.
      'import.meta.url': '"file:///bundle/main.cjs"',
      'import.meta.main': 'false',
      'import.meta.dirname': '__dirname',
      'import.meta.filename': '__filename',
    },
    ...(banner === '' ? {} : { banner: { js: banner } }),
  }).catch((cause: unknown) => {
    throw new BatonError('unexpected', `bundling ${entry}`, { cause })
  })
  const [first] = [...errors, ...warnings]
  if (first !== undefined) throw new BatonError('unexpected', `bundling ${entry}: ${first.text}`)
  return (outputFiles[0] as { contents: Uint8Array }).contents
}
