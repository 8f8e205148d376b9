// The end of a service whose own hook never ends: by a deadline, or at once by a second signal.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { SECOND_SIGNAL_MS } from '../agent/life.ts'
import { equal, match, ok } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { suite } from './suite.ts'

const test = suite('life', { timeoutMs: 60_000 })

test('a hook that never settles keeps nobody alive beyond `stopTimeout`, and the log says so', async () => {
  await using service = await started(300)
  service.child.kill('SIGTERM')
  equal(await service.ended, [0, null])
  match(service.output(), /stopping on SIGTERM/)
  match(service.output(), /the author's onStop: expected it to settle within 300 ms/)
})

test('an author’s own signal, whose number is no exit code, is a stop like any other', async () => {
  await using service = await started(300, 1)
  service.child.kill('SIGUSR2')
  equal(await service.ended, [0, null])
  match(service.output(), /stopping on SIGUSR2/)
})

test('a hook that needs nearly all of `stopTimeout` is told of before it needs more', async () => {
  await using service = await started(2000, 1700)
  service.child.kill('SIGTERM')
  equal(await service.ended, [0, null])
  match(service.output(), /the author's onStop took 1\d{3} of 2000 ms \(`stopTimeout`\)/)
})

test('a second signal ends it at once, unless it comes in the same moment as the first', async () => {
  await using service = await started(600_000)
  service.child.kill('SIGINT')
  service.child.kill('SIGTERM') // a Ctrl-C that comes twice
  await until('the first to be heard', () => service.output().includes('stopping on'))
  await sleep(SECOND_SIGNAL_MS)
  ok(service.child.exitCode === null, 'expected the second one to be taken for the first')
  service.child.kill('SIGTERM')
  equal(await service.ended, [1, null])
  match(service.output(), /a second signal, SIGTERM: leaving at once/)
})

test.run()

async function started(stopMs: number, tookMs?: number) {
  const program = join(import.meta.dirname, 'fixtures/stopping.ts')
  const child = spawn(process.execPath, [program, ...[stopMs, ...(tookMs === undefined ? [] : [tookMs])].map(String)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()))
  const ended = once(child, 'exit')
  await until('it to serve', () => output.includes('serving v1.0.0'), 20_000)
  return {
    child,
    ended,
    output: () => output,
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
      await ended
    },
  }
}
