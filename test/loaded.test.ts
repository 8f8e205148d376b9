// What a service loads to serve: little, and nothing of what comes once a month. Bundled as an author's bundler would, and started.
// And what a command loads.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { bundle, loadEsbuild } from '../deploy/make/bundle.ts'
import { DEFAULT_ENTRY, DEFAULT_SERVICE, definitions } from '../deploy/make/release.ts'
import { equal, match, ok } from './assert.ts'
import { ask, freePort, install } from './fixtures/install.ts'
import { programRelease } from './fixtures/releases.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const ROOT = join(import.meta.dirname, '..')
const LOADED_MAX_BYTES = 51_000
const LATER =
  /^agent\/(update\/|updater\.ts|handover\/(give|hold|take)\/|http\/(routes|auth)\.ts|disk\/(disk|journal|lock)\.ts)/

const test = suite('loaded')

test('what a service loads to serve is at most 51 kB minified, and nothing of an operation, a feed, trust or a handover', async () => {
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

test('a managed service that has answered one request has loaded these modules of Node beyond plain `node:http`, and no other', async () => {
  const release = await programRelease('v1.0.0', DEFAULT_ENTRY)
  await using home = await install({ release })
  await home.start() // the first start of an install clears up: no later one does
  await home.stop()
  const watch = join(home.home, 'watch.cjs')
  await writeFile(watch, WATCH)
  const plain = join(home.home, 'plain.cjs')
  await writeFile(plain, PLAIN)

  const service = await heardOf(home.home, watch, (environment) => home.start(environment), home.port ?? 0)
  await home.stop()
  const port = await freePort()
  const bare = await heardOf(
    home.home,
    watch,
    async (environment) => spawn(process.execPath, [plain, String(port)], { env: { ...process.env, ...environment } }),
    port,
  )
  ok(bare.includes('http') && service.includes('http'))
  equal(
    service.filter((name) => !bare.includes(name)),
    ADDED,
  )
})

test('a command that asks no URL loads neither `fetch` nor TLS', async () => {
  const define = definitions(DEFAULT_SERVICE, 'v1.0.0')
  const text = `import { runOperator } from './deploy/operator.ts'; void runOperator(process.argv.slice(2))`
  await using made = await temporary('loaded')
  const folder = made.path
  const program = join(folder, 'command.cjs')
  await writeFile(program, await bundle({ entry: 'command', text, define }))
  const list = join(folder, 'list.cjs')
  await writeFile(list, `process.on('exit', () => console.log(JSON.stringify(process.moduleLoadList)))`)
  const { stdout, stderr } = spawnSync(process.execPath, ['--require', list, program, 'status', '--user'], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], HOME: folder },
  })
  match(stderr, /^error: beacon (has not been installed by root|is not installed) on this host$/m)
  const loaded = (JSON.parse(stdout) as string[]).map((name) => name.replace('NativeModule ', ''))
  ok(loaded.includes('child_process') && loaded.includes('http'))
  equal(
    loaded.filter((name) => ['internal/deps/undici/undici', 'https', 'tls'].includes(name)),
    [],
  )
})

/**
 * The database is the reference service's own. `vm` compiles the chunks that the first script does not hold (deploy/make/chunks.ts). The
 * rest is for sockets, paths, the release's own words and waiting.
 */
const ADDED = ['ffi', 'os', 'sea', 'sqlite', 'timers/promises', 'vm']

/** Loaded before the program: notes which modules of Node are there once the first request has been answered, and when that was. */
const WATCH = `
  const names = new Set(require('node:module').builtinModules.map((name) => name.replace('node:', '')))
  require('node:diagnostics_channel').subscribe('http.server.response.finish', () => {
    const loaded = process.moduleLoadList.map((name) => name.replace('NativeModule ', '')).filter((name) => names.has(name))
    const text = JSON.stringify({ loaded: loaded.toSorted(), uptimeMs: process.uptime() * 1000 })
    require('node:fs').writeFileSync(process.env.WATCH_TO + '.partial', text)
    require('node:fs').renameSync(process.env.WATCH_TO + '.partial', process.env.WATCH_TO)
  })
`
const PLAIN = `require('node:http').createServer((_, response) => response.end()).listen(process.argv[2], '127.0.0.1')`
/** five seconds after its start a service looks whether something is to be done by itself */
const BEFORE_FIRST_LOOK_MS = 4500
const TRIES = 5

/** Public modules of Node in a process that has answered its first request. A start that the machine has made wait is no evidence. */
async function heardOf(
  folder: string,
  watch: string,
  begin: (environment: Record<string, string>) => Promise<ChildProcess>,
  port: number,
): Promise<string[]> {
  for (let tries = 0; tries < TRIES; tries++) {
    const to = join(folder, `heard-${port}-${tries}`)
    await using stack = new AsyncDisposableStack()
    const child = await begin({ NODE_OPTIONS: `--require ${watch}`, WATCH_TO: to })
    stack.defer(async () => {
      const exited = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : null
      child.kill('SIGKILL')
      await exited
    })
    while ((await ask(port, 'GET', '/', null).catch(() => null)) === null) await sleep(10)
    let text: string | null = null
    while ((text = await readFile(to, 'utf8').catch(() => null)) === null) await sleep(10)
    const { loaded, uptimeMs } = JSON.parse(text) as { loaded: string[]; uptimeMs: number }
    if (uptimeMs < BEFORE_FIRST_LOOK_MS) return loaded
  }
  throw new Error(`the machine is too busy: no start of ${TRIES} has answered in ${BEFORE_FIRST_LOOK_MS} ms`)
}

test.run()
