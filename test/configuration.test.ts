// The one reader of an installed service's `config.json`, and what is made from its table.

import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { FAILURES_AT_ONCE } from '../agent/http/auth.ts'
import { CONFIGURATION_MAX_BYTES, readConfiguration } from '../agent/words.ts'
import { run } from '../deploy/lib/shell.ts'
import { bundle } from '../deploy/make/bundle.ts'
import { DEFAULT_ENTRY, definitions } from '../deploy/make/release.ts'
import { cliPage } from '../deploy/cli-page.ts'
import { settingsPage, settingsSchema } from '../deploy/make/settings-page.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { fc, fuzz } from './lab/fuzz.ts'
import { Ajv2020 } from './lab/openapi.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const ROOT = join(import.meta.dirname, '..')
const test = suite('configuration', { timeoutMs: 120_000 })

test('settings.schema.json, docs/reference/settings.md and docs/reference/cli.md are what `npm run pages` writes', () => {
  is(readFileSync(join(ROOT, 'docs/reference/cli.md'), 'utf8'), cliPage())
  is(readFileSync(join(ROOT, 'settings.schema.json'), 'utf8'), settingsSchema())
  is(readFileSync(join(ROOT, 'docs/reference/settings.md'), 'utf8'), settingsPage())
})

test('what is valid is kept, what is not is named and left out, what nobody knows is named', () => {
  const { configuration, faults, unknown } = readConfiguration(
    JSON.stringify({
      dashboard: { password: 'with spaces', trustedProxy: { from: ['unix'], header: 'forwarded' }, user: 1 },
      listen: [{ port: 70_000 }, { path: '/s', host: 'h' }, { port: 1, tls: { key: 'k' } }],
      feed: '',
      basePath: null,
      update: { drainTimeout: '5ms', hangTimeout: '1ms', busy: 'wait', probationMS: 1, auto: 'read later' },
      mine: true,
    }),
  )
  equal(configuration, {
    dashboard: { trustedProxy: { from: ['unix'], header: 'forwarded' } },
    listen: [{}, { path: '/s', host: 'h' }, { port: 1 }],
    update: { drainTimeout: '5ms', auto: 'read later' },
  })
  equal(faults.toSorted(), [
    'expected `cert` in `listen[2].tls`',
    'expected `cut` or `give-up` in `update.busy`, got "wait"',
    'expected `path`, or `host` and `port`, in `listen[1]`, not both',
    'expected a duration with a unit (500ms to 10m) in `update.hangTimeout`, got "1ms"',
    'expected a whole number from 0 to 65535 in `listen[0].port`, got 70000',
    'expected non-empty text without control characters (at most 4096 characters) in `feed`, got ""',
    'expected visible ASCII characters without spaces (at most 1024 characters) in `dashboard.password`, got other text (not shown)',
  ])
  equal(
    unknown.map(({ name }) => name),
    ['dashboard.user', 'update.probationMS', 'mine'],
  )
})

test('a text that is no JSON object is told as such, without a word of it', () => {
  for (const text of ['{"dashboard":{"password":"hunter2"', '"hunter2"', 'null', '[]', '[['.repeat(50)]) {
    const { isRead, faults } = readConfiguration(text)
    is(isRead, false, text)
    match(faults.join(), /^expected (JSON|an object, got)/)
    not(faults.join().includes('hunter2'))
  }
  match(readConfiguration(' '.repeat(CONFIGURATION_MAX_BYTES + 1)).faults.join(), /at most 262144 bytes/)
})

test('a password is in no message, whatever else is wrong', async () => {
  await fuzz(fc.tuple(fc.jsonValue(), fc.string({ minLength: 4 })), ([value, password]) => {
    const { faults } = readConfiguration(
      JSON.stringify({
        listen: value,
        update: value,
        dashboard: { password: `§${password}`, trustedProxy: `§${password}` },
      }),
    )
    ok(!faults.join().includes(`§${password}`))
  })
})

test('the schema and the reader agree on every configuration', async () => {
  const isValid = new Ajv2020({ allowUnionTypes: true, strictRequired: false }).compile(
    JSON.parse(settingsSchema()) as object,
  )
  const odd = fc.oneof(
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.string(),
    fc.boolean(),
    fc.constant([]),
    fc.constant({}),
  )
  const member = (usual: fc.Arbitrary<unknown>) =>
    fc.oneof({ weight: 6, arbitrary: usual }, { weight: 1, arbitrary: odd })
  const some = (members: Record<string, fc.Arbitrary<unknown>>) => member(fc.record(members, { requiredKeys: [] }))
  const path = member(fc.constantFrom('/a', 'b', '', 'c\u0000', 'x'.repeat(5000)))
  const listener = some({
    host: member(fc.constantFrom('127.0.0.1', '::', 'a b', '')),
    port: member(fc.integer({ min: -2, max: 65_540 })),
    path,
    tls: some({ key: path, cert: path }),
    hots: fc.constant(1),
  })
  const configuration = some({
    dashboard: some({
      password: member(fc.constantFrom('secret', '', 'two words', 'é', 'x'.repeat(1025))),
      trustedProxy: some({ from: fc.array(fc.constantFrom('unix', '10.0.0.0/8'), { maxLength: 2 }), header: path }),
    }),
    listen: fc.oneof(listener, fc.array(listener, { maxLength: 3 })),
    basePath: member(fc.constantFrom('', '/', '/a/b', 'a', '/a/', '//')),
    stateDirectory: path,
    feed: fc.oneof(path, fc.array(path, { maxLength: 9 })),
    channel: member(fc.constantFrom('stable', 'beta', 'nightly')),
    update: some({
      // the schema knows the form of a time, and not its bounds
      probation: member(fc.constantFrom('0', '1h', '-1s', '1.5s', 1000)),
      busy: member(fc.constantFrom('cut', 'give-up', 'wait')),
    }),
  })
  await fuzz(
    configuration,
    (value) => {
      const { faults, unknown } = readConfiguration(JSON.stringify(value))
      // the reader leaves it to its caller what to say of a member that nobody knows
      const isFine = faults.length === 0 && unknown.length === 0
      equal(isFine, isValid(JSON.parse(JSON.stringify(value))), JSON.stringify([value, faults]))
    },
    { runs: 2000 },
  )
})

test('a service whose configuration is not valid ends with code 2 and names the member: an application and the reference service', async () => {
  await using made = await temporary('configuration')
  const folder = made.path
  const config = join(folder, 'config.json')
  await writeFile(config, JSON.stringify({ dashboard: { password: 'with spaces' }, listen: { port: 70_000 } }))
  const release = { service: 'app', tag: 'v1.0.0', environment: {}, args: [], nodeFlags: [] }
  const first = join(ROOT, 'deploy/make/first/bundle.ts')
  const text = `import { beginBundle } from ${JSON.stringify(first)}
    beginBundle(() => process.stdout.write('began'), () => '')`
  const programs = {
    app: await bundle({ entry: 'app', text, define: { __BATON_RELEASE__: JSON.stringify(release) } }),
    service: await bundle({ entry: DEFAULT_ENTRY, define: definitions('beacon', 'v1.0.0') }),
  }
  for (const [name, program] of Object.entries(programs)) {
    const path = join(folder, `${name}.cjs`)
    await writeFile(path, program)
    const command = [process.execPath, path, 'serve', '--config', config]
    const { exitCode, stdout, stderr } = await run(command, { allowFailure: true })
    is(exitCode, 2, `${name}: ${stderr}`)
    is(stdout, '')
    match(stderr, /^error: .*`listen\.port`, got 70000/)
    match(stderr, /`dashboard\.password`, got other text \(not shown\)/)
    not(stderr.includes('with spaces'))
  }
  // an image names the place: a folder without the file is mounted there
  const env = { BATON_CONTAINER: '1', APP_CONFIG: join(folder, 'absent/config.json') }
  const { stderr } = await run([process.execPath, join(folder, 'app.cjs'), 'serve'], { env, allowFailure: true })
  match(stderr, `error: reading the configuration ${folder}/absent/config.json in the container: ENOENT`)
  match(stderr, `hint: the mount at ${folder}/absent must contain this file`)
})

test('`dashboard.trustedProxy` counts in every service: behind that proxy, one who types wrong passwords keeps nobody else out', async () => {
  const text = `import '${join(ROOT, 'agent/adapters/auto.ts')}'
    import { createServer } from 'node:http'
    createServer((request, response) => response.end('here')).listen(Number(process.env.PORT), process.env.HOST)`
  const trustedProxy = { from: ['127.0.0.1'], header: 'x-forwarded-for' }
  await using it = await adopted(text, {}, { dashboard: { password: 'right-and-long-enough', trustedProxy } })
  const wrong = async (client: string) => {
    const headers = { authorization: 'Bearer wrong', 'x-forwarded-for': client }
    return (await fetch(`http://127.0.0.1:${it.port}/admin/update/status`, { headers })).status
  }
  for (let i = 0; i < FAILURES_AT_ONCE; i++) is(await wrong('203.0.113.1'), 401)
  equal([await wrong('203.0.113.1'), await wrong('203.0.113.2')], [429, 401])
})

test.run()
