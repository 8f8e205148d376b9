// Many at once: requests, command lines, pollers. At most one operation is in flight, whoever asks; and whoever watches it sees
// one story, from the first process to the second, without a gap and without a step back.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { UpdateSettings } from '../agent/settings.ts'
import { type Operation, STAGES, type Status } from '../agent/words/state.ts'
import { equal, is, match, ok } from './assert.ts'
import { processesBelow, sha256Of, until } from './fixtures/evidence.ts'
import { type Answer, type Install, install } from './fixtures/install.ts'
import { publishTo, scriptRelease, type TestRelease } from './fixtures/releases.ts'
import { conforms } from './lab/openapi.ts'
import { suite } from './suite.ts'

const POLL_MS = 20
const OUTSIDER = `
  const [, folder] = process.argv
  const { takeLock } = await import(${JSON.stringify(join(import.meta.dirname, '../agent/disk/lock.ts'))})
  const { makeDisk } = await import(${JSON.stringify(join(import.meta.dirname, '../agent/disk/disk.ts'))})
  console.log('here')
  process.stdin.once('data', async () => {
    try {
      await takeLock(makeDisk(), folder, 'beacon upgrade')
      console.log('taken')
    } catch (error) {
      console.log(error.code)
    }
  })
`

const built = Promise.all(['v1.0.0', 'v1.1.0', 'v1.2.0'].map((tag) => scriptRelease(tag)))

const test = suite('races', { timeoutMs: 60_000 })

test.long('of 50 requests at once and a command line, exactly one gets its operation', async () => {
  await using home = await served()
  await using outsider = await another(home)
  const asked = contest(home, 50)
  const [answers, said] = await Promise.all([asked, outsider.take()])
  const accepted = answers.filter(({ status }) => status === 202)
  equal(
    answers.filter(({ status }) => status !== 202 && status !== 409).map(({ body }) => body),
    [],
    'expected the others to be refused with 409',
  )
  is(accepted.length + (said === 'taken' ? 1 : 0), 1, `${accepted.length} requests and a command line that is ${said}`)
  if (said === 'taken') {
    // it does nothing but hold the lock: what asks meanwhile is told who has it
    const { status, body } = await home.api('POST', '/admin/update')
    is(status, 409)
    match((body as { detail: string }).detail, /held by [\w. ]+ upgrade \(pid \d+, since 20/)
    await outsider.kill()
    is((await home.api('POST', '/admin/update')).status, 202)
  } else is(said, 'locked')
  // after whoever has the lock it was an update that was asked for
  const kind = (accepted[0]?.body as Operation | undefined)?.kind ?? 'update'
  is((await home.settled()).outcome, kind === 'update' ? 'updated' : 'rolled_back')
  is((await statusOf(home)).history.length, 2, 'expected one more operation')
})

test('of 50 requests at once exactly one is accepted, and its watchers see one story', async () => {
  await using home = await served({ probation: '2500ms' })
  const before = await statusOf(home)
  const answers = await contest(home, 50)
  const accepted = answers.filter(({ status }) => status === 202)
  is(accepted.length, 1)
  is(answers.filter(({ status }) => status === 409).length, 49)
  const operation = accepted[0]?.body as Operation

  const stop = new AbortController()
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const watches = [watch(home, stop.signal), watch(home, stop.signal, agent)]
  const samples = sample(home, stop.signal)
  for (const watching of [...watches, samples]) watching.catch(() => {}) // heard below
  // also from the second process, while it is on probation
  await until('the second process to answer', async () => (await statusOf(home)).instance.id !== before.instance.id)
  const late = await contest(home, 10)
  equal(
    late.map(({ status }) => status),
    Array.from({ length: 10 }, () => 409),
  )
  const outsider = await another(home)
  is(await outsider.take(), 'locked')
  await outsider.kill()

  const end = await home.settled()
  is(end.id, operation.id)
  await until('one process', () => processesBelow(home.home).length === 1)
  stop.abort()
  for (const statuses of await Promise.all(watches)) holdsTogether(statuses, operation, before)
  for (const { stage, isBackupItself } of await samples) {
    if (stage === 'restart' || stage === null) is(isBackupItself, false, `${stage ?? 'after'}: backup and executable`)
  }
  agent.destroy()
  const [one, other] = await Promise.all([sha256Of(home.executable), sha256Of(home.backup)])
  ok(one !== null && other !== null && one !== other, 'expected two different executables')
})

test('whoever has read that an operation has ended is not refused the next one', async () => {
  await using home = await served({ probation: '0' })
  for (const [tag, outcome] of [
    ['v1.0.0', 'rolled_back'], // an older one
    ['v1.2.0', 'updated'],
    ['v1.1.0', 'rolled_back'],
    ['v1.2.0', 'updated'],
  ] as const) {
    const { status, body } = await home.api('POST', '/admin/update', { tag })
    is(status, 202, JSON.stringify(body))
    const ended = await until('its end', async () => {
      const { operation, state } = await statusOf(home)
      return state === 'idle' && operation
    })
    is(ended.outcome, outcome, ended.error?.message)
  }
})

test('a status that is waited for is answered at each change, across the switch, and none is missed', async () => {
  await using home = await served({ probation: '300ms' })
  const seen: Operation[] = []
  let etag = ''
  const asked = async (wait: number): Promise<number> => {
    const headers = { authorization: `Bearer ${home.password}`, 'if-none-match': etag }
    const answer = await fetch(`http://127.0.0.1:${home.port}/admin/update/status?wait=${wait}`, { headers }).catch(
      () => null,
    )
    if (answer === null) return 0 // its process has ended
    etag = answer.headers.get('etag') ?? etag
    if (answer.status === 200) {
      const { operation } = (await answer.json()) as Status
      if (operation !== null) seen.push(operation)
    }
    return answer.status
  }
  is(await asked(30), 200) // new to this client
  const began = performance.now()
  is(await asked(1), 304)
  ok(performance.now() - began > 900)
  seen.length = 0 // what ended before
  const { body } = await home.api('POST', '/admin/update')
  const { id } = body as Operation
  let times = 0
  while ((seen.at(-1)?.outcome ?? null) === null && times++ < 1000) await asked(30)
  ok(times < 100, `each answer is to be a change, got ${times} answers`)
  // the last stage is seen before its end, from the one process or the other
  ok(
    seen.some(({ stage, outcome }) => stage === 'restart' && outcome === null),
    JSON.stringify(seen),
  )
  const stages = seen.map(({ stage }) => STAGES.indexOf(stage))
  equal(
    stages,
    stages.toSorted((one, other) => one - other),
  )
  equal([seen.at(-1)?.outcome, seen.at(-1)?.id], ['updated', id])
  const one = await home.api('GET', `/admin/update/operations/${id}`)
  equal([one.status, (one.body as Operation).outcome], [200, 'updated'])
  const { operations } = (await home.api('GET', '/admin/update/operations')).body as { operations: Operation[] }
  equal([operations[0]?.id, new Set(operations.map((operation) => operation.id)).size], [id, operations.length])
})

test.long(
  'without a backup a rollback is told so, and takes nothing from an update that comes at the same time',
  async () => {
    await using home = await served({}, false)
    const [update, ...rollbacks] = await Promise.all([
      home.api('POST', '/admin/update', { tag: 'v1.2.0' }),
      ...Array.from({ length: 10 }, () => call(home, 'POST', '/admin/update/rollback')),
    ])
    is(update?.status, 202)
    for (const { status, body } of rollbacks) {
      const { code } = body as { code: string }
      match(`${status} ${code}`, /^(404 no_backup|409 (update_in_flight|locked))$/)
    }
    is((await home.settled()).outcome, 'updated')
  },
)

test.run()

/** v1.1.0 with v1.0.0 as its backup, or v1.0.0 without one; v1.2.0 is the latest. */
async function served(update: UpdateSettings = {}, hasBackup = true): Promise<Install> {
  const list = await built
  const home = await install({ release: list[0] as TestRelease, update: { ...update } })
  await publishTo(join(home.home, 'no-feed'), list)
  await home.start()
  if (hasBackup) {
    is((await home.api('POST', '/admin/update', { tag: 'v1.1.0' })).status, 202)
    is((await home.settled()).outcome, 'updated')
    await until('one process', () => processesBelow(home.home).length === 1)
  }
  return home
}

/** So many requests at once, two updates for each rollback. */
async function contest(home: Install, count: number): Promise<Answer[]> {
  return await Promise.all(
    Array.from({ length: count }, (_, i) =>
      i % 3 === 2 ? call(home, 'POST', '/admin/update/rollback') : call(home, 'POST', '/admin/update'),
    ),
  )
}

/** A process that takes the lock when it is told to, as a command line does, and keeps it. */
async function another(home: Install): Promise<AsyncDisposable & { take(): Promise<string>; kill(): Promise<void> }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', OUTSIDER, home.stateDirectory], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  await once(child.stdout, 'data')
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL')
    await exited
  }
  return {
    async take() {
      child.stdin.write('now\n')
      const [chunk] = (await once(child.stdout, 'data')) as [Buffer]
      return chunk.toString().trim()
    },
    kill,
    [Symbol.asyncDispose]: kill,
  }
}

/** Everything that the status says, every 20 ms; throws where an answer is missing. */
async function watch(home: Install, signal: AbortSignal, agent: Agent | false = false): Promise<Status[]> {
  const statuses: Status[] = []
  while (!signal.aborted) {
    const told = await ask(home, agent).catch(async (error: unknown) => {
      const how = agent === false ? 'on a fresh connection' : 'on one that is kept'
      throw new Error(`poll ${statuses.length} ${how}: ${JSON.stringify(statuses.at(-1))}\n${await home.output()}`, {
        cause: error,
      })
    })
    statuses.push(told)
    await sleep(POLL_MS)
  }
  return statuses
}

function holdsTogether(statuses: Status[], operation: Operation, before: Status): void {
  const told = statuses.map(({ state, operation: one, instance }) => [
    state,
    one?.stage,
    one?.outcome,
    instance.version,
  ])
  const story = JSON.stringify(told.filter((line, i) => JSON.stringify(line) !== JSON.stringify(told[i - 1])))
  ok(statuses.length > 20, `expected more than 20 polls, got ${statuses.length}`)
  equal([...new Set(statuses.map((status) => status.operation?.id))], [operation.id], story)
  const states = changes(statuses.map(({ state }) => state))
  equal(states, ['in_flight', 'idle'], story)
  const stages = statuses.map((status) => STAGES.indexOf(status.operation?.stage ?? 'check'))
  ok(
    stages.every((stage, i) => i === 0 || stage >= (stages[i - 1] ?? 0)),
    story,
  )
  const instances = changes(statuses.map(({ instance }) => instance.id))
  is(instances.length, 2, story)
  is(instances[0], before.instance.id, story)
  is(statuses.at(-1)?.operation?.outcome, operation.kind === 'update' ? 'updated' : 'rolled_back', story)
}

interface Sample {
  /** null: no operation in flight */
  stage: Operation['stage'] | null
  isBackupItself: boolean
}

/** Whether the backup is the executable itself, and in which stage at the latest. */
async function sample(home: Install, signal: AbortSignal): Promise<Sample[]> {
  const samples: Sample[] = []
  while (!signal.aborted) {
    const { state, operation } = await ask(home, false)
    const [executable, backup] = await Promise.all([stat(home.executable), stat(home.backup).catch(() => null)])
    samples.push({
      stage: state === 'in_flight' ? (operation?.stage ?? null) : null,
      isBackupItself: backup?.ino === executable.ino,
    })
    await sleep(5)
  }
  return samples
}

function changes<T>(values: T[]): T[] {
  return values.filter((value, i) => i === 0 || value !== values[i - 1])
}

async function statusOf(home: Install): Promise<Status> {
  return (await call(home, 'GET', '/admin/update/status')).body as Status
}

async function call(home: Install, method: string, path: string): Promise<Answer> {
  const answer = await home.api(method, path)
  conforms({ method, path, ...answer })
  return answer
}

function ask(home: Install, agent: Agent | false): Promise<Status> {
  return new Promise((resolve, reject) => {
    const options = { port: home.port, path: '/admin/update/status', agent, timeout: 10_000 }
    const headers = { authorization: `Bearer ${home.password}` }
    const asked = request({ host: '127.0.0.1', ...options, headers }, (response) => {
      let text = ''
      response.on('data', (part: Buffer) => (text += part.toString()))
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode === 200) resolve(JSON.parse(text) as Status)
        else reject(new Error(`expected status 200, got ${response.statusCode}: ${text}`))
      })
    })
    asked.on('timeout', () => asked.destroy(new Error('no answer in 10 s')))
    asked.on('error', reject)
    asked.end()
  })
}
