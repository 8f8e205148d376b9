// @deadlineMs 600000
// A host under systemd that updates automatically: only what was tried on a copy of its data and found open goes; what it did and what waits
// stands at the end of its status; its operator's program runs in the sandbox.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { newMemory, type Remembered } from '../agent/update/schedule/memory.ts'
import type { Status } from '../agent/words/state.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { publishLedgers } from './lab/ledger.ts'
import { bootWithFeed, type FeedHost, put, setUpdate } from './lab/managed.ts'
import { MIGRATIONS } from './lab/migrations.ts'
import { commandsOf } from './lab/page.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: by itself', { skip: noHosts, timeoutMs: 240_000 })
const STATE = '/var/lib/beacon'
const LEDGER = `${STATE}/ledger.db`
const REPORTS = `${STATE}/reports`
const IRREVERSIBLE = `database.exec("ALTER TABLE notes RENAME COLUMN text TO body"); breaks.select = "SELECT * FROM notes";
  breaks.insert = "INSERT INTO notes(author, body) VALUES (1, ?)"`
const AUTO = { mode: 'minor', allow: ['unsigned'] }
/** irreversible is never among what an operator can allow, not even for a patch */
const ALL = { mode: 'minor', allow: ['unsigned', 'unproven', 'untried'] }
const UPDATE = {
  probation: '1s',
  quietTimeout: '500ms',
  trial: 'auto',
  onOutcome: ['/usr/local/bin/tell', '--to', 'ops'],
}

const textOf = (name: string) => MIGRATIONS[name]?.text ?? ''

let host: FeedHost

test.before(async () => {
  const tags = ['v1.0.0', 'v1.0.1', 'v1.0.2', 'v1.3.0', 'v1.4.0', 'v2.0.0']
  host = await bootWithFeed((out) => publishLedgers(out, tags))
  const hides = 'setsid env -i /bin/sleep 4711 </dev/null >/dev/null 2>&1 & sleep 0.5' // until it has left
  // what it hears goes on to the program of the page, which leaves it in a folder
  const leaves = `tee -a ${STATE}/told | /usr/local/bin/leave-report ${REPORTS}; echo >>${STATE}/told`
  await put(host, '/usr/local/bin/tell', `#!/bin/sh\n{ id -un; echo "$@"; } >>${STATE}/told\n${leaves}\n${hides}\n`)
  const [leaveReport = ''] = await commandsOf('docs/operator/automatic.md')
  await put(host, '/usr/local/bin/leave-report', leaveReport)
  await host.ok('chmod', '755', '/usr/local/bin/tell', '/usr/local/bin/leave-report')
  await host.install({ ...UPDATE, auto: { mode: 'notify' } })
  await host.sql("INSERT INTO authors VALUES (1, 'ada'); INSERT INTO notes(author, text) VALUES (1, 'kept')", LEDGER)
})
test.after(async () => await host.off())

/** Restarts the service with these rules and a feed that is due. */
async function again(auto: object): Promise<void> {
  await host.ok('systemctl', 'stop', 'beacon')
  await setUpdate(host, { ...UPDATE, auto })
  const text = await host.run(['cat', `${STATE}/update/schedule.json`])
  const memory = text.code === 0 ? (JSON.parse(text.stdout) as Remembered) : newMemory([], Date.now())
  memory.asked = { at: null, next: 0, problem: null, failures: 0 }
  memory.told ??= ''
  if (memory.attempt !== null) memory.attempt.at = 0 // however long ago it was
  // v1.0.1 is the same each time, its migration is not: no earlier trial of it counts, and no earlier end
  memory.never = memory.never.filter(({ tag }) => tag !== 'v1.0.1')
  if (memory.attempt?.tag === 'v1.0.1') memory.attempt.isOpen = false
  await put(host, `${STATE}/update/schedule.json`, JSON.stringify(memory))
  const journal = await host.run(['cat', `${STATE}/update/journal.json`])
  const untried = { ...(JSON.parse(journal.stdout || '{}') as object), tried: [] }
  if (journal.code === 0) await put(host, `${STATE}/update/journal.json`, JSON.stringify(untried))
  await host.ok('chown', '-R', 'beacon:', `${STATE}/update`)
  await host.run(['systemctl', 'reset-failed', 'beacon']) // these starts count towards the unit's limit
  await host.ok('systemctl', 'start', 'beacon')
}

async function until(what: string, holds: (status: Status) => boolean): Promise<Status> {
  const deadline = performance.now() + 90_000
  let last: unknown = null
  while (performance.now() < deadline) {
    const status = await host.status().catch((cause: unknown) => cause)
    last = status
    if (!(status instanceof Error) && (status as Status).state === 'idle' && holds(status as Status))
      return status as Status
    await sleep(200)
  }
  throw new Error(`${what}: ${JSON.stringify(last)}`)
}

const migrate = (code: string) => put(host, `${STATE}/migration.js`, code)

test('by default a new release is told, and nothing goes', async () => {
  await again({})
  const { instance, schedule, history } = await until('told', ({ schedule }) => (schedule?.waits.length ?? 0) > 0)
  equal([instance.version, schedule?.mode, history], ['v1.0.0', 'notify', []])
  equal(schedule?.waits, [{ code: 'available', says: 'v2.0.0 is available', tag: 'v2.0.0' }])
})

for (const [what, auto, code, why] of [
  ['breaks', AUTO, "throw new Error('half-way')", /fails on a copy of the data/],
  [
    'drops rows',
    AUTO,
    "database.exec('DELETE FROM notes')",
    /its migration cannot be undone|would change the data irreversibly/,
  ],
  ['is irreversible', ALL, IRREVERSIBLE, /would change the data irreversibly/],
  [
    'changes values',
    AUTO,
    textOf('changes values'),
    /a rollback may not work: values changed in \d+ of \d+ rows of notes \(text\)/,
  ],
  ['takes too long', ALL, textOf('slow'), /clients would have to wait about \d{5} ms .*but `maxPause` allows 15s/],
  ['wants a value', ALL, textOf('a column that needs a value'), /would change the data irreversibly/],
  ['renames and dies', ALL, textOf('renamed and dies'), /would change the data irreversibly/],
] as const) {
  const register =
    code === IRREVERSIBLE || !Object.values(MIGRATIONS).some(({ text }) => text === code) ? test : test.long
  register(`a release whose migration ${what} on the copy changes nothing`, async () => {
    const before = (await host.status()).history.length
    await migrate(code)
    await again(auto)
    const { instance, history } = await until(what, (status) => status.history.length > before)
    equal([instance.version, history[0]?.outcome, history[0]?.by], ['v1.0.0', 'failed', 'schedule'])
    // what was refused as irreversible is not tried again from the same release: then the next older one is
    if (auto === ALL) is(history[0]?.to, code === IRREVERSIBLE ? 'v1.0.2' : 'v1.0.1')
    match(history[0]?.error?.message ?? '', why)
    is(await host.sql("SELECT count(*) FROM notes WHERE text = 'kept'", LEDGER), '1\n')
  })
}

test('an older one whose way back is open is installed automatically; the end of the status says what it did, and what waits', async () => {
  await migrate('database.exec("ALTER TABLE notes ADD COLUMN colour TEXT")')
  await again(AUTO)
  const { instance, history, schedule } = await until('gone', ({ instance: { version } }) => version !== 'v1.0.0')
  equal([instance.version, history[0]?.outcome, history[0]?.by], ['v1.0.1', 'updated', 'schedule'])
  is(history[0]?.trial?.verdict, 'reversible')
  ok(schedule?.waits.some(({ code, tag, mode }) => code === 'beyond' && tag === 'v2.0.0' && mode === 'minor'))
  const said = await host.cli('status')
  match(said.stdout, /automatic {2}v1\.0\.0 to v1\.0\.1: updated at .*\n/)
  match(said.stdout, /automatic {2}minor, also unsigned releases/)
  match(said.stdout, /\nattention {2}v2\.0\.0 is waiting for you: .*\n(attention {2}.*\n)*$/)
})

test('a pause keeps it from going by itself, and its end lets it go; a day that is none is refused', async () => {
  const held = await host.cli('upgrade', '--pause-until', '2099-12-27')
  is(held.code, 0, held.stderr)
  match(held.stdout, /^nothing is installed automatically before 2099-12-2\d/)
  ok((await host.status()).schedule?.pausedUntil?.startsWith('2099-12-2'))
  match((await host.cli('status')).stdout, /\nautomatic {2}.*; paused until 2099-12-2/)
  is((await host.cli('upgrade', '--pause-until', 'soon')).code, 2)
  const past = await host.cli('upgrade', '--pause-until', '2020-01-01')
  is(past.code, 2, past.stdout)
  match(past.stderr, 'expected a future time for --pause-until, got "2020-01-01"')
  ok((await host.status()).schedule?.pausedUntil?.startsWith('2099-12-2'), 'what is refused ends no pause')
  is((await host.cli('upgrade', '--pause-until', '2099-12-27', '--unpause')).code, 2)
  match((await host.cli('upgrade', '--unpause')).stdout, /^automatic updates are no longer paused/)
  is((await host.status()).schedule?.pausedUntil, null)
})

test('who writes in the state directory reaches nothing of root: no link is followed, and no terminal obeys', async () => {
  const [victim, policy, memory] = ['/etc/victim', `${STATE}/update/policy.json`, `${STATE}/update/schedule.json`]
  await put(host, victim, '{"mode": "of root alone"}')
  await host.ok('chmod', '600', victim)
  await host.ok('runuser', '-u', 'beacon', '--', 'ln', '-sf', victim, policy)
  const linked = await host.cli('status')
  match(linked.stdout, /attention {2}`update\/policy.json`: .*, so nothing is installed automatically/)
  match((await host.cli('doctor')).stdout, /^warning +automatic +`update\/policy.json`: .*, so nothing is installed/m)
  const held = await host.cli('upgrade', '--pause-until', '2099-12-27')
  not.match(linked.stdout + held.stdout + held.stderr, /of root alone/)
  is(await host.ok('cat', victim), '{"mode": "of root alone"}')
  await host.ok('runuser', '-u', 'beacon', '--', 'rm', policy)
  // the service may write its memory in the same moment
  const stdout = await eventually('what was forged', async () => {
    const real = JSON.parse(await host.ok('cat', memory)) as Remembered
    const input = JSON.stringify({ ...real, hookProblem: '\u001b]0;owned\u0007\u202e' })
    await host.run(['runuser', '-u', 'beacon', '--', 'tee', memory], { input })
    const said = (await host.cli('status')).stdout
    return /attention {2}`update.onOutcome`: .*owned/.test(said) && said
  })
  ok(!['\u001b', '\u0007', '\u202e'].some((one) => stdout.includes(one)))
})

test("the operator's program runs as the service's user, with the report on its standard input", async () => {
  const deadline = performance.now() + 60_000
  let told = ''
  while (!told.includes('"outcome":"updated"') && performance.now() < deadline) {
    await sleep(500)
    told = (await host.run(['cat', `${STATE}/told`])).stdout
  }
  match(told, /^beacon\n--to ops\n\{"event":/)
  match(told, /"event":"outcome","report":\{[^\n]*"to":"v1\.0\.1","outcome":"updated"[^\n]*"by":"schedule"/)
})

test('the reports that the program of the page has left are mailed by the units of the page, each once, also if none could be at first', async () => {
  const page = await readFile(join(PROJECT, 'docs/operator/automatic.md'), 'utf8')
  const [path = '', service = ''] = Array.from(page.matchAll(/^```ini\n([^]*?)^```/gm), ([, text = '']) =>
    text
      .replaceAll('/var/lib/shop', STATE)
      .replace('User=shop', 'User=beacon')
      .replace('RestartSec=5min', 'RestartSec=1s'),
  )
  const left = (await host.ok('ls', REPORTS)).split('\n').filter(Boolean)
  ok(left.length > 1)
  // this machine has no mail: what would send it writes it down
  const mail = `#!/bin/sh\ntest ! -e ${STATE}/down || { echo >>${STATE}/refused; exit 1; }\n`
  await put(host, '/usr/local/bin/mail', `${mail}{ echo "$@"; cat; echo; } >>${STATE}/mailed\n`)
  await put(host, `${STATE}/down`, '')
  await host.ok('chmod', '755', '/usr/local/bin/mail')
  await put(host, '/etc/systemd/system/shop-mail.path', path)
  await put(host, '/etc/systemd/system/shop-mail.service', service)
  await host.ok('systemctl', 'enable', '--now', 'shop-mail.path')
  await eventually('a second try', async () => (await host.run(['cat', `${STATE}/refused`])).stdout.length > 1)
  await host.ok('rm', `${STATE}/down`)
  await eventually('all to be mailed', async () => (await host.ok('ls', REPORTS)).trim() === '')
  const mailed = await host.ok('cat', `${STATE}/mailed`)
  is(mailed.match(/^-s shop on \S+ ops@example\.org$/gm)?.length, left.length)
  match(mailed, /"to":"v1\.0\.1","outcome":"updated"/)
  await host.ok('systemctl', 'disable', '--now', 'shop-mail.path')
})

test('what it starts in a session of its own, without an environment, is still the unit’s: a switch ends it, and so does a stop', async () => {
  const hidden = async () => (await host.run(['pgrep', '-f', '^/bin/sleep 4711'])).stdout.split('\n').filter(Boolean)
  const someHidden = async () => {
    const pids = await hidden()
    return pids.length > 0 && pids
  }
  const before = await eventually('one that has left', someHidden, 60_000)
  for (const pid of before) match(await host.ok('cat', `/proc/${pid}/cgroup`), /\/beacon\.service\n$/)
  // the schedule may be rehearsing the next release by then
  const back = await host.cli('rollback', '--lock-timeout', '60s')
  is(back.code, 0, back.stderr)
  const after = await hidden()
  const left = before.filter((pid) => after.includes(pid))
  equal(left, [])
  await eventually('one of the report of the rollback', someHidden, 60_000)
  await host.ok('systemctl', 'stop', 'beacon')
  equal(await hidden(), [])
})

test.run()
