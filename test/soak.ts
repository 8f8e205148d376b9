// `npm run soak -- [--switches 200] [--probation 300] [--json]`: real executables replaced there and back under load, in a
// network namespace of its own where the host allows it, so that the kernel's own counters tell of every lost connection.
// `npm run soak -- --fleet [--hosts 20]`: what may happen to a fleet of real hosts, with real probations.
// `npm run soak -- --faults 100`: either process, and both, are killed, stopped and told to stop, at each step of a handover and
// at so many random instants. `npm run soak -- --clients [--switches 34]`: switches under clients of every kind.
// `npm run soak -- --door`: what a `.socket` unit and the descriptor store do to clients over restarts and crashes.
// `npm run soak -- --attacks`: the attacks on the root boundary, 60 s each.
// `npm run soak -- --container-fleet`: waves over hosts of which some run the container.
// `npm run soak -- --holder`: a container whose sockets another one holds is recreated 20 times in each way, under strict clients.
// `npm run soak -- --days`: ten hosts that go by themselves, three scripted nights, and what their operators read in the morning.
// `npm run soak -- --long`: the tests that do only some of their cases in CI do all of them: each step, each byte.
// `npm run soak -- --busy [--switches 50] [--job 90]`: jobs of so many seconds, while the service is updated by hand and by its policy.
// `npm run soak -- --carry [--switches 20] [--followers 500] [--only switches|idle|kills]`: WebSockets, streams and idle connections.
// `npm run soak -- --one [--switches 20] [--reverts 8] [--kills 15] [--supervised]`: stop-first switches, of an application that notices a second
// process: forth and back, releases that go wrong, processes that are killed, stopped and told to stop at random instants.
// `npm run soak -- --one --clients [--switches 34]`: stop-first switches under clients of every kind.
// `npm run soak -- --one --thinkers [--switches 20] [--followers 500]`: stop-first switches of an application of 300 MB, under keep-alive
// clients that think about as long as the server keeps their connections.
// `--docs` with --faults and --clients: the figures go into docs/about/faults.md; with --door into decision 0023, with --attacks into
// SECURITY.md.
// Exit code 1 where a promise was broken.

import { spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { writeSection } from './soak/docs.ts'
import { faultsOf } from './soak/judge.ts'
import { soak } from './soak/start.ts'

const { values } = parseArgs({
  options: {
    switches: { type: 'string' },
    probation: { type: 'string', default: '300' },
    fleet: { type: 'boolean', default: false },
    hosts: { type: 'string', default: '20' },
    attacks: { type: 'boolean', default: false },
    busy: { type: 'boolean', default: false },
    job: { type: 'string', default: '90' },
    carry: { type: 'boolean', default: false },
    followers: { type: 'string', default: '500' },
    only: { type: 'string', default: '' },
    faults: { type: 'string' },
    ground: { type: 'string', default: 'alone,supervised,systemd' },
    clients: { type: 'boolean', default: false },
    days: { type: 'boolean', default: false },
    long: { type: 'boolean', default: false },
    thinkers: { type: 'boolean', default: false },
    one: { type: 'boolean', default: false },
    reverts: { type: 'string', default: '8' },
    kills: { type: 'string', default: '15' },
    supervised: { type: 'boolean', default: false },
    door: { type: 'boolean', default: false },
    'container-fleet': { type: 'boolean', default: false },
    holder: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    docs: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
  },
})
const usual = values.clients ? '34' : values.busy ? '50' : values.carry || values.one ? '20' : '200'
const switches = wholeNumber('--switches', values.switches ?? usual, values.one ? 0 : 1, 100_000)
const probationMs = wholeNumber('--probation', values.probation, 0, 60_000)
if (values.help) {
  process.stdout.write(
    `usage: npm run soak -- [--switches 200] [--probation 300] [--json] | --fleet [--hosts 20] | --faults 100 [--ground alone,supervised,systemd] [--docs] | --clients [--switches 34] [--docs] | --door [--docs] | --attacks [--docs] | --busy [--switches 50] [--job 90] | --carry [--switches 20] [--followers 500] [--only switches|idle|kills] | --one [--switches 20] [--reverts 8] [--kills 15] [--supervised] [--json] | --one --clients [--switches 34] | --one --thinkers [--switches 20] [--followers 500] | --days | --long | --container-fleet | --holder   (${fileURLToPath(import.meta.url)})\n`,
  )
  process.exit(0)
}

if (values.fleet) {
  const { soakFleet } = await import('./soak/fleet.ts')
  const say = (line: string) => void process.stdout.write(`${line}\n`)
  process.exit(await soakFleet(wholeNumber('--hosts', values.hosts, 14, 40), say))
}

if (values.busy) {
  const { soakBusy } = await import('./soak/busy.ts')
  const jobMs = wholeNumber('--job', values.job, 1, 500) * 1000
  process.exit(await soakBusy({ switches, jobMs, say: (line) => void process.stdout.write(`${line}\n`) }))
}

if (values.carry) {
  const { soakCarry } = await import('./soak/carry.ts')
  const clients = wholeNumber('--followers', values.followers, 1, 2000)
  process.exit(await soakCarry({ clients, times: switches, json: values.json, only: values.only }))
}

if (values.one && values.thinkers) {
  const { soakThinkers } = await import('./soak/one/thinkers.ts')
  const clients = wholeNumber('--followers', values.followers, 1, 2000)
  process.exit(await soakThinkers({ switches, clients, say: (line) => void process.stdout.write(`${line}\n`) }))
}

if (values.one && !values.clients) {
  const { soakOne } = await import('./soak/one.ts')
  const reverts = wholeNumber('--reverts', values.reverts, 0, 100_000)
  const kills = wholeNumber('--kills', values.kills, 0, 100_000)
  const { supervised: isSupervised, json } = values
  process.exit(await soakOne({ switches, reverts, kills, isSupervised, json }))
}

if (values.faults !== undefined) {
  const { soakFaults } = await import('./soak/faults/soak.ts')
  const count = wholeNumber('--faults', values.faults, 1, 1000)
  process.exit(await soakFaults(count, values.ground.split(','), { isJson: values.json, isWritten: values.docs }))
}

if (values.door) {
  const { soakDoor } = await import('./soak/door.ts')
  const table = await soakDoor()
  process.stdout.write(`${table}\n`)
  if (values.docs) await writeSection('door', table, 'docs/decisions/0023-somebody-holds-the-door.md')
  process.exit(0)
}

if (values.clients) {
  const { brokenIn, LONG, LONG_ALONE, markdownOf, soakClients } = await import('./soak/clients.ts')
  const report = await soakClients({ ...(values.one ? LONG_ALONE : LONG), switches }, !values.json)
  const broken = brokenIn(report)
  if (values.docs && !values.one)
    await writeSection('clients', `${markdownOf(report)}\n\nbroken promises: ${broken.length}`)
  process.stdout.write(
    values.json
      ? `${JSON.stringify({ ...report, broken })}\n`
      : `${markdownOf(report)}\n\nbroken promises: ${broken.length}\n${broken.join('\n')}\n`,
  )
  process.exit(broken.length === 0 ? 0 : 1)
}

if (values.long) {
  const { longFiles, runLong } = await import('./soak/long.ts')
  // `--days` and `--holder` have theirs
  const files = (await longFiles()).filter((path) => !/systemd-days|container-hold/.test(path))
  process.exit(await runLong(...files))
}

if (values.days) {
  const { runLong } = await import('./soak/long.ts')
  process.exit(await runLong('systemd-days'))
}

if (values.holder) {
  const { runLong } = await import('./soak/long.ts')
  process.exit(await runLong('container-hold'))
}

if (values.attacks) {
  const folder = await mkdtemp(join(tmpdir(), 'baton-attacks-'))
  const report = join(folder, 'report.md')
  const { status } = spawnSync('tsx', [join(import.meta.dirname, 'soak/attacks.ts')], {
    stdio: 'inherit',
    env: { BATON_ATTACK_MS: '60000', ...process.env, BATON_TEST_LONG: '1', BATON_ATTACK_REPORT: report },
  })
  if (status === 0 && values.docs) await writeSection('attacks', await readFile(report, 'utf8'), 'SECURITY.md')
  await rm(folder, { recursive: true })
  process.exit(status ?? 1)
}

if (values['container-fleet']) {
  const { status } = spawnSync('tsx', [join(import.meta.dirname, 'soak/container-fleet.ts')], { stdio: 'inherit' })
  process.exit(status ?? 1)
}

const report = await soak({ subject: 'baton', switches, probationMs, echo: !values.json })
const faults = faultsOf(report)
if (values.json) {
  process.stdout.write(`${JSON.stringify({ ...report, faults })}\n`)
} else {
  const sorted = report.switchMs.toSorted((a, b) => a - b)
  const rows: [string, string | number][] = [
    ['switches', report.switches],
    ['requests', report.requests],
    ['lost', report.lost],
    ['connections closed by the server', report.closed],
    ['rows found of rows acknowledged', `${report.rowsFound} of ${report.rowsAcknowledged}`],
    ['file descriptors after the first switch, at the end', `${report.fdsAfterFirst}, ${report.fdsAtEnd}`],
    ['switch, median and longest', `${sorted[Math.floor(sorted.length / 2)]} ms, ${sorted.at(-1)} ms`],
    ['kernel', report.kernel === null ? 'not isolated: no network namespace here' : JSON.stringify(report.kernel)],
  ]
  for (const [what, value] of rows) process.stdout.write(`${what.padEnd(52)} ${value}\n`)
  for (const fault of faults) process.stdout.write(`broken: ${fault}\n`)
}
process.exitCode = faults.length === 0 ? 0 : 1

function wholeNumber(flag: string, text: string, lowest: number, highest: number): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= lowest && value <= highest) return value
  process.stderr.write(`error: ${flag}: expected a whole number from ${lowest} to ${highest}, got \`${text}\`\n`)
  process.exit(2)
}
