// What `deploy-npm.sh` tells an operator of a package without a recipe: why it is refused, and what would help. No network, no package.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError } from '../agent/words.ts'
import { run } from '../deploy/lib/shell.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { notedIn } from '../deploy/make/noted.ts'
import { sentencesOfCwd } from '../deploy/make/seen.ts'
import { sentencesOf } from '../deploy/make/source-start.ts'
import { aboutDatabases, aboutScheme, formatSeen, startedAs } from '../deploy/make/trial-start.ts'
import { hintFor } from '../deploy/make/trial-switch.ts'
import {
  droppedOf,
  keptNow,
  lateChange,
  madeOf,
  packageIn,
  planLines,
  usualService,
  type Wish,
  withinOf,
} from '../deploy/npm/asked.ts'
import { withoutRecipe } from '../deploy/npm/recipe.ts'
import { refusePassedOver } from '../deploy/npm/registry.ts'
import { refuseOtherPorts, shownNow, whyTryFailed } from '../deploy/npm/release.ts'
import { mainOf } from '../deploy/npm/wrap.ts'
import { equal, is, match, not, throws, withCode } from './assert.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('npm told')

const WISH: Wish = {
  package: 'shop',
  range: '*',
  service: 'shop',
  release: 'latest',
  recipe: null,
  args: [],
  allowed: [],
  minAge: undefined,
}

const RECIPE = { called: 'a recipe', kind: 'app' as const, database: null }

test('a hint names no file and no flag that an operator of a package from npm does not have', () => {
  const quiet = { listens: [], runs: [], threads: 0, inThreads: [], absent: [], makes: [], dotEnv: [] }
  const told = [
    startedAs(RECIPE),
    hintFor('x'),
    hintFor('EADDRINUSE'),
    hintFor('already running'),
    ...sentencesOf({ ...quiet, hearsSigterm: true }, RECIPE.called),
    ...sentencesOfCwd(['x'], [], RECIPE),
    ...aboutDatabases(RECIPE, ['/state/x.db'], '/state'),
    ...aboutScheme(null, 'https'),
  ]
  for (const one of told) not(/--no-try|baton\.config\.json|try\.environment|^$|[;,] *$/.test(one), one)
  match(told.join('\n'), '`"onStop": "SIGTERM"` in a recipe')
})

test('an addon is named in a hint only if the error is of it', () => {
  const lacking = { failures: ['modern-syslog has not been built'], unbuilt: ['modern-syslog'] }
  const hintOf = (message: string, rebuilt = lacking) =>
    whyTryFailed(new BatonError('verify_failed', message, { hint: startedAs(RECIPE) }), rebuilt).hint ?? ''
  const other =
    'starting the built release: it exited with code 1 after printing: TypeError: util.log is not a function'
  match(hintOf(other), /^the program starts in an empty directory/)
  match(whyTryFailed(new Error(other), lacking).message, '; modern-syslog has not been built')
  for (const said of [
    "Error: Cannot find module './build/Release/core.node'",
    'Error: Could not locate the bindings file. Tried:',
    "code: 'ERR_DLOPEN_FAILED'",
    'at Object.<anonymous> (/app/node_modules/modern-syslog/index.js:3:1)',
    "Error: Cannot find module 'modern-syslog'",
  ])
    is(hintOf(said), 'to build what is missing, pass `--allow-scripts modern-syslog`', said)
  match(hintOf('Cannot find module x.node', { ...lacking, unbuilt: [] }), /^the program starts/)
})

test('a package that listens on a port of its own is refused with what gives it the one of the install', () => {
  refuseOtherPorts({ package: 'shop' }, [])
  const refused = throws(() => refuseOtherPorts({ package: 'shop' }, [1080]), withCode('invalid_settings'))
  match((refused as BatonError).message, 'shop listens on port 1080 and ignores PORT')
  match((refused as BatonError).hint ?? '', '-- --port {port}')
})

test('what a start shows names no port that only this start had', () => {
  const note = (...of: string[]) => JSON.stringify(of)
  const text = [
    note('listens', '38761'),
    note('listens', '9000'),
    note('listens', 'udp 38761'),
    note('inThreads', '38761'),
  ]
  const noted = notedIn(text.join('\n'), 38_761)
  equal([noted.listens, noted.inThreads], [['{port}', '9000', 'udp {port}'], ['{port}']])
  match(sentencesOf(noted, 'a recipe').join(), 'the application listens on 3 ports: {port}, 9000 and udp {port}')
  const of = (ports: number[], ...listens: string[]) =>
    formatSeen({ databases: [], children: [], ports }, 38_761, { listens })
  is(of([38_761]), '')
  is(of([9000, 38_761], '9000', '{port}'), '; it also listens on port 9000')
  is(of([9000, 38_761, 40_001], '0', '9000', '{port}'), '; it also listens on port 9000 and a random port')
  is(of([9000, 9001, 38_761]), '; it also listens on the ports 9000, 9001') // no look at what another program than Node asks for
})

test('one file under two names is one command, and a package that is called cli has the name of its scope', () => {
  const recipe = withoutRecipe('@shop/cli')
  is(mainOf(recipe, { bin: { shop: './a.js', '@shop/cli': 'a.js' } }), 'a.js')
  throws(() => mainOf(recipe, { bin: { shop: 'a.js', '@shop/cli': 'b.js' } }), /cannot tell which command/)
  const names = { '@hocuspocus/cli': 'hocuspocus', '@Shop/server': 'shop', '@shop/wiki': 'wiki', cli: 'cli' }
  for (const [name, service] of Object.entries(names)) is(usualService(name), service, name)
})

test('a plan ends with what becomes of the release: it is installed, upgraded to, or stays in its folder', () => {
  const kept = { ...keptNow(null, WISH), feed: '' }
  const endOf = (end: Parameters<typeof planLines>[4]) =>
    planLines(kept, { version: '1.0.0' }, { builder: null, feed: '' }, 'https://registry.example/', end).at(-1)?.text
  is(endOf('install'), 'install shop v1.0.0')
  is(endOf('upgrade'), 'upgrade shop to v1.0.0')
  is(endOf(null), 'install nothing')
})

test('a health path that was seen once is looked at anew for each version, and a change is said; its data stay', () => {
  const now = {
    database: 'new.db',
    healthPath: '/status',
    cwd: 'app' as const,
    otherPorts: [],
    warnings: [],
    notes: ['x'],
  }
  const last = { database: 'old.db', healthPath: '/health', cwd: null }
  const { notes: first, shown } = shownNow({ package: 'shop', shown: null }, now)
  equal([first, shown], [['x'], { database: 'new.db', healthPath: '/status', cwd: 'app' }])
  equal(shownNow({ package: 'shop', shown: last }, now), {
    shown: { ...last, healthPath: '/status' },
    notes: [],
    changes: ['its health path is now /status; it was /health'],
  })
  equal(shownNow({ package: 'shop', shown: last }, { ...now, healthPath: '/health' }).changes, [])
  throws(() => shownNow({ package: 'shop', shown: last }, { ...now, otherPorts: [1080] }), withCode('invalid_settings'))
})

test('a range is kept and said until another one, or `latest`, is typed', () => {
  const typed = (text: string) => packageIn(text, (range) => /^[\d.*^~]+$/.test(range)).range
  equal([typed('shop'), typed('shop@4'), typed('@a/shop@latest')], [null, '4', '*'])
  throws(() => typed('shop@next?'), withCode('invalid_request'))
  const of = (text: string, before: Parameters<typeof keptNow>[0] = null) => ({
    ...keptNow(before, { ...WISH, range: typed(text) }),
    feed: '',
  })
  const within = of('shop', of('shop@4'))
  equal(withinOf(within), ['updates stay within shop@4; to allow any version, use shop@latest'])
  equal([withinOf(of('shop')), withinOf(of('shop@latest', within))], [[], []])
})

test('what was typed without a recipe does not meet one that is named later, and that is said; what was typed beside one stays', () => {
  const failed = { ...keptNow(null, { ...WISH, args: ['--port', '{port}'] }), feed: '' }
  const recipe = withoutRecipe('shop')
  equal(keptNow(failed, { ...WISH, recipe }).args, [])
  equal(keptNow(failed, WISH).args, failed.args)
  const built = { ...failed, built: [{ version: '1.0.0', at: '', sizeBytes: 1 }] }
  const now = keptNow(built, { ...WISH, recipe })
  equal([now.args, now.recipe], [[], recipe])
  match(droppedOf(built, now).join(), /typed earlier are no longer used; to keep them, add `-- --port '?\{port\}'?`$/)
  const again = keptNow(built, { ...WISH, recipe, args: ['--port', '1'] })
  equal([again.args, droppedOf(built, again)], [['--port', '1'], []])
  const beside = { ...built, recipe }
  const later = keptNow(beside, { ...WISH, recipe: { ...recipe, args: ['serve'] } }) // as a newer Baton brings it
  equal([later.args, droppedOf(beside, later)], [built.args, []])
  equal(droppedOf(built, keptNow(built, WISH)), [])
})

test('arguments that come too late for a release are said to count from the next one, with the way to have them now', () => {
  const before = { ...keptNow(null, WISH), feed: '/srv/feed' }
  equal(lateChange(before, before, 'v1.0.0'), [])
  const built = [{ version: '1.0.0', at: '', sizeBytes: 1, madeOf: madeOf(before) }]
  const asked = { ...before, args: ['--host', '{host}'], built }
  equal(lateChange(asked, asked, 'v1.0.0').length, 1) // an earlier run has noted what was asked, and made nothing
  equal(lateChange(asked, { ...before, built }, 'v1.0.0'), [])
  const [line = ''] = lateChange(before, { ...before, args: ['--host', '{host}'] }, 'v1.0.0')
  match(
    line,
    /next version on; .*run this command with `--build-only` to try them, then `shop uninstall` \(the data stays\), then this command again$/,
  )
})

test('an older version than the newest is not taken unless it is named', () => {
  const version = { version: '4.2.0', publishedMs: Date.UTC(2022, 3, 1) } as Parameters<
    typeof refusePassedOver
  >[0]['version']
  refusePassedOver({ version, notes: [] })
  const error = throws(
    () =>
      refusePassedOver({
        version,
        notes: ['skipped: shop 4.9.0 requires Node 22', 'skipped: shop 4.8.0 is deprecated'],
      }),
    withCode('refused'),
  ) as BatonError
  is(error.message, 'shop 4.9.0 requires Node 22')
  match(error.hint ?? '', /is 4\.2\.0 from 2022-04-01: .*`--release 4\.2\.0`/)
})

test('an update leaves out a service of which no release was ever made', async () => {
  await using it = await temporary('npm-told')
  await mkdir(join(it.path, 'shop'))
  await writeFile(join(it.path, 'shop/service.json'), JSON.stringify({ ...keptNow(null, WISH), feed: it.path }))
  const update = async (...more: string[]) => {
    const command: [string, ...string[]] = [join(PROJECT, 'deploy/deploy-npm.sh'), '--update', '--home', it.path]
    const env = { ...process.env, npm_config_registry: 'http://127.0.0.1:9/' }
    const { exitCode, stdout } = await run([...command, '--json', ...more], { allowFailure: true, env })
    return { exitCode, stdout }
  }
  const all = await update()
  is(all.exitCode, 0, all.stdout)
  not.match(all.stdout, 'shop')
  equal((JSON.parse(all.stdout.trim().split('\n').at(-1) ?? '') as { services: unknown }).services, [])
  is((await update('--name', 'shop')).exitCode, 7)
})

test.run()
