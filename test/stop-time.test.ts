// How long a stop may take: as long as the limits of the process that stops, which says so, and no process that hangs lives longer.
// With a real service manager it is in test/systemd-long-stop.test.ts.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { openDescriptorStore } from '../agent/sockets/descriptor-store.ts'
import { longestStopMs, STOP_MAX_MS, USUAL_STOP_MS } from '../agent/sockets/long-stop.ts'
import { startTimeOf } from '../agent/sockets/process.ts'
import type { Receipt } from '../agent/disk/receipt.ts'
import { endService, endUnsupervised } from '../deploy/host/supervisor/processes.ts'
import { readPidFile, runFilesOf, writeRunFile } from '../deploy/host/supervisor/run-files.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { temporary } from './lab/temporary.ts'
import { isLong, suite } from './suite.ts'

const test = suite('stop time', { timeoutMs: 240_000 })
const USUAL_MS = 400

/** Its arguments: for how long it asks at SIGTERM, 0: it does not ask; and when it ends then. */
const ASKS = `import { notifySystemd } from '${join(PROJECT, 'agent/sockets/systemd.ts')}'
  const [asksMs, endsMs] = process.argv.slice(-2).map(Number)
  await notifySystemd(['READY=1', 'EXTEND_TIMEOUT_USEC=3600000000']) // as in a long start
  process.on('SIGTERM', () => {
    if (asksMs > 0) void notifySystemd(['EXTEND_TIMEOUT_USEC=' + asksMs * 1000])
    setTimeout(() => process.exit(0), endsMs)
  })
  setInterval(() => {}, 1000)
  console.log('serves')`

for (const [who, isSupervised] of [
  ['its supervision', true],
  ['the command that ends a service whose supervision is gone', false],
] as const) {
  test(`${who} waits as long as a process that stops asks for, kills one that takes longer, and waits as usual for one that says nothing`, async () => {
    equal(await endOf(20_000, 4 * USUAL_MS, isSupervised), [0, null])
    equal(await endOf(3 * USUAL_MS, 60_000, isSupervised), [null, 'SIGKILL'])
    equal(await endOf(0, 60_000, isSupervised), [null, 'SIGKILL'])
  })
}

test('the defaults leave a stop the usual time; no limits ask for more than is waited for', () => {
  const usual = { drainMs: 30_000, stopMs: 10_000 }
  is(longestStopMs(usual), 65_000)
  is(USUAL_STOP_MS, 60_000)
  ok(longestStopMs({ drainMs: 3_600_000, stopMs: 600_000 }) < STOP_MAX_MS)
})

const JOB_MS = 10_000
const WORKS = `import { busy } from '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { appendFileSync } from 'node:fs'
  import { createServer } from 'node:http'
  createServer((request, response) => {
    const ms = Number(/^\\/job\\/(\\d+)/.exec(request.url)?.[1] ?? 0)
    if (ms > 0) void busy('export', new Promise((resolve) => setTimeout(resolve, ms)).then(() => appendFileSync('jobs', 'end ')))
    response.end('ok')
  }).listen(Number(process.env.PORT), process.env.HOST)`

test.long(
  '`restart` and `stop` wait for work as long as `drainTimeout` said at the start, whatever the configuration says since, and say what they wait for',
  async () => {
    await using it = await adopted(WORKS, {}, { update: { drainTimeout: '2m' } })
    for (const [word, count] of [
      ['restart', 1],
      ['stop', 2],
    ] as const) {
      await ask(it.port, 'GET', `/job/${JOB_MS}`, null)
      if (word === 'stop')
        await writeFile(it.configPath, (await readFile(it.configPath, 'utf8')).replace('"2m"', '"1s"'))
      const [stopMs, { exitCode, stderr }] = await during(it, word)
      ok(
        Math.abs(stopMs - 205_000) < 10_000,
        `${word}: ${stopMs} ms, which is 3 m for all that ends, twice 10 s and 5 s`,
      )
      is(exitCode, 0, stderr)
      match(stderr, /is waiting for work and open requests to finish: up to `drainTimeout`/)
      is(await jobsOf(it), 'end '.repeat(count))
    }
  },
)

test('at the default the service asks for nothing', async () => {
  await using it = await adopted(WORKS, {}, { update: { drainTimeout: '30s' } })
  await ask(it.port, 'GET', '/job/4000', null)
  const [stopMs, { exitCode }] = await during(it, 'restart')
  equal([stopMs, exitCode, await jobsOf(it)], [0, 0, 'end '])
})

if (isLong) {
  test.long(
    'work of 75 seconds is whole after a restart, after a stop, and after one without a supervision',
    async () => {
      await using it = await adopted(WORKS, {}, { update: { drainTimeout: '2m' } })
      const job = () => ask(it.port, 'GET', '/job/75000', null)
      await job()
      is((await it.word('restart', '--user')).exitCode, 0)
      is(await jobsOf(it), 'end ')
      await job()
      process.kill((await readPidFile(runFilesOf(placeOf(it)).pidFile))?.supervisor.pid ?? 0, 'SIGKILL')
      is((await it.word('stop', '--user')).exitCode, 0)
      is(await jobsOf(it), 'end end ')
    },
  )
}

test.run()

/** How a process ends that asks for `asksMs` and ends by itself after `endsMs`. */
async function endOf(asksMs: number, endsMs: number, isSupervised: boolean) {
  await using made = await temporary('stop-time')
  const receipt = {
    service: 'shop',
    stateDirectory: made.path,
    executable: join(made.path, 'shop'),
    configPath: join(made.path, 'config.json'),
  } as Receipt
  const { directory, notify, pidFile } = runFilesOf(receipt)
  await mkdir(directory)
  const ear = openDescriptorStore(notify)
  const child = spawn(
    process.execPath,
    [...process.execArgv, '--input-type=module', '-e', ASKS, '--', String(asksMs), String(endsMs)],
    { env: { ...process.env, NOTIFY_SOCKET: ear.path }, stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const gone = once(child, 'exit')
  await once(child.stdout, 'data')
  const service = { pid: child.pid ?? 0, startTime: startTimeOf(child.pid ?? 0) }
  await writeRunFile(pidFile, { supervisor: service, service, restarts: 0 })
  if (!isSupervised) ear[Symbol.dispose]()
  const began = performance.now()
  const told: number[] = []
  if (isSupervised) await endService(receipt, { ear, takes: async (ms) => void told.push(ms), usualMs: USUAL_MS })
  else await endUnsupervised(receipt, USUAL_MS)
  if (isSupervised) ear[Symbol.dispose]()
  const tookMs = performance.now() - began
  const leastMs = Math.min(endsMs, Math.max(asksMs, USUAL_MS))
  ok(tookMs > leastMs * 0.9 && tookMs < leastMs + 5000, `${tookMs} of ${leastMs} ms`)
  if (isSupervised)
    equal(
      told.map((ms) => ms > asksMs && ms < asksMs + 5000),
      asksMs > 0 ? [true] : [],
    )
  return await gone
}

/** For how long the service has asked while the command ends it, by the supervision's file; and how the command ends. */
async function during(it: Adopted, word: string) {
  const looks = new AbortController()
  const looking = (async () => {
    let stopMs = 0
    for (; !looks.signal.aborted; await sleep(50))
      stopMs ||= (await readPidFile(runFilesOf(placeOf(it)).pidFile))?.stopMs ?? 0
    return stopMs
  })()
  const ran = await it.word(word, '--user')
  looks.abort()
  return [await looking, ran] as const
}

function placeOf({ configPath }: Adopted): Pick<Receipt, 'service' | 'stateDirectory'> {
  const home = dirname(dirname(dirname(configPath)))
  return { service: 'shop', stateDirectory: join(home, '.local', 'state', 'shop') }
}

async function jobsOf(it: Adopted): Promise<string> {
  return await readFile(join(placeOf(it).stateDirectory, 'jobs'), 'utf8')
}
