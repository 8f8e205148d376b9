// A migration says how far it is: the command line and the status of the old process tell it, and a text of whatever length or shape harms nothing.

import { spawnSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { readProgress } from '../agent/disk/read-progress.ts'
import { progress } from '../agent/handover/progress.ts'
import { progressPath } from '../agent/disk/places.ts'
import type { Operation, Status } from '../agent/words/state.ts'
import { formatProgress } from '../agent/words/report.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, ok } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('start progress', { timeoutMs: 120_000 })
const FROM = `from '${join(PROJECT, 'agent/adapters/auto.ts')}'`

/** its start takes three seconds, without giving the loop a turn */
const MIGRATES = `import { progress } ${FROM}
  import { release } ${FROM.replace('auto.ts', 'release.ts')}
  import { createServer } from 'node:http'
  if (release.tag === 'v1.1.0')
    for (let row = 0; row <= 30; row++) {
      progress('copying\\nrows', row, 30)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
    }
  createServer((request, response) => response.end(release.tag)).listen(Number(process.env.PORT), process.env.HOST)`

test('stop-first: `upgrade` tells it while nobody answers', async () => {
  await using it = await adopted(MIGRATES, { order: 'stop-first' })
  const { exitCode, stderr, stdout } = await it.word('upgrade', '--user')
  is(exitCode, 0, stderr)
  match(`${stdout}${stderr}`, /copying rows \(\d+%\)/)
})

/** prints how far it is for three seconds, without giving the loop a turn */
const PRINTS = `for (let row = 0; row <= 30; row++) {
    console.log('baton: ' + Math.round(row / 0.3) + '%' + (row > 20 ? '' : ' copying \\x1b[31mrows  '))
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
  }`
const SERVES = `await import(${FROM.slice(5)})
  const { createServer } = await import('node:http')
  createServer((request, response) => response.end(release.tag)).listen(Number(process.env.PORT), process.env.HOST)`
const RELEASE = `import { release } ${FROM.replace('auto.ts', 'release.ts')}`
const PRINTED = {
  'the application': [`${RELEASE}\nif (release.tag === 'v1.1.0') ${PRINTS}\n${SERVES}`, { order: 'stop-first' }],
  'a command that runs before it': [
    `${RELEASE}\nif (process.argv[2] !== 'migrate') { ${SERVES} } else if (release.tag === 'v1.1.0') ${PRINTS}`,
    { order: 'start-first', before: [['server.js', 'migrate']] },
  ],
} as const

for (const [who, [text, config]] of Object.entries(PRINTED)) {
  const register = who === 'the application' ? test : test.long
  register(`a line on the stdout of ${who} counts as well, without its colours`, async () => {
    await using it = await adopted(text, config)
    const { exitCode, stderr, stdout } = await it.word('upgrade', '--user')
    is(exitCode, 0, stderr)
    match(`${stdout}${stderr}`, /copying rows \(\d+%\)/)
    match(`${stdout}${stderr}`, /starting \(\d+%\)/)
  })
}

test.long('start-first: the status tells it, and nothing once the operation has ended', async () => {
  await using it = await adopted(MIGRATES, { order: 'start-first' })
  const told: string[] = []
  const operation = await it.operate('/admin/update', { tag: 'v1.1.0' }, async () => {
    for (const until = Date.now() + 30_000; Date.now() < until;) {
      const { body } = await ask(it.port, 'GET', '/admin/update/status', it.password)
      const { operation: now } = body as Status
      if (now?.starting !== undefined) told.push(formatProgress(now.starting))
      if (now?.outcome !== null || told.length > 3) return
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  })
  is(operation.outcome, 'updated')
  ok(told.length > 0 && told.every((line) => /^copying rows \(\d+%\)$/.test(line)), told.join('; '))
  const { body } = await ask(it.port, 'GET', '/admin/update/status', it.password)
  is((body as Status).operation?.starting, undefined)
})

test('what is no progress of this operation, or no progress at all, is nothing', async () => {
  await using folder = await temporary('progress')
  const operation = { to: 'v1.1.0', startedAt: '2026-01-02T00:00:00.000Z' } as Operation
  const good = { tag: 'v1.1.0', at: '2026-01-02T00:00:01.000Z', text: 'copying', done: 1, total: 4 }
  const path = progressPath(folder.path)
  await mkdir(join(path, '..'))
  is(await readProgress(folder.path, operation), null)
  const read = async (text: string) => {
    await writeFile(path, text)
    return await readProgress(folder.path, operation)
  }
  equal(await read(JSON.stringify(good)), good)
  equal(await read(JSON.stringify({ ...good, done: -1, total: 'x', more: 1 })), {
    tag: good.tag,
    at: good.at,
    text: good.text,
  })
  for (const bad of [
    '',
    '{',
    'null',
    '[]',
    JSON.stringify({ ...good, tag: 'v1.0.0' }),
    JSON.stringify({ ...good, at: '2026-01-01T23:59:59.999Z' }),
    JSON.stringify({ ...good, text: 7 }),
    JSON.stringify({ ...good, text: 'x'.repeat(5000) }),
  ])
    is(await read(bad), null, bad.slice(0, 80))
})

test.long('a pipe in the place of what a start says is not waited for, and `progress` never throws', async () => {
  await using folder = await temporary('progress')
  const path = progressPath(folder.path)
  await mkdir(join(path, '..'))
  is(spawnSync('mkfifo', [path]).status, 0)
  const read = readProgress(folder.path, { to: 'v1.1.0', startedAt: '' })
  const late = sleep(2000, 'late', { ref: false })
  const got = await Promise.race([read, late])
  if (got === 'late') await writeFile(path, '') // frees the thread that waits
  is(got, null)
  const wrong: unknown[] = [undefined, 7, null, {}]
  for (const text of wrong) progress(text as string, 1, 1)
})

test.run()
