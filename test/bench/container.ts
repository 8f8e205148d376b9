// How long a service is away while its container is recreated: deploy-container against `docker-compose up -d` and against
// stop, rm and run by hand, on the same image, in the same run. Started by main.ts; the measuring itself runs inside the lab.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { deploy } from '../../deploy/container/command.ts'
import { buildImage } from '../../deploy/image.ts'
import { connectEngine } from '../../deploy/container/engine/engine.ts'
import { createProgress } from '../../deploy/lib/progress.ts'
import { run as command } from '../../deploy/lib/shell.ts'
import { publishTo, releases } from '../fixtures/releases.ts'
import { labFolder, publishBase, runInLab, startEngine, startRegistry, whyNot } from '../lab/docker.ts'
import type { ContainerResult } from './results.ts'

interface Switch {
  /** milliseconds from the last answer of the old one to the first of the new one */
  gapMs: number
  /** requests that were not answered */
  lost: number
}

interface Way {
  name: string
  switches: Switch[]
}

const ROUNDS = { quick: 5, long: 20 }
const PROBE_MS = 4

/** Null where the lab cannot be had; `say` has told why. */
export async function run({
  long,
  say,
}: {
  long: boolean
  say: (line: string) => void
}): Promise<ContainerResult | null> {
  const reason = await whyNot()
  if (reason !== null) {
    say(`container: ${reason}`)
    return null
  }
  say('container: the gap of a recreated container, in a lab of its own')
  const folder = await mkdtemp(join(tmpdir(), 'baton-bench-'))
  try {
    const file = join(folder, 'result.json')
    const rounds = long ? ROUNDS.long : ROUNDS.quick
    const code = await runInLab(import.meta.filename, { args: [file, String(rounds)], deadlineMs: 1_800_000 })
    if (code !== 0) throw new Error(`the measuring ended with ${code}`)
    return { markdown: markdownOf(JSON.parse(await readFile(file, 'utf8')) as Way[], rounds) }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function markdownOf(ways: Way[], rounds: number): string {
  const rows = ways.map(({ name, switches }) => {
    const gaps = switches.map(({ gapMs }) => gapMs).toSorted((a, b) => a - b)
    const lost = switches.map((one) => one.lost).toSorted((a, b) => a - b)
    const middle = (list: number[]) => list[Math.floor(list.length / 2)] ?? 0
    return `| ${name} | ${middle(gaps)} ms | ${gaps[0]} to ${gaps.at(-1)} ms | ${middle(lost)} |`
  })
  return [
    `The reference service's image, ${rounds * 2} switches each and in turns, a new connection every ${PROBE_MS} ms; the gap is from the last`,
    'answer of the old container to the first of the new one. A published port has one owner, so no way of recreating a',
    'container is without a gap: for none, a managed install hands over inside one host.',
    '',
    '| way | median gap | range | unanswered, median |',
    '|---|---|---|---|',
    ...rows,
  ].join('\n')
}

/** Inside the lab. */
async function measure(file: string, rounds: number): Promise<void> {
  const [engine, registry] = await Promise.all([startEngine(), startRegistry()])
  const repository = `${registry.host}/beacon`
  const base = await publishBase(registry.host)
  const dist = await publishTo(join(labFolder(), 'dist'), await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }]))
  const progress = createProgress({ quiet: true })
  for (const tag of ['v1.0.0', 'v1.1.0']) {
    await buildImage({
      tag,
      dist,
      repository,
      base,
      arch: process.arch,
      push: true,
      revision: '',
      source: '',
      progress,
      environment: engine.environment,
    })
  }
  const folder = join(labFolder(), 'compose')
  await command(['mkdir', folder])
  const [baton, compose, hand] = [8085, 8086, 8087]
  await writeFile(
    join(folder, 'compose.yaml'),
    `services:\n  beacon:\n    image: ${repository}:\${TAG}\n    restart: unless-stopped\n    ports: ['127.0.0.1:${compose}:8080']\n    volumes: ['state:/var/lib/beacon']\n    healthcheck: {interval: 500ms}\nvolumes:\n  state: {}\n`,
  )
  const up = async (tag: string) => {
    await writeFile(join(folder, '.env'), `TAG=${tag}\n`)
    await command(['docker-compose', 'up', '-d'], { cwd: folder, env: engine.environment })
  }
  const start = (name: string, port: number, tag: string) => {
    const options = ['--restart', 'unless-stopped', '-v', `${name}:/var/lib/beacon`, '--health-interval', '500ms']
    return engine.docker(
      'run',
      '-d',
      '--name',
      name,
      '-p',
      `127.0.0.1:${port}:8080`,
      ...options,
      `${repository}:${tag}`,
    )
  }
  const client = await connectEngine(engine.socketPath)
  const request = {
    container: 'baton',
    backTo: null,
    digest: null,
    signedBy: null,
    withShared: false,
    oneWay: false,
    rehearse: true,
    repository: null,
    healthTimeoutMs: 60_000,
    probationMs: 0,
    dryRun: false,
  }
  const ways: { name: string; port: number; begin: () => Promise<unknown>; to: (tag: string) => Promise<unknown> }[] = [
    {
      name: '`deploy-container.sh`',
      port: baton,
      begin: () => start('baton', baton, 'v1.0.0'),
      to: (release) => deploy({ ...request, release }, { engine: client, report: () => {} }),
    },
    { name: '`docker-compose up -d` (1.29)', port: compose, begin: () => up('v1.0.0'), to: up },
    {
      name: '`docker stop`, `rm`, `run`',
      port: hand,
      begin: () => start('hand', hand, 'v1.0.0'),
      async to(tag) {
        await engine.docker('stop', 'hand')
        await engine.docker('rm', 'hand')
        await start('hand', hand, tag)
      },
    },
  ]
  for (const { begin } of ways) await begin()
  const results: Way[] = ways.map(({ name }) => ({ name, switches: [] }))
  // in turns, so that whatever else this machine does is shared by all
  for (let round = 0; round < rounds * 2; round++) {
    const tag = round % 2 === 0 ? 'v1.1.0' : 'v1.0.0'
    for (const [i, { port, to }] of ways.entries()) results[i]?.switches.push(await gapDuring(port, tag, () => to(tag)))
  }
  client.close()
  await writeFile(file, JSON.stringify(results))
  await engine.stop()
  await registry.stop()
}

/** Asks all the while; done when the new version answers. */
async function gapDuring(port: number, tag: string, act: () => Promise<unknown>): Promise<Switch> {
  await until(async () => (await answer(port)) !== null)
  let [lastOld, firstNew, lost] = [performance.now(), 0, 0]
  const probe = (async () => {
    while (firstNew === 0) {
      const said = await answer(port)
      const now = performance.now()
      if (said === null) lost++
      else if (said.includes(tag)) firstNew = now
      else lastOld = now
      await sleep(PROBE_MS)
    }
  })()
  await act()
  await probe
  return { gapMs: Math.round(firstNew - lastOld), lost }
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 60_000; !(await isSo()); await sleep(50)) {
    if (Date.now() > deadline) throw new Error('the service does not answer')
  }
}

function answer(port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const asked = request({ host: '127.0.0.1', port, path: '/', agent: false, timeout: 1000 }, (response) => {
      let text = ''
      response.on('data', (chunk: Buffer) => void (text += chunk.toString()))
      response.on('end', () => resolve(response.statusCode === 200 ? text : null))
      response.on('error', () => resolve(null))
    })
    asked.on('timeout', () => asked.destroy())
    asked.on('error', () => resolve(null))
    asked.end()
  })
}

if (import.meta.main) await measure(process.argv[2] ?? '', Number(process.argv[3]))
