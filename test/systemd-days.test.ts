// @long
// Three nights of hosts that go by themselves, scripted, and what each operator reads in the morning: the end of the status and the reports,
// line by line, and in the panel what asks a person and what was done. A release in steps, one that breaks, one whose migration cannot be undone; a host that is off, one whose disk
// is full, one whose disk was cloned. Ten hosts; `npm run soak -- --days` runs it alone. In CI, systemd-by-itself.test.ts has one host.

import { rankOf } from '../agent/update/schedule/rank.ts'
import type { PolicyFile } from '../agent/words/schedule.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { fillUp } from './fleet/scenarios.ts'
import { bootDays, BY_CLOCK, CLONED_FROM, type Days, LEDGER, memoryOf, rule, statusOf, toldOf } from './lab/days.ts'
import { SERVICE } from './lab/managed.ts'
import type { RoomHost } from './lab/network.ts'
import { noHosts } from './lab/systemd.ts'
import { type Browser, launchIn, NO_BROWSER, openPage, signIn } from './panel/browser.ts'
import { suite } from './suite.ts'

const test = suite('systemd: days', { skip: noHosts ?? NO_BROWSER, timeoutMs: 375_000 })
const [HOUR, MONDAY] = [3_600_000, Date.parse('2027-03-01T00:00:00Z')]
/** a moment of the scripted days */
const at = (day: number, hour: number) => MONDAY + (24 * day + hour) * HOUR
const RULES: PolicyFile = { mode: 'minor', hours: '02:00-05:00', zone: 'UTC' }
const POLICY = 'minor, every day 02:00-05:00 UTC'

const MIGRATION = `
  const columns = database.prepare("SELECT name FROM pragma_table_info('notes')").all().map(({ name }) => name)
  if (about.tag !== 'v2.0.0' && !columns.includes('colour')) database.exec('ALTER TABLE notes ADD COLUMN colour TEXT')
  if (about.tag === 'v1.2.0' && !about.isTrial) setTimeout(() => process.exit(3), 300)
  if (about.tag === 'v2.0.0') database.exec('DELETE FROM notes')
`

let days: Days
let browser: Browser | null = null
/** by their rank for v1.1.0, which the test reads from each host; the clone is one of them */
let ranked: RoomHost[]
/** how many of them may go in the first night: all before the first step that tells two neighbours apart */
let early = 0
/** hosts on which v1.2.0 has run */
const broken = new Set<RoomHost>()

test.before(async () => {
  const tags = ['v1.0.0', 'v1.1.0', 'v1.2.0', 'v2.0.0']
  days = await bootDays(10, { tags, migration: MIGRATION, rules: RULES, start: at(0, 8) })
  browser = await launchIn(days.room.prefix, days.room.folder)
  const notes = "INSERT INTO authors VALUES (1, 'ada'); INSERT INTO notes(author, text) VALUES (1, 'kept')"
  for (const host of days.hosts) await host.ok('runuser', '-u', SERVICE, '--', 'sqlite3', LEDGER, notes)
})
test.after(async () => {
  await browser?.close()
  await days[Symbol.asyncDispose]()
})

test('a cloned disk: the clone has the machine id and the state of the first host, and gets an id and a rank of its own', async () => {
  const [first, clone] = [days.hosts[0], days.hosts.at(-1)]
  ok(first !== undefined && clone !== undefined)
  is(await clone.ok('cat', '/etc/machine-id'), await first.ok('cat', '/etc/machine-id'))
  const before = await memoryOf(first)
  is(await clone.ok('cat', CLONED_FROM), before.id)
  await days.look(at(0, 18), [clone])
  const after = await memoryOf(clone)
  is((await memoryOf(first)).id, before.id)
  not.equal(after.id, before.id)
  not.equal(rankOf(after.id, 'v1.1.0'), rankOf(before.id, 'v1.1.0'))
  for (const host of days.hosts) await reads(host, [idle], [])
})

test('the first night: who is in the first step goes; a later one, one that is off and one whose disk is full say so, or nothing', async () => {
  const ranks = new Map<RoomHost, number>()
  for (const host of days.hosts) ranks.set(host, rankOf((await memoryOf(host)).id, 'v1.1.0') * 100)
  ranked = days.hosts.toSorted((a, b) => (ranks.get(a) ?? 0) - (ranks.get(b) ?? 0))
  const [percent, count] = stepIn(ranked.map((host) => ranks.get(host) ?? 0))
  early = count
  const [full] = ranked
  const off = ranked[1]
  const others = ranked.filter((host) => host !== full && host !== off)
  ok(full !== undefined)
  await days.publish(at(0, 19), 'v1.1.0', '--percent', `${percent},100`, '--every', '24h')
  const empty = await fillUp(full)
  await off?.cut()
  await days.look(at(1, 3), [full, ...others])
  await days.look(at(1, 11), [full, ...others])
  const saidByFull = await saidBy(full)
  await empty()
  await off?.power()
  for (const host of others) {
    if (isEarly(host)) await reads(host, [went('v1.0.0', 'v1.1.0'), idle], ['updated v1.1.0'])
    else await reads(host, [turn('v1.1.0')], [])
  }
  const room =
    'v1.1.0 is waiting for you: only N MiB free in `/opt/beacon`, N MiB needed for the executable, a snapshot of the database and update records'
  equal(saidByFull, [`automatic  ${POLICY}; next check TIME`, `attention  ${room}`])
  equal(await reportsOf(full), ['waits'])
})

test('the second night: a release that breaks is put back on the hosts of its first step; the others never had it', async () => {
  const ranks = new Map<RoomHost, number>()
  for (const host of days.hosts) ranks.set(host, rankOf((await memoryOf(host)).id, 'v1.2.0') * 100)
  const order = days.hosts.toSorted((a, b) => (ranks.get(a) ?? 0) - (ranks.get(b) ?? 0))
  const [percent, count] = stepIn(order.map((host) => ranks.get(host) ?? 0))
  for (const host of order.slice(0, count)) broken.add(host)
  await days.publish(at(1, 15), 'v1.2.0', '--percent', `${percent},100`, '--every', '24h')
  await days.look(at(2, 3))
  await days.look(at(2, 11))
  for (const host of days.hosts) {
    is((await statusOf(host)).instance.version, afterTwo(host))
    const now = !broken.has(host) ? turn('v1.2.0') : hadFirst(host) ? idle : after('v1.1.0')
    const asks = broken.has(host) ? [`attention  v1.2.0 is waiting for you: it failed here: ${BROKE}`] : []
    await reads(host, [...nightsOf(host), now, ...asks], reportsAfterTwo(host))
  }
})

test('the last night: the older one goes, past one that was yanked; one whose migration cannot be undone asks, and changes nothing', async () => {
  await days.trust(at(2, 12), 'yank', 'v1.2.0', '--why', 'dies', '--dir', days.feed)
  await days.publish(at(2, 13), 'v2.0.0')
  const brave = ranked.at(-1)
  ok(brave !== undefined)
  await rule(brave, { ...RULES, mode: 'all' })
  await days.look(at(3, 4))
  await days.look(at(3, 12)) // a host asks again after at most seven and a half hours
  const further = `attention  v2.0.0 is waiting for you: the policy allows updates only up to minor releases; \`${SERVICE} upgrade v2.0.0\` installs it`
  for (const host of days.hosts.filter((one) => one !== brave)) {
    is((await statusOf(host)).instance.version, 'v1.1.0')
    const goes = afterTwo(host) === 'v1.1.0' ? [] : [went('v1.0.0', 'v1.1.0')]
    const told = ['waits', ...(goes.length === 0 ? [] : ['updated v1.1.0'])]
    await reads(host, [...nightsOf(host), ...goes, idle, further], [...reportsAfterTwo(host), ...told])
  }
  const why = 'would change the data irreversibly: 2 rows of notes would be lost; nothing has changed'
  const lines = [
    `automatic  ${afterTwo(brave)} to v2.0.0: failed at TIME (v2.0.0 ${why})`,
    hadSecond(brave)
      ? idle.replace('minor', 'all')
      : `automatic  ${POLICY.replace('minor', 'all')}; v1.1.0 will be installed automatically; next check TIME`,
    `attention  v2.0.0 is waiting for you: it ${why}; \`${SERVICE} upgrade v2.0.0 --allow-irreversible\` installs it`,
  ]
  await reads(brave, [...nightsOf(brave), ...lines], [...reportsAfterTwo(brave), 'failed v2.0.0'])
  const asked = await brave.run([SERVICE, 'upgrade'], { env: BY_CLOCK })
  is(asked.code, 7)
  match(asked.stderr, `error: v2.0.0 ${why}\nhint: to allow it, use \`upgrade --allow-irreversible\``)
  is((await statusOf(brave)).instance.version, afterTwo(brave))
  is(await brave.ok('runuser', '-u', SERVICE, '--', 'sqlite3', LEDGER, 'SELECT text FROM notes'), 'kept\n')
  const gone = await brave.run([SERVICE, 'upgrade', '--allow-irreversible'], { env: BY_CLOCK })
  is(gone.code, 0, gone.stderr)
  is((await statusOf(brave)).instance.version, 'v2.0.0')
})

test.run()

const isEarly = (host: RoomHost) => ranked.indexOf(host) < early
/** a full disk was in the way of the first one, and a power cut in that of the second */
const hadFirst = (host: RoomHost) => isEarly(host) && ranked.indexOf(host) > 1
/** whose turn for v1.2.0 had not come in the second night, and that for v1.1.0 had */
const hadSecond = (host: RoomHost) => !hadFirst(host) && !broken.has(host)
const afterTwo = (host: RoomHost) => (hadFirst(host) || hadSecond(host) ? 'v1.1.0' : 'v1.0.0')
/** what ran when v1.2.0 came */
const before = (host: RoomHost) => (hadFirst(host) ? 'v1.1.0' : 'v1.0.0')
const BROKE = 'v1.2.0 failed during probation: it exited with code 3'
const idle = `automatic  ${POLICY}; there is no newer release; next check TIME`
const went = (from: string, to: string) => `automatic  ${from} to ${to}: updated at TIME; requests waited N ms`
const after = (tag: string) =>
  `automatic  ${POLICY}; ${tag} will be installed automatically: the last attempt failed; next check TIME`
const turn = (tag: string) =>
  `automatic  ${POLICY}; ${tag} will be installed automatically: ${tag} is being rolled out in steps, and it is not this host's turn yet; next check TIME`

/** What the first two nights have left in the status. */
function nightsOf(host: RoomHost): string[] {
  return [
    ...(hadFirst(host) || hadSecond(host) ? [went('v1.0.0', 'v1.1.0')] : []),
    ...(broken.has(host) ? [`automatic  ${before(host)} to v1.2.0: reverted at TIME (${BROKE})`] : []),
  ]
}

function reportsAfterTwo(host: RoomHost): string[] {
  return [
    ...(ranked[0] === host ? ['waits'] : []),
    ...(hadFirst(host) || hadSecond(host) ? ['updated v1.1.0'] : []),
    ...(broken.has(host) ? ['reverted v1.2.0'] : []),
  ]
}

/** A percentage that lets more than half of them go, and not all: neighbours may be too near to be told apart. `ranks`: in order. */
function stepIn(ranks: readonly number[]): [percent: number, count: number] {
  const wanted = Math.ceil(ranks.length / 2) + 1
  const counts = ranks.map((_, count) => count).toSorted((a, b) => Math.abs(a - wanted) - Math.abs(b - wanted))
  for (const count of counts) {
    const percent = Math.floor(ranks[count - 1] ?? -1) + 1
    if (count > 0 && percent <= (ranks[count] ?? 0)) return [percent, count]
  }
  throw new Error(`these ranks cannot be told apart: ${ranks.join()}`)
}

/** Holds the end of the status, the panel and the reports of a host to what they should say. */
async function reads(host: RoomHost, lines: readonly string[], reports: readonly string[]): Promise<void> {
  equal(await saidBy(host), lines, host.name)
  equal(await reportsOf(host), reports, host.name)
  await panelSays(host, lines)
}

async function saidBy(host: RoomHost): Promise<string[]> {
  const { stdout } = await host.run([SERVICE, 'status'], { env: BY_CLOCK })
  const lines = stdout.split('\n').filter((line) => /^(automatic|attention) /.test(line))
  return lines.map(withoutFigures)
}

async function reportsOf(host: RoomHost): Promise<string[]> {
  const told = await toldOf(host)
  return told.map(({ event, report }) => (report === undefined ? event : `${report.outcome} ${report.to}`))
}

/** The panel asks a person in the same words, says in its own whether it is installed automatically, and has in its history as much as it did. */
async function panelSays(host: RoomHost, lines: readonly string[]): Promise<void> {
  const config = JSON.parse(await host.ok('cat', `/etc/${SERVICE}/config.json`)) as { dashboard: { password: string } }
  if (browser === null) throw new Error('there is no browser')
  await using watched = await openPage(browser)
  const { page } = watched
  await signIn(page, `http://${host.address}:8080`, config.dashboard.password)
  const waits = await page.locator('#aloneWaits li').allTextContents()
  const asks = lines
    .filter((line) => line.startsWith('attention'))
    .map((line) => line.replace(/; `[^`]*` installs it$/, '')) // the panel has a button instead
    .filter((line) => !line.endsWith(' is available'))
  const plain = (line: string) => withoutFigures(line).replaceAll('`', '')
  equal(
    waits.map(plain),
    asks.map((line) => plain(line.replace(/^attention +/, ''))),
    host.name,
  )
  const text = (await page.locator('#aloneText').textContent()) ?? ''
  const isOn = /^(patch|minor|all)\b/.test(lines.findLast((line) => line.startsWith('automatic'))?.slice(11) ?? '')
  is(text.startsWith('Installed automatically: '), isOn, `${host.name}: ${text}`)
  const deeds = lines.filter((line) => / at TIME/.test(line))
  const history = (await page.locator('#history').textContent()) ?? ''
  is(history.split('automatic').length - 1, deeds.length, `${host.name}: ${history}`)
}

/** Nor what the release wrote last, which may be nothing. */
function withoutFigures(line: string): string {
  return line
    .replaceAll(/20\d\d-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replaceAll(/ after printing: .*?\(can update itself\)/g, '')
    .replaceAll(/\b\d+(\.\d+)?(?= m?s\b| MiB)/g, 'N')
}
