// Everything that this code asks of a program is asked in one place, and none of it can last, grow or stay.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { exists } from '../../agent/disk/disk.ts'
import { runBounded } from '../../agent/sockets/bounded.ts'
import { startedWith } from '../../agent/sockets/process.ts'
import { equal, ok, rejects } from '../assert.ts'
import { until } from '../fixtures/evidence.ts'
import { temporary } from '../lab/temporary.ts'
import { suite } from '../suite.ts'

const test = suite('bounded')

const sh = (script: string): string[] => ['/bin/sh', '-c', script]
const { PATH = '' } = process.env
let marks = 0

/** An environment that marks what is started with it. */
function marked(): { env: NodeJS.ProcessEnv; left: () => number } {
  const mark = `${process.pid}-bounded-${++marks}`
  return { env: { PATH, MARK: mark }, left: () => startedWith(`MARK=${mark}`).length }
}

const usual = { timeMs: 10_000, said: { last: 100 }, group: 'own' } as const

test('a program is told what it needs, and its answer and last words come back', async () => {
  const { env } = marked()
  const all = { ...usual, env, input: 'in', answer: { fd: 3, max: 10 } } as const
  const ran = await runBounded(sh('cat >&3; printf about >&2; exit 3'), all)
  equal(ran, { code: 3, signal: null, stopped: null, answer: 'in', beside: '', said: 'about' })
})

test('a program may say something beside its answer, and is killed if that does not end', async () => {
  const { env } = marked()
  const both = { ...usual, env, answer: { fd: 1, max: 10 }, besideMax: 10 } as const
  const ran = await runBounded(sh('echo in; echo out >&3'), both)
  equal([ran.answer, ran.beside, ran.code], ['in\n', 'out\n', 0])
  const much = await runBounded(sh('exec yes >&3'), both)
  equal([much.stopped, much.answer, much.beside.length], ['too much', '', 11])
})

test('a program that does not end is killed with what it has started, though both ignore SIGTERM', async () => {
  const { env, left } = marked()
  const script = `trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & while :; do sleep 0.1; done`
  const ran = await runBounded(sh(script), { ...usual, env, timeMs: 300 })
  equal([ran.stopped, ran.code, ran.signal], ['late', null, 'SIGKILL'])
  await until('nothing that is left', () => left() === 0)
})

test('one that shares the terminal is asked first, and killed only if it does not listen', async () => {
  const { env } = marked()
  const shared = { ...usual, env, group: 'shared', timeMs: 300 } as const
  const obeys = await runBounded(sh(`trap 'exit 7' TERM; while :; do sleep 0.05; done`), shared)
  equal([obeys.stopped, obeys.code], ['late', 7])
  const stubborn = await runBounded(sh(`trap '' TERM; while :; do sleep 0.05; done`), shared)
  equal([stubborn.stopped, stubborn.signal], ['late', 'SIGKILL'])
})

test('a program that writes without end is killed, and one that complains without end is cut', async () => {
  const { env } = marked()
  const much = await runBounded(sh('exec yes'), { ...usual, env, answer: { fd: 1, max: 1000 } })
  equal([much.stopped, much.answer.length], ['too much', 1001])
  const script = 'i=0; while [ $i -lt 5000 ]; do echo line $i >&2; i=$((i+1)); done'
  const last = await runBounded(sh(script), { ...usual, env })
  ok(last.code === 0 && last.said.length === 100 && last.said.endsWith('line 4999\n'))
  const first = await runBounded(sh(script), { ...usual, env, said: { first: 8 } })
  equal([first.code, first.said], [0, 'line 0\nl'])
})

test('a child that has left the group and holds the pipes delays nobody', async () => {
  const { env, left } = marked()
  const began = performance.now()
  const ran = await runBounded(sh('setsid sleep 7 & printf all; exit 0'), {
    ...usual,
    env,
    answer: { fd: 1, max: 100 },
  })
  equal([ran.code, ran.stopped, ran.answer], [0, null, 'all'])
  ok(performance.now() - began < 5000)
  for (const { pid } of startedWith(`MARK=${env['MARK']}`)) process.kill(pid, 'SIGKILL')
  await until('nothing that is left', () => left() === 0)
})

test('what is left of the group ends with the program', async () => {
  const { env, left } = marked()
  const ran = await runBounded(sh('sleep 60 & exit 0'), { ...usual, env })
  equal(ran.code, 0)
  await until('nothing that is left', () => left() === 0)
})

test('an order that is called off, before its start too, ends the program', async () => {
  const { env, left } = marked()
  const off = new AbortController()
  const running = runBounded(sh('exec sleep 60'), { ...usual, env, signal: off.signal })
  await until('the program', () => left() === 1)
  off.abort()
  equal((await running).stopped, 'called off')
  equal((await runBounded(sh('exec sleep 60'), { ...usual, env, signal: off.signal })).stopped, 'called off')
  await until('nothing that is left', () => left() === 0)
})

test('what cannot be started rejects with the error of the kernel', async () => {
  const { code } = (await rejects(runBounded(['/nonexistent'], { ...usual, env: {} }), /ENOENT/)) as { code?: string }
  equal(code, 'ENOENT')
  await rejects(runBounded([import.meta.filename], { ...usual, env: {} }), /EACCES/)
})

test('a program does not outlive the process that asks it', async () => {
  await using folder = await temporary('bounded')
  const { env, left } = marked()
  const about = JSON.stringify({ ...usual, env })
  const asker = `import { runBounded } from ${JSON.stringify(join(import.meta.dirname, '../../agent/sockets/bounded.ts'))}
    process.on('SIGTERM', () => process.exit(0))
    runBounded(['/bin/sh', '-c', 'echo > here; exec sleep 60'], ${about})`
  const options = { cwd: folder.path, env: { PATH }, stdio: 'inherit' } as const
  const child = spawn(process.execPath, ['--input-type=module', '-e', asker], options)
  await until('the program', async () => await exists(join(folder.path, 'here')))
  child.kill('SIGTERM')
  await once(child, 'exit')
  await until('nothing that is left', () => left() === 0)
})

test.run()
