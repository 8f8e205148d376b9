// What somebody types at the commands: a word or a flag with a typo is told which one was meant, and help is where it is looked for. One
// grammar: a release is a word of its own, a duration has its unit, and the first help shows the few flags that are set.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type BatonError, durationText, EXIT } from '../agent/words.ts'
import { PROGRAMS } from '../deploy/cli-page.ts'
import { confirmPurge, type Context } from '../deploy/host/commands/context.ts'
import { runCommand } from '../deploy/host/tree.ts'
import { durationOf, type Flags, parseFlags, releaseIn, shownOf, unknownCommand } from '../deploy/lib/flags.ts'
import { helpFor } from '../deploy/lib/help.ts'
import { run } from '../deploy/lib/shell.ts'
import { temporaryFolder } from '../deploy/lib/trusted.ts'
import { OWN_WORDS } from '../deploy/make/author-words.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, match, ok, throws } from './assert.ts'
import { quietly } from './fixtures/quietly.ts'
import { suite } from './suite.ts'

const test = suite('typed', { timeoutMs: 60_000 })
const RELEASE_HINT = 'pass the release without a flag: `v1.2.0`'
const FLAGS = {
  release: { type: 'string', description: '' },
  'dry-run': { type: 'boolean', alias: 'n', description: '' },
  yes: { type: 'boolean', alias: 'y', description: '' },
} as const satisfies Flags

test('the flag that was meant is named if it is plain; else all are', () => {
  const hintFor = (flag: string) => (throws(() => parseFlags([flag], { args: FLAGS })) as BatonError).hint
  for (const typo of ['--relase', '--releas', '--rlease', '--Release', '--releaes', '--releases'])
    is(hintFor(typo), 'did you mean `--release`? see --help', typo)
  is(hintFor('--dryrun'), 'did you mean `--dry-run`? see --help')
  for (const other of ['--tag', '--no', '-x', `--${'r'.repeat(100_000)}`])
    is(hintFor(other), 'choose from --release, --dry-run, --yes; see --help', other.slice(0, 20))
})

test('a name that was given up is refused, and the one that it has now is named', () => {
  const flag = ['--no', 'check'].join('-') // the glossary's test looks for it as one word
  is((throws(() => parseFlags([flag], OWN_WORDS.build)) as BatonError).hint, 'it is now `--no-try`')
  is(parseFlags(['--no-try'], OWN_WORDS.build).try, false)
  const given = { service: 'shop', entry: 'server.js' }
  throws(
    () => parseProject({ ...given, check: { environment: {} } }, '/srv/shop'),
    /the setting `check` is now called `try`/,
  )
  equal(parseProject({ ...given, try: { environment: { KEY: 'none' } } }, '/srv/shop').try, {
    environment: { KEY: 'none' },
  })
})

test('a release is a word of its own: who types it as a flag is told so, and two are refused', () => {
  const { release: _, ...others } = FLAGS
  const args: Flags = { tag: { type: 'positional', required: false, description: '' }, ...others }
  is(parseFlags(['v1.2.0', '-y'], { args })['tag'], 'v1.2.0')
  for (const typed of [['--release', 'v1.2.0'], ['--release=v1.2.0'], ['--tag', 'v1.2.0']]) {
    const { message, hint } = throws(() => parseFlags(typed, { args })) as BatonError
    match(message, /^unknown flag `--(release|tag)`$/)
    is(hint, RELEASE_HINT)
  }
  is((throws(() => parseFlags(['--relase', 'v1.2.0'], { args })) as BatonError).hint, RELEASE_HINT)
  is((throws(() => parseFlags(['v1.2.0', 'v1.3.0'], { args })) as BatonError).message, 'unexpected argument "v1.3.0"')
  equal([releaseIn({ tag: 'latest' }), releaseIn({ release: 'v1.0.0' }), releaseIn({})], ['latest', 'v1.0.0', null])
  throws(() => releaseIn({ tag: 'v1.0.0', release: 'v1.1.0' }), /expected one release, got "v1\.0\.0" and --release/)
})

test('a duration has its unit, but for 0, and is told back as it is typed', () => {
  const good = { 0: 0, '0s': 0, '300ms': 300, '30s': 30_000, '5m': 300_000, '2h': 7_200_000, '1d': 86_400_000 }
  for (const [text, ms] of Object.entries(good)) {
    is(durationOf('--soak', text), ms, text)
    is(durationOf('--soak', durationText(ms)), ms, text)
  }
  for (const bad of ['60', '1.5s', '-1s', '5 m', '5min', '25h', 'soon', '', '9999999s'])
    throws(() => durationOf('--soak', bad), /^expected a duration with a unit \(at most 1d\) for --soak, got "/)
  throws(
    () => durationOf('--offline', '1h', { least: 86_400_000, most: 10 * 86_400_000 }),
    /a duration with a unit \(1d to 10d\) for --offline, got/,
  )
})

test('the command that was meant is named if it is plain; else all are', () => {
  const words = ['install', 'upgrade', 'rollback', 'start', 'stop', 'status', 'state']
  const hintFor = (word: string) => unknownCommand(word, words).hint
  const meant = { upgarde: 'upgrade', rolback: 'rollback', stat: 'start', statsu: 'status', instal: 'install' }
  for (const [typo, word] of Object.entries(meant)) is(hintFor(typo), `did you mean \`${word}\`? see --help`)
  for (const other of ['frobnicate', 'rlbak']) match(hintFor(other) ?? '', /^choose from install, upgrade, /, other)
})

test('baton: help is shown whatever the configuration is; a command says what is wrong with that', async () => {
  await using home = await temporaryFolder('baton-typed-')
  await writeFile(join(home.path, 'baton.config.json'), '{')
  const script = join(PROJECT, 'deploy', 'baton.ts')
  const baton = async (line: string) =>
    await run([process.execPath, script, ...line.split(' ')], { cwd: home.path, allowFailure: true })
  const helps = {
    'image --help': /^builds the images/,
    'help image': /^builds the images/,
    'help deploy host': /--rollback/,
    'deploy fleet -h': /--inventory/,
    'trust sign --help': /^sign every new release/,
    'help trust init': /--root-keys=<n>/,
    'build --help': /^make a release/,
  }
  for (const [line, said] of Object.entries(helps)) {
    const { exitCode, stdout, stderr } = await baton(line)
    equal([line, exitCode, stderr], [line, EXIT.done, ''])
    match(stdout, said)
  }
  for (const line of ['image v1.0.0', 'trust sign', 'deploy host v1.0.0']) {
    const { exitCode, stderr } = await baton(line)
    is(exitCode, EXIT.usage, line)
    match(stderr, /^error: .*baton\.config\.json is not valid JSON/)
  }
})

test('baton: its version, help for a command in both ways, help of `deploy`, and what is not there', async () => {
  const baton = async (...args: string[]) => {
    const script = join(PROJECT, 'deploy', 'baton.ts')
    const { exitCode, stdout, stderr } = await run([process.execPath, script, ...args], { allowFailure: true })
    return [exitCode, stdout + stderr] as const
  }
  const [version, same] = await Promise.all([baton('--version'), baton('-v')])
  match(version[1], /^baton \d+\.\d+\.\d+\n$/)
  equal(same, version)
  const [long, short, deploy] = await Promise.all([
    baton('publish', '--help'),
    baton('help', 'publish'),
    baton('deploy', '--help'),
  ])
  match(long[1], /--to=<target>/)
  equal(short, long)
  for (const ground of ['host', 'source', 'container', 'fleet']) match(deploy[1], new RegExp(`^ +${ground}  `, 'm'))
  equal([long[0], deploy[0]], [EXIT.done, EXIT.done])
  for (const [words, typed, meant] of [
    [['publsh'], 'command `publsh`', 'publish'],
    [['publsh', '--help'], 'command `publsh`', 'publish'],
    [['help', 'publsh'], 'command `publsh`', 'publish'],
    [['update'], 'command `update`', 'upgrade'],
    [['deploy', 'contaner'], 'command `contaner`', 'container'],
    [['publish', '--dri', 'x'], 'flag `--dri`', '--dir'],
  ] as const) {
    const [exitCode, said] = await baton(...words)
    is(exitCode, EXIT.usage, said)
    is(said, `error: unknown ${typed}\nhint: did you mean \`${meant}\`? see --help\n`)
  }
  const [nothing, ground, none] = await Promise.all([baton(), baton('deploy'), baton('help', 'exit-codes')])
  equal([nothing[0], ground[0], none[0]], [EXIT.usage, EXIT.usage, EXIT.done])
  match(none[1], /^ {2}8 {2}the new version failed/m)
  const [host, deployHelp, trust] = await Promise.all([
    baton('help', 'deploy', 'host'),
    baton('deploy', 'host', '--help'),
    baton('help', 'trust', 'sign'),
  ])
  equal([host, trust[0]], [deployHelp, EXIT.done])
  match(host[1], /\[OPTIONS\] \[TAG\]/)
})

test('the command of a service: help in each way, exit codes, its version, and what is not there', async () => {
  const service = async (...argv: string[]) => await quietly(() => runCommand(argv, { service: 'shop', tag: 'v1.1.0' }))
  const [help, same, all] = [
    await service('help', 'upgrade'),
    await service('upgrade', '--help'),
    await service('upgrade', '--help', '--all'),
  ]
  equal([help.code, help.stderr, same.stdout], [EXIT.done, '', help.stdout])
  match(help.stdout, /upgrade \[OPTIONS\] \[TAG\]/)
  match(
    help.stdout,
    /`--help --all` shows \d+ more flags; `help exit-codes` explains the exit codes, `help CODE` the code of an error\n$/,
  )
  is(/--lock-timeout|exit:/.test(help.stdout), false, help.stdout)
  match(all.stdout, /--lock-timeout=<30s\|5m\|2h\|1d>.*0: do not wait/)
  match((await service('help', 'exit-codes')).stdout, /^ {2}6 {2}locked/m)
  match(
    (await service('help', 'probation_failed')).stdout,
    /^probation_failed \(HTTP 500, exit code 8\)\n\nThe new version/,
  )
  for (const asked of ['--version', '-v']) is((await service(asked)).stdout, 'shop v1.1.0\n')
  for (const [typed, meant] of [
    ['upgarde', 'upgrade'],
    ['relases', 'releases'],
    ['log', 'logs'],
    ['retsart', 'restart'],
  ]) {
    const { code, stdout, stderr } = await service(typed ?? '', '--help')
    equal([code, stdout], [EXIT.usage, ''])
    is(stderr, `error: unknown command \`${typed}\`\nhint: did you mean \`${meant}\`? see --help\n`)
  }
  const nothing = await service()
  equal([nothing.code, nothing.stdout, /COMMANDS/.test(nothing.stderr)], [EXIT.usage, '', true])
})

test('the first help of a command has at most eight flags, and `--help --all` each', async () => {
  const commands = PROGRAMS.flatMap((program) => program.commands.map((one) => ({ ...one, program: program.name })))
  ok(commands.length > 30, String(commands.length))
  for (const { program, name, args } of commands) {
    const rows = (all: boolean) => Object.entries(shownOf(args, all)).filter(([, { type }]) => type !== 'positional')
    const first = rows(false).map(([flag]) => flag)
    ok(first.length <= 8, `${program} ${name}: ${first.join()}`)
    is(rows(true).length, Object.values(args).filter(({ type }) => type !== 'positional').length, name)
  }
  const one = { name: 'x', description: 'x', args: { now: { type: 'boolean', negativeDescription: 'later' } } } as const
  match((await helpFor(['--help'], one)) ?? '', /--no-now +later/)
})

test('one grammar: no command has a release, a folder or a duration in another form, and each waits as long for a lock', () => {
  for (const { name: program, commands } of PROGRAMS) {
    for (const { name, args } of commands) {
      const where = `${program} ${name}`
      equal(
        Object.keys(args).filter((flag) => /^(folder|ref|tag-|.*-days$)/.test(flag)),
        [],
        where,
      )
      // the version of a package of npm is no tag
      if ('release' in args && args['release']?.valueHint !== 'X.Y.Z|latest')
        equal([args['tag']?.type, args['release']?.advanced], ['positional', true], where)
      for (const [flag, it] of Object.entries(args)) {
        if (flag === 'tag') is(it.type, 'positional', where)
        if (/timeout|probation|soak|every|expiry|offline/.test(flag))
          match(it.valueHint ?? '', /^\d+[smhd]/, `${where} --${flag}`)
        if (flag === 'lock-timeout')
          match(`${String(it.default)} ${it.description}`, /^(0 .*0: do not wait|.*0: do not wait \(10m\))$/)
      }
    }
  }
})

test('`uninstall --purge -y` asks nobody: it says what to add', () => {
  const context = { service: 'shop', flags: { yes: true, confirm: null } } as unknown as Context
  const { code, message, hint } = throws(() => confirmPurge(context)) as BatonError
  equal(
    [code, message],
    ['refused', '--purge removes all data belonging to shop; -y alone is not enough to confirm this'],
  )
  is(hint, 'add `--confirm shop`')
  confirmPurge({ service: 'shop', flags: { yes: true, confirm: 'shop' } } as unknown as Context)
  throws(
    () => confirmPurge({ service: 'shop', flags: { yes: true, confirm: 'beacon' } } as unknown as Context),
    /the typed name is not `shop`/,
  )
})

test.run()
