// How long a service is away while its container is replaced, and what its clients see: deploy-container against `docker-compose up -d`,
// against stop, rm and run by hand, each with and without a holder, and against a proxy in front. The same image, in the same run.
// Started by main.ts; the measuring itself runs inside the lab.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectEngine } from '../../deploy/container/engine/engine.ts'
import { cable, strictClients, uncable } from '../container/held-service.ts'
import { serviceImages } from '../container/images.ts'
import { type LabEngine, runInLab, startEngine, startRegistry, takeCurrentEngine, whyNot } from '../lab/docker.ts'
import { endWays, HELD, type ReplacingWay, replacingWays } from './container-ways.ts'
import type { ContainerResult } from './results.ts'
import { median } from './statistics.ts'
import type { OpenClients, OpenOptions, OpenReport } from '../lab/open.ts'
import { spawnRemote } from '../lab/remote.ts'
import { temporary } from '../lab/temporary.ts'

interface Switch {
  /** milliseconds in which a client had no answer, the longest of all clients */
  gapMs: number
  /** of these, the longest of a client that opens a connection for each request */
  freshMs: number
  refused: number
  /** requests without a whole answer, but for those that were refused */
  failed: number
  /** kept connections that ended without an announcement */
  closed: number
  /** how WebSockets and streams ended; null: none was open */
  open: OpenReport | null
}

interface Way {
  name: string
  switches: Switch[]
}

interface Measured {
  ways: Way[]
  /** from the start of the application in a container to its first answer, ms */
  startsMs: number[]
}

const ROUNDS = { quick: 3, long: 6 }
/** WebSockets, and streams of events */
const OPEN_EACH = 8

/** `current`: on a current engine instead of Debian's. Null where the lab cannot be had; `say` has told why. */
export async function run({
  long,
  current,
  say,
}: {
  long: boolean
  current: boolean
  say: (line: string) => void
}): Promise<ContainerResult | null> {
  const reason = current ? await takeCurrentEngine('overlay2') : await whyNot()
  if (reason !== null) {
    say(`container: ${reason}`)
    return null
  }
  say('container: the gap of a recreated container, in a lab of its own')
  await using made = await temporary('bench')
  const folder = made.path
  const file = join(folder, 'result.json')
  const rounds = long ? ROUNDS.long : ROUNDS.quick
  const code = await runInLab(import.meta.filename, { args: [file, String(rounds)], deadlineMs: 3_600_000 })
  if (code !== 0) throw new Error(`the measuring ended with ${code}`)
  const { ways, startsMs } = JSON.parse(await readFile(file, 'utf8')) as Measured
  const behind = ways.find(({ name }) => name === HELD)?.switches.filter(({ open }) => open === null) ?? []
  const startMs = Math.round(median(startsMs))
  const pauseMs = Math.round(median(behind.map(({ gapMs }) => gapMs)))
  return { markdown: markdownOf(ways, rounds, startMs), startMs, pauseMs }
}

function markdownOf(ways: Way[], rounds: number, startMs: number): string {
  const sumOf = (switches: Switch[]) => {
    const sum = (of: (one: Switch) => number) => switches.reduce((total, one) => total + of(one), 0)
    return [sum((one) => one.refused), sum((one) => one.failed), sum((one) => one.closed)]
  }
  const told = (all: number[]) => `${Math.round(median(all))} ms (${Math.max(...all)})`
  const [quiet, open] = [true, false].map((isQuiet) =>
    ways.map(({ name, switches }) => ({ name, switches: switches.filter((one) => (one.open === null) === isQuiet) })),
  ) as [Way[], Way[]]
  const rows = quiet.map(
    ({ name, switches }) => `| ${[name, ...sumOf(switches), told(switches.map(({ gapMs }) => gapMs))].join(' | ')} |`,
  )
  const heldIn = (all: Way[]) => all.find(({ name }) => name === HELD)?.switches ?? []
  const freshOf = (all: Way[]) => told(heldIn(all).map((one) => one.freshMs))
  const held = heldIn(open)
  return [
    `The reference service's image, ${rounds * 2} switches each and in turns, under 4 clients that open a connection for each request and 4 that`,
    `keep one. *Failed*: accepted, and not answered; the gap: the longest time without an answer, its median and worst. The application answers ${startMs} ms after its start.`,
    '',
    '| way | refused | failed | closed | gap |',
    '|---|---|---|---|---|',
    ...rows,
    '',
    `With ${OPEN_EACH} WebSockets and ${OPEN_EACH} streams of events open too, of *${HELD}*: ${sumOf(held).join(', ')}; WebSockets ended ${endsOf(held)}; a new connection waits ${freshOf(open)}, else ${freshOf(quiet)}.`,
  ].join('\n')
}

/** How what was open ended. */
function endsOf(switches: Switch[]): string {
  const codes: Record<string, number> = {}
  const streams = { between: 0, inside: 0, reset: 0 }
  for (const { open } of switches) {
    for (const [code, times] of Object.entries(open?.codes ?? {})) codes[code] = (codes[code] ?? 0) + times
    for (const how of ['between', 'inside', 'reset'] as const) streams[how] += open?.streams[how] ?? 0
  }
  const said = Object.entries(codes).map(([code, times]) => `${times} times by ${code}`)
  return `${said.join(', ')}, streams ${streams.between} times between two events, ${streams.inside} inside one, ${streams.reset} by a reset`
}

/** Inside the lab. */
async function measure(file: string, rounds: number): Promise<void> {
  const [engine, registry] = await Promise.all([startEngine(), startRegistry()])
  const repository = await serviceImages(engine, registry)
  const { address } = await cable()
  const client = await connectEngine(engine.socketPath)
  const ways = await replacingWays({ engine, client, repository, address })
  for (const { begin } of ways) await begin()
  const results: Way[] = ways.map(({ name }) => ({ name, switches: [] }))
  const startsMs: number[] = []
  // in turns, so that whatever else this machine does is shared by all
  for (let round = 0; round < rounds * 4; round++) {
    const tag = round % 2 === 0 ? 'v1.1.0' : 'v1.0.0'
    startsMs.push(await startOf(engine, `${repository}:${tag}`))
    for (const [i, way] of ways.entries()) {
      // in each direction with and without what is open
      const isOpen = Math.floor(round / 2) % 2 === 1
      results[i]?.switches.push(await switchUnderLoad(way, address, tag, isOpen))
    }
  }
  client.close()
  await writeFile(file, JSON.stringify({ ways: results, startsMs } satisfies Measured))
  await endWays()
  await uncable()
  await engine.stop()
  await registry.stop()
}

/** Milliseconds from the start of the process in a new container to its first answer. */
async function startOf(engine: LabEngine, image: string): Promise<number> {
  await engine.docker('run', '-d', '--name', 'started', image)
  const { NetworkSettings, State } = await engine.inspect('started')
  const url = `http://${NetworkSettings.IPAddress}:8080/`
  for (const deadline = Date.now() + 60_000; Date.now() < deadline; await sleep(2)) {
    const answered = await fetch(url, { signal: AbortSignal.timeout(5000) }).then(
      ({ ok }) => ok,
      () => false,
    )
    if (!answered) continue
    const ms = Date.now() - Date.parse(State.StartedAt)
    await engine.docker('rm', '-f', 'started')
    return ms
  }
  throw new Error(`a container of ${image} does not answer`)
}

async function switchUnderLoad(
  { port, to }: ReplacingWay,
  address: string,
  tag: string,
  isOpen: boolean,
): Promise<Switch> {
  await answersWith(address, port, () => true)
  const options: OpenOptions = { host: address, port, each: isOpen ? OPEN_EACH : 0 }
  const { prefix } = await cable()
  await using open = await spawnRemote<OpenClients>(new URL('../lab/open.ts', import.meta.url).href, options, prefix)
  const clients = await strictClients({ address, port }, await cable())
  await sleep(300)
  await to(tag)
  await answersWith(address, port, (said) => said.includes(tag))
  await sleep(300)
  const { refused, lost: failed, closed, longestMs: gapMs, freshMs } = await clients.stop()
  return { gapMs, freshMs, refused, failed, closed, open: isOpen ? await open.report() : null }
}

async function answersWith(address: string, port: number, isSo: (said: string) => boolean): Promise<void> {
  for (const deadline = performance.now() + 60_000; ; await sleep(50)) {
    const answer = await fetch(`http://${address}:${port}/`, { signal: AbortSignal.timeout(5000) }).catch(() => null)
    if (answer?.ok && isSo(await answer.text().catch(() => ''))) return
    if (performance.now() > deadline) throw new Error(`the service on port ${port} does not answer as it should`)
  }
}

if (import.meta.main) await measure(process.argv[2] ?? '', Number(process.argv[3]))
