// `npm run bench [-- handover|carry|update|overhead|trust|container|fleet|state|told|download|start|steps …] [--json] [--long] [--only peer,peer]
// [--current] [--memory MB] [--docs]` measures, and prints a table (with `--json` one JSON object last). `--current`: the container's part on a current
// engine. With `--docs` it writes docs/about/performance.md, its charts and the README's table too. Must hold: nothing else writes them, and a
// short run never takes the place of a long one there.

import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { inNetns, netnsProblem } from '../lab/netns.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { baton, batonAlone } from './baton.ts'
import { run as carry } from './carry.ts'
import { run as download } from './download.ts'
import { run as fleet } from './fleet.ts'
import { run as handover } from './handover.ts'
import type { HandoverResult } from './handover.ts'
import { describeMachine } from './machine.ts'
import { run as overhead } from './overhead.ts'
import type { OverheadResult } from './overhead.ts'
import { goalsOf } from './goals.ts'
import { writeDocs } from './report.ts'
import { longerOf, type Results } from './results.ts'
import { table } from './table.ts'
import { CACHE, setUp } from './setup.ts'
import { run as state } from './state.ts'
import { run as start } from './start.ts'
import { run as steps } from './steps.ts'
import { run as told } from './told.ts'
import { run as trust } from './trust.ts'
import { run as update } from './update.ts'
import type { UpdateResult } from './update.ts'

const PARTS = [
  'handover',
  'carry',
  'update',
  'overhead',
  'trust',
  'container',
  'fleet',
  'state',
  'told',
  'download',
  'start',
  'steps',
] as const
/** those that need no other program, and no network of their own */
const OUTSIDE: readonly Part[] = ['carry', 'trust', 'container', 'fleet', 'state', 'told', 'download', 'start', 'steps']
type Part = (typeof PARTS)[number]
const INSIDE = '--inside'
const MEASURED = join(CACHE, 'measured.json')
const SHORT_MS = 30 * 60_000
const LONG_MS = 4 * 3_600_000
const USAGE = `usage: npm run bench [-- ${PARTS.join('|')} ...] [--json] [--long] [--only peer,peer] [--against FOLDER] [--current] [--memory MB] [--docs]\n`

async function main(argv: string[]): Promise<number> {
  const parsed = readArguments(argv)
  if (parsed === null) {
    process.stderr.write(USAGE)
    return 2
  }
  const { parts, json, long, only, docs, against, current } = parsed
  if (parts.some((part) => part === 'container' || !OUTSIDE.includes(part))) await setUp(say) // out here, where there is a network
  const machine = await describeMachine()
  const command = `npm run bench -- ${[...parts, ...(long ? ['--long'] : []), ...(against === null ? [] : ['--against FOLDER'])].join(' ')}`
  const about = { machine, command }
  const order: Order = { parts: parts.filter((part) => !OUTSIDE.includes(part)), long, only }
  const problem = netnsProblem()
  if (problem !== null) say(`no network namespace (${problem}): the kernel's counters are left out`)
  const measured = problem === null ? await measureIsolated(order) : await measure(order, false)
  const results: Results = Object.fromEntries(
    Object.entries(measured).map(([part, result]) => [part, { ...about, result: result as never }]),
  )
  if (parts.includes('carry')) results.carry = { ...about, result: await carry({ long, say }) }
  if (parts.includes('trust')) results.trust = { ...about, result: await trust({ say }) }
  if (parts.includes('container')) {
    const { run: container } = await import('./container.ts')
    const result = await container({ long, current, say })
    if (result !== null) results.container = { ...about, result }
  }
  if (parts.includes('fleet')) {
    const result = await fleet({ say })
    if (result !== null) results.fleet = { ...about, result }
  }
  if (parts.includes('state')) results.state = { ...about, result: await state({ long, say }) }
  if (parts.includes('download')) results.download = { ...about, result: await download({ long, say }) }
  if (parts.includes('told')) results.told = { ...about, result: await told({ long, say }) }
  if (parts.includes('start')) results.start = { ...about, result: await start({ long, against, say }) }
  if (parts.includes('steps')) results.steps = { ...about, result: await steps({ long, say }) }
  await rm(join(CACHE, 'run'), { recursive: true, force: true })

  const goals = goalsOf(results)
  process.stdout.write(`${table(results, goals)}\n`)
  if (docs) {
    const { all, kept } = longerOf(await earlier(), results)
    for (const part of kept) say(`${part}: the docs keep what a longer run has measured (\`--long\`)`)
    const files = await writeDocs(all, goalsOf(all))
    say(`wrote ${files.join(', ')}`)
  }
  if (json) process.stdout.write(`${JSON.stringify({ machine, goals, ...withoutAbout(results) })}\n`)
  return 0
}

interface Measured {
  handover?: HandoverResult
  update?: UpdateResult
  overhead?: OverheadResult
}

/** What is to be measured; also said to the process that does it. */
interface Order {
  parts: Part[]
  long: boolean
  only: string[]
}

async function measure({ parts, long, only }: Order, isolated: boolean): Promise<Measured> {
  const tools = await setUp(say)
  const measured: Measured = {}
  if (parts.includes('handover')) {
    const more = async () => [await baton()]
    measured.handover = await handover({ tools, long, only, isolated, say, more, alone: batonAlone })
  }
  if (parts.includes('update')) measured.update = await update({ tools, long, say })
  if (parts.includes('overhead')) measured.overhead = await overhead({ tools, long, say })
  return measured
}

/** Measures in a network and a process namespace: no traffic but ours, and nothing can be left behind. */
async function measureIsolated(order: Order): Promise<Measured> {
  if (order.parts.length === 0) return {}
  await rm(MEASURED, { force: true })
  const self = fileURLToPath(import.meta.url)
  const command = [process.execPath, '--disable-warning=ExperimentalWarning', self, INSIDE, JSON.stringify(order)]
  const { code, signal } = await inNetns(command, { timeoutMs: order.long ? LONG_MS : SHORT_MS, echo: true })
  if (code !== 0) throw new Error(`measuring ended with ${signal ?? code}`)
  return JSON.parse(await readFile(MEASURED, 'utf8')) as Measured
}

interface Arguments extends Order {
  json: boolean
  docs: boolean
  /** another checkout, whose start is measured too */
  against: string | null
  /** the container on a current engine instead of Debian's */
  current: boolean
}

function readArguments(argv: string[]): Arguments | null {
  try {
    const { values, positionals } = parseArgs({
      args: argv,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        long: { type: 'boolean', default: false },
        only: { type: 'string', default: '' },
        docs: { type: 'boolean', default: false },
        against: { type: 'string' },
        current: { type: 'boolean', default: false },
        memory: { type: 'string' },
      },
    })
    const parts = PARTS.filter((part) => positionals.length === 0 || positionals.includes(part))
    if (positionals.some((name) => !PARTS.includes(name as Part))) return null
    const only = values.only.split(',').filter(Boolean)
    // a comparison with some left out, of an engine that the docs do not compare, or of a service that is larger
    if (values.docs && (only.length > 0 || values.current || values.memory !== undefined)) return null
    if (values.memory !== undefined) process.env['BENCH_MEMORY_MB'] = String(Number(values.memory)) // services inherit it
    const { json, long, docs, against = null, current } = values
    return { parts, json, long, only, docs, against, current }
  } catch {
    return null
  }
}

/** The last results of the parts that are not run now. */
async function earlier(): Promise<Results> {
  const text = await readFile(join(PROJECT, 'docs', 'about', 'performance.json'), 'utf8').catch(() => '{}')
  return JSON.parse(text) as Results
}

function withoutAbout(results: Results): Record<string, unknown> {
  return Object.fromEntries(Object.entries(results).map(([part, { result }]) => [part, result]))
}

for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)
  process.once(signal, () => process.exit(code))
if (process.argv[2] === INSIDE) {
  const measured = await measure(JSON.parse(process.argv[3] ?? '') as Order, true)
  await writeFile(MEASURED, JSON.stringify(measured))
  process.exit(0)
}
process.exitCode = await main(process.argv.slice(2))

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}
