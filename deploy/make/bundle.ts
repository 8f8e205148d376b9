// Bundles an entry and everything it imports into one CommonJS script and the texts that it compiles later. The only importer of esbuild.
// It makes CommonJS because an ES module main starts 1.3 times slower. Dynamic imports stay lazy, so `--version` loads nothing else.
// Must hold: the same sources give the same bytes, whatever folder they are in. Keep small what V8 reads before the first line
// runs: the less it is, the sooner a successor can take over.

import type { BuildOptions, Message, Metafile, Plugin } from 'esbuild'
import { basename, dirname, join, relative, resolve } from 'node:path'
import type * as Esbuild from 'esbuild'
import { readFileSync } from 'node:fs'
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'
import { BatonError } from '../../agent/words.ts'
import { type Assets, BADGE, PAGE, PAGE_LATER, readAssets, webAssets } from '../../agent/install.ts'
import { assembleProgram, type Chunk, joinedFirst, numberedChunks } from './chunks.ts'
import { keptBundle } from './kept-bundle.ts'
import { IS_PACKAGED, PROJECT } from './place.ts'
import { compiledText, TEXTS_OF_ASSETS, textsInside } from './texts.ts'

export type { BuildOptions, Plugin }

/**
 * The installed package loads esbuild from the author's project in `folder`: only the kinds bundle and script need it.
 * Throws BatonError unsupported_host.
 */
export async function loadEsbuild(folder: string): Promise<typeof Esbuild> {
  if (!IS_PACKAGED) return await import('esbuild')
  try {
    return createRequire(join(folder, 'package.json'))('esbuild') as typeof Esbuild
  } catch (cause) {
    throw new BatonError('unsupported_host', 'bundling needs `esbuild`, which is not installed in this project', {
      hint: 'run `npm install --save-dev esbuild`, or use kind `app`, which needs no bundler',
      cause,
    })
  }
}

export interface BundleOptions {
  /** absolute path */
  entry: string
  /** name -> value, which the bundle gets as a constant: a JSON text */
  define: Readonly<Record<string, string>>
  minify?: boolean
  /** packages that stay imports */
  external?: readonly string[]
  /** where packages are resolved from; default: this project */
  folder?: string
  /** source text of the entry, resolved as if it were a file in `folder`; `entry` is then its name in messages */
  text?: string
  /** the program is an author's, and not split; a `text` always is */
  authors?: boolean
  /** for an executable: gets what is compiled later, by name, for its assets. Absent: that is in the script */
  texts?: Record<string, string>
  /** texts that the script must carry beside those, for `batonText(name)` */
  own?: Readonly<Record<string, string>>
  /** gets the absolute path of every file that goes in */
  inputs?: Set<string>
}

/**
 * An author's application does not need these to start: the HTTP client of the feeds, the library of their signatures, and the command
 * line, if the application contains it.
 */
const LAZY = ['undici', '*/tuf.ts', '*/operator.ts']

export async function bundle(options: BundleOptions): Promise<Uint8Array> {
  const { texts = { ...options.own }, authors = options.text !== undefined } = options
  const script = authors ? await bundleAuthors(options, texts) : await bundleOwn(options, texts)
  return Buffer.from(`${script}\n${options.texts === undefined ? textsInside(texts) : TEXTS_OF_ASSETS}\n`)
}

/** A program of the kit's own sources: each chunk that it does not load first is a text. */
async function bundleOwn(options: BundleOptions, texts: Record<string, string>): Promise<string> {
  const { entry, external = [] } = options
  const { build, transform } = await loadEsbuild(PROJECT)
  const settings = { ...(await settingsOf(options)), external: [...external] }
  const names = { entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]' }
  const out = { format: 'esm', splitting: true, outdir: 'chunks', write: false, metafile: true } as const
  const split = await build({ ...settings, ...names, ...out, entryPoints: [entry] }).catch(failed(entry))
  noteInputs(options, split.metafile, split.warnings)
  const files = new Map(split.outputFiles.map(({ path, text }) => [basename(path), text]))
  const { platform, target, minify, charset, legalComments, logLevel } = settings
  // a script that is compiled by hand has no dynamic import: it becomes a `require`
  const asScript = { format: 'cjs', platform, target, minify, charset, supported: { 'dynamic-import': false } } as const
  const chunks = numberedChunks(relative(settings.absWorkingDir, entry), split.metafile.outputs, files)
  const first = joinedFirst(chunks)
  const joined = await build({
    ...asScript,
    bundle: true,
    write: false,
    legalComments,
    logLevel,
    stdin: { contents: first.text },
    plugins: [fromChunks(chunks, first.names)],
  }).catch(failed(entry))
  const later = chunks.filter(({ name }) => !first.names.has(name))
  for (const { name, text, entryPoint } of later) {
    const { code } = await transform(text, asScript).catch(failed(entry))
    // esbuild gives an `import()` of a CommonJS package nothing but `default`
    const isPackage = split.metafile.inputs[entryPoint]?.format === 'cjs'
    const end = isPackage ? '\nmodule.exports=module.exports.default' : ''
    texts[name] = `'use strict';${code}${end}` // strict, as an ES module is
  }
  const laterNames = later.map(({ name }) => name)
  return assembleProgram(first.names, textIn(joined.outputFiles, entry), laterNames)
}

/** The chunks of these names are bundled; every other import stays. */
function fromChunks(chunks: readonly Chunk[], names: ReadonlySet<string>): Plugin {
  const texts = new Map(chunks.map(({ name, text }) => [`./${name}`, text]))
  return {
    name: 'from-chunks',
    setup(bundling) {
      bundling.onResolve({ filter: /./ }, ({ path }) =>
        names.has(path.slice('./'.length)) ? { path, namespace: 'chunk' } : { path, external: true },
      )
      bundling.onLoad({ filter: /./, namespace: 'chunk' }, ({ path }) => ({ contents: texts.get(path) ?? '' }))
    },
  }
}

/** An author's application with the agent in it: of the agent, what `LAZY` names is a text. */
async function bundleAuthors(options: BundleOptions, texts: Record<string, string>): Promise<string> {
  const { entry, text, folder = PROJECT, external = [] } = options
  const stdin = { contents: text ?? '', resolveDir: folder, loader: 'ts' } as const
  const lazy = LAZY.filter((name) => !external.includes(name))
  const from = text === undefined ? { entryPoints: [entry] } : { stdin }
  return await compile(options, { ...from, plugins: [asTexts(options, lazy, texts)] })
}

let panel: Promise<Assets> | null = null

/** The panel as every executable serves it: the page, one script and the scripts that it loads later, one stylesheet, an icon. */
export async function panelAssets(): Promise<Assets> {
  return await (panel ??= IS_PACKAGED ? Promise.resolve(webAssets()) : keptPanel())
}

async function keptPanel(): Promise<Assets> {
  const sources = new Set([join(PROJECT, 'agent', 'web', 'settings.js')])
  const make = async () => ({ script: Buffer.from(JSON.stringify(await bundlePanel())), sources })
  return JSON.parse(Buffer.from((await keptBundle('panel', make)).script).toString()) as Assets
}

async function bundlePanel(): Promise<Assets> {
  const { build } = await loadEsbuild(PROJECT)
  const web = join(PROJECT, 'agent', 'web')
  const { outputFiles } = await build({
    absWorkingDir: PROJECT,
    entryPoints: ['settings.js', 'settings.css', BADGE, ...PAGE_LATER].map((name) => join(web, name)),
    outdir: web,
    bundle: true,
    write: false,
    minify: true,
    format: 'esm',
    target: 'es2024',
    charset: 'utf8',
    legalComments: 'eof',
    logLevel: 'silent',
    plugins: [fromItsSources('marked', 'Lexer'), loadedLater],
  })
  const made = Object.fromEntries(outputFiles.map(({ path, text }) => [relative(web, path), text]))
  const { 'settings.html': page = '', ...asTheyAre } = readAssets()
  made['settings.html'] = page.replaceAll(/<!--[^]*?-->\s*/g, '').replaceAll(/\n\s*/g, '\n')
  return Object.fromEntries([...PAGE, BADGE, ...PAGE_LATER].map((name) => [name, made[name] ?? asTheyAre[name] ?? '']))
}

/** A script that the page imports dynamically stays a separate file, at the same path as in the sources. */
const loadedLater: Plugin = {
  name: 'loaded-later',
  setup(bundling) {
    bundling.onResolve({ filter: /^\./ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path: `./settings/${basename(path)}`, external: true } : null,
    )
  },
}

/**
 * Bundles one class of a package that publishes a single minified file, which esbuild cannot tree-shake. The package's source map
 * holds the sources: this takes only those that the class needs, and only GitHub's dialect (11 kB compressed of marked's 15).
 */
function fromItsSources(name: string, wanted: string): Plugin {
  const path = createRequire(import.meta.url).resolve(name)
  const map = JSON.parse(readFileSync(`${path}.map`, 'utf8')) as { sources: string[]; sourcesContent: string[] }
  const texts = new Map(map.sources.map((source, at) => [basename(source), map.sourcesContent[at] ?? '']))
  return {
    name: 'from-its-sources',
    setup(bundling) {
      bundling.onResolve({ filter: new RegExp(`^${name}$`) }, () => ({ path: 'index.ts', namespace: name }))
      bundling.onResolve({ filter: /./, namespace: name }, ({ path }) => ({ path: basename(path), namespace: name }))
      bundling.onLoad({ filter: /./, namespace: name }, ({ path }) => ({
        contents:
          path === 'index.ts'
            ? `export { _${wanted} as ${wanted} } from './${wanted}.ts'`
            : oneDialect(texts.get(path) ?? ''),
        loader: 'ts',
      }))
    },
  }
}

/** rules of the renderer, of the other dialects, or of nothing: the lexer uses none of them (a test holds that) */
export const NOT_LEXED =
  'outputLinkReplace|listReplaceNesting|pedanticHrefTitle|escape(?:Test|Replace)(?:NoEncode)?|percentDecode|spaceLine|notSpaceStart|endingNewline|pedanticHeadingBeginRegex'

/** Turns options that we never set into constants. Then nothing refers to the rules of the other dialects. */
function oneDialect(text: string): string {
  return text
    .replaceAll(new RegExp(`^ +(?:${NOT_LEXED}): .*,\n`, 'gm'), '')
    .replace(/(?<=^const supportsLookbehind = )[^]*?(?=;\n\n)/m, 'true') // as the scripts are of 2024
    .replaceAll(/this\.options\.(?:pedantic|breaks|extensions|hooks)\b/g, 'undefined')
    .replaceAll(/^const \w+(?:Pedantic|Breaks)\w*\b[^]*?\n\n/gm, '')
    .replaceAll(/^ +(?:pedantic|breaks): (?:block|inline)\w+,\n/gm, '')
}

async function compile(options: BundleOptions, more: BuildOptions): Promise<string> {
  const { build } = await loadEsbuild(options.folder ?? PROJECT)
  const settings = { ...(await settingsOf(options)), external: [...(options.external ?? [])], ...more }
  const out = { format: 'cjs', write: false, metafile: true } as const
  const { outputFiles, metafile, warnings } = await build({ ...settings, ...out }).catch(failed(options.entry))
  noteInputs(options, metafile, warnings)
  return textIn(outputFiles, options.entry)
}

function textIn([output]: readonly { text: string }[], entry: string): string {
  if (output === undefined) throw new BatonError('unexpected', `bundling ${entry}: esbuild produced no output`)
  return output.text
}

function failed(entry: string): (cause: unknown) => never {
  return (cause) => {
    throw new BatonError('unexpected', `could not bundle ${entry}`, { cause })
  }
}

function noteInputs(
  { entry, folder = PROJECT, inputs }: BundleOptions,
  metafile: Metafile,
  warnings: readonly Message[],
) {
  // `text:…` is a separate script, which reports its own inputs
  for (const path of Object.keys(metafile.inputs)) if (!path.includes(':')) inputs?.add(resolve(folder, path))
  const [first] = warnings
  if (first !== undefined) throw new BatonError('unexpected', `bundling ${entry}: ${first.text}`)
}

async function settingsOf({ define, minify = true, folder = PROJECT }: BundleOptions) {
  return {
    absWorkingDir: folder,
    bundle: true,
    platform: 'node',
    target: 'node26',
    minify,
    charset: 'ascii', // one character outside of Latin 1 would double the script in memory
    legalComments: 'eof',
    logLevel: 'silent',
    define: {
      ...Object.fromEntries(Object.entries(define).map(([name, value]) => [name, JSON.stringify(value)])),
      // the panel's files travel inside: one string, of JSON
      __BATON_WEB__: JSON.stringify(JSON.stringify(await panelAssets())),
      // CommonJS has no `import.meta`. No module of a bundle may take itself for the program that was started.
      'import.meta.url': '"file:///bundle/main.cjs"',
      'import.meta.main': 'false',
      'import.meta.dirname': '__dirname',
      'import.meta.filename': '__filename',
    },
  } satisfies BuildOptions
}

/** Makes a separate text of each module in `names` that is imported dynamically. The first import compiles it. */
function asTexts(options: BundleOptions, names: readonly string[], texts: Record<string, string>): Plugin {
  const nameOf = (path: string) => names.find((name) => path === name || `*/${basename(path)}` === name)
  return {
    name: 'as-texts',
    setup(bundling) {
      bundling.onResolve({ filter: /./ }, async ({ path, kind, importer, resolveDir, pluginData }) => {
        const name = nameOf(path)
        if (kind !== 'dynamic-import' || pluginData === asTexts || name === undefined) return null
        const found = await bundling.resolve(path, { kind, importer, resolveDir, pluginData: asTexts })
        if (found.errors.length > 0) return { errors: found.errors }
        return { path: found.path, namespace: 'text', pluginData: basename(name) }
      })
      bundling.onLoad({ filter: /./, namespace: 'text' }, async ({ path, pluginData }) => {
        const text = await compile(options, {
          entryPoints: [path],
          plugins: [asTexts(options, names, texts)],
          supported: { 'dynamic-import': false }, // a script that is compiled by hand has none
        })
        const name = `${String(pluginData)}-${createHash('sha256').update(text).digest('hex').slice(0, 8)}`
        texts[name] = text
        const contents = `
          const inner = { exports: {} }
          const script = ${compiledText(`'${name}'`, `'${basename(path)}'`)}
          script.call(inner.exports, inner.exports, require, inner, __filename, __dirname, batonText)
          module.exports = inner.exports`
        return { contents, loader: 'js', resolveDir: dirname(path) }
      })
    },
  }
}
