// The end of a service whose own hook never ends: by a deadline, or at once by a second signal. And of one whose package is gone.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, cp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { SECOND_SIGNAL_MS } from '../agent/life.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { until } from './fixtures/evidence.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('life', { timeoutMs: 60_000 })
/** Its argument: its state directory. */
const SLOW = `import { createServer } from 'node:http'
  import { embed } from './agent/index.ts'
  const agent = await embed({ service: 'slow', tag: 'v1.0.0', password: null, feed: null, stateDirectory: process.argv[2] })
  const server = createServer((request, response) => {
    console.log('asked')
    setTimeout(() => response.end('slow'), 500)
  })
  await agent.serve([{ server, port: 0 }])
  console.log('port ' + server.address().port)`

test('a hook that never settles keeps nobody alive beyond `stopTimeout`, and the log says so', async () => {
  await using service = await started(300)
  service.child.kill('SIGTERM')
  equal(await service.ended, [0, null])
  match(service.output(), /stopping \(SIGTERM\)/)
  match(service.output(), /the application's onStop failed: it did not settle within 300 ms/)
})

test('an author’s own signal, whose number is no exit code, is a stop like any other', async () => {
  await using service = await started(300, 1)
  service.child.kill('SIGUSR2')
  equal(await service.ended, [0, null])
  match(service.output(), /stopping \(SIGUSR2\)/)
})

test('a hook that needs nearly all of `stopTimeout` is told of before it needs more', async () => {
  await using service = await started(2000, 1700)
  service.child.kill('SIGTERM')
  equal(await service.ended, [0, null])
  match(service.output(), /the application's onStop took 1\d{3} ms; `stopTimeout` allows 2000 ms/)
})

test('a second signal ends it at once, unless it comes in the same moment as the first', async () => {
  await using service = await started(600_000)
  service.child.kill('SIGINT')
  service.child.kill('SIGTERM') // a Ctrl-C that comes twice
  await until('the first to be heard', () => service.output().includes('stopping ('))
  await sleep(SECOND_SIGNAL_MS)
  ok(service.child.exitCode === null, 'expected the second one to be taken for the first')
  service.child.kill('SIGTERM')
  equal(await service.ended, [1, null])
  match(service.output(), /received a second signal \(SIGTERM\): exiting immediately/)
})

test('a request is answered at a stop though the files of the package have gone since the service began', async () => {
  await using work = await temporary('gone')
  const agent = join(work.path, 'agent')
  await cp(join(import.meta.dirname, '../agent'), agent, { recursive: true })
  await writeFile(join(work.path, 'package.json'), '{ "type": "module" }')
  await appendFile(join(agent, 'handover/give/parting.ts'), `process.stdout.write('can part\\n')`)
  const program = join(work.path, 'program.ts')
  await writeFile(program, SLOW)
  await using service = await startedAs(program, [work.path])
  await until('it to have what it stops with', () => service.output().includes('can part'))
  const [, port] = await until('it to say its port', () => /port (\d+)\n/.exec(service.output()))
  const answer = fetch(`http://127.0.0.1:${port}/`).then((response) => response.text(), String)
  await until('it to have the request', () => service.output().includes('asked'))
  await rm(agent, { recursive: true })
  service.child.kill('SIGTERM')
  is(await answer, 'slow')
  equal(await service.ended, [0, null])
  not.match(service.output(), /stopping: /)
})

test.run()

async function started(stopMs: number, tookMs?: number) {
  const times = [stopMs, ...(tookMs === undefined ? [] : [tookMs])]
  return await startedAs(join(import.meta.dirname, 'fixtures/stopping.ts'), times.map(String))
}

async function startedAs(program: string, args: readonly string[]) {
  const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
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
