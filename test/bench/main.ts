// `npm run bench [-- handover|update|overhead|container …] [--json] [--long] [--only peer,peer] [--no-docs]`
// Measures, prints a table (with `--json` one JSON object last), and writes docs/performance.md with its charts.

import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { PROJECT } from '../../deploy/lib/bundle.ts'
import { baton } from './baton.ts'
import { run as handover } from './handover.ts'
import { describeMachine } from './machine.ts'
import { run as overhead } from './overhead.ts'
import { goalsOf, table, writeDocs } from './report.ts'
import type { ContainerResult, Results } from './report.ts'
import { CACHE, setUp } from './setup.ts'
import { run as update } from './update.ts'

const PARTS = ['handover', 'update', 'overhead', 'container'] as const
type Part = (typeof PARTS)[number]
const USAGE = `usage: npm run bench [-- ${PARTS.join('|')} ...] [--json] [--long] [--only peer,peer] [--no-docs]\n`

/** What test/bench/container.ts exports as `run`, where it is there. Null: it cannot run here, and has said why. */
export type ContainerBench = (options: {
  long: boolean
  say: (line: string) => void
}) => Promise<ContainerResult | null>

async function main(argv: string[]): Promise<number> {
  const parsed = readArguments(argv)
  if (parsed === null) {
    process.stderr.write(USAGE)
    return 2
  }
  const { parts, json, long, only, docs } = parsed
  const say = (line: string): void => void process.stderr.write(`${line}\n`)
  const tools = await setUp(say)
  const machine = await describeMachine()
  const command = `npm run bench -- ${[...parts, ...(long ? ['--long'] : [])].join(' ')}`
  const results: Results = {}
  const about = { machine, command }
  if (parts.includes('handover')) {
    const result = await handover({ tools, long, only, say, more: async () => [await baton()] })
    results.handover = { ...about, result }
  }
  if (parts.includes('update')) results.update = { ...about, result: await update({ tools, long, say }) }
  if (parts.includes('overhead')) results.overhead = { ...about, result: await overhead({ tools, long, say }) }
  if (parts.includes('container')) {
    const result = await container(long, say)
    if (result !== null) results.container = { ...about, result }
  }
  await rm(join(CACHE, 'run'), { recursive: true, force: true })

  const goals = goalsOf(results)
  process.stdout.write(`${table(results, goals)}\n`)
  if (docs && only.length === 0) {
    const all = { ...(await earlier()), ...results }
    const files = await writeDocs(all, goalsOf(all))
    say(`wrote ${files.map((name) => `docs/${name}`).join(', ')}`)
  }
  if (json) process.stdout.write(`${JSON.stringify({ machine, goals, ...withoutAbout(results) })}\n`)
  return 0
}

function readArguments(
  argv: string[],
): { parts: Part[]; json: boolean; long: boolean; only: string[]; docs: boolean } | null {
  try {
    const { values, positionals } = parseArgs({
      args: argv,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        long: { type: 'boolean', default: false },
        only: { type: 'string', default: '' },
        'no-docs': { type: 'boolean', default: false },
      },
    })
    const parts = PARTS.filter((part) => positionals.length === 0 || positionals.includes(part))
    if (positionals.some((name) => !PARTS.includes(name as Part))) return null
    const only = values.only.split(',').filter(Boolean)
    return { parts, json: values.json, long: values.long, only, docs: !values['no-docs'] }
  } catch {
    return null
  }
}

async function container(long: boolean, say: (line: string) => void): Promise<ContainerResult | null> {
  const path = new URL('./container.ts', import.meta.url)
  if (!existsSync(path)) {
    say('container: there is no such part yet')
    return null
  }
  const { run } = (await import(path.href)) as { run: ContainerBench }
  return await run({ long, say })
}

/** The last results of the parts that are not run now. */
async function earlier(): Promise<Results> {
  const text = await readFile(join(PROJECT, 'docs', 'performance.json'), 'utf8').catch(() => '{}')
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
process.exitCode = await main(process.argv.slice(2))
