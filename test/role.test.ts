// `agent.role`: what a process of a service says that it is, before, in and after each kind of switch. Real installs.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('role', { timeoutMs: 120_000 })

/** Answers with its release, its process and its role, and writes down which releases were asked in which role. */
const TELLS = `import { embed } from '${join(PROJECT, 'agent/index.ts')}'
  import { release } from '${join(PROJECT, 'agent/adapters/release.ts')}'
  import { appendFileSync } from 'node:fs'
  import { createServer } from 'node:http'
  const agent = await embed()
  const server = createServer((request, response) => {
    if (agent.handle(request, response)) return
    appendFileSync(process.env.STATE_DIRECTORY + '/roles', release.tag + ' ' + agent.role + '\\n')
    response.end(release.tag + ' ' + process.pid + ' ' + agent.role)
  })
  await agent.serve([{ server, port: Number(process.env.PORT), host: process.env.HOST }])`

test('in a stop-first switch there is never but one: no process says anything else', async () => {
  await using it = await adopted(TELLS, { order: 'stop-first' })
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  is((await answerOf(it)).role, 'only')
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
  is((await answerOf(it)).role, 'only')
  equal(await rolesSeen(it), ['v1.0.0 only', 'v1.1.0 only'])
})

test('in a start-first switch the new process says so until the old one is gone, and from then on that it is the only one', async () => {
  await using it = await adopted(TELLS, { order: 'start-first' })
  is((await answerOf(it)).role, 'only')
  is((await it.operate('/admin/update', { tag: 'v1.1.0' })).outcome, 'updated')
  await eventually('the only one', async () => (await answerOf(it)).role === 'only', 20_000)
  is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
  await eventually('the only one', async () => (await answerOf(it)).role === 'only', 20_000)
  const seen = await rolesSeen(it)
  // the old process asks the new one how it is, so both have been asked; the old one may have been, too
  for (const one of ['v1.0.0 only', 'v1.1.0 new', 'v1.1.0 only', 'v1.0.0 new']) ok(seen.includes(one), seen.join())
})

test('if the old process dies in the probation, the new one is the only one at once, before its probation is over', async () => {
  await using it = await adopted(TELLS, { order: 'start-first' }, { update: { probation: '10m' } })
  const old = await answerOf(it)
  is((await ask(it.port, 'POST', '/admin/update', it.password, { tag: 'v1.1.0' })).status, 202)
  await eventually('the new one', async () => (await answerOf(it)).role === 'new', 60_000)
  process.kill(old.pid, 'SIGKILL')
  await eventually('the only one', async () => (await answerOf(it)).role === 'only', 60_000)
  is((await answerOf(it)).tag, 'v1.1.0')
})

test.run()

async function answerOf({ port }: Adopted): Promise<{ tag: string; pid: number; role: string }> {
  const { body } = await ask(port, 'GET', '/healthz', null)
  const [tag = '', pid = '', role = ''] = String(body).split(' ')
  return { tag, pid: Number(pid), role }
}

async function rolesSeen({ configPath }: Adopted): Promise<string[]> {
  const { stateDirectory } = JSON.parse(await readFile(configPath, 'utf8')) as { stateDirectory: string }
  const lines = (await readFile(join(stateDirectory, 'roles'), 'utf8')).trim().split('\n')
  return [...new Set(lines)].toSorted()
}
