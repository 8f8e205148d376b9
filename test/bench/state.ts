// What it costs to try a release on a copy of the data: how long the application's writer waits meanwhile, beside how long it waits
// without; and how long clients wait for a switch to a release with no way back, beside what its migration and its copy take.

import { mkdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { copyDatabase } from '../../agent/disk/copy-database.ts'
import type { Operation } from '../../agent/words/state.ts'
import { performHere } from '../../deploy/make/rehearse-here.ts'
import { buildHistory, fillHistory, STEPS, tagAt, unpackHistory } from '../lab/history.ts'
import { bootWithFeed, eventsIn, type FeedHost } from '../lab/managed.ts'
import { spawnOpenLoad } from '../lab/open-load.ts'
import { noHosts } from '../lab/systemd.ts'
import { spawnWriter, type Writing } from './state-writer.ts'
import { median } from './statistics.ts'
import { temporary } from '../lab/temporary.ts'

export interface Beside {
  mode: Writing['mode']
  mebibytes: number
  copyMs: number
  rehearsalMs: number
  /** longest waits of the writer, medians over the rounds */
  steadyMs: number
  copyingMs: number
  startingMs: number
  refused: number
}

export interface IrreversibleSwitches {
  rows: number
  switches: number
  requests: number
  lost: number
  closed: number
  longestMs: { median: number; worst: number }
  /** what the rehearsals have measured, medians: the copy, and the start of the new release with its migration */
  copyMs: number
  migrationMs: number
}

export interface StateResult {
  rate: number
  beside: Beside[]
  /** empty where there is no systemd */
  irreversible: IrreversibleSwitches[]
  markdown: string
}

const RATE = 500
const CONNECTIONS = 32
const LAST = STEPS.length
const MEBIBYTE = 1024 ** 2
/** A larger database with a rollback journal is not rehearsed under a writer. */
const ROLLBACK_MEBIBYTES = 16

export async function run({ long, say }: { long: boolean; say: (line: string) => void }): Promise<StateResult> {
  await using made = await temporary('bench-state')
  const folder = made.path
  await mkdir(join(folder, 'feed'))
  await buildHistory(join(folder, 'feed'), [2, 3])
  for (const schema of [2, 3]) await unpackHistory(join(folder, 'feed'), schema, join(folder, tagAt(schema)))
  const beside: Beside[] = []
  for (const [mode, mebibytes] of [
    ['wal', long ? 1024 : 64],
    ['delete', ROLLBACK_MEBIBYTES],
  ] as const) {
    say(`state: a rehearsal of ${mebibytes} MiB beside a writer (${mode})`)
    beside.push(await measureBeside(folder, mode, mebibytes, long ? 5 : 3))
  }
  const irreversible: IrreversibleSwitches[] = []
  if (noHosts !== null) say(`state: no switches: this machine ${noHosts}`)
  else
    for (const rows of long ? [1_000_000, 2_000_000] : [100_000])
      irreversible.push(await measureIrreversible(rows, long ? 10 : 3, say))
  const result = { rate: RATE, beside, irreversible }
  return { ...result, markdown: markdownOf(result) }
}

async function measureBeside(
  folder: string,
  mode: Writing['mode'],
  mebibytes: number,
  rounds: number,
): Promise<Beside> {
  const path = join(folder, `${mode}.db`)
  await fillHistory(path, 2, 1000)
  fillTo(path, mebibytes * MEBIBYTE)
  const [present, candidate] = [2, 3].map((schema) => join(folder, tagAt(schema))) as [string, string]
  const writer = await spawnWriter({ path, mode, rate: RATE })
  await sleep(1000)
  const [copies, whole]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    const state = join(folder, `copy-${mode}-${round}`)
    await mkdir(state)
    const to = join(state, 'beacon.db')
    await writeFile(to, '')
    writer.mark('copying')
    const began = performance.now()
    await copyDatabase(path, to, { executable: present, here: false })
    copies.push(performance.now() - began)
    writer.mark('starting')
    const report = await performHere({ present, candidate, database: 'beacon.db', state, startMs: 120_000 })
    whole.push(performance.now() - began)
    if (report.presentAgain?.failure !== null) throw new Error(`the rehearsal ended with ${JSON.stringify(report)}`)
    writer.mark('steady') // as long as the rehearsal
    await sleep(whole.at(-1) ?? 0)
    writer.mark(null)
    await rm(state, { recursive: true })
  }
  const slices = await writer.stop()
  const longest = (wanted: string) =>
    round(median(slices.filter(({ name }) => name === wanted).map(({ longestMs }) => longestMs)))
  const bytes = (await stat(path)).size
  await rm(path)
  return {
    mode,
    mebibytes: Math.round(bytes / MEBIBYTE),
    copyMs: Math.round(median(copies)),
    rehearsalMs: Math.round(median(whole)),
    steadyMs: longest('steady'),
    copyingMs: longest('copying'),
    startingMs: longest('starting'),
    refused: slices.reduce((sum, { refused }) => sum + refused, 0),
  }
}

function fillTo(path: string, bytes: number): void {
  const database = new DatabaseSync(path)
  const rows = Math.floor(bytes / 8300)
  database.exec(`with recursive n(i) as (select 1 union all select i + 1 from n where i < ${rows})
    insert into logs (level, message, created_at) select 'info', hex(randomblob(4000)), '2026' from n`)
  database.close()
}

async function measureIrreversible(
  rows: number,
  switches: number,
  say: (line: string) => void,
): Promise<IrreversibleSwitches> {
  say(`state: ${switches} switches with no way back, ${rows.toLocaleString('en')} rows`)
  const from = tagAt(LAST - 1)
  await using host = await bootWithFeed(async (out) => await buildHistory(out, [LAST - 1, LAST], 'bundle'))
  await host.install({ probation: '1s', quietTimeout: '500ms', maxPause: '2m', trial: 'always' }, from)
  await host.sql(`with recursive n(i) as (select 1 union all select i + 1 from n where i < ${rows})
    insert into quota (token_id, used, units, created_at) select 'token ' || (i % 100), i, i, '2026-11-21T08:00:00.000Z' from n`)
  const { listen } = JSON.parse(await host.ok('cat', '/etc/beacon/config.json')) as { listen: { port: number } }
  const about = { port: listen.port, path: '/healthz', rate: RATE, connections: CONNECTIONS, hangMs: 120_000 }
  await moved(host, 'upgrade', tagAt(LAST), '--allow-irreversible') // rehearses, and warms up
  await moved(host, 'rollback', '--restore-state')
  const load = await spawnOpenLoad({ ...about, through: await host.network() })
  const [copies, migrations]: [number[], number[]] = [[], []]
  for (let count = 0; count < switches; count++) {
    await sleep(1000)
    await forget(host)
    load.mark('switch')
    const { trial: rehearsal } = await moved(host, 'upgrade', tagAt(LAST), '--allow-irreversible')
    load.mark(null)
    copies.push(rehearsal?.copyMs ?? 0)
    migrations.push(rehearsal?.migrationMs ?? 0)
    await moved(host, 'rollback', '--restore-state')
    await host.ok('sh', '-c', 'rm -rf /var/lib/beacon/update/aside')
  }
  const slices = (await load.stop()).filter(({ name }) => name === 'switch')
  const sum = (of: (slice: (typeof slices)[number]) => number) => slices.reduce((all, slice) => all + of(slice), 0)
  const longest = slices.map(({ longestMs }) => longestMs)
  return {
    rows,
    switches,
    requests: sum(({ requests }) => requests),
    lost: sum(({ lost }) => lost),
    closed: sum(({ closed }) => closed),
    longestMs: { median: round(median(longest)), worst: round(Math.max(...longest)) },
    copyMs: Math.round(median(copies)),
    migrationMs: Math.round(median(migrations)),
  }
}

/** Each switch has a rehearsal of its own, under the same load. */
async function forget(host: FeedHost): Promise<void> {
  const script = `import json; p = '/var/lib/beacon/update/journal.json'; j = json.load(open(p)); j['tried'] = []; json.dump(j, open(p, 'w'))`
  await host.ok('runuser', '-u', 'beacon', '--', 'python3', '-c', script)
}

async function moved(host: FeedHost, ...words: string[]): Promise<Operation> {
  const { code, stdout, stderr } = await host.cli(...words, '-y', '--json', '--health-timeout', '300s')
  if (code !== 0) throw new Error(`${words.join(' ')} ended with ${code}: ${stderr}`)
  return eventsIn(stdout).at(-1)?.['operation'] as Operation
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10
}

function markdownOf({ beside, irreversible }: Omit<StateResult, 'markdown'>): string {
  const waits = beside.map(
    ({ mode, mebibytes, copyMs, rehearsalMs, steadyMs, copyingMs, startingMs, refused }) =>
      `- ${mebibytes} MiB, ${mode === 'wal' ? 'WAL' : 'rollback journal'}: copied in ${seconds(copyMs)}, tried in ${seconds(rehearsalMs)}; a row waits at most ${Math.max(copyingMs, startingMs)} ms (without a trial ${steadyMs}), ${refused} are refused.`,
  )
  const switches = irreversible.map(
    ({ rows, longestMs, copyMs, migrationMs, lost, closed }) =>
      `- ${rows.toLocaleString('en')} rows: ${longestMs.median} ms (worst ${longestMs.worst}), of which the trial has foretold ${copyMs + migrationMs}; ${lost} lost, ${closed} closed.`,
  )
  return [
    `An application writes ${RATE} rows a second while a release is tried on a copy of its database; medians.`,
    waits.join('\n'),
    ...(switches.length === 0
      ? []
      : [
          `The longest wait of an update to an irreversible release, of ${RATE} requests a second; medians of ${irreversible[0]?.switches ?? 0}.`,
          switches.join('\n'),
        ]),
  ].join('\n\n')
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}
