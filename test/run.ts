// Runs the test files: `tsx test/run.ts [-v] [--in FOLDER] [part of a path…]`. Each file is a process of its own.
// Must never break: a file counts as good only when its report (test/suite.ts) is whole, it exits 0 and leaves no process
// behind. The last line is `N passed, N failed`, with `, N skipped` where something was.
//
// BATON_TEST_AGAIN=1 (CI sets it): a file that failed is run once more at the end, with nothing beside it; both results are
// shown and the second one counts. What fails twice has failed; what fails once is there to be read.
//
// First line of a test file: `// @alone` runs it with nothing beside it, `// @deadlineMs 900000` gives it longer, `// @later WHY`
// leaves it out unless `--later` asks for it: what is not seen to pass yet, or takes longer than CI has, is no part of the count.

import { spawn } from 'node:child_process'
import { glob, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import type { Report } from './suite.ts'

/** most of the time of most files is waiting: one more than the processors of the smallest machine */
const AT_ONCE = 3
const FILE_DEADLINE_MS = 600_000
/** from SIGTERM to SIGKILL, and how long the children of a finished file may take to go */
const GRACE_MS = 5_000

interface TestFile {
  path: string
  alone: boolean
  later: boolean
  deadlineMs: number
}

interface Totals {
  passed: number
  failed: number
  skipped: number
}

interface FileResult extends Totals {
  output: string
  /** what is wrong beside failed tests */
  problems: string[]
  /** lines for `-v` */
  titles: string[]
}

const root = join(import.meta.dirname, '..')
const colour = process.stdout.isTTY && (process.env['NO_COLOR'] ?? '') === ''
/** process groups of the files that run now */
const groups = new Set<number>()

process.exitCode = await main(process.argv.slice(2))

async function main(args: string[]): Promise<number> {
  const { values, positionals: filters } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      verbose: { type: 'boolean', short: 'v', default: false },
      in: { type: 'string', default: 'test' },
      later: { type: 'boolean', default: false },
    },
  })
  const wanted = (path: string): boolean => filters.length === 0 || filters.some((filter) => path.includes(filter))
  const files = (await findFiles(values.in)).filter(({ path, later }) => wanted(path) && (values.later || !later))
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      for (const group of groups) kill(group, 'SIGTERM')
      process.exit(1)
    })
  }

  const totals: Totals = { passed: 0, failed: 0, skipped: 0 }
  const temporary = await mkdtemp(join(tmpdir(), 'baton-test-'))
  try {
    const again: TestFile[] = []
    const runOne = async (file: TestFile, isLast = process.env['BATON_TEST_AGAIN'] !== '1'): Promise<void> => {
      const startedAt = performance.now()
      const reportPath = join(temporary, `${file.path.replaceAll('/', '_')}-${Number(isLast)}.jsonl`)
      const result = await run(file, reportPath, join(temporary, 'compiled'))
      if (!isLast && result.failed > 0) {
        again.push(file)
        return show(file, result, performance.now() - startedAt, values.verbose)
      }
      for (const key of ['passed', 'failed', 'skipped'] as const) totals[key] += result[key]
      show(file, result, performance.now() - startedAt, values.verbose)
    }
    const together = files.filter(({ alone }) => !alone)
    const worker = async (): Promise<void> => {
      for (let file = together.shift(); file; file = together.shift()) await runOne(file)
    }
    await Promise.all(Array.from({ length: AT_ONCE }, worker))
    for (const file of files.filter(({ alone }) => alone)) await runOne(file)
    if (again.length > 0) print(`\nonce more, alone: ${again.map(({ path }) => path).join(', ')}\n`)
    for (const file of again) await runOne(file, true)
  } finally {
    await rm(temporary, { recursive: true, force: true })
  }

  if (files.length === 0) {
    print(`no test file matches ${filters.map((filter) => `\`${filter}\``).join(' or ') || '`*.test.ts`'}`)
    totals.failed++
  }
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
        later: /^\/\/.*@later\b/.test(firstLine),
        deadlineMs: deadlineMs === undefined ? FILE_DEADLINE_MS : Number(deadlineMs),
      }
    }),
  )
}

/** `compiled`: thousands of short processes run the same scripts, so what Node compiles of them is kept there as long as the tests run. */
async function run(file: TestFile, reportPath: string, compiled: string): Promise<FileResult> {
  const child = spawn(process.execPath, [...process.execArgv, join(root, file.path)], {
    cwd: root,
    detached: true, // a process group of its own, so that nothing of it can stay
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, BATON_TEST_REPORT: reportPath, NODE_COMPILE_CACHE: compiled },
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
  if (passed + failed + skipped === 0 && problems.length === 0) problems.push('has no tests')
  const titles = entries.flatMap((entry) =>
    'ms' in entry ? [`${entry.event.padEnd(7)} ${entry.title}  ${entry.ms} ms`] : [],
  )
  return { passed, failed: failed + problems.length, skipped, output, problems, titles }
}

async function readReport(path: string): Promise<Report[]> {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Report)
}

function show(file: TestFile, result: FileResult, ms: number, verbose: boolean): void {
  const { passed, failed, skipped } = result
  const counts = [`${passed} passed`, failed > 0 && `${failed} failed`, skipped > 0 && `${skipped} skipped`]
  const mark = failed > 0 ? paint(31, 'FAIL') : paint(32, 'ok  ')
  print(`${mark} ${file.path}  ${counts.filter(Boolean).join(', ')}  ${(ms / 1000).toFixed(1)} s`)
  for (const problem of result.problems) print(`     ${problem}`)
  if (verbose) for (const title of result.titles) print(`     ${title}`)
  if (failed > 0) print(`\n${result.output.trimEnd().replaceAll(/^/gm, '     | ')}\n`)
}

/** True where the group still has a process after the grace period. */
async function isLeft(group: number): Promise<boolean> {
  const until = Date.now() + GRACE_MS
  while (kill(group, 0)) {
    if (Date.now() > until) return true
    await new Promise((resolve) => setTimeout(resolve, 20))
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
