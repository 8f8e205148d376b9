// `npm run apps:timings [-- NAME]`: what an adopted application costs, beside plain Node in its folder, and whether two folders that were
// installed apart give the same bytes. Prints one JSON object. Exit code 1 where a goal is missed (`--no-goals`: never).
// `--docs`: the figures go into docs/about/services.md.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { provideNode } from '../../deploy/make/node.ts'
import { run } from '../../deploy/lib/shell.ts'
import { freePort } from '../fixtures/install.ts'
import { packInto } from '../pack/main.ts'
import { writeSection } from '../soak/docs.ts'
import { adoptInto, type Adopter, type App, APPS, begin } from './adopt.ts'
import { temporary } from '../lab/temporary.ts'

const STARTS = 11
const VERSIONS = 15
const EPOCH = '1767323045'
/** of the issue that asked for it */
const GOALS = { startRatio: 1.2, versionMs: 50, buildMs: 60_000 }

const app: App = APPS.find((name) => process.argv.includes(name)) ?? 'fastify'
await using made = await temporary('timings')
const work = made.path
const adopters: Adopter[] = []
try {
  const packed = await packInto(work)
  const node = await provideNode()
  const builds: { sha256: string; ms: number }[] = []
  for (let i = 0; i < 2; i++) {
    const one = await begin(app, (line) => void process.stderr.write(`${line}\n`))
    adopters.push(one)
    await adoptInto(one, packed)
    if (i === 0) await one.at('npx', 'baton', 'doctor') // fetches Node, once on a machine
    builds.push(await build(one, i === 0 ? 'normal' : 'fast')) // the executable inside is the same whatever it is compressed with
  }
  const [one] = adopters as [Adopter]
  const executable = await unpacked(one)
  const { entry } = JSON.parse(await readFile(join(one.folder, 'baton.config.json'), 'utf8')) as { entry: string }
  const state = join(work, 'state')
  await mkdir(state)
  await run([executable, '--prepare'], { env: { ...one.environment, STATE_DIRECTORY: state } })
  const starts: Record<'executable' | 'node', number[]> = { executable: [], node: [] }
  for (let i = 0; i < STARTS; i++) {
    starts.executable.push(await startMs([executable], state, one))
    starts.node.push(await startMs([node, join(one.folder, entry)], one.folder, one))
  }
  await startMs([executable], state, one, 'SIGTERM') // whoever ends by itself leaves what was compiled
  const again: number[] = []
  for (let i = 0; i < STARTS; i++) again.push(await startMs([executable], state, one))
  const versions: number[] = []
  const empty: number[] = []
  for (let i = 0; i < VERSIONS; i++) {
    versions.push(msOf(executable, '--version'))
    empty.push(msOf(node, '-e', ''))
  }
  const figures = {
    app,
    entry,
    buildMs: Math.round(builds[0]?.ms ?? Number.NaN),
    sameBytes: builds[0]?.sha256 === builds[1]?.sha256,
    startMs: Math.round(median(starts.executable)),
    nodeMs: Math.round(median(starts.node)),
    /** with what an earlier start has compiled */
    againMs: Math.round(median(again)),
    startRatio: Math.round((median(starts.executable) / median(starts.node)) * 100) / 100,
    versionMs: Math.round(median(versions)),
    /** Node itself, with nothing to do */
    emptyMs: Math.round(median(empty)),
  }
  process.stdout.write(`${JSON.stringify(figures)}\n`)
  if (process.argv.includes('--docs')) await writeSection('timings', sentenceOf(figures), 'docs/about/services.md')
  const { startRatio, versionMs, buildMs } = GOALS
  const kept = figures.startRatio <= startRatio && figures.versionMs <= versionMs && figures.buildMs <= buildMs
  if (!figures.sameBytes || (!kept && !process.argv.includes('--no-goals'))) process.exitCode = 1
} finally {
  for (const { home } of adopters) await rm(home, { recursive: true, force: true })
}

interface Figures {
  entry: string
  buildMs: number
  sameBytes: boolean
  startMs: number
  nodeMs: number
  againMs: number
  startRatio: number
  versionMs: number
  emptyMs: number
}

function sentenceOf(figures: Figures): string {
  const { entry, buildMs, sameBytes, startMs, nodeMs, againMs, startRatio, versionMs, emptyMs } = figures
  const missed = (value: number, most: number, unit: string) => (value <= most ? '' : ` (goal: ${most}${unit})`)
  return [
    `The ${app} application of \`test/apps/\` on ${availableParallelism()} processors: \`baton build\` takes ${(buildMs / 1000).toFixed(1)} s${missed(buildMs / 1000, GOALS.buildMs / 1000, ' s')},`,
    `two of them in two folders give ${sameBytes ? 'the same bytes' : 'different bytes'}; from the start to the first answer ${startMs} ms, \`node ${entry}\` ${nodeMs} ms:`,
    `${startRatio} times${missed(startRatio, GOALS.startRatio, '')}; ${againMs} ms once an earlier start has left what it compiled; \`--version\` ${versionMs} ms${missed(versionMs, GOALS.versionMs, ' ms')}, where Node itself takes ${emptyMs} to do nothing.`,
  ].join('\n')
}

async function build({ folder, environment }: Adopter, effort: string): Promise<{ sha256: string; ms: number }> {
  const from = performance.now()
  const command = ['npx', 'baton', 'build', 'v1.0.0', '--compress', effort, '--json']
  const { stdout } = await run(command, { cwd: folder, env: { ...environment, SOURCE_DATE_EPOCH: EPOCH } })
  const { executable } = JSON.parse(stdout) as { executable: { sha256: string } }
  return { sha256: executable.sha256, ms: performance.now() - from }
}

async function unpacked({ folder, home }: Adopter): Promise<string> {
  const release = join(folder, 'releases', 'v1.0.0')
  const asset = (await readdir(release)).find((name) => name.endsWith('.gz')) ?? ''
  const executable = join(home, 'service')
  await writeFile(executable, gunzipSync(await readFile(join(release, asset))), { mode: 0o755 })
  return executable
}

function msOf(file: string, ...args: string[]): number {
  const from = performance.now()
  const { status } = spawnSync(file, args, { stdio: 'ignore' })
  if (status !== 0) throw new Error(`${file} ${args.join(' ')}: ended with ${status}`)
  return performance.now() - from
}

/** From starting it to its first answer. Killed, it leaves nothing of what it has compiled. */
async function startMs(
  [file = '', ...args]: string[],
  cwd: string,
  { environment }: Adopter,
  end: NodeJS.Signals = 'SIGKILL',
): Promise<number> {
  const port = await freePort()
  const own = { PORT: String(port), HOST: '127.0.0.1', NODE_ENV: 'production', STATE_DIRECTORY: cwd }
  const from = performance.now()
  const child = spawn(file, args, { cwd, stdio: 'ignore', env: { ...process.env, ...environment, ...own } })
  const gone = once(child, 'exit')
  const isWell = () =>
    fetch(`http://127.0.0.1:${port}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    )
  while (!(await isWell())) await new Promise((resolve) => setTimeout(resolve, 2))
  const ms = performance.now() - from
  child.kill(end)
  await gone
  return ms
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}
