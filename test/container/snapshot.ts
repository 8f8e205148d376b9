// Data that are not in SQLite, in a container: copied by the author's command or the operator's before the switch, or between the two
// containers, named in the report, kept as on a host, and taken back by `--restore-state`.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { type DeployEvent, type EndEvent, formatDeployEvent } from '../../deploy/container/report.ts'
import { run } from '../../deploy/lib/shell.ts'
import { parseProject } from '../../deploy/make/project.ts'
import { equal, is, match, not, rejects, withCode } from '../assert.ts'
import { buildTags } from '../fixtures/quiet-build.ts'
import { labFolder, openLab } from '../lab/docker.ts'
import { isLong, suite } from '../suite.ts'
import { scriptImages } from './images.ts'
import { deployIn, healthy } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container snapshot', { timeoutMs: 240_000, skip })
const [NAME, STATE, NODE] = ['rows', '/var/lib/rows', '/usr/local/bin/node']
const MAIN = join(import.meta.dirname, '../../deploy/deploy-container.ts')
const node = (script: string) => [
  NODE,
  '-e',
  `const fs = process.getBuiltinModule('fs'), file = process.argv[1]; ${script}`,
  '{file}',
]
const COPY = `fs.writeFileSync(file, process.env.SECRET + '\\n' + fs.readFileSync('rows'))`
const GOOD = {
  command: node(COPY),
  restore: node(`fs.writeFileSync('rows', fs.readFileSync(file, 'utf8').replace(/^.*\\n/, ''))`),
  check: node(
    `if (!fs.readFileSync(file, 'utf8').startsWith('secret\\n')) { console.error('no copy'); process.exit(1) }`,
  ),
  folders: ['uploads'],
  timeout: '20s',
}
let repository = ''
let place = ''
let settings = ''

test.before(async () => {
  repository = `${registry.host}/rows`
  const dist = join(labFolder(), 'dist')
  const tags = ['v1.0.0', 'v1.1.0', 'v1.2.0']
  const folder = join(import.meta.dirname, '../fixtures/ledger')
  const about = { service: NAME, kind: 'script', entry: 'rows.js', healthPath: '/', snapshot: GOOD }
  await buildTags({ project: parseProject(about, folder), out: dist }, tags)
  await scriptImages(engine, registry, { dist, repository, tags })
  settings = join(labFolder(), 'settings')
  mkdirSync(settings)
  operatorSays({})
  const options = ['--restart', 'always', '--health-interval', '20s', '-e', 'SECRET=secret']
  const mounts = ['-v', `kept:${STATE}`, '-v', `${settings}:/etc/rows:ro`]
  await engine.docker('run', '-d', '--name', NAME, ...options, ...mounts, `${repository}:v1.0.0`)
  await healthy(engine, NAME)
  place = (await engine.inspect(NAME)).Mounts.find(
    ({ Destination }: { Destination: string }) => Destination === STATE,
  ).Source
  await add('/one')
})
test.after(close)

test('a command that fails, hangs, writes nothing or is not there refuses the deployment with its last words; nothing is left', async () => {
  const { Id } = await engine.inspect(NAME)
  const cases: [object, RegExp][] = [
    [
      { command: node("console.error('pg_dump: error: connection refused'); process.exit(3)") },
      /exited with code 3, saying "pg_dump: error: connection refused"/,
    ],
    [
      { command: node("fs.writeFileSync(file, 'half'); setInterval(() => {}, 1000)"), timeout: '1s' },
      /did not finish within 1s/,
    ],
    [{ command: node('') }, /succeeded, but did not create \{file\}/],
    [{ check: node("console.error('no archive'); process.exit(1)") }, /checking the copy: .*saying "no archive"/],
    [{ command: ['no-such-program', '{file}'] }, /program `no-such-program` not found/],
    [{ folders: ['rows'] }, /expected `rows` in `snapshot\.folders` to be a folder/],
    [{ timeout: '0' }, /update\.snapshot\.timeout/],
  ]
  // a host reads the same rules: snapshot-command.test.ts has all that can be wrong with them
  if (!isLong) cases.splice(4)
  for (const [wrong, says] of cases) {
    operatorSays(wrong)
    const refused = await rejects(deployTo('v1.1.0'), withCode('refused'))
    match(refused.message, /^copying the data before the switch: /)
    match(refused.message, says)
    equal([(await engine.inspect(NAME)).Id, kept(), await engine.names()], [Id, [], [NAME]], refused.message)
  }
})

test('the data are copied before the switch, named in the report, and taken back with one restart; what was there is put aside', async () => {
  operatorSays({})
  const ended = await deployTo('v1.1.0')
  equal([ended.outcome, ended.copies.length], ['updated', 2], ended.error?.message)
  const [dump, folders] = ended.copies
  equal(kept(), [basename(dump?.path ?? ''), basename(folders?.path ?? '')])
  match(basename(dump?.path ?? ''), /^dump\.v1\.0\.0\./)
  is(dump?.onHost, join(place, 'update/snapshots', basename(dump?.path ?? '')))
  is(readFileSync(dump?.onHost ?? '', 'utf8'), 'secret\nv1.0.0 begins\n/one\n')
  is(readFileSync(join(folders?.onHost ?? '', 'uploads/one'), 'utf8'), 'v1.0.0')
  const lines = formatDeployEvent(ended.events.at(-1) as DeployEvent).join('\n')
  match(lines, /a copy of the data from before the switch, 26 B, made in /)
  match(lines, dump?.onHost ?? '?')
  match(
    ended.events.map((event) => (event.event === 'note' ? event.message : '')).join('\n'),
    /not tried on a copy of your data: the data is not in SQLite/,
  )

  await add('/two')
  const before = rows()
  const planned = await commanded('--restore-state', basename(dump?.path ?? ''), '--dry-run')
  equal([planned.exitCode, rows()], [0, before], planned.stderr)
  match(planned.stderr, /would be restarted, and would restore dump\.v1\.0\.0/)
  const back = await restore(basename(dump?.path ?? ''))
  equal([back.exitCode, back.exitCode === 0 ? '' : back.stderr], [0, ''])
  is(rows(), 'v1.0.0 begins\n/one\nv1.1.0 begins\n')
  const [, aside = ''] = /the previous data is in (\S+);/.exec(back.stderr + back.stdout) ?? []
  is(readFileSync(aside, 'utf8'), `secret\n${before}v1.1.0 ends\n`)
  equal(readdirSync(join(place, 'uploads')).toSorted(), ['one', 'two'], 'folders are another copy')
  is((await restore(basename(folders?.path ?? ''))).exitCode, 0)
  equal(readdirSync(join(place, 'uploads')), ['one'])
  is((await restore(basename(aside))).exitCode, 0)
  match(rows(), /\/two\nv1\.1\.0 ends\n/)
})

test.long(
  'a copy that is damaged is not taken: the container runs on its own data, and the command says why',
  async () => {
    const [name = ''] = kept()
    writeFileSync(join(place, 'update/snapshots', name), 'damaged\n')
    await add('/three')
    const refused = await restore(name)
    is(refused.exitCode, 7, refused.stderr)
    match(refused.stderr, /checking dump\..*saying "no copy"; `rows` is running on its previous data/)
    match(rows(), /\/three\nv1\.1\.0 ends\nv1\.1\.0 begins\n$/)
    const unknown = await restore('dump.v9.9.9.x')
    match(unknown.stderr, /expected the name of a copy of the data; available copies: .*dump\.v1\.0\.0/)
  },
)

test.long(
  '`stopped`: it is copied when the old container has ended and before the new one begins; if that fails the old one serves again',
  async () => {
    operatorSays({ when: 'stopped', command: node("console.error('no room'); process.exit(1)"), folders: [] })
    const { Id } = await engine.inspect(NAME)
    const count = kept().length
    const failed = await deployTo('v1.2.0')
    equal([failed.outcome, (await engine.inspect(NAME)).Id, failed.copies, kept().length], ['reverted', Id, [], count])
    match(
      failed.events.map((event) => (event.event === 'log' ? event.line : '')).join('\n'),
      /exited with code 1, saying "no room"/,
    )
    not.match(rows(), 'v1.2.0 begins')
    operatorSays({ when: 'stopped' })
    // by the command and its switcher: the new container waits in its first code until the old one has ended
    const { stdout, stderr } = await commanded('--release', 'v1.2.0', '--probation', '1s', '--json')
    const ended = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as EndEvent
    equal([ended.outcome, ended.copies.length], ['updated', 2], stdout + stderr)
    const text = readFileSync(ended.copies[0]?.onHost ?? '', 'utf8')
    match(text, /v1\.1\.0 ends\n$/)
    match(rows(), /v1\.1\.0 ends\nv1\.2\.0 begins\n$/)
    equal(
      readdirSync(join(place, 'update')).filter((one) => one === 'owed.json'),
      [],
    )
  },
)

test.long('a rollback goes on without a copy', async () => {
  operatorSays({ command: node('process.exit(1)') })
  const back = await deployIn(engine, { container: NAME, release: null, probationMs: 200 })
  equal([back.outcome, back.copies], ['rolled_back', []])
  match(
    back.events.map((event) => (event.event === 'warning' ? event.message : '')).join('\n'),
    /rolling back without a copy of the data: .*exited with code 1/,
  )
})

test.run()

// ---- parts

async function deployTo(release: string) {
  return await deployIn(engine, { container: NAME, release, probationMs: 200 })
}

async function restore(name: string) {
  return await commanded('--restore-state', name)
}

async function commanded(...flags: string[]) {
  const words = [process.execPath, ...process.execArgv, MAIN, '--container', NAME, ...flags]
  return await run(words, { env: { ...process.env, ...engine.environment }, allowFailure: true })
}

async function add(path: string): Promise<void> {
  const script = `fetch('http://127.0.0.1:8080${path}', { method: 'POST' }).then((answer) => process.exit(answer.ok ? 0 : 1))`
  await engine.docker('exec', NAME, NODE, '-e', script)
}

function operatorSays(snapshot: object): void {
  const config = { listen: { host: '0.0.0.0', port: 8080 }, update: { snapshot } }
  writeFileSync(join(settings, 'config.json'), JSON.stringify(config))
}

function rows(): string {
  return readFileSync(join(place, 'rows'), 'utf8')
}

/** names of the copies */
function kept(): string[] {
  try {
    return readdirSync(join(place, 'update/snapshots')).toSorted()
  } catch {
    return []
  }
}
