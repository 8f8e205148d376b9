// Holds the architecture: who may import whom, who may import which package, and what may be named where.
// Reads the tree as text, so it holds for what no test imports too.

import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'
import { suite } from './suite.ts'
import { equal, not, ok } from './assert.ts'

const ROOT = join(import.meta.dirname, '..')
const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.cache'])

interface Source {
  path: string
  text: string
}

interface Import {
  from: string
  specifier: string
  /** the path from the root for our own files, the name of the package otherwise, `node:` for Node's own */
  target: string
  typeOnly: boolean
}

const files = walk(ROOT)
const sources = files.filter(({ path }) => path.endsWith('.ts'))
const pages = files.filter(({ path }) => path.startsWith('agent/web/') && path.endsWith('.js'))
const imports = [...sources, ...pages].flatMap(importsOf)
const own = imports.filter(({ specifier }) => specifier.startsWith('.'))
const packages = imports.filter(({ specifier }) => !/^(\.|node:)|\$/.test(specifier)) // `$`: in the text of a program

const test = suite('layers')

test('what is shipped imports no test', () => {
  none(own, ({ from, target }) => !inside('test', from) && inside('test', target))
})

test('agent/ imports nothing of ours but agent/', () => {
  none(own, ({ from, target }) => inside('agent', from) && !inside('agent', target))
})

test('agent/ knows nothing of the reference service outside agent/service/', () => {
  const outside = (path: string): boolean => inside('agent', path) && !inside('agent/service', path)
  none(own, ({ from, target }) => outside(from) && inside('agent/service', target))
  const named = files.filter(({ path, text }) => outside(path) && /beacon/i.test(text))
  equal(paths(named), [])
})

test('deploy/ is imported by install.ts, container/ and tests only', () => {
  none(own, ({ from, target }) => inside('deploy', target) && !/^(deploy|container|test)\/|^install\.ts$/.test(from))
})

test('the agent has five doors: for authors, for installers, for publishers, for the first code of a release, and its words; nobody comes in by a window', () => {
  const doors = new Set(['index', 'install', 'publish', 'first', 'words'].map((name) => `agent/${name}.ts`))
  const stranger = (path: string): boolean => /^(deploy|container|agent\/service)\/|^install\.ts$/.test(path)
  // agent/service/ is the reference service: an application like any author's, which this repository builds
  const inAgent = (path: string): boolean => inside('agent', path) && !inside('agent/service', path)
  none(own, ({ from, target }) => stranger(from) && inAgent(target) && !doors.has(target))
  none(own, ({ from, target }) => inside('agent/service', from) && target === 'agent/install.ts')
  none(own, ({ from, target }) => inAgent(from) && doors.has(target))
})

test('no wing of deploy/ imports another, and what they share knows none of them', () => {
  const wing = (path: string): string | null => /^deploy\/([^/]+)\//.exec(path)?.[1] ?? null
  none(own, ({ from, target }) => {
    const [one, other] = [wing(from), wing(target)]
    return one !== null && other !== null && other !== 'lib' && one !== other
  })
})

test('nothing is imported upwards: no wing and no room imports a door of deploy/, nor install.ts', () => {
  const upper = (path: string): boolean => path === 'install.ts' || /^deploy\/[^/]+$/.test(path)
  none(own, ({ from, target }) => upper(target) && /^(deploy\/[^/]+\/|agent\/)/.test(from))
})

test('there is no circle, of files nor of rooms, also where only types are imported', () => {
  const room = (path: string): string => /^(agent|deploy|test)\/[^/]+(?=\/)/.exec(path)?.[0] ?? path
  const shipped = own.filter(({ from, target }) => target.endsWith('.ts') && !inside('test', from))
  const circles = circlesOf(shipped.map(({ from, target }) => [from, target]))
  equal(circles, [])
  equal(circlesOf(shipped.map(({ from, target }) => [room(from), room(target)])), [])
})

test('the words and the story are pure: they import each other, and `update.ts` imports nothing else', () => {
  const words = new Set(['agent/words/errors.ts', 'agent/words/release.ts', 'agent/words/state.ts'])
  const ends = ['agent/update/story.ts', 'agent/update/decide.ts']
  const pure = (path: string): boolean => words.has(path) || ends.includes(path)
  none(imports, ({ from, target, typeOnly }) => pure(from) && !words.has(target) && !typeOnly)
})

test('agent/ uses five packages, each in one file: three are loaded when a feed is first asked, one is in the page, one in the reference service', () => {
  const inAgent = packages.filter(({ from }) => inside('agent', from))
  equal(unique(inAgent.map(({ from, target }) => `${target} in ${from}`)), [
    '@tufjs/canonical-json in agent/update/trust/tuf.ts',
    'marked in agent/web/settings/marked.js',
    'tuf-js in agent/update/trust/tuf.ts',
    'undici in agent/update/feed/http.ts',
    'ws in agent/service/live.ts',
  ])
})

test('what is compiled when a feed is first asked imports nothing of ours: it would be there twice', () => {
  none(own, ({ from }) => from === 'agent/update/trust/tuf.ts')
})

test('every file that the map and the recipes name is there, and the map fits 60 lines', () => {
  const map = readFileSync(join(ROOT, 'docs/contributing/architecture.md'), 'utf8')
  const recipes = readFileSync(join(ROOT, 'docs/contributing/extend.md'), 'utf8')
  ok(map.split('\n').length <= 61)
  const named = [...(map + recipes).matchAll(/`([\w./-]+\.ts)`/g)].map(([, name]) => name ?? '')
  equal(named.length > 30, true)
  equal(
    unique(named).filter((name) => !sources.some(({ path }) => path === name || path.endsWith(`/${name}`))),
    [],
  )
})

test('a file that a row of the map names is in a folder of that row', () => {
  const map = readFileSync(join(ROOT, 'docs/contributing/architecture.md'), 'utf8')
  const rows = map.split('\n').flatMap((line) => {
    const [, first = '', second = ''] = line.split('|')
    const folders = [...first.matchAll(/`([\w./-]+\/)`/g)].map(([, folder]) => folder ?? '')
    const names = [...second.matchAll(/`([\w./-]+\.ts)`/g)].map(([, name]) => name ?? '')
    return folders.length === 0 ? [] : [{ folders, names }]
  })
  ok(rows.length > 10)
  const within = (folder: string, name: string) =>
    sources.some(
      ({ path }) => [folder, `agent/${folder}`].some((it) => path.startsWith(it)) && path.endsWith(`/${name}`),
    )
  const lost = rows.flatMap(({ folders, names }) => names.filter((name) => !folders.some((it) => within(it, name))))
  equal(lost, [])
})

test('agent/ has at most 15 files of its own', () => {
  const top = sources.filter(({ path }) => /^agent\/[^/]+$/.test(path))
  ok(top.length > 5 && top.length <= 15, `got ${top.length}`)
})

test('what a holder of sockets needs imports words, disk and sockets only', () => {
  const low = (path: string): boolean => ['words', 'disk', 'sockets'].some((room) => inside(`agent/${room}`, path))
  none(own, ({ from, target, typeOnly }) => low(from) && !low(target) && !(typeOnly && target === 'agent/log.ts'))
})

test('what changes the disk in agent/ is disk.ts', () => {
  // the reference service is an application; a socket's name is made where it is listened on
  const others = new Set([
    'agent/disk/disk.ts',
    'agent/sockets/descriptor-store.ts',
    'agent/sockets/names.ts',
    'agent/update/trust/refresh.ts',
    'agent/disk/state-mark.ts', // at once, in the first code of a release
    'agent/disk/database-set.ts', // the same
    'agent/handover/progress.ts', // from a loop that blocks; a power cut may take it
    'agent/sockets/memory.ts', // a value of this process in /proc
    'agent/update/rehearsal/perform.ts', // in the cage, whose folder systemd empties
  ])
  const changing =
    /\b(appendFile|chmod|chown|copyFile|cp|link|mkdir|mkdtemp|rename|rm|rmdir|symlink|truncate|unlink|utimes|writeFile)(Sync)?\b/
  const offends = ({ path, text }: Source): boolean =>
    inside('agent', path) &&
    !inside('agent/service', path) &&
    !others.has(path) &&
    [...text.matchAll(/^import (?!type)\{([^}]*)\} from 'node:fs(?:\/promises)?'/gm)].some(([, names]) =>
      changing.test(names ?? ''),
    )
  equal(paths(sources.filter(offends)), [])
})

test('deploy/ makes temporary folders in one place: root must not use a path that another user can change', () => {
  // a build's own folder is inside the folder that it writes to
  const makers = new Map([
    ['tmpdir', ['deploy/lib/trusted.ts']],
    ['mkdtemp', ['deploy/lib/trusted.ts', 'deploy/make/temporary.ts']],
  ])
  for (const [name, allowed] of makers) {
    const makes = sources.filter(({ path, text }) => /^(deploy\/|install\.ts$)/.test(path) && text.includes(name))
    equal(paths(makes).toSorted(), allowed)
  }
})

test("a deployment's commands write to a terminal in one place, which cleans what others have written", () => {
  const ours = new Set([
    'deploy/lib/help.ts', // what its own commands are
    'deploy/container/snapshot-here.ts', // a program reads it
  ])
  const writes = ({ path, text }: Source) =>
    /^deploy\/(host|container|fleet|lib|deploy-)/.test(path) &&
    !ours.has(path) &&
    /process\.std(out|err)\.write\(|console\.\w+\(/.test(text)
  equal(paths(sources.filter(writes)), [])
})

test("nothing in agent/ opens a database but the lock and the process that copies the application's", () => {
  // in the process of the application a descriptor that is closed drops the locks of its driver: see test/database.test.ts
  const opens = ({ path, text }: Source): boolean =>
    inside('agent', path) && !inside('agent/service', path) && /node:sqlite|DatabaseSync/.test(text)
  equal(paths(sources.filter(opens)).toSorted(), [
    'agent/disk/as-ordered.ts',
    'agent/disk/lock.ts',
    'agent/disk/orders.ts',
    'agent/disk/quiet-copy.ts',
    'agent/update/rehearsal/look.ts', // of the copy, in the cage
    'agent/update/rehearsal/values.ts', // the same
  ])
})

test('each package has one importer in what is shipped, and one among the tests', () => {
  const names = unique(packages.map(({ specifier }) => specifier))
  const crowded = names
    .map((name) => ({ name, from: unique(packages.filter((it) => it.specifier === name).map(({ from }) => from)) }))
    .filter(
      ({ from }) =>
        from.filter((path) => inside('test', path)).length > 1 ||
        from.filter((path) => !inside('test', path)).length > 1,
    )
  equal(crowded, [])
})

test('package.json lists what is imported, and nothing that is not used', () => {
  const { dependencies, devDependencies, optionalDependencies, scripts } = packageJson()
  const tools = new Set([
    'tsx',
    'typescript',
    'oxlint',
    'oxlint-tsgolint',
    'oxfmt',
    '@types/node',
    '@types/ws',
    'axe-core',
    'express-session', // in the text of an application
  ])
  const listed = Object.keys({ ...dependencies, ...devDependencies })
  const imported = new Set(packages.map(({ target }) => target))
  equal(
    [...imported].filter((name) => !listed.includes(name)),
    [],
  )
  equal(
    listed.filter((name) => !imported.has(name) && !tools.has(name)),
    [],
  )
  const versions = Object.values({ ...dependencies, ...devDependencies, ...optionalDependencies })
  equal(
    versions.filter((version) => !/^\d+\.\d+\.\d+$/.test(version)),
    [],
  )
  for (const [name, command] of Object.entries(scripts)) {
    const file = /tsx (\S+\.ts)/.exec(command)?.[1]
    if (file !== undefined)
      not.equal(paths(files).indexOf(file), -1, `script \`${name}\` runs a file that is not there`)
  }
})

test('the lock file is whole: every platform of every package is in it, so `npm ci` works anywhere', () => {
  const { packages: locked } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { optionalDependencies?: Record<string, string> }>
  }
  const missing = Object.values(locked)
    .flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies))
    .filter((name) => !(`node_modules/${name}` in locked))
  equal(missing, [])
})

test('the package depends on no other: what it needs is bundled when it is packed', () => {
  const { dependencies, optionalDependencies } = packageJson()
  equal([dependencies, optionalDependencies], [undefined, undefined])
})

test('no file names this machine, a registry or what lies outside the repository', () => {
  // in pieces, so that this file does not name them either
  const publicRegistry = ['registry.npm', 'js.org'].join('')
  const registry = new URL(process.env['npm_config_registry'] ?? `https://${publicRegistry}/`).hostname
  const forbidden = [
    ['/wo', 'rk/'],
    ['/tmp/', 'team'],
    ['../sha', 'red'],
    ['.lib', 'rary/'],
    [publicRegistry],
    [registry],
  ].map((pieces) => pieces.join(''))
  const found = files.flatMap(({ path, text }) =>
    forbidden.filter((word) => text.includes(word)).map((word) => `${path}: ${word}`),
  )
  equal(found, [])
  equal(
    files
      .filter(({ path, text }) => path === 'package-lock.json' && /"resolved": "(?!test\/)/.test(text))
      .map(({ path }) => path),
    [],
  )
})

test('the wall clock only says what time it is: every span is taken from a clock that nobody sets', () => {
  // what others wrote has only the wall clock: a date of a server or a maintainer, the age of a file or of a container; a schedule is a calendar
  const theirs =
    /^(agent\/update\/(trust|schedule)|deploy\/trust)\/|^(agent\/words\/untrusted|agent\/update\/feed\/answer|deploy\/lib\/http|deploy\/container\/moves|deploy\/host\/doctor\/feed|deploy\/npm\/registry)\.ts$/
  const ages = new Set([
    'deploy/make/first/unpack.ts',
    'agent/update/ending.ts',
    // of a copy, by its name, and of the reverted update that it was made before; of a trial, which outlives processes and starts of the host
    'agent/disk/copies.ts',
    'agent/update/kept-copies.ts',
    'agent/update/rehearsal/rehearse.ts',
    'agent/words/rehearsal.ts',
  ])
  // and these add a span to it: an instant for people
  const instants = new Set(['agent/disk/journal.ts', 'agent/service/store.ts'])
  const reads = sources.filter(
    ({ path, text }) =>
      /^(agent|deploy|container)\/|^install\.ts$/.test(path) &&
      !theirs.test(path) &&
      !ages.has(path) &&
      (/\bDate\.now\b|\bDate\.parse\b|[-+] ?new Date\b/.test(text) ||
        (/\.(getTime|valueOf)\(\)/.test(text) && !instants.has(path))),
  )
  equal(paths(reads), [])
})

test('one word, one thing: no type and no function that is exported has a name that another file exports too', () => {
  const named = new Map<string, string[]>()
  // each framework's `listen()` is a door of its own; the reference service is an application
  const counts = ({ path }: Source) =>
    /^(agent|deploy)\//.test(path) && !/^agent\/(adapters|service)\/|\.d\.ts$/.test(path)
  for (const { path, text } of sources.filter(counts)) {
    for (const [, name = ''] of text.matchAll(/^export (?:async )?(?:interface|type|function|class) (\w+)/gm)) {
      named.set(name, [...(named.get(name) ?? []), path])
    }
  }
  equal(named.size > 300, true)
  equal(
    [...named].filter(([, where]) => where.length > 1),
    [],
  )
})

test('no file or name is called utils, helpers, Manager or Impl', () => {
  const byPath = files.filter(({ path }) => /(^|\/)(utils?|helpers?|misc|common)[./]|manager/i.test(path))
  equal(paths(byPath), [])
  const name = /\b(?:class|interface|type|function|const|let)\s+(?:\w*(?:Manager|Impl|Utils?)\b|I[A-Z][a-z]\w*\b)/
  equal(
    sources.flatMap(({ path, text }) => (name.exec(text) ?? []).map((match) => `${path}: ${match}`)),
    [],
  )
})

test('a file opens with what it does', () => {
  const silent = sources.filter(({ path, text }) => !path.endsWith('.d.ts') && !/^(#!.*\n)?(\/\/|\/\*\*)/.test(text))
  equal(paths(silent), [])
})

test('uvu is imported by its guard and its assertions only', () => {
  none(packages, ({ from, target }) => target === 'uvu' && from !== 'test/suite.ts' && from !== 'test/assert.ts')
})

test.run()

function walk(folder: string): Source[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (NOT_OURS.has(entry.name) || path === join(ROOT, 'lib')) return [] // lib: what `npm pack` packs
    if (entry.isDirectory()) return walk(path)
    if (!entry.isFile() || /\.(png|ico|zst|gz)$/.test(entry.name)) return []
    return [{ path: relative(ROOT, path), text: readFileSync(path, 'utf8') }]
  })
}

function importsOf({ path, text }: Source): Import[] {
  const clauses = [
    /^import\s+(?<type>type\s)?\s*[\w*{][^'"]*?\sfrom\s+['"](?<specifier>[^'"]+)['"]/gm,
    /^export\s+(?<type>type\s)?\s*(?:\*(?:\s+as\s+\w+)?|\{[^}]*\})\s+from\s+['"](?<specifier>[^'"]+)['"]/gm,
    /^import\s+['"](?<specifier>[^'"]+)['"]/gm,
    /(?<type>\btypeof\s+)?\bimport\(\s*['"](?<specifier>[^'"]+)['"]/g,
    /\brequire(?:\.resolve)?\(\s*['"](?<specifier>[^'"]+)['"]/g,
  ]
  return clauses.flatMap((clause) =>
    Array.from(text.matchAll(clause), ({ groups }) => {
      const specifier = groups?.['specifier'] ?? ''
      return { from: path, specifier, target: targetOf(path, specifier), typeOnly: groups?.['type'] !== undefined }
    }),
  )
}

function targetOf(from: string, specifier: string): string {
  if (specifier.startsWith('.')) return normalize(join(dirname(from), specifier))
  if (specifier.startsWith('node:')) return 'node:'
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
}

function packageJson(): Record<
  'dependencies' | 'devDependencies' | 'optionalDependencies' | 'scripts',
  Record<string, string>
> {
  return JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
}

function inside(room: string, path: string): boolean {
  return path.startsWith(`${room}/`)
}

/** The text names every offender, so the message says what to mend. */
function none(all: Import[], offends: (it: Import) => boolean): void {
  equal(
    all.filter(offends).map(({ from, specifier }) => `${from} imports ${specifier}`),
    [],
  )
}

/** Each circle once, as `a -> b -> a`; an arrow to oneself is none. */
function circlesOf(arrows: [string, string][]): string[] {
  const targets = Map.groupBy(arrows, ([from]) => from)
  const circles = new Set<string>()
  const done = new Set<string>()
  const visit = (at: string, way: string[]): void => {
    const before = way.indexOf(at)
    if (before >= 0) {
      if (before < way.length - 1) circles.add([...way.slice(before), at].join(' -> '))
      return
    }
    if (done.has(at)) return
    for (const [, target] of targets.get(at) ?? []) visit(target, [...way, at])
    done.add(at)
  }
  for (const from of targets.keys()) visit(from, [])
  return [...circles]
}

function paths(some: Source[]): string[] {
  return some.map(({ path }) => path)
}

function unique(names: string[]): string[] {
  return [...new Set(names)].toSorted()
}
