// `npm run demo`: shows updates under load. It makes three real releases (the third breaks on purpose), a server that speaks
// GitHub's API, a managed install by the release's own install.sh in a temporary home, and two kinds of load that never retry.
// Then it does: check, update, rollback, update, and an update that reverts by itself. `-- --json --once` does the same without
// drawing. Must hold: however it ends, Ctrl-C included, no process and no file of it is left.

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { NO_HANDOVER, type Operation, type Status, type VersionReport } from '../../agent/words.ts'
import { processesBelow } from '../fixtures/evidence.ts'
import { ask, freePort } from '../fixtures/install.ts'
import { publishTo, releases, type TestRelease } from '../fixtures/releases.ts'
import { type Followed, type Followers, type FollowersReport, startFollowers } from '../lab/followers.ts'
import { type Load, spawnLoad, type Totals } from '../lab/load.ts'
import { releaseServer } from '../lab/release-server.ts'
import { descriptorsOf } from '../soak/subject.ts'
import { createProgress, formatBytes } from '../../deploy/lib/progress.ts'

/** The last line of `--json`. */
interface Summary {
  requests: number
  /** requests that were never answered, including those of the broken release */
  lost: number
  /** of these, lost during the update to the broken release: it was answering them when it died */
  lostWithTheBroken: number
  /** connections that the server ended while their client wanted to keep them */
  closed: number
  switches: number
  reverts: number
  rowsAcknowledged: number
  rowsFound: number
  fdsBefore: number
  fdsAfter: number
  switchMs: number[]
  /** connections that were carried, over the healthy switches */
  websockets: Followed
  streams: Followed
  /** carried connections that were with the broken release when it died */
  closedWithTheBroken: number
}

const SERVICE = 'beacon'
const PROBATION_MS = 4000
const DOWNLOAD_BYTES_PER_SECOND = 16 * 1024 * 1024
const OPERATION_MS = 600_000
/** of the service under the load of the demo, on a machine that is busy with something else too */
const ANSWER_MS = 60_000
/** how many WebSockets, and how many streams, follow the log; how often each WebSocket writes to it */
const [FOLLOWERS, MESSAGE_EVERY_MS] = [32, 500]

const STORY = [
  { title: 'update to v1.1.0', path: '/admin/update', body: { tag: 'v1.1.0' }, outcome: 'updated' },
  { title: 'rollback', path: '/admin/update/rollback', body: undefined, outcome: 'rolled_back' },
  { title: 'update to v1.1.0 again', path: '/admin/update', body: { tag: 'v1.1.0' }, outcome: 'updated' },
  {
    title: 'update to v1.2.0, which starts and then dies',
    path: '/admin/update',
    body: { tag: 'v1.2.0' },
    outcome: 'reverted',
  },
] as const

const lostIn = new Map<string, number>()

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    once: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h' },
  },
})
if (values.help === true) {
  process.stdout.write(
    'usage: npm run demo [-- --json] [--once]\n  --once  ends by itself instead of leaving the service up until Ctrl-C\n  --json  draws nothing and prints one JSON object last\n',
  )
  process.exit(0)
}

const progress = createProgress({ quiet: values.json })
const say = (line = '') => void (values.json || process.stderr.write(`${line}\n`))
const home = mkdtempSync(join(tmpdir(), 'baton-demo-'))
const loads: Load[] = []

// however it ends
process.once('exit', () => {
  for (const pid of processesBelow(home)) kill(pid)
  rmSync(home, { recursive: true, force: true })
})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => {
    process.stderr.write('\n')
    process.exit(signal === 'SIGINT' ? 130 : 143)
  })
}

try {
  await main()
} catch (error) {
  progress.end('failed')
  process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 1
}
process.exit()

async function main(): Promise<void> {
  say('A service replaces its own executable while it serves, and nobody notices\n')

  progress.stage('build', 'v1.0.0, v1.1.0 and v1.2.0, which breaks on purpose')
  const built = await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }, { tag: 'v1.2.0', fault: 'dies-after-1s' }])
  const [first] = built
  if (first === undefined) throw new Error('nothing was built')
  const dist = join(home, 'dist')
  await publishTo(dist, built)
  progress.end('done', `v1.0.0, v1.1.0, and v1.2.0, which breaks on purpose: ${formatBytes(first.sizeBytes)} each`)

  await using server = await releaseServer({ dir: dist, bytesPerSecond: DOWNLOAD_BYTES_PER_SECOND })
  progress.stage('serve')
  progress.end('done', `GitHub's API for releases at ${server.apiUrl}`)

  progress.stage('install')
  const port = await freePort()
  const service = await installed(first, { dist, feed: server.feed }, port)
  progress.end('done', `v1.0.0, managed, by its install.sh; ${service.url} serves`)

  const fdsBefore = await descriptors(service)
  const followers = await putLoadOn(port)

  const report = (await service.call('POST', '/admin/update/check')).body as VersionReport
  say(
    `\ncheck: running ${report.running}, installed ${report.installed ?? 'nothing'}, latest ${report.latest ?? 'unknown'}`,
  )

  const operations: Operation[] = []
  let healthy = followers.report()
  for (const { title, path, body, outcome } of STORY) {
    say(`\n${title}`)
    const lostBefore = await lostSoFar()
    if (outcome === 'reverted') healthy = await settled(followers)
    const operation = await watched(service, path, body)
    operations.push(operation)
    if (operation.outcome !== outcome) {
      const got = `${operation.outcome ?? 'none'}: ${operation.error?.message ?? ''}`
      throw new Error(`expected the outcome ${outcome}, got ${got}`)
    }
    lostIn.set(outcome, (lostIn.get(outcome) ?? 0) + (await lostSoFar()) - lostBefore)
  }
  const totals = await Promise.all(loads.map((load) => load.stop()))
  const left = followers.report()
  await followers.stop()
  const closed = (report: FollowersReport) => report.websockets.closed + report.streams.closed
  const followed = { ...healthy, closedWithTheBroken: closed(left) - closed(healthy) }
  const summary = { ...(await summarise(totals, operations, service, fdsBefore)), ...followed }
  if (values.json) process.stdout.write(`${JSON.stringify(summary)}\n`)
  else draw(summary)
  if (!values.once) {
    say(
      `\nThe service is up: ${service.url}/web/settings.html\nIts password:      ${service.token}\nCtrl-C ends it and removes everything.`,
    )
    await new Promise(() => setInterval(() => {}, 1 << 30))
  }
  progress.stage('stop')
  await run(service.command, ['stop', '--user'], service.environment)
  progress.end('done')
}

/** Starts loads of every kind, which count each request. Resolves to the clients that follow the log. */
async function putLoadOn(port: number): Promise<Followers> {
  progress.stage('load')
  const write = {
    every: 25,
    method: 'POST',
    path: '/api/logs',
    body: '{"message":"{id}"}',
    headers: { 'content-type': 'application/json' },
  }
  const common = { host: '127.0.0.1', port, path: '/version', keepAcknowledgedIds: true, write }
  loads.push(await spawnLoad({ ...common, mode: 'fresh', clients: 16, thinkMs: [10, 50] }))
  loads.push(await spawnLoad({ ...common, mode: 'keepalive', clients: 64, thinkMs: [10, 100] }))
  const followers = await startFollowers({
    port,
    websockets: FOLLOWERS,
    streams: FOLLOWERS,
    everyMs: MESSAGE_EVERY_MS,
  })
  progress.end(
    'done',
    `16 clients open a connection a request, 64 keep theirs; ${FOLLOWERS} WebSockets and ${FOLLOWERS} streams follow the log; none of them retries`,
  )
  return followers
}

interface Service {
  url: string
  port: number
  token: string
  database: string
  /** the link in the temporary home's .local/bin */
  command: string
  environment: Record<string, string>
  call(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }>
}

/**
 * A managed install of `release` for this user, in the temporary home, by the release's own install.sh: out of the folder `dist`, for which
 * this machine needs neither curl nor wget. Its updates come from `feed`.
 */
async function installed(
  release: TestRelease,
  { dist, feed }: { dist: string; feed: string },
  port: number,
): Promise<Service> {
  const environment = { HOME: home, PATH: process.env['PATH'] ?? '/usr/bin:/bin', TMPDIR: tmpdir() }
  const options = ['--user', '--no-service', '--no-start', '--feed', dist, '--listen', `127.0.0.1:${port}`, '-y', '-q']
  await run('sh', [join(release.directory, 'install.sh'), 'install', '--release', release.tag, ...options], environment)
  const configPath = join(home, '.config', SERVICE, 'config.json')
  const config = JSON.parse(await readFile(configPath, 'utf8')) as {
    dashboard: { password: string }
    stateDirectory: string
  }
  // a demo takes about a minute, so its probation is short too
  await writeFile(
    configPath,
    JSON.stringify({ ...config, feed, update: { probation: `${PROBATION_MS}ms`, drainTimeout: '5s' } }, null, 2),
  )
  const command = join(home, '.local', 'bin', SERVICE)
  await run(command, ['start', '--user', '-q'], environment)
  const token = config.dashboard.password
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    token,
    database: join(config.stateDirectory, `${SERVICE}.db`),
    command,
    environment,
    call: (method, path, body) => ask(port, method, path, token, body, ANSWER_MS),
  }
}

/** Starts an operation through its endpoint and draws it, until it has ended. */
async function watched(service: Service, path: string, body: unknown): Promise<Operation> {
  const started = await service.call('POST', path, body)
  if (started.status !== 202)
    throw new Error(`${path}: expected 202, got ${started.status}: ${JSON.stringify(started.body)}`)
  const { id } = started.body as Operation
  const deadline = performance.now() + OPERATION_MS
  let stage = ''
  while (performance.now() < deadline) {
    const answer = await service.call('GET', '/admin/update/status').catch(() => null)
    if (answer === null) {
      await sleep(40) // this request met the release that was dying
      continue
    }
    const { operation, instance } = answer.body as Status
    if (operation === null || operation.id !== id) throw new Error('the status tells of another operation')
    const { bytes, totalBytes } = operation.progress ?? { bytes: 0, totalBytes: 0 }
    if (stage === 'download' && totalBytes > 0) progress.bytes(bytes, totalBytes)
    if (operation.stage !== stage) {
      stage = operation.stage
      progress.stage(
        stage === 'restart' ? 'switch' : stage,
        stage === 'restart' ? `handing over to ${operation.to ?? ''}` : '',
      )
    }
    if (operation.outcome === null) {
      await sleep(40)
      continue
    }
    const { moved, carried, cut, switchMs } = operation.handover ?? NO_HANDOVER
    if (operation.outcome === 'reverted') {
      progress.end('failed', operation.error?.message ?? '')
      say(`  ${instance.version} serves again, by itself; v1.2.0 is remembered as bad`)
    } else {
      progress.end(
        'done',
        `${operation.from} -> ${operation.to ?? ''}: accepting after ${switchMs} ms, ${moved} connections moved to it (${carried} in use), ${cut} cut off`,
      )
    }
    return operation
  }
  throw new Error(`the operation did not end within ${OPERATION_MS} ms`)
}

async function summarise(
  totals: Totals[],
  operations: Operation[],
  service: Service,
  fdsBefore: number,
): Promise<Omit<Summary, keyof FollowersReport | 'closedWithTheBroken'>> {
  const database = new DatabaseSync(service.database, { readOnly: true })
  const rows = new Set(
    database
      .prepare('SELECT message FROM logs')
      .all()
      .map((row) => String(row['message'])),
  )
  database.close()
  const acknowledged = totals.flatMap((total) => total.writes.ids)
  const sum = (of: (total: Totals) => number) => totals.reduce((all, total) => all + of(total), 0)
  return {
    requests: sum((total) => total.requests),
    lost: sum((total) => total.lost),
    lostWithTheBroken: lostIn.get('reverted') ?? 0,
    closed: sum((total) => total.closed),
    switches: operations.filter(({ outcome }) => outcome === 'updated' || outcome === 'rolled_back').length,
    reverts: operations.filter(({ outcome }) => outcome === 'reverted').length,
    rowsAcknowledged: acknowledged.length,
    rowsFound: acknowledged.filter((id) => rows.has(id)).length,
    fdsBefore,
    fdsAfter: await descriptors(service, fdsBefore),
    switchMs: operations.filter(({ outcome }) => outcome !== 'reverted').map(({ handover }) => handover?.switchMs ?? 0),
  }
}

function draw(summary: Summary): void {
  const lines: [string, string | number][] = [
    ['requests', summary.requests],
    [
      'lost',
      summary.lost === 0 ? 0 : `${summary.lost}, ${summary.lostWithTheBroken} of them when v1.2.0 died answering them`,
    ],
    ['connections closed by the server', summary.closed],
    ...(['websockets', 'streams'] as const).map((kind): [string, string] => {
      const { clients, messages, lost, doubled, reordered, closed } = summary[kind]
      const name = kind === 'websockets' ? 'WebSockets' : 'streams'
      return [
        `${clients} ${name}: messages`,
        `${messages}, lost ${lost}, doubled ${doubled}, late ${reordered}, closed ${closed}`,
      ]
    }),
    ['  and closed when v1.2.0 died', summary.closedWithTheBroken],
    ['switches, reverts', `${summary.switches}, ${summary.reverts}`],
    ['until the successor accepts', summary.switchMs.map((ms) => `${ms} ms`).join(', ')],
    [`rows in ${SERVICE}.db, of those acknowledged`, `${summary.rowsFound} of ${summary.rowsAcknowledged}`],
    ['file descriptors, before and after', `${summary.fdsBefore}, ${summary.fdsAfter}`],
  ]
  say()
  for (const [what, value] of lines) say(`  ${what.padEnd(42)} ${value}`)
}

/** The followers' report, once everything sent so far has come back to all of them, or after 5 s. */
async function settled(followers: Followers): Promise<FollowersReport> {
  const deadline = performance.now() + 5000
  for (;;) {
    const report = followers.report()
    if ((report.websockets.lost === 0 && report.streams.lost === 0) || performance.now() > deadline) return report
    await sleep(20)
  }
}

/** Lost requests, exact at this moment: what the loads push by themselves is up to 100 ms old. */
async function lostSoFar(): Promise<number> {
  await Promise.all(loads.map((load) => load.mark(null)))
  return loads.reduce((all, load) => all + load.snapshot().lost, 0)
}

/**
 * The fewest descriptors that the serving process has over a while, without its connections. Some above `expected` may still be
 * closing; a leaked one stays.
 */
async function descriptors(service: Service, expected = 0): Promise<number> {
  const { instance } = (await service.call('GET', '/admin/update/status')).body as Status
  let fewest = Infinity
  for (let look = 0; look < 50 || (expected > 0 && fewest > expected && look < 500); look++) {
    fewest = Math.min(fewest, descriptorsOf(instance.pid, service.port))
    await sleep(10)
  }
  return fewest
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    return // gone already
  }
}

async function run(file: string, args: string[], env: Record<string, string>): Promise<void> {
  const child: ChildProcess = spawn(file, args, { env, cwd: home, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => (said += text))
  const code = await new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', resolve)
  })
  if (code !== 0)
    throw new Error(`\`${file} ${args[0] ?? ''}\` ended with ${String(code)}: ${said.trim().slice(-2000)}`)
}
