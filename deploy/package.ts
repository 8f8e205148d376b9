// `npm run pack [-- --out DIR]`: makes the package and packs it: lib/ with compiled ES modules and CommonJS, their types, the command,
// and the scripts that every release carries. It does so in a separate folder. The clone's own package.json is private and has no
// version, so that npm refuses `npm pack` and `npm publish` there instead of packing sources without lib/.
// Must hold: nothing in the package imports another package, and everything loads on Node 20. A part of Node that Node 20 lacks is
// `undefined` there, and fails only when it is used.

import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join, posix, resolve } from 'node:path'
import { asBatonError, MEANINGS } from '../agent/words.ts'
import { bundleOurScript, KIT_PACKAGES, kitPackages } from './make/application.ts'
import { type BuildOptions, loadEsbuild, panelAssets, type Plugin } from './make/bundle.ts'
import { nodePackages } from './make/node.ts'
import { PROJECT } from './make/place.ts'
import { type CommandLine, option, parseFlags } from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'
import { printError } from './lib/printer.ts'
import { run } from './lib/shell.ts'

const COMMAND = {
  name: 'npm run pack --',
  description: 'builds the package baton-kit and packs it into a tarball',
  args: { out: option('dir', 'folder for the packed file', { default: '.' }) },
} as const satisfies CommandLine

const out = await readOut(process.argv.slice(2))

const PACKAGE = join(PROJECT, '.cache', 'package')
const LIB = join(PACKAGE, 'lib')
const PUBLIC = {
  index: 'agent/index.ts',
  release: 'agent/adapters/release.ts',
  auto: 'agent/adapters/auto.ts',
  express: 'agent/adapters/express.ts',
  fastify: 'agent/adapters/fastify.ts',
  hono: 'agent/adapters/hono.ts',
}
const COMMANDS = {
  baton: 'deploy/baton.ts',
  image: 'deploy/image.ts',
  trust: 'deploy/trust.ts',
  'deploy-systemd': 'deploy/deploy-systemd.ts',
  'deploy-container': 'deploy/deploy-container.ts',
  'deploy-source': 'deploy/deploy-source.ts',
  'deploy-npm': 'deploy/deploy-npm.ts',
  'deploy-fleet': 'deploy/deploy-fleet.ts',
}

/**
 * Turns named imports of Node's modules into members of the module. On an older Node a missing named import would fail before the
 * first line; a missing member is undefined.
 */
const builtins: Plugin = {
  name: 'builtins',
  setup(bundling) {
    // a dynamic import fails only when it runs, so it stays; esbuild would make it a chunk without named exports
    bundling.onResolve({ filter: /^node:/ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path, external: true } : { path, namespace: 'builtin' },
    )
    bundling.onLoad({ filter: /./, namespace: 'builtin' }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(path)}) ?? {}`,
      loader: 'js',
    }))
  },
}

/** Writes out the named exports of undici: a CommonJS package in a chunk has only a default export. */
const namesOfUndici: Plugin = {
  name: 'names-of-undici',
  setup(bundling) {
    bundling.onResolve({ filter: /^undici$/ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path, namespace: 'named' } : null,
    )
    bundling.onLoad({ filter: /./, namespace: 'named' }, async ({ path }) => {
      const names = Object.keys((await import(path)) as object).filter((name) => /^[A-Za-z]\w*$/.test(name))
      const exported = names.filter((name) => name !== 'default').join(', ')
      return {
        contents: `import all from '${path}'\nexport const { ${exported} } = all`,
        resolveDir: PROJECT,
        loader: 'js',
      }
    })
  },
}

/** esbuild does not split CommonJS: this splits off undici, the one large part that few need. */
const undiciApart: Plugin = {
  name: 'undici-apart',
  setup(bundling) {
    bundling.onResolve({ filter: /^undici$/ }, ({ kind }) =>
      kind === 'entry-point' ? null : { path: './undici.js', external: true },
    )
  },
}

const SHARED: BuildOptions = {
  bundle: true,
  platform: 'node',
  target: 'node20',
  absWorkingDir: PROJECT,
  plugins: [builtins],
  external: ['esbuild'],
  legalComments: 'eof',
  logLevel: 'warning',
  define: {
    __BATON_WEB__: JSON.stringify(JSON.stringify(await panelAssets())),
    __BATON_PACKAGED__: 'true',
    __BATON_NODES__: JSON.stringify(nodePackages()),
  },
}

const { build } = await loadEsbuild(PROJECT)
await rm(PACKAGE, { recursive: true, force: true })
await build({
  ...SHARED,
  entryPoints: entries({ ...PUBLIC, ...COMMANDS }),
  outdir: join(LIB, 'esm'),
  format: 'esm',
  plugins: [namesOfUndici, builtins],
  splitting: true,
  chunkNames: 'part-[hash]',
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
})
await build({
  ...SHARED,
  entryPoints: entries(PUBLIC),
  outdir: join(LIB, 'cjs'),
  format: 'cjs',
  plugins: [undiciApart, builtins],
  define: {
    ...SHARED.define,
    'import.meta.url': '__filename',
    'import.meta.dirname': '__dirname',
    'import.meta.main': 'false',
  },
})
await build({ ...SHARED, entryPoints: ['undici'], outfile: join(LIB, 'cjs', 'undici.js'), format: 'cjs' })
await writeFile(join(LIB, 'cjs', 'package.json'), '{ "type": "commonjs" }\n')

// the scripts that every release carries
await mkdir(join(LIB, 'first'), { recursive: true })
for (const name of ['app', 'operator', 'source'] as const)
  await writeFile(join(LIB, 'first', `${name}.cjs`), await bundleOurScript(name))
await writeFile(join(LIB, 'first', KIT_PACKAGES), `${JSON.stringify(await kitPackages(), null, 2)}\n`)
await build({
  ...SHARED,
  plugins: [],
  entryPoints: { bundle: 'deploy/make/first/bundle.ts' },
  outdir: join(LIB, 'first'),
  format: 'esm',
  target: 'node26',
})

// Ansible reads the collection from files
await cp(join(PROJECT, 'deploy/fleet'), join(LIB, 'fleet'), {
  recursive: true,
  filter: (path) => !/\.(?:ts|md)$|__pycache__/.test(path),
})

await cp(join(PROJECT, 'deploy/npm/recipes'), join(LIB, 'recipes'), { recursive: true })

await writeTypes()
await writeRest()
await mkdir(out, { recursive: true })
const packing = ['npm', 'pack', '--silent', '--ignore-scripts', '--pack-destination', out]
process.stdout.write((await run(packing, { cwd: PACKAGE })).stdout)

/** The folder for the packed file; ends this process where none is to be made. */
async function readOut(argv: readonly string[]): Promise<string> {
  const help = await helpFor(argv, COMMAND)
  if (help !== null) process.exit(printHelp(help))
  try {
    return resolve(parseFlags(argv, COMMAND).out)
  } catch (cause) {
    const { code, message, hint } = asBatonError(cause, 'unexpected', 'pack')
    printError({ message, hint })
    process.exit(MEANINGS[code].exit)
  }
}

function entries(names: Record<string, string>): { in: string; out: string }[] {
  return Object.entries(names).map(([out, path]) => ({ in: path, out }))
}

/** Writes the manifest, without the fields that only the clone needs, and the files beside lib/ that it names. */
async function writeRest(): Promise<void> {
  const manifest = JSON.parse(await readFile(join(PROJECT, 'package.json'), 'utf8')) as Record<string, unknown>
  const { name, packed, files, ...rest } = manifest as { name: string; packed: { version: string }; files: string[] }
  for (const own of ['private', 'workspaces', 'scripts', 'devDependencies']) delete (rest as typeof manifest)[own]
  await writeFile(
    join(PACKAGE, 'package.json'),
    `${JSON.stringify({ name, version: packed.version, ...rest, files }, null, 2)}\n`,
  )
  const guides = await readdir(join(PROJECT, 'docs'), { recursive: true })
  const pages = guides.filter((path) => path.endsWith('.md')).map((path) => join('docs', path))
  const others = files.filter((path) => path !== 'lib' && !path.includes('*'))
  const all = [...others, ...pages, 'README.md', 'LICENSE']
  for (const path of all) {
    await mkdir(dirname(join(PACKAGE, path)), { recursive: true })
    await cp(join(PROJECT, path), join(PACKAGE, path))
    if (!path.endsWith('.md')) continue
    const text = await readFile(join(PROJECT, path), 'utf8')
    await writeFile(join(PACKAGE, path), packedPage(text, path, all))
  }
}

/** Writes the same tree of declarations twice: the folder of a declaration says whether it describes an ES module or CommonJS. */
async function writeTypes(): Promise<void> {
  const config = join(PROJECT, '.cache', 'types.tsconfig.json')
  await mkdir(join(PROJECT, '.cache'), { recursive: true })
  await writeFile(
    config,
    JSON.stringify({
      extends: '../tsconfig.json',
      compilerOptions: {
        noEmit: false,
        declaration: true,
        emitDeclarationOnly: true,
        outDir: join(LIB, 'types'),
        rootDir: PROJECT,
      },
      include: [],
      files: Object.values(PUBLIC).map((path) => join(PROJECT, path)),
    }),
  )
  await run([join(PROJECT, 'node_modules', '.bin', 'tsc'), '-p', config])
  const types = join(LIB, 'types', 'agent')
  for (const path of await readdir(types, { recursive: true })) {
    if (!path.endsWith('.d.ts')) continue
    const text = await readFile(join(types, path), 'utf8')
    await writeFile(join(types, path), text.replaceAll(/(from\s+|import\()(['"])(\.[^'"]+)\.ts\2/g, '$1$2$3.js$2'))
  }
  for (const format of ['esm', 'cjs']) {
    await cp(types, join(LIB, format, 'types'), { recursive: true })
    for (const [name, path] of Object.entries(PUBLIC)) {
      const from = `./types/${path.replace(/^agent\//, '').replace(/\.ts$/, '.js')}`
      await writeFile(join(LIB, format, `${name}.d.ts`), `export * from '${from}'\n`)
    }
  }
  await rm(join(LIB, 'types'), { recursive: true })
}

/**
 * Pure: a page of the documentation as the package has it, without the links and pictures that lead to none of `packed`: their texts
 * stay. `page` and `packed`: paths below the package.
 */
function packedPage(text: string, page: string, packed: readonly string[]): string {
  return text.replaceAll(/!?\[([^\]]*)\]\(([^)\s]+)\)/g, (whole, said: string, target: string) => {
    const [path = ''] = target.split('#')
    if (path === '' || /^[a-z]+:/.test(path)) return whole
    const file = posix.join(posix.dirname(page), path).replace(/\/$/, '')
    return packed.some((one) => one === file || one.startsWith(`${file}/`)) ? whole : said
  })
}
