// What the agent costs while nothing is updated: the reference handler with the agent embedded against the same handler on
// bare node:http; memory of the idle service; size and start-up time of the executable against `node bundle.js`.

import { existsSync } from 'node:fs'
import { mkdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEFAULT_ENTRY, DEFAULT_SERVICE } from '../../deploy/make/release.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { assetName } from '../../deploy/make/release-folder.ts'
import { freePort } from '../fixtures/install.ts'
import { spawnLoad } from '../lab/load.ts'
import { buildReleases, install, PASSWORD } from './baton.ts'
import { openApp } from './peers.ts'
import { end, memoryOf, processorMsOf, start, untilAnswers } from './processes.ts'
import { CACHE, writeBundle } from './setup.ts'
import type { Tools } from './setup.ts'
import { median, medianRatio } from './statistics.ts'

export interface OverheadResult {
  measuredBy: string
  rounds: number
  bare: Throughput
  embedded: Throughput
  /** requests a second with the agent over those without, median of pairs */
  ratio: number
  /** processor time per request with the agent over without, median of pairs */
  processorRatio: number
  memory: { bareNodeKb: number; withoutAgentKb: number; withAgentKb: number; executableKb: number }
  executable: { bytes: number; zstdBytes: number; gzipBytes: number; nodeBytes: number; bundleBytes: number }
  startup: { executableMs: number; bundleMs: number; ratio: number; starts: number }
}

export interface Throughput {
  requestsPerSecond: number
  p99Ms: number
  /** processor time of the server per request: says the same with less noise */
  processorUs: number
}

export interface OverheadOptions {
  tools: Tools
  long: boolean
  say: (line: string) => void
}

const CONNECTIONS = 32

export async function run({ tools, long, say }: OverheadOptions): Promise<OverheadResult> {
  const place = join(CACHE, 'run', 'overhead')
  await rm(place, { recursive: true, force: true })
  await mkdir(place, { recursive: true })
  const serviceBundle = await writeBundle('service', join(PROJECT, 'test/bench/service.ts'))
  const entry = existsSync(join(PROJECT, 'install.ts')) ? DEFAULT_ENTRY : join(PROJECT, 'test/bench/service.ts')
  say('overhead: building the executable')
  const releases = await buildReleases('reference-releases', entry, 'normal')
  const throughput = await measureThroughput(tools, serviceBundle, place, long, say)
  say('overhead: memory')
  const memory = await measureMemory(tools, serviceBundle, place, releases)
  say('overhead: start-up')
  const startup = await measureStartup(releases, entry, place, long ? 31 : 11)
  const asset = join(releases.feed, releases.v100.tag, assetName(DEFAULT_SERVICE))
  const result: OverheadResult = {
    ...throughput,
    memory,
    executable: {
      bytes: releases.v100.executableBytes,
      zstdBytes: releases.v100.assetBytes,
      gzipBytes: (await stat(`${asset}.gz`)).size,
      nodeBytes: (await stat(process.execPath)).size,
      bundleBytes: (await stat(join(CACHE, 'reference.cjs'))).size,
    },
    startup,
  }
  await rm(place, { recursive: true, force: true })
  return result
}

async function measureThroughput(
  tools: Tools,
  bundle: string,
  folder: string,
  long: boolean,
  say: (line: string) => void,
) {
  const [rounds, roundMs] = long ? [21, 5000] : [9, 2000]
  const bare = { folder: join(folder, 'bare'), port: await freePort(), backendPort: 0, drainMs: 1000 }
  const embedded = { folder: join(folder, 'embedded'), port: await freePort() }
  await using bareService = await openApp(tools.app, 'plain', bare)
  await using service = await openService(bundle, embedded)
  await untilAnswers(bare.port, null, performance.now())
  await untilAnswers(embedded.port, null, performance.now())
  const client = 'missing' in tools.wrk ? byOwnLoad : (port: number, ms: number) => byWrk(tools, port, ms)
  const measure = async ({ pid, port }: { pid: number; port: number }, ms: number): Promise<Throughput> => {
    const before = processorMsOf(pid)
    const { requests, ...rates } = await client(port, ms)
    return { ...rates, processorUs: ((processorMsOf(pid) - before) * 1000) / requests }
  }
  const [bareServer, embeddedServer] = [
    { pid: bareService.pid, port: bare.port },
    { pid: service.pid, port: embedded.port },
  ]
  for (const server of [bareServer, embeddedServer]) await measure(server, 1000) // until the code is hot
  const without: Throughput[] = []
  const withAgent: Throughput[] = []
  for (let i = 0; i < rounds; i++) {
    say(`overhead: round ${i + 1} of ${rounds}`)
    const turns = [
      { into: without, server: bareServer },
      { into: withAgent, server: embeddedServer },
    ]
    for (const { into, server } of i % 2 === 0 ? turns : turns.toReversed()) into.push(await measure(server, roundMs))
  }
  return {
    measuredBy: 'missing' in tools.wrk ? 'the load of the tests' : tools.wrk.version,
    rounds,
    bare: middle(without),
    embedded: middle(withAgent),
    ratio: ratioOf(withAgent, without, 'requestsPerSecond'),
    processorRatio: ratioOf(withAgent, without, 'processorUs'),
  }
}

function ratioOf(some: Throughput[], others: Throughput[], of: keyof Throughput): number {
  const pairs = others.map((other, i) => [some[i]?.[of] ?? Number.NaN, other[of]] as const)
  return Math.round(medianRatio(pairs) * 1000) / 1000
}

type Rates = Omit<Throughput, 'processorUs'> & { requests: number }

async function byWrk(tools: Tools, port: number, ms: number): Promise<Rates> {
  if ('missing' in tools.wrk) throw new Error('wrk is missing')
  const args = ['-t1', `-c${CONNECTIONS}`, `-d${Math.round(ms / 1000)}s`, '--latency', `http://127.0.0.1:${port}/`]
  const wrk = start(tools.wrk.path, args, { env: tools.wrk.env })
  await wrk.exited
  const output = wrk.output()
  const requests = /Requests\/sec:\s+([0-9.]+)/.exec(output)
  const total = /(\d+) requests in/.exec(output)
  const p99 = /99%\s+([0-9.]+)(us|ms|s)/.exec(output)
  if (requests === null || total === null || p99 === null || /Socket errors|Non-2xx/.test(output))
    throw new Error(`wrk: ${output}`)
  const unit = { us: 0.001, ms: 1, s: 1000 }[p99[2] ?? 'ms'] ?? 1
  return { requestsPerSecond: Number(requests[1]), p99Ms: Number(p99[1]) * unit, requests: Number(total[1]) }
}

async function byOwnLoad(port: number, ms: number): Promise<Rates> {
  const load = await spawnLoad({ mode: 'keepalive', clients: CONNECTIONS, port, maxMs: ms })
  const totals = await load.done
  if (totals.lost > 0) throw new Error(`lost: ${JSON.stringify(totals.errors)}`)
  const { ok, durationMs, latency } = totals
  return { requestsPerSecond: (ok / durationMs) * 1000, p99Ms: latency.p99Ms, requests: ok }
}

/** The service with the agent as a bundle under Node: unmanaged, which changes nothing in how it answers. */
async function openService(
  bundle: string,
  { folder, port }: { folder: string; port: number },
): Promise<{ pid: number } & AsyncDisposable> {
  await mkdir(folder, { recursive: true })
  const configPath = join(folder, 'config.json')
  const config = {
    dashboard: { password: PASSWORD },
    listen: { host: '127.0.0.1', port },
    stateDirectory: join(folder, 'state'),
  }
  await writeFile(configPath, JSON.stringify(config), { mode: 0o600 })
  await mkdir(config.stateDirectory, { recursive: true })
  const { pid } = start(process.execPath, [bundle, '--config', configPath])
  return { pid, [Symbol.asyncDispose]: () => end(pid, 'SIGKILL') }
}

const IDLE_MS = 1500

async function measureMemory(
  tools: Tools,
  bundle: string,
  folder: string,
  releases: Awaited<ReturnType<typeof buildReleases>>,
) {
  const idle = async (opened: { pid: number } & AsyncDisposable, port: number): Promise<number> => {
    await using one = opened
    await untilAnswers(port, null, performance.now())
    await sleep(IDLE_MS)
    return memoryOf(one.pid).rssKb
  }
  const place = async (name: string) => ({
    folder: join(folder, `memory-${name}`),
    port: await freePort(),
    backendPort: 0,
    drainMs: 1000,
  })
  const [bare, app, service, managed] = await Promise.all(['bare', 'app', 'service', 'managed'].map(place))
  if (!bare || !app || !service || !managed) throw new Error('no places')
  await Promise.all([bare, app, service, managed].map((one) => mkdir(one.folder, { recursive: true })))
  const program = `require('node:http').createServer((q, r) => r.end('{"tag":"v0.0.0"}')).listen(${bare.port}, '127.0.0.1')`
  const bareNode = start(process.execPath, ['--eval', program])
  return {
    bareNodeKb: await idle({ pid: bareNode.pid, [Symbol.asyncDispose]: () => end(bareNode.pid, 'SIGKILL') }, bare.port),
    withoutAgentKb: await idle(await openApp(tools.app, 'plain', app), app.port),
    withAgentKb: await idle(await openService(bundle, service), service.port),
    executableKb: await idle(await install(managed, releases), managed.port),
  }
}

async function measureStartup(
  releases: Awaited<ReturnType<typeof buildReleases>>,
  entry: string,
  folder: string,
  starts: number,
) {
  const bundle = await writeBundle('reference', entry, {
    __BATON_SERVICE__: DEFAULT_SERVICE,
    __BATON_TAG__: releases.v100.tag,
    __BATON_WEB__: '{}',
  })
  const executable: number[] = []
  const script: number[] = []
  for (let i = 0; i < starts; i++) {
    for (const kind of i % 2 === 0 ? (['executable', 'script'] as const) : (['script', 'executable'] as const)) {
      const place = {
        folder: join(folder, `start-${i}-${kind}`),
        port: await freePort(),
        backendPort: 0,
        drainMs: 1000,
      }
      await mkdir(place.folder, { recursive: true })
      if (kind === 'executable') {
        await using installed = await install(place, releases)
        executable.push(await untilAnswers(place.port, null, installed.startedAt))
      } else {
        const since = performance.now()
        await using _service = await openService(bundle, place)
        script.push(await untilAnswers(place.port, null, since))
      }
    }
  }
  const round = (ms: number): number => Math.round(ms * 10) / 10
  return {
    executableMs: round(median(executable)),
    bundleMs: round(median(script)),
    ratio: Math.round((median(executable) / median(script)) * 100) / 100,
    starts,
  }
}

function middle(all: Throughput[]): Throughput {
  return {
    requestsPerSecond: Math.round(median(all.map((one) => one.requestsPerSecond))),
    p99Ms: Math.round(median(all.map((one) => one.p99Ms)) * 100) / 100,
    processorUs: Math.round(median(all.map((one) => one.processorUs)) * 100) / 100,
  }
}
