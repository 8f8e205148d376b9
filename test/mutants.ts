// Whether the tables condemn what they must: `npm run mutants`. Each line below is one fault in what decides a switch. The script makes it
// in a copy of the project, and runs the fast tests of that file: they have to fail. A fault that they pass is named, and the exit code is 1.
// `npm run mutants -- decide` tries those of one file alone. The night runs all.

import { spawn } from 'node:child_process'
import { cp, glob, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'

interface Subject {
  path: string
  /** parts of names of test files */
  tests: readonly string[]
  /** a text that stands there once, and what the fault makes of it */
  faults: readonly (readonly [from: string, to: string])[]
}

const ROOT = join(import.meta.dirname, '..')
/** a fault may let a test wait for ever */
const LIMIT_MS = 60_000

const SUBJECTS: readonly Subject[] = [
  {
    path: 'agent/handover/conduct.ts',
    tests: ['conduct'],
    faults: [
      [
        "if (order === 'stop-first') await step(ground.retire)",
        "if (order === 'start-first') await step(ground.retire)",
      ],
      [
        "    if (order === 'stop-first') await step(ground.retire)\n    await step(ground.begin)",
        "    await step(ground.begin)\n    if (order === 'stop-first') await step(ground.retire)",
      ],
      ["if (order === 'stop-first') await step(ground.retire)", "if (order === 'stop-first') void step(ground.retire)"],
      ['    hasServed = true\n', ''],
      ['    await step(ground.begin)\n    hasServed = true', '    hasServed = true\n    await step(ground.begin)'],
      ['    await ground.claim()\n', ''],
      ['await ground.claim()', 'await step(ground.claim)'],
      ["if (order === 'start-first') await step(ground.prove)", "if (order === 'stop-first') await step(ground.prove)"],
      ['    await ground.hand()\n', ''],
      ['await ground.hand()', 'await step(ground.hand)'],
      ['    await ground.hand()\n    await step(ground.prove)', '    await ground.hand()'],
      [
        '    const end = await ground.commit()\n    if',
        '    const end = await ground.commit()\n    await ground.hand()\n    if',
      ],
      ['const end = await ground.commit()', 'const end = await step(ground.commit)'],
      ["    if (order === 'start-first') await ground.retire()\n", ''],
      ["if (order === 'start-first') await ground.retire()", 'await ground.retire()'],
      [
        'cause instanceof Left) return await leaving.leave(hasServed)',
        'cause instanceof Left) return await ground.putBack(cause, hasServed)',
      ],
      ['return await ground.putBack(cause, hasServed)', 'return await ground.putBack(cause, false)'],
      ['return await leaving.leave(hasServed)', 'return await leaving.leave(true)'],
      ['    if (leaving.aborted) throw new Left()\n', ''],
      ['return await Promise.race([take(), left.promise])', 'return await take()'],
    ],
  },
  {
    path: 'agent/update/decide.ts',
    tests: ['decide'],
    faults: [
      ["alive: ['proved'],\n    inPlace: NEW,", 'inPlace: NEW,'],
      ["alive: ['proved'],\n    inPlace: NEW,", "alive: ['proved'],"],
      ["stage: ['check'], outcome: 'up_to_date'", "outcome: 'up_to_date'"],
      [
        "stage: BEFORE_SWAP, failed: ['cancelled'], outcome: 'cancelled'",
        "failed: ['cancelled'], outcome: 'cancelled'",
      ],
      ["outcome: 'failed', blame: 'for its bytes'", "outcome: 'failed', blame: 'by evidence'"],
      [
        "asks: ['operation', 'holder', 'rescue'], alive: ['new', 'proved'], outcome: null",
        "asks: ['operation', 'holder'], alive: ['new', 'proved'], outcome: null",
      ],
      ["alive: ['new', 'proved'], outcome: null", "alive: ['proved'], outcome: null"],
      ["asks: ['holder'], outcome: null, goesBack: true", "asks: ['holder'], outcome: null"],
      ["hasBackup: false, outcome: 'failed' }", "hasBackup: false, outcome: 'reverted' }"],
      ["stage: ['swap'], outcome: 'failed', goesBack: true", "stage: ['swap'], outcome: 'failed'"],
      ["stage: ['swap'], outcome: 'failed'", "stage: ['swap'], outcome: 'reverted'"],
      [
        "failed: ['no try', 'cancelled'], outcome: 'failed', goesBack: true",
        "failed: ['no try'], outcome: 'failed', goesBack: true",
      ],
      [
        "outcome: 'reverted', goesBack: true, blame: 'by evidence' },\n\n  // the service",
        "outcome: 'reverted', blame: 'by evidence' },\n\n  // the service",
      ],
      ["counted: ['some'],\n    inPlace: NEW", "counted: ['none', 'some'],\n    inPlace: NEW"],
      ["    hasBackup: true,\n    outcome: 'reverted'", "    outcome: 'reverted'"],
      ["asks: ['start'], counted: ['none', 'some'], inPlace: NEW", "asks: ['start'], counted: ['none', 'some']"],
      ["asks: ['next'], counted: ['none'], failed: ['not']", "asks: ['next'], counted: ['none']"],
      ["asks: GONE, inPlace: NEW, outcome: 'failed'", "asks: GONE, inPlace: NEW, outcome: 'reverted'"],
      ["asks: GONE, stage: ['restart'], outcome: 'reverted'", "asks: GONE, outcome: 'reverted'"],
      ["seen.hasBackup && placeOf(seen) === 'new'", "placeOf(seen) === 'new'"],
      ["seen.hasBackup && placeOf(seen) === 'new'", 'seen.hasBackup'],
      ["seen.alive === 'nobody' && outcome", 'outcome'],
      ["seen.kind === 'update' ? 'undo' : 'exchange'", "seen.kind === 'update' ? 'exchange' : 'undo'"],
      ["seen.kind === 'update' ? 'updated' : 'rolled_back'", "seen.kind === 'update' ? 'rolled_back' : 'updated'"],
      ['blame === undefined || failed?.isBlameless === true', 'blame === undefined'],
      ['return failed?.isOfBytes === true ? {} : null', 'return {}'],
      ["if (howFailed(failed) !== 'really') return null", ''],
    ],
  },
  {
    path: 'agent/update/steps/swap.ts',
    tests: ['swap.test', 'agent/ending'],
    faults: [
      [
        '        await options.snapshot()\n        await options.enterProbation(release.tag)',
        '        await options.enterProbation(release.tag)\n        await options.snapshot()',
      ],
      ['        await options.enterProbation(release.tag)\n', ''],
      ['        await options.enterProbation(to)\n', ''],
      [
        'await disk.linkOver(places.backup, places.former) // 1',
        'await disk.rename(places.backup, places.former) // 1',
      ],
      [
        'await disk.linkOver(places.executable, places.backup) // 2',
        'await disk.rename(places.executable, places.backup) // 2',
      ],
      [
        'await disk.rename(candidate.path, places.executable) // 3',
        'await disk.linkOver(candidate.path, places.executable) // 3',
      ],
      ["        inPlace = 'new'\n        await disk.flushDirectory", '        await disk.flushDirectory'],
      ["if (hasBegun && inPlace === 'old') await clearLeftovers", 'if (hasBegun) await clearLeftovers'],
      ["if (inPlace === 'new') await takeBack", 'await takeBack'],
      ['await disk.rename(places.former, places.backup) // 5', 'await disk.remove(places.former) // 5'],
      [
        'await disk.link(places.executable, places.aside) // 6',
        'await disk.rename(places.executable, places.aside) // 6',
      ],
      ['await disk.rename(places.aside, places.backup) // 8', 'await disk.remove(places.aside) // 8'],
      ['  await finishExchange(disk, places)\n  await disk.link', '  await disk.link'],
      ['  if (await sameFile(places.backup, places.executable)) await disk.remove(places.backup)\n', ''],
      ['    else await disk.rename(places.former, places.backup)', ''],
      ['  else await disk.rename(places.aside, places.backup)', ''],
      ['  await disk.remove(places.partial)\n', ''],
    ],
  },
  {
    path: 'agent/handover/turn.ts',
    tests: ['turn'],
    faults: [
      ['if (isOurs || isTried) return', 'if (isTried) return'],
      ['if (isOurs || isTried) return', 'if (isOurs) return'],
      ['        if (!isOurs) return\n', ''],
      ['works.toReversed()', 'works'],
      ['(last = last.then(act))', '(last = act())'],
      ["      if (isOurs) void queue(() => call(name, 'start', start))\n", ''],
    ],
  },
]

const wanted = process.argv.slice(2)
const subjects = SUBJECTS.filter(({ path }) => wanted.length === 0 || wanted.some((part) => path.includes(part)))
const all = subjects.flatMap(({ faults, ...subject }) => faults.map((fault, at) => ({ ...subject, fault, at })))
const missed: string[] = []
let done = 0
const scratch = await mkdtemp(join(tmpdir(), 'baton-mutants-'))
try {
  const copies = Array.from({ length: availableParallelism() }, (_, lane) => join(scratch, String(lane)))
  await Promise.all(copies.map(copyTo))
  for (const { path, tests } of subjects)
    if (!(await passAll(copies[0] ?? '', tests))) throw new Error(`the tests of ${path} fail without a fault`)
  const queue = all.values()
  const work = async (copy: string) => {
    for (const one of queue) await tryOne(copy, one)
  }
  await Promise.all(copies.map(work))
} finally {
  await rm(scratch, { recursive: true, force: true })
}
process.stdout.write(`${all.length - missed.length} of ${all.length} faults are condemned\n${missed.join('')}`)
if (missed.length > 0 || all.length === 0) process.exitCode = 1

async function copyTo(copy: string): Promise<void> {
  for (const name of ['agent', 'deploy', 'test', 'package.json', 'tsconfig.json'])
    await cp(join(ROOT, name), join(copy, name), { recursive: true })
  await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
}

async function tryOne(copy: string, { path, tests, fault, at }: (typeof all)[number]): Promise<void> {
  const [from, to] = fault
  const text = await readFile(join(ROOT, path), 'utf8')
  const times = text.split(from).length - 1
  if (times !== 1) throw new Error(`${path}: expected once, found ${times} times: ${from}`)
  await writeFile(
    join(copy, path),
    text.replace(from, () => to),
  )
  const isCondemned = !(await passAll(copy, tests))
  await writeFile(join(copy, path), text)
  process.stderr.write(`${isCondemned ? 'condemned' : 'PASSED   '} ${++done}/${all.length} ${path} ${at + 1}\n`)
  if (!isCondemned) missed.push(`\n${path}, no test fails with\n  ${from.trim()}\nas\n  ${to.trim()}\n`)
}

async function passAll(copy: string, tests: readonly string[]): Promise<boolean> {
  const files = await Array.fromAsync(glob('test/agent/*.test.ts', { cwd: copy }))
  const own = files.filter((file) => tests.some((part) => file.includes(part)))
  if (own.length === 0) throw new Error(`no test file for ${tests.join(', ')}`)
  for (const file of own) if (!(await passes(copy, file))) return false
  return true
}

async function passes(copy: string, file: string): Promise<boolean> {
  const child = spawn(process.execPath, [...process.execArgv, join(copy, file)], { cwd: copy, stdio: 'ignore' })
  const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS)
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  clearTimeout(timer)
  return code === 0
}
