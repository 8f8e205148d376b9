// Runs the test files: `tsx test/run.ts [-v] [--in FOLDER] [--shard 1/3] [--check] [part of a path…]`. Each file runs in a separate
// process. Must never break: a file passes only if its report (test/suite.ts) is whole, it exits 0 and it leaves no process behind.
// The last line is `N passed, N failed`, and `, N skipped` if tests were skipped. A line before it for each thing that this machine
// lacks says how many tests were skipped for it, and how to have it: test/run/lacks.ts.
//
// The longest file starts first, and as many run at once as the processors can carry: test/run/order.ts looks how busy they are.
// What each file costs stands in test/run/costs.json: the last `tsx test/run.ts --record` wrote it. How busy the processors were is said
// at the end: what they were idle in is lost.
// `--check` runs `npm run check` beside the first files. `--list` runs nothing and prints every title.
//
// Node itself runs the test files, as it knows TypeScript: tsx's loader costs each process a tenth of a second.
//
// BATON_TEST_AGAIN=2 (CI sets it): a failed file runs up to two more times at the end, with nothing beside it. Each result is shown
// and the last one counts. The line before the last names every file that needed more than one try: it is to be mended.
//
// First line of a test file: `// @alone` runs it with nothing beside it, `// @deadlineMs 900000` gives it longer, `// @long` leaves
// it out unless BATON_TEST_LONG=1 asks for the long form, which runs each night.

import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { glob, mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { admit, type Cost, costOf, idleShare, longestFirst, readCosts, recordCosts, shardOf } from './run/order.ts'
import { lackLines } from './run/lacks.ts'
import type { Report } from './suite.ts'

const FILE_DEADLINE_MS = 600_000
const IS_LONG = process.env['BATON_TEST_LONG'] === '1'
/** as in suite.ts */
const LONG_TIMES = IS_LONG ? 4 : 1
/** see lab/load.ts */
const CALM = '3'
/** time from SIGTERM to SIGKILL, and time for the children of a finished file to end */
const GRACE_MS = 5_000
const TRIES_MAX = 1 + Number(process.env['BATON_TEST_AGAIN'] ?? 0)

interface TestFile {
  path: string
  alone: boolean
  long: boolean
  deadlineMs: number
}

interface Totals {
  passed: number
  failed: number
  skipped: number
}

interface FileResult extends Totals {
  /** why each skipped test was skipped */
  lacks: string[]
  output: string
  /** faults other than failed tests */
  problems: string[]
  /** lines for `-v` and `--list` */
  titles: string[]
  cost: Cost
}

const root = join(import.meta.dirname, '..')
/** This Node strips types by itself; an older one needs the loader that this process was started with. */
const nodeArguments = process.features.typescript ? [] : process.execArgv
/** Node's compile cache for the scripts that thousands of short processes run. It is kept from one run to the next. */
const compiled = join(root, '.cache', 'compiled')
/** entries in that cache before it is emptied: a script in a temporary folder leaves one that is never used again */
const COMPILED_MAX = 20_000
const colour = process.stdout.isTTY && (process.env['NO_COLOR'] ?? '') === ''
/** process groups of the files that are running */
const groups = new Set<number>()
/** processor seconds of all ended children, when last read */
let reaped = 0

process.exitCode = await main(process.argv.slice(2))

async function main(args: string[]): Promise<number> {
  const { values, positionals: filters } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      verbose: { type: 'boolean', short: 'v', default: false },
      in: { type: 'string', default: 'test' },
      check: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
      shard: { type: 'string', default: '1/1' },
    },
  })
  const wanted = (path: string): boolean => filters.length === 0 || filters.some((filter) => path.includes(filter))
  const costs = await readCosts()
  const found = (await findFiles(values.in)).filter(({ path }) => wanted(path))
  const counted = found.filter(({ long }) => IS_LONG || !long)
  const files = longestFirst(shardOf(values.shard, counted, costs), costs)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      for (const group of groups) kill(group, 'SIGTERM')
      process.exit(1)
    })
  }

  const totals: Totals = { passed: 0, failed: 0, skipped: 0 }
  const listed: string[] = []
  const retried: string[] = []
  const lacks: string[] = []
  if ((await readdir(compiled, { recursive: true }).catch(() => [])).length > COMPILED_MAX)
    await rm(compiled, { recursive: true, force: true })
  await mkdir(compiled, { recursive: true })
  const temporary = await mkdtemp(join(tmpdir(), 'baton-test-'))
  const [began, idle] = [performance.now(), idleShare()]
  try {
    const again: TestFile[] = []
    const seen: Record<string, Cost> = {}
    const runOne = async (file: TestFile, tries = 1): Promise<void> => {
      const reportPath = join(temporary, `${file.path.replaceAll('/', '_')}-${tries}.jsonl`)
      const result = await run(file, reportPath, values.list)
      if (values.list && result.failed === 0) return void listed.push(...result.titles)
      show(file, result, values.verbose)
      if (result.failed > 0 && tries < TRIES_MAX) return void again.push(file)
      if (tries > 1) retried.push(`${file.path} (${result.failed > 0 ? 'failed' : 'passed'} at try ${tries})`)
      seen[file.path] ??= result.cost
      for (const key of ['passed', 'failed', 'skipped'] as const) totals[key] += result[key]
      lacks.push(...result.lacks)
    }
    const check = async (): Promise<void> => {
      if (!(await runCheck())) totals.failed++
    }
    const together = files.filter((file) => !file.alone)
    const jobs = together.map((file) => ({ run: () => runOne(file), seconds: costOf(file.path, costs).seconds }))
    await admit([...(values.check ? [{ run: check, seconds: 0 }] : []), ...jobs])
    for (const file of files.filter(({ alone }) => alone)) await runOne(file)
    for (let tries = 2; again.length > 0; tries++) {
      print(`\nonce more, alone: ${again.map(({ path }) => path).join(', ')}\n`)
      for (const file of again.splice(0)) await runOne(file, tries)
    }
    if (values.record) await recordCosts(seen, costs)
    if (files.length > 1 && !values.list)
      print(
        `\n${Math.round((performance.now() - began) / 1000)} s, processors busy ${Math.round(100 * (1 - idle()))} %`,
      )
  } finally {
    await rm(temporary, { recursive: true, force: true })
  }

  if (files.length === 0) {
    const what = filters.map((filter) => `\`${filter}\``).join(' or ') || '`*.test.ts`'
    print(found.length > counted.length ? `${what}: only with BATON_TEST_LONG=1` : `no test file matches ${what}`)
    totals.failed++
  }
  if (listed.length > 0) print(listed.toSorted().join('\n'))
  if (values.list && totals.failed === 0) {
    print(`\n${listed.length} listed`)
    return 0
  }
  if (retried.length > 0) print(`\nmore than one try: ${retried.join(', ')}`)
  if (lacks.length > 0) print(`\n${lackLines(lacks).join('\n')}`)
  const skipped = totals.skipped > 0 ? `, ${totals.skipped} skipped` : ''
  print(`\n${totals.passed} passed, ${totals.failed} failed${skipped}`)
  return totals.failed > 0 ? 1 : 0
}

async function findFiles(folder: string): Promise<TestFile[]> {
  const paths = await Array.fromAsync(glob(`${folder}/**/*.test.ts`, { cwd: root }))
  return await Promise.all(
    paths.toSorted().map(async (path) => {
      const [firstLine = ''] = (await readFile(join(root, path), 'utf8')).split('\n', 1)
      const deadlineMs = /@deadlineMs (\d+)/.exec(firstLine)?.[1]
      return {
        path,
        alone: /^\/\/.*@alone\b/.test(firstLine),
        long: /^\/\/.*@long\b/.test(firstLine),
        deadlineMs: (deadlineMs === undefined ? FILE_DEADLINE_MS : Number(deadlineMs)) * LONG_TIMES,
      }
    }),
  )
}

/** Checks types, lint and format; true if all is well. */
async function runCheck(): Promise<boolean> {
  const startedAt = performance.now()
  const child = spawn('npm', ['run', '-s', 'check'], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  const group = child.pid ?? 0
  groups.add(group)
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += String(chunk)))
  const code = await new Promise<number | null>((resolve) => {
    child.once('error', (error) => resolve(((output += error.message), null)))
    child.once('close', resolve)
  })
  groups.delete(group)
  reapedSeconds()
  print(`${mark(code === 0)} npm run check  ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  if (code !== 0) print(indented(output))
  return code === 0
}

async function run(file: TestFile, reportPath: string, onlyLists: boolean): Promise<FileResult> {
  const startedAt = performance.now()
  const child = spawn(process.execPath, [...nodeArguments, join(root, file.path)], {
    cwd: root,
    detached: true, // a process group of its own, so that nothing of it can stay
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      BATON_TEST_REPORT: reportPath,
      BATON_TEST_LIST: onlyLists ? '1' : '',
      BATON_TEST_CALM: file.alone || IS_LONG ? '1' : CALM, // a file that runs alone may load the machine
      NODE_COMPILE_CACHE: compiled,
    },
  })
  const group = child.pid ?? 0
  groups.add(group)
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => (output += chunk))
  }

  const problems: string[] = []
  const deadline = setTimeout(() => {
    problems.push(`not done after ${file.deadlineMs} ms`)
    kill(group, 'SIGTERM')
    setTimeout(() => kill(group, 'SIGKILL'), GRACE_MS).unref()
  }, file.deadlineMs)
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (...end) => resolve(end)) // not `close`: a child left behind may hold the pipes
  })
  clearTimeout(deadline)
  const cost = { seconds: (performance.now() - startedAt) / 1000, processor: reapedSeconds() }
  if (await isLeft(group)) {
    problems.push('left processes behind')
    kill(group, 'SIGKILL')
  }
  groups.delete(group)
  child.stdout.destroy()
  child.stderr.destroy()

  const entries = await readReport(reportPath)
  const count = (event: Report['event']): number => entries.filter((entry) => entry.event === event).length
  const [passed, failed, skipped] = [count('passed'), count('failed'), count('skipped')]
  if (entries.at(-1)?.event !== 'finished') {
    const last = entries.findLast((entry) => entry.event === 'started')
    problems.push(last ? `ended in \`${last.title}\`` : 'ended before its first test')
  }
  if (signal !== null) problems.push(`ended by ${signal}`)
  else if (code !== 0 && failed === 0) problems.push(`exit code ${code}`)
  if (passed + failed + skipped + count('listed') === 0 && problems.length === 0) problems.push('has no tests')
  const titles = entries.flatMap((entry) => {
    if (entry.event === 'listed') return [`${file.path}  ${entry.title}`]
    return 'ms' in entry ? [`${entry.event.padEnd(7)} ${entry.title}  ${entry.ms} ms`] : []
  })
  const lacks = entries.flatMap((entry) => (entry.event === 'skipped' ? [entry.why] : []))
  return { passed, failed: failed + problems.length, skipped, lacks, output, problems, titles, cost }
}

async function readReport(path: string): Promise<Report[]> {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Report)
}

function show(file: TestFile, result: FileResult, verbose: boolean): void {
  const { passed, failed, skipped, cost } = result
  const counts = [`${passed} passed`, failed > 0 && `${failed} failed`, skipped > 0 && `${skipped} skipped`]
  const times = `${cost.seconds.toFixed(1)} s, ${cost.processor.toFixed(1)} s of processor`
  print(`${mark(failed === 0)} ${file.path}  ${counts.filter(Boolean).join(', ')}  ${times}`)
  for (const problem of result.problems) print(`     ${problem}`)
  if (verbose) for (const title of result.titles) print(`     ${title}`)
  if (failed > 0) print(indented(result.output))
}

/**
 * Processor seconds of the child that has just ended, with all children that it waited for: by how much the kernel's sum for this
 * process's ended children has grown since the last call. Processes that outlive their parent are not in it.
 */
function reapedSeconds(): number {
  const fields = readProc('/proc/self/stat').split(') ')[1]?.split(' ') ?? []
  const before = reaped
  reaped = (Number(fields[13] ?? 0) + Number(fields[14] ?? 0)) / 100
  return reaped - before
}

function readProc(path: string): string {
  return process.platform === 'linux' ? readFileSync(path, 'utf8') : ''
}

function mark(isGood: boolean): string {
  return isGood ? paint(32, 'ok  ') : paint(31, 'FAIL')
}

function indented(output: string): string {
  return `\n${output.trimEnd().replaceAll(/^/gm, '     | ')}\n`
}

/** True if the group still has a process after the grace period. */
async function isLeft(group: number): Promise<boolean> {
  const until = Date.now() + GRACE_MS
  while (kill(group, 0)) {
    if (Date.now() > until) return await hasLiving(group)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  return false
}

/** False if only ended processes are left that nobody collects: the first process of a container may collect none. */
async function hasLiving(group: number): Promise<boolean> {
  if (process.platform !== 'linux') return true
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    const [state, , own] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (Number(own) === group && state !== 'Z') return true
  }
  return false
}

function kill(group: number, signal: NodeJS.Signals | 0): boolean {
  if (group <= 1) return false
  try {
    return process.kill(-group, signal)
  } catch {
    return false
  }
}

function paint(code: number, text: string): string {
  return colour ? `\u001b[${code}m${text}\u001b[0m` : text
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
