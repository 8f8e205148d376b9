// What a service loads to serve: little, and nothing of what comes once a month. Bundled as an author's bundler would, and started.

import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { loadEsbuild } from '../deploy/make/bundle.ts'
import { equal, ok } from './assert.ts'
import { suite } from './suite.ts'

const ROOT = join(import.meta.dirname, '..')
const LOADED_MAX_BYTES = 70_000
/** for files, timers, names of hosts, and the C library */
const MORE_MODULES_MAX = 30
const STARTS = 3
const LATER = /^agent\/(update\/(?!unmanaged\.ts)|handover\/(give|take)\/)/

const test = suite('loaded')

test('what a service loads to serve is at most 70 kB minified, and nothing of an operation, a feed, trust or a handover', async () => {
  const { build } = await loadEsbuild(ROOT)
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: ['agent/index.ts'],
    outdir: 'unwritten',
    bundle: true,
    write: false,
    minify: true,
    splitting: true,
    platform: 'node',
    format: 'esm',
    metafile: true,
    packages: 'external',
    logLevel: 'silent',
  })
  const parts = Object.entries(metafile.outputs)
  const begun = parts.find(([, { entryPoint }]) => entryPoint === 'agent/index.ts')?.[0] ?? ''
  const loaded = new Set([begun])
  for (const path of loaded) {
    for (const { path: next, kind } of metafile.outputs[path]?.imports ?? []) {
      if (kind === 'import-statement' && next in metafile.outputs) loaded.add(next)
    }
  }
  const bytes = parts.reduce((sum, [path, part]) => sum + (loaded.has(path) ? part.bytes : 0), 0)
  ok(bytes <= LOADED_MAX_BYTES, `expected at most ${LOADED_MAX_BYTES} bytes, got ${bytes}`)
  const inputs = [...loaded].flatMap((path) => Object.keys(metafile.outputs[path]?.inputs ?? {}))
  equal(
    inputs.filter((path) => LATER.test(path)),
    [],
  )
  ok(inputs.length > 20)
})

test('a service that serves has loaded no SQLite, and few modules of Node that plain `node:http` has not', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'baton-loaded-'))
  try {
    const told = `process.stdout.write(JSON.stringify(process.moduleLoadList), () => process.exit(0))`
    const server = `createServer((_, response) => response.end())`
    const plain = await modulesOf(folder, 'plain', `${server}.listen(0, '127.0.0.1', () => ${told})`)
    const embedded = await modulesOf(
      folder,
      'embedded',
      `import { embed } from ${JSON.stringify(join(ROOT, 'agent/index.ts'))}
       const who = { service: 'loaded', tag: 'v1.0.0', password: 'a long password', feed: '/nowhere' }
       const agent = await embed({ ...who, stateDirectory: ${JSON.stringify(folder)}, log: () => {} })
       await agent.serve([{ server: ${server}, port: 0 }])
       ${told}`,
    )
    ok(plain.includes('http') && embedded.includes('http'))
    const more = embedded.filter((name) => !plain.includes(name))
    equal(
      more.filter((name) => /sqlite|undici/.test(name)),
      [],
    )
    ok(more.length <= MORE_MODULES_MAX, `expected at most ${MORE_MODULES_MAX}, got ${more.join(' ')}`)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

/** What each of some starts has loaded: one alone may have more by the time that it took, or by what was in Node's compile cache. */
async function modulesOf(folder: string, name: string, text: string): Promise<string[]> {
  const path = join(folder, `${name}.mts`)
  await writeFile(path, `import { createServer } from 'node:http'\n${text}`)
  const env = { PATH: process.env['PATH'], HOME: folder }
  const starts: string[][] = []
  for (let start = 0; start < STARTS; start++) {
    const { stdout } = await promisify(execFile)(process.execPath, [path], { env, maxBuffer: 1024 * 1024 })
    starts.push((JSON.parse(stdout) as string[]).map((module) => module.replace(/^\S+ /, '')))
  }
  return starts[0]?.filter((module) => starts.every((loaded) => loaded.includes(module))) ?? []
}

test.run()
