// A process that is started without a fork is what child_process would have started.

import { ChildProcess, spawn as fork } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync, realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { spawnSuccessor } from '../../agent/handover/give/child.ts'
import { hasLibc } from '../../agent/sockets/libc.ts'
import { spawn, type Spawned, type SpawnOptions } from '../../agent/sockets/spawn.ts'
import { equal, is, match, ok } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('spawn', { skip: hasLibc() && process.platform === 'linux' ? null : 'needs node:ffi on Linux' })
const NODE = process.execPath
const PIPES: SpawnOptions = { env: { A: '1', B: undefined }, stdio: ['ignore', 'pipe', 'pipe'], detached: true }
/** what a child sees of itself; `ls` has one descriptor more, of the folder that it reads */
const LOOK = [
  'ls -l /proc/self/fd | sed -n "s/.* \\([0-9]*\\) -> .*/\\1/p" | tr "\\n" " "; echo',
  'grep -E "^Sig(Blk|Ign)|^Shd" /proc/self/status; pwd; env | grep -v "^PWD=\\|^SHLVL=\\|^_=" | sort; echo "$0 $*"',
].join('\n')

test('it has the same descriptors, signals, folder, environment, arguments and a session of its own', async () => {
  const folder = realpathSync(tmpdir())
  const file = openSync('/dev/null', 'r')
  try {
    for (const given of [[], [file, file], ['pipe', file]] as (number | 'pipe')[][]) {
      const options: SpawnOptions = { ...PIPES, cwd: folder, stdio: [...PIPES.stdio, ...given] }
      const seen = await Promise.all([
        saidBy(spawn('/bin/sh', ['-c', LOOK, 'it', 'one two', 'ä'], options)),
        saidBy(fork('/bin/sh', ['-c', LOOK, 'it', 'one two', 'ä'], { ...options, stdio: [...options.stdio] })),
      ])
      equal(seen[0], seen[1])
      match(seen[0].out, `${folder}\nA=1\nit one two ä\n`)
    }
  } finally {
    closeSync(file)
  }
  const own = spawn('/bin/sh', ['-c', 'cut -d" " -f1,6 /proc/$$/stat'], PIPES)
  ok(!(own instanceof ChildProcess), 'child_process was not asked')
  is((await saidBy(own)).out, `${own.pid} ${own.pid}\n`)
  const shared = spawn('/bin/sh', ['-c', 'cut -d" " -f6 /proc/$$/stat'], { ...PIPES, detached: false })
  is(
    (await saidBy(shared)).out.trim(),
    readFileSync('/proc/self/stat', 'utf8')
      .replace(/^.*\) /, '')
      .split(' ')[3],
  )
})

test('a descriptor whose number is another one’s target reaches the right place', async () => {
  const [low, other] = [openSync('/proc/self/status', 'r'), openSync('/proc/self/limits', 'r')]
  try {
    // 3 is to be what 4 is here, and the other way round, whatever their numbers are
    const stdio: SpawnOptions['stdio'] = ['ignore', 'pipe', 'pipe', Math.max(low, other), Math.min(low, other)]
    const expected = [Math.max(low, other), Math.min(low, other)].map((fd) => (fd === low ? 'status' : 'limits'))
    const { out } = await saidBy(spawn('/bin/sh', ['-c', 'readlink /proc/$$/fd/3 /proc/$$/fd/4'], { ...PIPES, stdio }))
    equal(
      out
        .trim()
        .split('\n')
        .map((path) => path.split('/').at(-1)),
      expected,
    )
  } finally {
    for (const fd of [low, other]) closeSync(fd)
  }
})

test('how it ended is told, once: an exit code, a signal, a program that cannot be started', async () => {
  equal((await saidBy(spawn('/bin/sh', ['-c', 'exit 7'], PIPES))).ended, [7, null])
  equal((await saidBy(spawn('/bin/sh', ['-c', 'kill -9 $$'], PIPES))).ended, [null, 'SIGKILL'])
  const long = spawn('/bin/sleep', ['600'], PIPES)
  equal([long.exitCode, long.signalCode, long.kill('SIGTERM')], [null, null, true])
  equal((await saidBy(long)).ended, [null, 'SIGTERM'])
  equal([long.exitCode, long.signalCode, long.kill('SIGTERM')], [null, 'SIGTERM', false])
  for (const [file, code] of [
    ['/nowhere/at all', 'ENOENT'],
    ['/etc/passwd', 'EACCES'],
    ['/', 'EACCES'],
  ] as const) {
    const ends = [spawn, fork].map(async (start) => {
      const none = start(file, [], { ...PIPES, stdio: [...PIPES.stdio] }) as Spawned
      const closed = new Promise((resolve) => none.once('close', (...how) => resolve(how)))
      const fault = await new Promise<NodeJS.ErrnoException>((resolve) => none.on('error', resolve))
      const { errno, syscall, path } = fault
      const streams = none.stdio.map((stream) => stream !== null)
      return [fault.code, errno, syscall, path, none.pid, none.exitCode, none.signalCode, streams, await closed]
    })
    const [own, expected] = await Promise.all(ends)
    is(own?.[0], code)
    equal(own, expected)
  }
})

test('many at once: each is told, none stays as a zombie, no descriptor stays open', async () => {
  const before = readdirSync('/proc/self/fd').length
  const codes = await Promise.all(
    Array.from({ length: 60 }, async (_, n) => (await saidBy(spawn('/bin/sh', ['-c', `exit ${n}`], PIPES))).ended[0]),
  )
  equal(
    codes,
    Array.from({ length: 60 }, (_, n) => n),
  )
  await sleep(50)
  const states = readFileSync('/proc/self/task/' + process.pid + '/children', 'utf8')
  is(states.trim(), '')
  is(readdirSync('/proc/self/fd').length, before)
})

test('what is written to it and by it arrives, more than a pipe holds; a child that lives keeps this process alive', async () => {
  const child = spawn('/bin/cat', [], { ...PIPES, stdio: ['pipe', 'pipe', 'pipe'] })
  const much = 'x'.repeat(3_000_000)
  child.stdio[0]?.end(much)
  is((await saidBy(child)).out, much)
  const program = `import { spawn } from ${JSON.stringify(new URL('../../agent/sockets/spawn.ts', import.meta.url).href)}
    spawn('/bin/sleep', ['0.3'], { env: {}, stdio: ['ignore', 'ignore', 'ignore'], detached: true }).once('exit', (code) => console.log('ended', code))`
  const outer = fork(NODE, [...process.execArgv, '--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 2],
  })
  is(await text(outer.stdout as NodeJS.ReadableStream), 'ended 0\n')
})

test('a release that cannot be started says why: it is not taken for a host without descriptors', async () => {
  const limits = { operationId: 'x', hangMs: 1000, probationMs: 1, drainMaxMs: 1, readyMs: 1000 }
  for (const [file, code] of [
    ['/nowhere/at all', 'ENOENT'],
    ['/etc/passwd', 'EACCES'],
  ] as const) {
    const successor = spawnSuccessor({ file, args: [] }, [], limits)
    is(await successor.gone, `it could not be started: spawn ${file} ${code}`)
    is(successor.isAlive(), false)
    await successor.end()
  }
})

test.run()

async function saidBy(child: Spawned | ChildProcess) {
  const ended = new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    child.once('close', (code: number | null, signal: NodeJS.Signals | null) => resolve([code, signal]))
  })
  const [out, said] = await Promise.all([1, 2].map(async (fd) => await text(child.stdio[fd] as NodeJS.ReadableStream)))
  return { out: out ?? '', said, ended: await ended }
}
