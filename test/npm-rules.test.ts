// What `deploy-npm.sh` decides before anything runs: recipes, versions, trees of packages. Pure.

import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { runInThisContext } from 'node:vm'
import { BatonError } from '../agent/words/errors.ts'
import { PROJECT } from '../deploy/make/place.ts'
import {
  broughtRecipe,
  parseRecipe,
  readRecipe,
  readRecipes,
  recipeName,
  RECIPES_PAGE,
  recipesPage,
} from '../deploy/npm/recipe.ts'
import { refuseOlder } from '../deploy/npm/asked.ts'
import { type ServiceRecord, workshopOf } from '../deploy/npm/workshop.ts'
import { programsIn, wayBack } from '../deploy/npm/former.ts'
import { refuseUnbuilt } from '../deploy/npm/release.ts'
import { timerUnits } from '../deploy/npm/timer.ts'
import { changedSince, chooseVersion, type Listed, listedIn } from '../deploy/npm/registry.ts'
import { unresolved } from '../deploy/npm/steps.ts'
import { differencesOf, treeIn } from '../deploy/npm/tree.ts'
import { aroundText, configOf, mainOf } from '../deploy/npm/wrap.ts'
import { endIn } from './apps/npm.ts'
import { equal, is, match, ok, throws } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('npm rules')

const refusalOf = (act: () => unknown): string => {
  try {
    act()
  } catch (cause) {
    if (cause instanceof BatonError) return `${cause.code}: ${cause.message} (${cause.hint})`
    throw cause
  }
  return 'none'
}

test('a recipe that is not one says what, and where', () => {
  const said = refusalOf(() =>
    parseRecipe({
      package: 'Node Red',
      module: '../../etc/passwd',
      args: 'serve',
      environment: { 'A B': 'c' },
      files: { '../up': 'x', 'data/a': 7 },
      healthPath: 'health',
      with: { other: 'git+ssh://evil.example/x.git', '../x': '1' },
      scripts: ['a b'],
      run: 'rm -rf /',
    }),
  )
  for (const part of [
    '`package`',
    '`module`',
    '`args`',
    '`environment`',
    '`files`',
    '`files.data/a`',
    '`healthPath`',
    '`with.other`',
    '`scripts`',
    'unknown member `run`',
  ])
    match(said, part)
  match(
    refusalOf(() => parseRecipe({})),
    'package',
  )
  match(
    refusalOf(() => parseRecipe([])),
    'an object',
  )
})

test('a recipe that Baton brings is for its package alone, not for one whose name makes the same file', async () => {
  const folder = join(PROJECT, 'deploy/npm/recipes')
  is((await broughtRecipe(folder, 'node-red'))?.package, 'node-red')
  is(await broughtRecipe(folder, '@node/red'), null)
})

test('every recipe that Baton brings is valid, and its file has the name of its package', async () => {
  const folder = join(PROJECT, 'deploy/npm/recipes')
  const names = (await readdir(folder)).filter((name) => name.endsWith('.json'))
  ok(names.length > 0)
  for (const name of names) is(`${recipeName((await readRecipe(join(folder, name))).package)}.json`, name)
})

test('the page of the recipes names them all, and no recipe was tried that lost a request', async () => {
  const all = await readRecipes(join(PROJECT, 'deploy/npm/recipes'))
  is(await readFile(join(PROJECT, RECIPES_PAGE), 'utf8'), recipesPage(all), 'npm run pages')
  for (const { package: name, tried } of all) match(tried ?? 'lost 0 of 1', /lost 0 of [1-9]/, name)
})

/** What `listen` of a server gets, if a package calls it in what deploy-npm writes around it. */
function listenIn(given: object): (...args: unknown[]) => unknown {
  const text = aroundText(parseRecipe({ package: 'shop', ...given }), 'shop/bin.js')
  const patch = text.slice(text.indexOf('const { listen }'), text.indexOf('process.argv[1]'))
  const Server = class {
    listen(...args: unknown[]) {
      return args
    }
  }
  runInThisContext(`(Server, process) => {${patch}}`)(Server, { env: { HOST: '10.0.0.1', PORT: '8080' } })
  return (...args) => new Server().listen(...args)
}

test('a package that takes no host listens where the install says, also if it names every address itself', () => {
  const listen = listenIn({ listensAt: 'given-host' })
  const back = () => {}
  equal(listen(80), [80, '10.0.0.1'])
  equal(listen('80', back), ['80', '10.0.0.1', back])
  equal(listen(80, undefined, 9), [80, '10.0.0.1', 9])
  for (const any of ['', '0.0.0.0', '::']) {
    equal(listen(80, any, back), [80, '10.0.0.1', back])
    equal(listen({ port: 80, host: any }, back), [{ port: 80, host: '10.0.0.1' }, back])
  }
  equal(listen({ port: 80 }), [{ port: 80, host: '10.0.0.1' }])
  equal(listen(80, '127.0.0.1'), [80, '127.0.0.1'])
  equal(listen({ port: 80, host: 'localhost' }), [{ port: 80, host: 'localhost' }])
  for (const other of ['/run/shop.sock', { path: '/run/shop.sock' }, { fd: 3, port: 80 }]) equal(listen(other), [other])
})

test('a package that has its port in a file of its own listens where the install says, and its other servers as they are', () => {
  const back = () => {}
  for (const listensAt of ['its-host', 'given-host']) {
    const listen = listenIn({ port: 8581, listensAt })
    for (const args of [[8581], ['8581'], [8581, '::'], [8581, '127.0.0.1']])
      equal(listen(...args, back), ['8080', '10.0.0.1', back])
    equal(listen({ port: '8581', host: '::', backlog: 9 }, back), [
      { port: '8080', host: '10.0.0.1', backlog: 9 },
      back,
    ])
    equal(listen(81, '127.0.0.1'), [81, '127.0.0.1'])
    for (const other of ['/run/8581', { path: '8581' }, { fd: 3, port: 8581 }]) equal(listen(other), [other])
  }
  equal(listenIn({ port: 8581 })({ port: 81, host: '::' }), [{ port: 81, host: '::' }])
})

const NOW = Date.parse('2026-06-15T00:00:00Z')
const row = (version: string, more: object = {}) => ({ version, dist: { integrity: `sha512-${version}` }, ...more })
const LISTED: Listed = listedIn(
  'shop',
  {
    name: 'shop',
    'dist-tags': { latest: '2.2.0' },
    time: {
      '1.0.0': '2026-01-01',
      '2.0.0': '2026-02-01',
      '2.1.0': '2026-03-01',
      '2.2.0': '2026-06-14',
      '3.0.0': '2026-01-01',
    },
  },
  [
    row('2.2.0'),
    row('1.0.0'),
    row('2.0.0', { engines: { node: '>=18' } }),
    row('2.1.0', { deprecated: 'broken' }),
    row('3.0.0'),
    row('4.0.0-rc.1'),
  ],
)
const WANTED = {
  release: 'latest',
  isInRange: () => true,
  fitsNode: () => true,
  nodeVersion: '26.0.0',
  newerThan: null,
  minAgeMs: 0,
}

test('the newest version up to `latest` is taken that is old enough, in the range, not deprecated and for this Node', () => {
  const chosen = (more: object) => chooseVersion(LISTED, { ...WANTED, ...more }, NOW).version?.version ?? null
  is(chosen({}), '2.2.0')
  is(chosen({ minAgeMs: 3 * 86_400_000 }), '2.0.0')
  is(chosen({ isInRange: (version: string) => version.startsWith('1.') }), '1.0.0')
  is(chosen({ newerThan: '2.2.0' }), null)
  is(chosen({ newerThan: '2.0.0', minAgeMs: 3 * 86_400_000 }), null)
  is(chosen({ release: '3.0.0' }), '3.0.0')
  match(
    refusalOf(() => chosen({ release: '2.1.0' })),
    /refused: shop 2.1.0 is deprecated: broken .*newest usable version is 3.0.0/,
  )
  match(
    refusalOf(() => chosen({ release: '9.9.9' })),
    'release_not_found: shop 9.9.9 is not in the registry (available versions: 3.0.0, 2.2.0, 2.1.0, 2.0.0, 1.0.0; latest is 2.2.0)',
  )
  match(
    refusalOf(() => chosen({ fitsNode: () => false })),
    /(does not support|requires) Node .*26\.0\.0 \(no version of shop supports Node 26; to try anyway, set `"anyNode": true` in a recipe/,
  )
  match(
    refusalOf(() => chosen({ minAgeMs: 9000 * 86_400_000 })),
    /younger than .*\(every version of shop is deprecated, is younger than `--min-age`, or lacks an integrity hash\)/,
  )
})

test('what was passed over is said, also if nothing newer is taken', () => {
  const { version, notes } = chooseVersion(LISTED, { ...WANTED, newerThan: '2.0.0', minAgeMs: 3 * 86_400_000 }, NOW)
  is(version, null)
  match(notes.join('\n'), /2\.2\.0 is younger than `--min-age`[\s\S]*2\.1\.0 is deprecated/)
})

test('an answer of the registry that is not whole says nothing of what was unpublished', () => {
  const about = { name: 'shop', 'dist-tags': { latest: '1.0.0' }, time: {} }
  const odd: [unknown, unknown][] = [
    [undefined, undefined],
    [about, undefined],
    [about, []],
    [about, [row('0.9.0')]],
    [about, [row('1.0.0'), null]],
    [{ ...about, name: 'other' }, row('1.0.0')],
    [{ ...about, 'dist-tags': undefined }, row('1.0.0')],
  ]
  for (const [answer, each] of odd)
    match(
      refusalOf(() => listedIn('shop', answer, each)),
      /^check_failed: the registry sent an incomplete list of the versions of shop .*\(try again later/,
    )
  const listed = listedIn('shop', about, { version: '1.0.0' })
  equal(changedSince(listed, { '1.0.0': 'sha512-1.0.0' }), [])
  match(
    refusalOf(() => chooseVersion(listed, WANTED, NOW)),
    'refused: shop 1.0.0 has no integrity hash',
  )
})

test('a version whose age nobody tells is not taken by itself', () => {
  const listed = listedIn('shop', { name: 'shop', 'dist-tags': { latest: '2.0.0' } }, [row('1.0.0'), row('2.0.0')])
  const wanted = { ...WANTED, newerThan: '1.0.0' }
  const { version, notes } = chooseVersion(listed, { ...wanted, minAgeMs: 1000 }, NOW)
  is(version, null)
  match(
    notes.join(),
    /2\.0\.0 may be younger than `--min-age`: the registry does not say .* to accept any age, pass `--min-age 0`/,
  )
  is(chooseVersion(listed, wanted, NOW).version?.version, '2.0.0')
})

test('each place has a timer of its own, and services share no folder in it', () => {
  const named = (home: string | null) => Object.keys(timerUnits({ home, command: ['a'], path: '' })).join(' ')
  is(named(null), 'baton-npm.service baton-npm.timer')
  match(named('/srv/a'), /^baton-npm-[0-9a-f]{8}\.service baton-npm-[0-9a-f]{8}\.timer$/)
  is(new Set([null, '/srv/a', '/srv/b'].map(named)).size, 3)
  const [one, other] = ['a', 'b'].map((service) => workshopOf('/srv', service, { isRoot: true, feed: null }))
  for (const [name, value] of Object.entries(one ?? {}))
    if (typeof value === 'string') ok(!Object.values(other ?? {}).includes(value), name)
})

test('a builder is nobody of the host, nor of a unit with DynamicUser', () => {
  for (let at = 0; at < 2000; at++) {
    const { builder } = workshopOf('/srv', `s${at}`, { isRoot: true, feed: null })
    ok(builder !== null && builder > 60_705 && builder < 61_184, String(builder))
  }
})

test('an addon that was named and does not build is refused with what would work; one that may be absent is not', () => {
  const built = ['1.0.0', '3.0.0'].map((version) => ({ version, at: '', sizeBytes: 0 }))
  const said = (more: { isOptional?: boolean; built?: typeof built; unbuilt?: string[] } = {}) => {
    const kept = { package: 'shop', built: more.built ?? built } as unknown as ServiceRecord
    const locked = {
      path: '',
      name: 'adder',
      version: '1.0.0',
      node: null,
      hasScript: true,
      isOptional: more.isOptional === true,
    }
    const rebuilt = { failures: ['adder has not been built'], unbuilt: more.unbuilt ?? ['adder'] }
    return refusalOf(() => refuseUnbuilt(kept, '2.0.0', [locked], ['adder'], rebuilt))
  }
  match(
    said(),
    /^refused: the native addons of adder could not be built for shop 2\.0\.0: adder has not .*newest version that already works here, 1\.0\.0/,
  )
  match(said({ built: [] }), '`--release X.Y.Z`')
  is(said({ isOptional: true }), 'none')
  is(said({ unbuilt: ['other'] }), 'none')
})

test('a former install is known by what a command line starts, not by a word of it that another program takes', () => {
  const programs: Record<string, string[]> = {
    '/opt/node-red/node-red serve --config /etc/node-red/config.json': [
      '/opt/node-red/node-red',
      '/etc/node-red/config.json',
    ],
    'vite serve': ['vite'],
    'npm run serve': ['run'],
    'serve -s build': ['serve'],
    '/usr/bin/env NODE_ENV=production node-red -u /srv': ['/usr/bin/env', 'node-red', '/srv'],
    '/usr/bin/env node /srv/npm/bin/greeter': ['/usr/bin/env', '/srv/npm/bin/greeter'],
    '/bin/bash -lc "cd /srv && exec node-red"': ['/bin/bash', 'cd', '/srv', 'node-red'],
    '/sbin/runuser -u pi -- node-red': ['/sbin/runuser', 'node-red'],
    '/usr/bin/sudo -u pi nice -n 10 node-red': ['/usr/bin/sudo', 'node-red'],
  }
  for (const [line, words] of Object.entries(programs)) equal(programsIn(line), words, line)
})

test('the way back is a command, or a sentence if nobody knows one', () => {
  const former = { what: 'x', home: '/', stop: [] }
  is(
    wayBack({
      ...former,
      start: [
        ['pm2', 'start', 'x'],
        ['pm2', 'save'],
      ],
    }),
    'run `pm2 start x && pm2 save`',
  )
  is(wayBack({ ...former, start: [] }), 'start the original program the way you did before')
})

test('a run that names no version goes to none older than what was made here', () => {
  const built = ['9.0.0', '10.0.0'].map((version) => ({ version, at: '', sizeBytes: 0 }))
  const kept = { package: 'shop', built } as unknown as ServiceRecord
  const said = (version: string) => refusalOf(() => refuseOlder(kept, { version }))
  match(
    said('9.9.9'),
    /^refused: .* is 9\.9\.9, but the newer 10\.0\.0 has already been built here \(to go back to 9\.9\.9/,
  )
  for (const version of ['10.0.0', '10.0.1']) is(said(version), 'none')
  is(
    refusalOf(() => refuseOlder({ ...kept, built: [] }, { version: '1.0.0' })),
    'none',
  )
})

test('what was unpublished, replaced or deprecated since it was seen is said', () => {
  const seen = { '1.0.0': 'sha512-1.0.0', '2.0.0': 'sha512-other', '2.1.0': 'sha512-2.1.0', '1.5.0': 'sha512-1.5.0' }
  const said = changedSince(LISTED, seen).map(({ what }) => what)
  is(said.length, 3)
  match(said.join('\n'), /2\.0\.0 was replaced under the same version number[\s\S]*2\.1\.0 is now deprecated: broken/)
  match(said.join('\n'), '1.5.0 was unpublished')
})

const REGISTRY = 'https://registry.example/'
const lockOf = (packages: Record<string, object>) =>
  JSON.stringify({ lockfileVersion: 3, packages: { '': {}, ...packages } })
const good = (name: string, more: object = {}) => ({
  version: '1.0.0',
  resolved: `${REGISTRY}${name}/-/${name}-1.0.0.tgz`,
  integrity: 'sha512-x',
  ...more,
})

test('a tree has packages of the registry only, each with an integrity, each in its place', () => {
  is(treeIn(lockOf({ 'node_modules/a': good('a'), 'node_modules/a/node_modules/@b/c': good('c') }), REGISTRY).length, 2)
  const bad: Record<string, [string, object]> = {
    git: ['node_modules/a', { ...good('a'), resolved: 'git+ssh://git@evil.example/a.git#1' }],
    link: ['node_modules/a', { link: true, resolved: '../a' }],
    elsewhere: ['node_modules/a', { ...good('a'), resolved: 'https://evil.example/a.tgz' }],
    loose: ['node_modules/a', { version: '1.0.0', resolved: `${REGISTRY}a.tgz` }],
    up: ['node_modules/../../a', good('a')],
    outside: ['packages/a', good('a')],
    kit: ['node_modules/baton-kit', good('baton-kit')],
  }
  for (const [path, one] of Object.values(bad))
    throws(() => treeIn(lockOf({ [path]: one }), REGISTRY), /every package must come from the registry, but /)
  const before = treeIn(lockOf({ 'node_modules/a': good('a'), 'node_modules/b': good('b') }), REGISTRY)
  const now = treeIn(
    lockOf({
      'node_modules/a': good('a', { version: '2.0.0' }),
      'node_modules/c': good('c', { hasInstallScript: true }),
    }),
    REGISTRY,
  )
  match(
    differencesOf(before, now).join('\n'),
    /added: a@2\.0\.0, c@1\.0\.0\n.*removed: a@1\.0\.0, b@1\.0\.0\npackage names not seen before: c\npackages that now have an install script: c@1\.0\.0/,
  )
})

test('a command is a file inside of its package', () => {
  const recipe = parseRecipe({ package: '@shop/cli', args: ['serve'], environment: { A: '{port}' } })
  is(mainOf(recipe, { bin: './bin/shop.js' }), 'bin/shop.js')
  is(mainOf(recipe, { bin: { cli: 'a.js', other: 'b.js' } }), 'a.js')
  for (const bin of ['../x.js', '/bin/sh', 'a/../../b.js'])
    match(
      refusalOf(() => mainOf(recipe, { bin })),
      'inside @shop/cli',
    )
  match(
    refusalOf(() => mainOf(recipe, { bin: { a: 'a.js', b: 'b.js' } })),
    /cannot tell which command .*`bin` or `module`/,
  )
  match(
    refusalOf(() => mainOf(recipe, {})),
    'has no command (`bin`)',
  )
  match(aroundText(recipe, '@shop/cli/bin/shop.js'), `'node_modules', "@shop/cli/bin/shop.js"`)
  const kept = { service: 'shop', args: ['--quiet'], shown: null }
  equal(configOf(kept, recipe)['args'], ['serve', '--quiet'])
})

test('what `npm run apps -- --npm` tells of a refused build begins with the reason, whatever the application has said', () => {
  const message = `starting the built release: it exited with code 1; it wrote: ${'a line\n'.repeat(500)}`
  const lines = (...all: object[]) => all.map((one) => `${JSON.stringify(one)}\n`).join('')
  const stdout = lines({ event: 'stage', stage: 'try' }, { event: 'error', code: 'verify_failed', message })
  throws(
    () => endIn({ exitCode: 5, stdout, stderr: 'x' }),
    /^it ended with 5: verify_failed: starting the built release: it/,
  )
  throws(() => endIn({ exitCode: 1, stdout: '', stderr: 'no node\n' }), /^it ended with 1: no node$/)
  is(endIn({ exitCode: 0, stdout: lines({ event: 'result', feed: '/feed' }), stderr: '' }).feed, '/feed')
})

test('what npm could not get is told by its kind, and anything else stays npm’s own', () => {
  for (const [said, code] of [
    [
      'exit code 1: npm error code ETARGET · npm error notarget No matching version found for @signalk/streams@6.9.x.',
      'check_failed',
    ],
    ['exit code 1: npm error code E404 · npm error 404 Not Found - GET https://registry.example/qword', 'check_failed'],
    [
      'exit code 128: npm error An unknown git error occurred · npm error ssh: Could not resolve hostname github.com',
      'refused',
    ],
    ['exit code 1: npm error code EAI_AGAIN · npm error request to https://registry.example/x failed', 'check_failed'],
    ['exit code 1: npm error code EUSAGE', undefined],
    ['exit code 1: npm error report this at https://github.com/npm/cli/issues', undefined],
  ] as const)
    is(unresolved(said)?.code, code, said)
})

test.run()
