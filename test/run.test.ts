// Proves the runner: what it calls passed has passed. The files that it runs here are made for that.

import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { equal, is, match, throws } from './assert.ts'
import { lackLines } from './run/lacks.ts'
import { admit, longestFirst, shardOf } from './run/order.ts'
import { suite } from './suite.ts'

const ROOT = join(import.meta.dirname, '..')
const SUITE = `import { suite } from ${JSON.stringify(join(ROOT, 'test/suite.ts'))}; const test = suite('made');`
const GOOD = `${SUITE} test('good', () => {}); test.run()`

/** Runs these files with the runner: its output, and its exit code. */
async function run(files: Record<string, string>, ...args: string[]): Promise<{ code: number | null; output: string }> {
  return await runWith({}, files, ...args)
}

/** The same, with these variables. */
async function runWith(
  environment: Record<string, string>,
  files: Record<string, string>,
  ...args: string[]
): Promise<{ code: number | null; output: string }> {
  const cache = join(ROOT, '.cache')
  await mkdir(cache, { recursive: true })
  const folder = await mkdtemp(join(cache, 'runner-'))
  try {
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, `${name}.test.ts`), text)
    const program = [join(ROOT, 'test/run.ts'), '--in', relative(ROOT, folder), ...args]
    const child = spawn(process.execPath, [...process.execArgv, ...program], {
      cwd: '/',
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, BATON_TEST_NO_SKIP: '', BATON_TEST_AGAIN: '', ...environment },
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += String(chunk)))
    const code = await new Promise<number | null>((resolve) => void child.once('close', resolve))
    return { code, output }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const lastLine = (output: string): string => output.trimEnd().split('\n').at(-1) ?? ''

/** Files that only say which one is running, in the order in which they were given, on two processors. */
async function order(jobs: [name: string, ms: number][], idle: () => number): Promise<string[]> {
  const seen: string[] = []
  const run = async ([name, ms]: [name: string, ms: number]) => {
    seen.push(name)
    await sleep(ms)
    seen.push(name.toUpperCase())
  }
  const all = jobs.map((job) => ({ run: () => run(job), seconds: 1 }))
  await admit(all, { idle, looks: [1, 1], processors: 2 })
  return seen
}

const test = suite('runner')

test('starts the longest file first, and beside it only what the processors carry', async () => {
  const costs = { a: { seconds: 1, processor: 1 }, b: { seconds: 9, processor: 9 }, c: { seconds: 5, processor: 1 } }
  equal(
    longestFirst([{ path: 'a' }, { path: 'b' }, { path: 'c' }], costs).map(({ path }) => path),
    ['b', 'c', 'a'],
  )
  const jobs: [string, number][] = 'abcdefghijklm'.split('').map((name, at) => [name, 300 + 50 * at])
  const busy = await order(jobs, () => 0.1)
  equal(busy.slice(0, 4), ['a', 'b', 'A', 'c'])
  const idle = await order(jobs, () => 0.9)
  equal(idle.slice(0, 14).join(''), 'abcdefghijklAm')
})

test('each file is in one shard, and no shard has all that is dear', () => {
  const costs = {
    a: { seconds: 1, processor: 50 },
    b: { seconds: 1, processor: 30 },
    c: { seconds: 1, processor: 30 },
    d: { seconds: 9, processor: 5 },
  }
  const files = ['a', 'b', 'c', 'd'].map((path) => ({ path }))
  const shards = ['1/2', '2/2'].map((shard) => shardOf(shard, files, costs).map(({ path }) => path))
  equal(shards, [
    ['a', 'd'],
    ['b', 'c'],
  ])
  equal(shardOf('1/1', files, costs).length, 4)
  for (const wrong of ['0/2', '3/2', '1', 'a/b']) throws(() => shardOf(wrong, files, costs), /such as 1\/3/)
})

test('lists every title and runs nothing', async () => {
  const { code, output } = await run({ a: `${SUITE} test('t1', () => { throw 1 }); test.run()` }, '--list')
  match(output, /a\.test\.ts  made: t1/)
  is(lastLine(output), '1 listed')
  is(code, 0)
})

test('sums up good files, and says so in its last line', async () => {
  const { code, output } = await run({ a: GOOD, b: GOOD, c: `// @alone\n${GOOD}` })
  is(lastLine(output), '3 passed, 0 failed')
  is(code, 0)
})

test('runs a file that is marked @long in the long form alone, and says so to who asks for that file', async () => {
  const files = { a: GOOD, b: `// @long @deadlineMs 9000\n${GOOD}` }
  for (const [long, passed] of [
    ['', 1],
    ['1', 2],
  ] as const) {
    const { code, output } = await runWith({ BATON_TEST_LONG: long }, files)
    equal([code, lastLine(output)], [0, `${passed} passed, 0 failed`])
  }
  const { code, output } = await runWith({ BATON_TEST_LONG: '' }, files, '/b.test')
  equal([code, lastLine(output)], [1, '0 passed, 1 failed'])
  match(output, /`\/b\.test`: only with BATON_TEST_LONG=1/)
})

test('shows the output of a file that fails, and counts what was skipped', async () => {
  const bad = `${SUITE} test('bad', () => { throw new Error('the reason') }); test.run()
    const b = suite('b', { skip: 'needs shellcheck' }); b('left', () => {}); b.run()`
  const { code, output } = await run({ good: GOOD, bad })
  match(output, /^skipped 1: needs shellcheck; to have it: `apt-get install shellcheck`$/m)
  is(lastLine(output), '1 passed, 1 failed, 1 skipped')
  match(output, /\| .*the reason/)
  is(code, 1)
})

test('says for each thing that the machine lacks how many tests it cost, and how to have it', () => {
  equal(lackLines([]), [])
  const root = 'run `.ci/run` as root, on a machine of its own or in a privileged container'
  equal(lackLines(['needs Ansible', 'needs root', 'needs root', 'needs a moon']), [
    `skipped 2: needs root; to have it: ${root}`,
    'skipped 1: needs Ansible; to have it: `apt-get install ansible-core ansible-lint yamllint openssh-client openssh-server`',
    'skipped 1: needs a moon; to have it: `.ci/run` prepares a bare Debian 12 for every test',
  ])
  equal(lackLines(['needs Linux and cc', 'needs Linux: descriptors', 'needs X (Debian: apt-get install x)']), [
    'skipped 1: needs Linux and cc; to have it: `apt-get install musl-tools`, which brings a compiler',
    'skipped 1: needs Linux: descriptors; to have it: run the tests on Linux',
    'skipped 1: needs X (Debian: apt-get install x)',
  ])
})

test('tries a failed file as often as it is told to, counts the last try, and names the file', async () => {
  // passes at its third try
  const flaky = `import { appendFileSync, readFileSync } from 'node:fs'; ${SUITE}
    test('t', () => {
      const file = import.meta.filename + '.tries'
      appendFileSync(file, 'x')
      if (readFileSync(file, 'utf8').length < 3) throw new Error('not yet')
    }); test.run()`
  const bad = `${SUITE} test('bad', () => { throw new Error('never') }); test.run()`
  const { code, output } = await runWith({ BATON_TEST_AGAIN: '2' }, { bad, flaky, good: GOOD })
  is(code, 1)
  is(lastLine(output), '2 passed, 1 failed')
  equal(
    output
      .match(/^(ok {2}|FAIL) \S*\/\w+\.test\.ts {2}/gm)
      ?.map((line) => line.replace(/\S*\//, '').trim())
      .toSorted(),
    [
      ...Array.from({ length: 3 }, () => 'FAIL bad.test.ts'),
      ...Array.from({ length: 2 }, () => 'FAIL flaky.test.ts'),
      'ok   flaky.test.ts',
      'ok   good.test.ts',
    ],
  )
  const [named = ''] = /^more than one try: .*\n\n2 passed/m.exec(output) ?? []
  match(named, /flaky\.test\.ts \(passed at try 3\)/)
  match(named, /bad\.test\.ts \(failed at try 3\)/)
})

const untrue: [promise: string, text: string, output: RegExp][] = [
  ['has no suite at all', `console.log('fine')`, /ended before its first test/],
  ['cannot be parsed', `const = 1`, /ended before its first test/],
  ['exits by itself in the middle', `${SUITE} test('t', () => process.exit(0)); test.run()`, /never ended/],
  ['is killed', `${SUITE} test('t', () => process.kill(process.pid, 'SIGKILL')); test.run()`, /ended by SIGKILL/],
  ['is killed, and in which test', `${SUITE} test('t1', () => process.abort()); test.run()`, /ended in `made: t1`/],
  ['exits with a code of its own after good tests', `${GOOD}; process.exitCode = 3`, /exit code 3/],
  [
    'leaves a process behind',
    `import { spawn } from 'node:child_process'; ${SUITE}
     test('t', () => { spawn('sleep', ['60'], { stdio: 'ignore' }).unref() }); test.run()`,
    /left processes behind/,
  ],
  [
    'is not done in time',
    `// @deadlineMs 1500\n${SUITE} test('t', () => new Promise((done) => setTimeout(done, 20_000))); test.run()`,
    /not done after (1500|6000) ms/,
  ],
]

for (const [promise, text, problem] of untrue) {
  test(`fails a file that ${promise}`, async () => {
    const { code, output } = await run({ it: text })
    match(output, problem)
    match(lastLine(output), /^\d passed, [1-9] failed$/)
    is(code, 1)
  })
}

test('fails where nothing matches', async () => {
  const { code, output } = await run({ a: GOOD }, 'nothing-like-this')
  is(lastLine(output), '0 passed, 1 failed')
  is(code, 1)
})

test.run()
