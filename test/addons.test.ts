// Native addons: which of them the Node that Baton brings can load, and what is said of those that it can't. The addons are real ones:
// compiled here with cc, or those of the package classic-level.

import { existsSync } from 'node:fs'
import { chown, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { BatonError } from '../agent/words.ts'
import { addonHint, type AddonReport, examineAddons, formatAddons, refuseOtherAbis } from '../deploy/make/addons.ts'
import { excludesNode, foreignEngines } from '../deploy/make/engines.ts'
import { examineProject } from '../deploy/make/examine.ts'
import { filesOf } from '../deploy/make/files.ts'
import { provideHeaders, provideNode } from '../deploy/make/node.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject, type Project } from '../deploy/make/project.ts'
import {
  formatRebuild,
  headersFault,
  rebuildAddons,
  rebuildCommand,
  rebuildEnvironment,
  type RebuildReport,
} from '../deploy/make/rebuild.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { findProgram, run } from '../deploy/lib/shell.ts'
import { equal, is, match, ok, rejects, throws } from './assert.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const QUIET = createProgress({ quiet: true })
const MODULES = Number(process.versions.modules)
const HERE = `${process.platform}-${process.arch}`
const hasCompiler = (await findProgram('cc')) !== null
const skip = process.platform === 'linux' && hasCompiler ? null : 'needs Linux and cc'

// what the addons are compiled from; Node calls the first function with (exports, module, context, …)
const FOR_ABI = (abi: number) => `void node_register_module_v${abi}(void) {}`
const NODE_API = 'void *napi_register_module_v1(void *env, void *exports) { return exports; }'
const OLD_STYLE = (abi: number) => `
  struct { int version; unsigned flags; void *handle; const char *file; void *register_it, *register_context;
    const char *name; void *data, *next; } it = { ${abi}, 0, 0, "old.cc", 0, 0, "old", 0, 0 };
  extern void node_module_register(void *);
  __attribute__((constructor)) static void begin(void) { node_module_register(&it); }`
const CRASHES = `#include <stdlib.h>
  __attribute__((constructor)) static void begin(void) { abort(); }
  ${NODE_API}`
const NO_ADDON = 'int sqlite3_extension_init(void) { return 0; }'

// ---- a release

const release = suite('addons: a release', { skip, timeoutMs: 120_000 })

release('each package is said to work, or what it was built for, or why it cannot be loaded', async () => {
  await using shop = await makeShop({
    current: { 'build/Release/a.node': FOR_ABI(MODULES), 'build/Release/obj.target/b.node': FOR_ABI(115) },
    other: { 'build/Release/a.node': FOR_ABI(115), 'binding.gyp': null },
    old: { 'build/Release/a.node': OLD_STYLE(115) },
    crashes: { 'a.node': CRASHES },
    lacks: { 'a.node': `${NODE_API} extern void gone(void); void (*it)(void) = gone;` },
    extension: { 'a.node': NO_ADDON },
    unbuilt: { 'binding.gyp': null },
    chooses: { 'lib/node-v115/a.node': FOR_ABI(115), [`lib/node-v${MODULES}/a.node`]: NODE_API },
    prebuilt: {
      [`prebuilds/${HERE}/node.abi115.node`]: FOR_ABI(115),
      [`prebuilds/${HERE}/node.napi.node`]: NODE_API,
      'binding.gyp': null,
    },
    compiled: { 'build/Release/a.node': NODE_API, [`prebuilds/${HERE}/node.abi115.node`]: FOR_ABI(115) },
    built: { 'build/Release/a.node': FOR_ABI(115), [`prebuilds/${HERE}.node`]: NODE_API },
  })
  const whole = await readFile(join(shop.path, 'node_modules/current/build/Release/a.node'))
  const add = async (name: string, bytes: Buffer) => {
    await mkdir(join(shop.path, 'node_modules', name))
    await writeFile(join(shop.path, 'node_modules', name, 'package.json'), JSON.stringify({ name, version: '1.0.0' }))
    await writeFile(join(shop.path, 'node_modules', name, 'a.node'), bytes)
    await shop.depend(name)
  }
  await add('cut', whole.subarray(0, 4000))
  await add('foreign', Buffer.concat([whole.subarray(0, 18), Buffer.of(0xf3, 0), whole.subarray(20)])) // RISC-V's
  await add('text', Buffer.from('not a program'))
  const level = join(shop.path, 'node_modules', 'classic-level')
  await cp(join(PROJECT, 'node_modules', 'classic-level'), level, { recursive: true })
  await writeFile(join(level, 'package.json'), '{ "name": "classic-level", "version": "1.0.0" }') // without what it needs
  await shop.depend('classic-level')
  const report = await examineAddons(await filesOf(shop.project))
  const verdicts = Object.fromEntries(report.packages.map(({ name, verdict }) => [name, verdict]))
  equal(verdicts, {
    current: 'works',
    other: 'other-abi',
    old: 'other-abi',
    crashes: 'fails',
    lacks: 'fails',
    unbuilt: 'not-built',
    chooses: 'works',
    prebuilt: 'works',
    compiled: 'works',
    built: 'other-abi',
    cut: 'fails',
    'classic-level': 'works',
  })
  const say = saying(report)
  match(say('current'), 'current 1.0.0 works')
  for (const name of ['other', 'old'])
    match(say(name), new RegExp(`^${name} 1.0.0 is built for ABI 115 \\(Node 20\\), expected ${MODULES} \\(Node 26\\.`))
  match(say('crashes'), /^crashes 1.0.0 cannot be loaded: .*a\.node: the process ended \(SIGABRT\) while loading it/)
  match(say('lacks'), /undefined symbol: gone/)
  match(say('classic-level'), 'works (Node-API)')

  const refused = throws(
    () => refuseOtherAbis(report),
    /^native addons: .*other 1.0.0 is built for ABI 115/,
  ) as BatonError
  is(refused.code, 'verify_failed')
  match(refused.hint ?? '', '`npx baton rebuild`')
  ok(!/crashes|lacks/.test(refused.message), 'the application may never load it')
  const others = report.packages.filter(({ name }) => name === 'built')
  match(
    addonHint({ ...report, packages: others }) ?? '',
    /^install another version of built, or use `exclude` to leave out what the application does not need/,
  )

  const found = (await examineProject(shop.path)).find(({ check }) => check === 'addons')
  is(found?.level, 'problem')
  match(found?.message ?? '', 'old 1.0.0 is built for ABI 115')
})

release('a package whose addons lie in packages of their own, one for each platform, is not missed', async () => {
  await using shop = await makeShop({
    main: { 'binding.gyp': null },
    'main-linux': { 'a.node': NODE_API },
  })
  const manifest = join(shop.path, 'node_modules', 'main', 'package.json')
  const said = JSON.parse(await readFile(manifest, 'utf8')) as object
  await writeFile(manifest, JSON.stringify({ ...said, optionalDependencies: { 'main-linux': '*', 'main-mac': '*' } }))
  const { packages } = await examineAddons(await filesOf(shop.project))
  equal(
    packages.map(({ name, verdict }) => [name, verdict]),
    [['main-linux', 'works']],
  )
})

release('the build refuses an addon for another Node before it packs anything', async () => {
  await using shop = await makeShop({ other: { 'build/Release/a.node': FOR_ABI(115), 'binding.gyp': null } })
  const built = await baton(shop.path, {}, 'build', 'v1.0.0', '--json')
  is(built.exitCode, 5, built.stderr)
  const { message, hint } = JSON.parse(built.stdout) as { message: string; hint: string }
  match(message, /^native addons: other 1.0.0 is built for ABI 115 \(Node 20\), expected \d+ \(Node 26\./)
  match(hint, 'npx baton rebuild')
  equal(await readdir(join(shop.path, 'releases')).catch(() => []), [])
})

release('what was built and does not start is told by the addon that is missing, and what builds it', async () => {
  await using shop = await makeShop({ unbuilt: { 'binding.gyp': null } })
  await writeFile(join(shop.path, 'server.js'), `throw new Error('no bindings')`)
  const built = await baton(shop.path, {}, 'build', 'v1.0.0', '--json')
  is(built.exitCode, 5, built.stderr)
  const { message, hint } = JSON.parse(built.stdout) as { message: string; hint: string }
  match(message, 'no bindings')
  match(hint, /^unbuilt 1\.0\.0 has not been built for this platform: run `npx baton rebuild`/)
})

release('one script has no addons: doctor and build say whose are left out', async () => {
  await using shop = await makeShop({ other: { 'build/Release/a.node': FOR_ABI(115) } })
  await writeFile(join(shop.path, 'baton.config.json'), '{ "service": "shop", "entry": "server.js", "kind": "script" }')
  const found = (await examineProject(shop.path)).find(({ check }) => check === 'addons')
  equal(
    [found?.level, found?.message],
    ['warning', 'a script release cannot contain native addons, but these packages have them: other'],
  )
  const built = await baton(shop.path, {}, 'build', 'v1.0.0', '--no-try')
  is(built.exitCode, 0, built.stderr)
  match(built.stderr, 'warning: a script release cannot contain native addons')
})

release('root loads no addon that another user can change', async () => {
  if (process.geteuid?.() !== 0) return
  await using shop = await makeShop({ theirs: { 'a.node': `${NODE_API} ${touching('theirs')}` } })
  const addon = join(shop.path, 'node_modules', 'theirs', 'a.node')
  await chown(addon, 65534, 65534)
  const report = await examineAddons(await filesOf(shop.project))
  match(saying(report)('theirs'), /was not loaded: .*user id 65534 can change/)
  await chown(addon, 0, 0)
  match(saying(await examineAddons(await filesOf(shop.project)))('theirs'), 'works')
})

release.run()

// ---- rebuild, engines

const rest = suite('addons: rebuild', { timeoutMs: 240_000 })

rest('a command finds Node 26 first on PATH, with its headers, and nothing that names another Node', async () => {
  const outer = {
    PATH: '/bin',
    NODE: '/old/node',
    npm_config_target: '20.0.0',
    npm_config_registry: 'r',
    npm_package_name: 'x',
  }
  const set = rebuildEnvironment('/26/bin/node', '/26', outer)
  equal(set, {
    NODE: undefined,
    npm_config_target: undefined,
    npm_package_name: undefined,
    npm_config_nodedir: '/26',
    PATH: '/26/bin:/bin',
  })
  const [a, b] = [
    { name: 'a', version: '1.0.0' },
    { name: 'b', version: null },
  ]
  equal(rebuildCommand('npm', [a, b]), ['npm', 'rebuild', 'a@1.0.0', 'b', '--ignore-scripts=false'])
  equal(rebuildCommand('pnpm', [a, b]), ['pnpm', 'rebuild', 'a', 'b'])
  const headers = await provideHeaders()
  const text = await readFile(join(headers ?? '', 'include', 'node', 'node_version.h'), 'utf8')
  const { stdout } = await run([await provideNode(), '-p', 'process.versions.modules'])
  match(text, `#define NODE_MODULE_VERSION ${stdout.trim()}\n`)
})

rest(
  'headers of Node that are missing are named if something is left: where they were expected, and how they get there',
  () => {
    const node = { path: '/kit/node 26/bin/node', version: '26.10.0', modules: 147 }
    is(headersFault(node, '/kit/node 26'), null)
    const headers = headersFault(node, null)
    const one = {
      name: 'a',
      version: '1.0.0',
      message: 'a 1.0.0 is built for ABI 115',
      failure: 'no node.h',
      hint: null,
    }
    const report: RebuildReport = {
      node,
      commands: ['npm rebuild a'],
      headers,
      packages: [{ ...one, verdict: 'fails' }],
    }
    equal(formatRebuild(report, false), [
      'the headers of Node 26.10.0 are not in /kit/node 26/bin/include/node: to compile, npm fetches them from nodejs.org',
      "      if npm cannot, download them yourself: `curl -fsSL https://nodejs.org/dist/v26.10.0/node-v26.10.0-headers.tar.gz | tar -xz --strip-components=1 -C '/kit/node 26/bin'`",
      'a 1.0.0 is built for ABI 115',
      '      building it failed: no node.h',
    ])
    const packages: RebuildReport['packages'] = [{ ...one, message: 'a works', verdict: 'works', failure: null }]
    equal(formatRebuild({ ...report, packages }, false), ['a works'])
  },
)

if (skip === null) {
  rest(
    'rebuild runs the install script of what does not work, and of nothing else, with Node 26, and looks again',
    async () => {
      await using shop = await makeShop({
        other: { 'build/Release/a.node': FOR_ABI(115), 'binding.gyp': null },
        stubborn: { 'build/Release/a.node': FOR_ABI(115), 'binding.gyp': null },
        good: { 'build/Release/a.node': NODE_API, 'binding.gyp': null },
      })
      // its compiler is cc, as node-gyp's would be: the ABI is that of the Node that runs the script
      await shop.installs(
        'other',
        `node -p '"void node_register_module_v" + process.versions.modules + "(void) {}"' > a.c && cc -shared -fPIC -o build/Release/a.node a.c && echo "$npm_config_nodedir" > nodedir`,
      )
      await shop.installs('stubborn', 'echo "a.cc:1:2: error: no such thing as a Node 26" >&2; exit 1')
      await shop.installs('good', 'touch ran')
      const options = { project: shop.project, packageManager: 'npm', progress: QUIET } as const
      const planned = await rebuildAddons({ ...options, dryRun: true })
      equal(
        planned.commands.map((command) => /npm rebuild .*/.exec(command)?.[0]),
        ['npm rebuild other@1.0.0 stubborn@1.0.0 --ignore-scripts=false'],
      )
      equal(planned.packages.map(({ name, verdict }) => [name, verdict]).toSorted(), [
        ['good', 'works'],
        ['other', 'other-abi'],
        ['stubborn', 'other-abi'],
      ])
      const refused = (await rejects(
        rebuildAddons({ ...options, packageManager: 'yarn', dryRun: false }),
        /uses yarn/,
      )) as BatonError
      match(refused.hint ?? '', /^`PATH=.* npm rebuild other stubborn`$/)

      const ran = await baton(shop.path, {}, 'rebuild', '--json')
      is(ran.exitCode, 7, ran.stderr)
      const done = JSON.parse(ran.stdout) as RebuildReport
      const of = (name: string) => done.packages.find((one) => one.name === name)
      is(of('other')?.verdict, 'works')
      is((await readFile(join(shop.path, 'node_modules/other/nodedir'), 'utf8')).trim(), await provideHeaders())
      is(of('stubborn')?.verdict, 'other-abi')
      match(of('stubborn')?.failure ?? '', /^a\.cc:1:2: error: no such thing as a Node 26/)
      match(of('stubborn')?.hint ?? '', 'another build of the package may work with Node 26')
      is(of('other')?.failure, null)
      is(existsSync(join(shop.path, 'node_modules/good/ran')), false)
    },
  )
}

rest('packages whose `engines` leave Node 26 out are named; what says nothing, or no range, is not', async () => {
  const version = '26.10.0'
  equal(
    ['>=18', '20 || >=22', '*', undefined, 'whatever', '^26.1'].map((range) => excludesNode(range, version)),
    Array(6).fill(false),
  )
  equal(
    ['^20', '>=18 <25', '20.x || 22.x', '>=26.11'].map((range) => excludesNode(range, version)),
    Array(4).fill(true),
  )
  await using shop = await makeShop({ fussy: {}, free: {} })
  await writeFile(
    join(shop.path, 'node_modules/fussy/package.json'),
    '{ "name": "fussy", "version": "2.0.0", "engines": { "node": "20.x" } }',
  )
  match(
    (await foreignEngines(shop.path)) ?? '',
    /on Node 26\.\S+, which is excluded by `engines` in fussy 2\.0\.0 \(20\.x\)/,
  )
  const found = (await examineProject(shop.path)).find(({ check }) => check === 'engines')
  equal([found?.level, /fussy 2\.0\.0/.test(found?.message ?? '')], ['warning', true])
  const said = await baton(shop.path, {}, 'init', '--dry-run')
  match(said.stderr, /note: .*fussy 2\.0\.0 \(20\.x\)/)
})

rest.run()

// ---- parts

interface Shop extends AsyncDisposable {
  path: string
  project: Project
  depend(name: string): Promise<void>
  /** gives an installed package an install script */
  installs(name: string, script: string): Promise<void>
}

/** An application that has these packages installed: name -> path in it -> what is compiled to that path; null for an empty file. */
async function makeShop(packages: Record<string, Record<string, string | null>>): Promise<Shop> {
  const room = await temporary('addons')
  const names = new Set(Object.keys(packages))
  const depend = async (...more: string[]) => {
    for (const name of more) names.add(name)
    const dependencies = Object.fromEntries([...names].map((name) => [name, '*']))
    await writeFile(join(room.path, 'package.json'), JSON.stringify({ name: 'shop', version: '1.0.0', dependencies }))
  }
  await depend()
  await writeFile(join(room.path, 'server.js'), '')
  await writeFile(join(room.path, 'baton.config.json'), JSON.stringify({ service: 'shop', entry: 'server.js' }))
  for (const [name, files] of Object.entries(packages)) {
    const folder = join(room.path, 'node_modules', name)
    await mkdir(folder, { recursive: true })
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name, version: '1.0.0' }))
    for (const [path, source] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true })
      if (source === null) await writeFile(join(folder, path), '')
      else await compile(join(folder, path), source)
    }
  }
  return {
    path: room.path,
    project: parseProject({ service: 'shop', entry: 'server.js' }, room.path),
    depend,
    async installs(name, install) {
      const manifest = { name, version: '1.0.0', scripts: { install } }
      await writeFile(join(room.path, 'node_modules', name, 'package.json'), JSON.stringify(manifest))
    },
    [Symbol.asyncDispose]: room[Symbol.asyncDispose],
  }
}

/** A constructor that leaves a file where the process stands. */
function touching(name: string): string {
  return `extern int creat(const char *, unsigned);
    __attribute__((constructor)) static void begin(void) { creat("${name}", 0600); }`
}

async function compile(path: string, source: string, flags: readonly string[] = []): Promise<string> {
  const text = join(dirname(path), `${basename(path)}.c`)
  await writeFile(text, source)
  await run(['cc', '-shared', '-fPIC', '-w', ...flags, '-o', path, text])
  await rm(text)
  return path
}

function saying({ packages, node }: AddonReport): (name: string) => string {
  return (wanted) => packages.flatMap((one) => (one.name === wanted ? [formatAddons(one, node)] : [])).join()
}

async function baton(cwd: string, env: Record<string, string>, ...args: string[]) {
  return await run([process.execPath, join(PROJECT, 'deploy', 'baton.ts'), ...args], { cwd, env, allowFailure: true })
}

/** A registry on this host that knows one version of one package. */
