// The operator's program (`update.onOutcome`): told once, with the report on its standard input; whatever it does wrong is bounded,
// reported and tried again.

import { execFile, spawnSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { JournalState } from '../agent/disk/journal.ts'
import { sendLetters, withNews } from '../agent/update/schedule/letters.ts'
import { newMemory, parseMemory, type Remembered } from '../agent/update/schedule/memory.ts'
import { rulesOf } from '../agent/update/schedule/policy-files.ts'
import { formatLeft, type Operation } from '../agent/words/state.ts'
import type { Wait } from '../agent/words/waits.ts'
import { newOperation } from '../agent/update/operation.ts'
import { startedWith } from '../agent/sockets/process.ts'
import { equal, is, match, ok } from './assert.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const run = promisify(execFile)
const test = suite('outcome program')
const NOW = Date.parse('2026-11-24T02:10:00Z')
let home: string
test.before(async () => void (home = await mkdtemp(join(tmpdir(), 'baton-outcome-'))))
test.after(async () => await rm(home, { recursive: true, force: true }))

async function script(name: string, text: string): Promise<string> {
  const path = join(home, name)
  await writeFile(path, `#!/bin/sh\n${text}\n`)
  await chmod(path, 0o755)
  return path
}

const ended = (id: string): Operation => ({
  ...newOperation({ id, kind: 'update', from: 'v1.0.0', to: 'v1.0.1', startedAt: '2026-11-24T02:00:00.000Z' }),
  outcome: 'updated',
  finishedAt: '2026-11-24T02:01:00.000Z',
  by: 'schedule',
})
const journal = (...history: Operation[]): JournalState => ({
  format: 1,
  operation: null,
  history,
  bad: [],
  probation: null,
})
const ABOUT = { service: 'svc', running: 'v1.0.1', waiting: [] }
const due = (): Remembered =>
  withNews({ ...newMemory([], NOW), told: 'a' }, journal(ended('b'), ended('a')), ABOUT, NOW)

async function sent(memory: Remembered, program: string[], timeMs = 5000, now = NOW) {
  const written: Remembered[] = []
  const kept = (one: Remembered) => Promise.resolve(void written.push(one))
  const began = performance.now()
  const after = await sendLetters(memory, program, {
    now: () => now,
    leaving: new AbortController().signal,
    kept,
    timeMs,
  })
  return { after, written, tookMs: performance.now() - began }
}

test('what has ended is told once, with its report; the past of an install is not', async () => {
  const first = withNews(newMemory([], NOW), journal(ended('b'), ended('a')), ABOUT, NOW)
  equal([first.letters.length, first.told], [0, 'b'])
  const justNow = { ...ended('b'), finishedAt: new Date(NOW - 60_000).toISOString() }
  const soon = withNews(newMemory([], NOW), journal(justNow, ended('a')), ABOUT, NOW)
  equal([soon.letters.length, soon.told], [1, 'b'], 'the program was configured right before the operation')
  const file = join(home, 'told')
  const program = [
    await script('tell', `cat >>${file}; echo >>${file}; printf '%s|' "$@" >>${file}`),
    'one word',
    '$HOME',
  ]
  const { after, written } = await sent(due(), program)
  equal([after.letters, after.hookProblem, written.length], [[], null, 1])
  const [line = '', words] = (await readFile(file, 'utf8')).split('\n')
  const told = JSON.parse(line) as {
    event: string
    report: { id: string; by: string; outcome: string }
    running: string
  }
  equal(
    [told.event, told.report.id, told.report.by, told.report.outcome, told.running],
    ['outcome', 'b', 'schedule', 'updated', 'v1.0.1'],
  )
  is(words, 'one word|$HOME|')
  equal(withNews(after, journal(ended('b'), ended('a')), ABOUT, NOW).letters, [])
})

test('data that gave way are told: how many rows written since lie where, in the message and as members', async () => {
  const stateMoved = { restored: '/srv/svc/svc.db', aside: '/srv/svc/update/aside/svc.db', rows: 60 }
  const message = `v1.0.1 failed during probation; ${formatLeft(stateMoved)}`
  const failed: Operation = {
    ...ended('b'),
    outcome: 'reverted',
    error: { code: 'probation_failed', message },
    stateMoved,
  }
  const file = join(home, 'moved')
  const memory = withNews({ ...newMemory([], NOW), told: 'a' }, journal(failed, ended('a')), ABOUT, NOW)
  await sent(memory, [await script('moved', `cat >${file}`)])
  const { report } = JSON.parse(await readFile(file, 'utf8')) as { report: Operation }
  equal([report.outcome, report.stateMoved], ['reverted', stateMoved])
  match(
    report.error?.message ?? '',
    'what clients have written since then, with 60 new rows, is in /srv/svc/update/aside/svc.db',
  )
})

test('what waits for a person is told when something new does, not each time a figure in it changes', () => {
  const waiting = (says: string) => ({ ...ABOUT, waiting: [{ key: 'asks x', code: 'room' as const, says }] })
  const quiet = withNews(
    { ...newMemory([], NOW), told: 'a' },
    journal(ended('a')),
    waiting('expected 90 MiB, got 10'),
    NOW,
  )
  is(quiet.letters.length, 1)
  match(quiet.letters[0]?.text ?? '', /"event":"waits".*90 MiB/)
  is(withNews(quiet, journal(ended('a')), waiting('expected 90 MiB, got 11'), NOW).letters.length, 1)
})

test('one that is missing, fails or hangs is bounded, reported, tried again later and later, and given up', async () => {
  const missing = await sent(due(), [join(home, 'nowhere')])
  match(missing.after.hookProblem ?? '', /it did not start: .*ENOENT/)
  is(missing.after.letters[0]?.at, NOW + 60_000)
  const fails = await sent(due(), [await script('fails', `echo "no \x1b[31mroute" >&2; exit 3`)])
  match(fails.after.hookProblem ?? '', /^it failed with exit code 3, saying "no route"$/)
  const hangs = await sent(due(), [await script('hangs', `trap '' TERM; sleep 1000`)], 500)
  match(hangs.after.hookProblem ?? '', /it did not finish within 0.5 s/)
  ok(hangs.tookMs < 3000, `${hangs.tookMs} ms`)
  let [memory, now] = [due(), NOW]
  const times: number[] = []
  const program = [await script('false', 'exit 1')]
  while (memory.letters.length > 0) {
    now = memory.letters[0]?.at ?? now
    times.push(now - NOW)
    memory = (await sent(memory, program, 5000, now)).after
  }
  equal(times, [0, 60_000, 360_000, 2_160_000, 9_360_000, 52_560_000])
  match(memory.hookProblem ?? '', /the report was dropped$/)
  is((await sent(due(), [await script('true', 'exit 0')])).after.hookProblem, null)
})

test('what it forks, even into a session of its own, ends with it; what it writes and does not read does no harm', async () => {
  const forks = await script('forks', `setsid sh -c 'sleep 1000' & sleep 1000 & exec 2>/dev/null; exit 0`)
  const { after, tookMs } = await sent(due(), [forks])
  equal([after.letters, after.hookProblem], [[], null])
  ok(tookMs < 4000, `${tookMs} ms`)
  await sleep(200)
  // a process that was killed may take a moment to be gone
  await eventually(
    'the end of what it has started',
    async () => startedWith(`BATON_OUTCOME=${process.pid}-`).length === 0,
  )
  const loud = await sent(due(), [await script('loud', 'yes >&2 | head -c 50000000 >&2; exit 1')])
  ok((loud.after.hookProblem ?? '').length < 500)
})

test('a report of any length is one that the memory can keep, and a program that reads nothing of it is told', async () => {
  const long = (chars: number) => '"'.repeat(chars)
  for (const chars of [10, 5_000, 100_000]) {
    const failed: Operation = {
      ...ended('b'),
      outcome: 'failed',
      error: { code: 'verify_failed', message: long(chars), hint: long(chars) },
    }
    const waiting = Array.from({ length: 16 }, (_, n) => ({
      key: `passed ${n}`,
      code: 'failed' as const,
      says: long(chars),
    }))
    const memory = withNews(
      { ...newMemory([], NOW), told: 'a' },
      journal(failed, ended('a')),
      { ...ABOUT, waiting },
      NOW,
    )
    ok(parseMemory(JSON.stringify(memory)) !== null, `${chars} characters`)
    const { report, waits } = JSON.parse(memory.letters[0]?.text ?? '') as { report: Operation; waits: Wait[] }
    equal([report.id, report.outcome, waits.length], ['b', 'failed', 16])
    const { after } = await sent(memory, ['/bin/true'])
    equal([after.letters, after.hookProblem], [[], null])
  }
})

test('only the configuration names a program, by an absolute path, without a shell', async () => {
  const configPath = join(home, 'config.json')
  const rules = async (update: unknown, own: unknown = {}) => {
    await writeFile(configPath, JSON.stringify({ update }))
    await rm(join(home, 'update'), { recursive: true, force: true })
    await mkdir(join(home, 'update'))
    await writeFile(join(home, 'update/policy.json'), JSON.stringify(own))
    return await rulesOf({ stateDirectory: home, receipt: { supervisor: 'none', configPath } })
  }
  equal((await rules({ onOutcome: ['/bin/mail', '-s', 'x'] })).onOutcome, ['/bin/mail', '-s', 'x'])
  for (const bad of ['/bin/mail -s x', ['mail'], [], [7], ['/bin/mail', '\0'], { a: 1 }, ['/x', 'y'.repeat(5000)]]) {
    const { onOutcome, faults } = await rules({ onOutcome: bad })
    is(onOutcome, null)
    match(faults.join(), /`update.onOutcome` in the configuration: expected .*no report is sent/)
  }
  const own = await rules({ auto: { mode: 'all' } }, { onOutcome: ['/bin/sh'] })
  equal([own.onOutcome, own.policy.mode], [null, 'notify'])
  match(own.faults.join(), /`update\/policy.json`: unknown `onOutcome`.*nothing is installed automatically/)
  for (const broken of ['{', '[]', '7', 'null', `{"update":7}`, '['.repeat(1e5), 'x'.repeat(300_000)]) {
    await writeFile(configPath, broken)
    const { policy, faults } = await rulesOf({ stateDirectory: home, receipt: { supervisor: 'none', configPath } })
    is(policy.mode, 'notify')
    ok(faults.length > 0, broken.slice(0, 20))
  }
})

test('each operation that ended since the last letter has a letter, also the oldest of six', () => {
  const since = ['g', 'f', 'e', 'd', 'c', 'b'].map(ended)
  const { letters } = withNews({ ...newMemory([], NOW), told: 'a' }, journal(...since, ended('a')), ABOUT, NOW)
  is(letters.length, 6)
})

test('a disk without inodes is refused before anything is written', async ({ signal }) => {
  if (process.getuid?.() !== 0) return
  const room = new URL('../agent/disk/room.ts', import.meta.url).href
  const asks = `import(${JSON.stringify(room)}).then(({ assertRoom }) =>
    assertRoom([{ directory: '/mnt', bytes: 1, what: 'the executable', isLittle: true }])).then(
    () => console.log('room'), ({ code, message }) => console.log(code, message))`
  const command = 'mount -t tmpfs -o nr_inodes=$1 none /mnt && exec "$0" -e "$2"'
  const told = async (inodes: string) =>
    (await run('unshare', ['-m', 'sh', '-c', command, process.execPath, inodes, asks], { signal })).stdout
  match(await told('100'), /^refused only \d+ free inodes in `\/mnt`, 256 needed for the executable$/m)
  match(await told('1000'), /^room$/m)
})

test('a policy that is no file, too long or half written lets nothing go alone, and nobody waits for it', async () => {
  const configPath = join(home, 'config.json')
  await writeFile(configPath, JSON.stringify({ update: { auto: { mode: 'all' } } }))
  const path = join(home, 'update/policy.json')
  const shapes: Record<string, () => unknown> = {
    'a folder': () => mkdir(path),
    'a pipe': () => spawnSync('mkfifo', [path]),
    'an endless device': () => symlink('/dev/zero', path),
    'a link in a circle': () => symlink(path, path),
    'too long': () => writeFile(path, ' '.repeat(20_000)),
    'half written': () => writeFile(path, '{"mode": "al'),
    'no object': () => writeFile(path, '[{"mode":"all"}]'),
    empty: () => writeFile(path, ''),
  }
  for (const [what, make] of Object.entries(shapes)) {
    await rm(join(home, 'update'), { recursive: true, force: true })
    await mkdir(join(home, 'update'))
    await make()
    const { policy, faults } = await rulesOf({ stateDirectory: home, receipt: { supervisor: 'none', configPath } })
    is(policy.mode, 'notify', what)
    match(faults.join(), /`update\/policy.json`: .*, so nothing is installed automatically/, what)
  }
})

test.run()
