// `before` of baton.config.json: what a start script runs before the application runs in every start and every switch, where it belongs.

import { readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('before', { timeoutMs: 200_000 })

/**
 * Started as `server.js migrate`, it is the migration: it notes which process serves, which of them live, and what it was given. It fails
 * at the release that is named in the file `bad`, and waits for as long as there is a file `slow`.
 */
const MIGRATES = `import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
  import { join } from 'node:path'
  import { release } from '${join(PROJECT, 'agent/adapters/release.ts')}'
  const state = process.env.STATE_DIRECTORY
  const text = (name) => existsSync(join(state, name)) ? readFileSync(join(state, name), 'utf8') : ''
  // one that has ended may be a zombie until its parent looks
  const lives = (pid) => { try { return !/\\) Z /.test(readFileSync('/proc/' + pid + '/stat', 'utf8')) } catch { return false } }
  if (process.argv[2] === 'migrate') {
    const isOwnFolder = process.cwd() === import.meta.dirname
    const [, tag, pid] = /^(\\S+) (\\d+)$/m.exec(text('serves')) ?? [0, 'nobody', 0]
    const said = [release.tag, 'after', tag, lives(Number(pid)) ? 'serves' : 'ended', process.argv[3] === state, isOwnFolder]
    appendFileSync(join(state, 'log'), said.join(' ') + '\\n')
    writeFileSync(join(state, 'migrates'), String(process.pid))
    console.log('migrates', release.tag)
    while (existsSync(join(state, 'slow'))) await new Promise((resolve) => setTimeout(resolve, 20))
    if (text('bad') === release.tag) {
      console.error('error: no such column: price')
      process.exit(3)
    }
  } else {
    await import('${join(PROJECT, 'agent/adapters/auto.ts')}')
    const { createServer } = await import('node:http')
    writeFileSync(join(state, 'serves'), release.tag + ' ' + process.pid)
    createServer((request, response) => response.end(release.tag)).listen(process.env.PORT, process.env.HOST)
  }`
const BEFORE = { before: [['server.js', 'migrate', '{stateDirectory}']] }

test('one at a time: it runs when the old process has ended, and at a rollback and a crash too; one that fails puts the old release back', async () => {
  await using it = await adopted(MIGRATES, BEFORE)
  const { log, state } = await placesOf(it)
  is((await it.operate('/admin/update')).outcome, 'updated')
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
  const first = 'v1.0.0 after nobody ended true true'
  const there = 'v1.1.0 after v1.0.0 ended true true'
  const back = 'v1.0.0 after v1.1.0 ended true true'
  equal(await log(), [first, there, back])

  await writeFile(join(state, 'bad'), 'v1.1.0')
  const { outcome, error } = await it.operate('/admin/update')
  is(outcome, 'reverted')
  match(
    error?.message ?? '',
    /v1\.1\.0 did not take over: it exited with code 1, after it wrote: .*no such column: price/,
  )
  match(error?.message ?? '', /`server\.js migrate \S+`, which runs before the application, ended with exit code 3/)
  equal((await log()).slice(3), [there, 'v1.0.0 after v1.0.0 ended true true'])
  const journal = await readFile(join(state, 'update/journal.json'), 'utf8')
  match(journal, /"bad":\s*\[\s*\{\s*"tag":\s*"v1\.1\.0"/)
  match(await readFile(join(state, 'run/shop.log'), 'utf8'), /^migrates v1\.1\.0$/m)

  process.kill(await pidIn(join(state, 'serves')), 'SIGKILL')
  await eventually('the next process', async () => (await log()).length === 6)
  is((await log()).at(-1), 'v1.0.0 after v1.0.0 ended true true')
})

test('together: it runs while the old process serves', async () => {
  await using it = await adopted(MIGRATES, { ...BEFORE, switch: 'together' })
  is((await it.operate('/admin/update')).outcome, 'updated')
  is((await (await placesOf(it)).log()).at(-1), 'v1.1.0 after v1.0.0 serves true true')
})

test('its time counts to `readyMs`, and a release that is given up leaves none behind', async () => {
  await using it = await adopted(MIGRATES, BEFORE, { update: { readyMs: 3000 } })
  const { state } = await placesOf(it)
  const [slow, migrates] = [join(state, 'slow'), join(state, 'migrates')]
  await writeFile(slow, '')
  const ends = it.operate('/admin/update', undefined, async () => {
    await eventually('the migration', async () => (await readFile(join(state, 'log'), 'utf8')).includes('v1.1.0'))
    const pid = await pidIn(migrates)
    await eventually('its end', async () => !isAlive(pid), 30_000)
    await rm(slow)
  })
  const { outcome, error } = await ends
  is(outcome, 'reverted')
  match(error?.message ?? '', 'it was not ready within 3000 ms')
})

test.run()

// ---- parts

async function placesOf(it: Adopted) {
  const { stateDirectory = '' } = JSON.parse(await readFile(it.configPath, 'utf8')) as { stateDirectory?: string }
  const state = stateDirectory === '' ? join(dirname(it.configPath), '../../.local/state/shop') : stateDirectory
  const log = async () => (await readFile(join(state, 'log'), 'utf8')).trim().split('\n')
  return { state, log }
}

async function pidIn(path: string): Promise<number> {
  return Number((await readFile(path, 'utf8')).split(' ').at(-1))
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
