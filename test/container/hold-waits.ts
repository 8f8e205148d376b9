// A container behind a holder, replaced by the command: stop-first, the new one waits in its first code until the old one
// has ended; start-first, both serve for a while. What fails before that leaves the old container as it was, never stopped.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { Agent, get, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectEngine } from '../../deploy/container/engine/engine.ts'
import { equal, match, ok } from '../assert.ts'
import { openLab } from '../lab/docker.ts'
import { isLong, suite } from '../suite.ts'
import { command, heldBefore, NOT_TRIED } from './cutting.ts'
import {
  cable,
  heldService,
  type HeldService,
  keptRows,
  tell,
  uncable,
  underLoad,
  watchDatabase,
  whole,
} from './held-service.ts'
import { derivedImage, serviceImages, switching } from './images.ts'
import { healthy, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container hold waits', { timeoutMs: 600_000, skip })
const ROUNDS = isLong ? 20 : 1
/** how long a new container is seen to wait */
const UNSEEN_MS = 500
let [repository, address] = ['', '']
let [alone, both]: HeldService[] = []

test.before(async () => {
  address = (await cable()).address
  repository = await serviceImages(engine, registry)
  alone = await heldService(engine, { name: 'alone', port: 8230, repository, address })
  both = await heldService(engine, {
    name: 'both',
    port: 8231,
    repository: await switching(engine, repository, 'start-first'),
    address,
  })
})

test('stop-first: the new one waits in its first code, its application begins after the old one’s end, nobody is refused', async () => {
  const service = alone as HeldService
  const overlaps = await watchDatabase(engine, service.app)
  const seen = await underLoad(engine, service, ROUNDS, async (round) => {
    const before = await engine.inspect(service.app)
    await deployed(service.app, round % 2 === 0 ? 'v1.1.0' : 'v1.0.0')
    const [now, old] = [await engine.inspect(service.app), await engine.inspect(`${service.app}-baton-previous`)]
    equal(old.Id, before.Id)
    ok(now.State.StartedAt < old.State.FinishedAt, `${now.State.StartedAt}, ${old.State.FinishedAt}`)
  })
  tell('stop-first', seen)
  whole(seen)
  const { looks, most } = await overlaps.stop()
  ok(looks > 10, String(looks))
  equal(most, 1, 'containers that had the database open at once')
  equal(await gates(service), [])
  await keptRows(engine, service.app, seen.ids)
})

const UNFIT: [string, string, RegExp][] = [
  ['exits', 'ENTRYPOINT ["/busybox", "false"]', /stopped \(exit code 1\) before it was ready/],
  ['is another release', 'LABEL baton.service=beacon', /expected version v1\.9\.1, got .*v1\.1\.0/],
  ['hangs', 'ENTRYPOINT ["/busybox", "sleep", "1000"]', /was not ready to take over after 3s/],
  [
    'runs out of memory',
    'ENTRYPOINT ["/busybox", "tail", "/dev/zero"]',
    /stopped \(exit code 137, out of memory\) before it was ready/,
  ],
]
// hold.ts has releases that fail later
for (const [i, [what, lines, said]] of UNFIT.entries())
  test.long(
    `stop-first: a new one that does not come as far (${what}) is put away, and the old one was never stopped`,
    async () => {
      const service = alone as HeldService
      const tag = `v1.9.${i}`
      const [from, reference] = [`${repository}:v1.1.0`, `${repository}:${tag}`]
      const version = `LABEL org.opencontainers.image.version=${tag}`
      await derivedImage(engine, { from, reference, lines: `COPY busybox /busybox\n${version}\n${lines}` })
      await engine.docker('update', '--memory', '400m', '--memory-swap', '400m', service.app)
      const before = await engine.inspect(service.app)
      const seen = await underLoad(engine, service, 1, async () => {
        const { code, out } = await command(engine.socketPath, service.app, tag, [
          ...NOT_TRIED,
          '--health-timeout',
          what === 'hangs' ? '3s' : '60s',
        ]).ended
        equal(code, 8, out)
        match(out, said)
      })
      whole(seen)
      tell(what, seen)
      const now = await engine.inspect(service.app)
      equal([now.Id, now.State.StartedAt], [before.Id, before.State.StartedAt])
      equal(await gates(service), [])
    },
  )

test('stop-first: kill -9 of what does the switch, while the new one waits: that ends by itself, and the switch is finished', async () => {
  const service = alone as HeldService
  const to = other(await tagOf(service.app))
  const overlaps = await watchDatabase(engine, service.app)
  const old = await engine.inspect(service.app)
  const seen = await underLoad(engine, service, 1, async () => {
    const { gate, ended } = await heldBefore(engine, service.app, to, 4)
    equal(gate.changes, ['rename', 'rename', 'start', 'stop'])
    const waiting = await engine.inspect(service.app)
    equal([waiting.State.Running, (await engine.inspect(old.Id)).State.Running], [true, true])
    const { State } = await engine.inspect(`${service.app}-baton-switch`)
    gate.open()
    process.kill(State.Pid, 'SIGKILL')
    await until('its end', async () => {
      const { State: now } = await engine.inspect(waiting.Id)
      return now.StartedAt !== waiting.State.StartedAt || !now.Running
    })
    equal((await engine.inspect(old.Id)).State.StartedAt, old.State.StartedAt)
    const { code, out } = await ended
    equal(code, 0, out)
    await gate.close()
  })
  whole(seen)
  tell('killed while it waits', seen)
  equal((await overlaps.stop()).most, 1)
  equal([await tagOf(service.app), await gates(service)], [to, []])
})

test('stop-first: the new one begins when the kernel has seen the old one’s end, whenever the engine sees it', async () => {
  const service = alone as HeldService
  const overlaps = await watchDatabase(engine, service.app)
  const old = await engine.inspect(service.app)
  const to = other(await tagOf(service.app))
  const seen = await underLoad(engine, service, 1, async () => {
    const { deployment, goOn } = await blindAtStop(service, to)
    await until('an answer of the new one', async () => (await said(service)).includes(to))
    equal((await engine.inspect(old.Id)).State.Running, true, 'to the engine the old one runs')
    const serves = (await engine.inspect(service.app)).State.Pid
    process.kill((await engine.inspect(`${service.app}-baton-switch`)).State.Pid, 'SIGKILL')
    await until('the next run', async () => (await engine.inspect(`${service.app}-baton-switch`)).State.Running)
    await sleep(UNSEEN_MS)
    goOn()
    equal((await engine.inspect(service.app)).State.Pid, serves)
    const { code, out } = await deployment.ended
    equal(code, 0, out)
  })
  tell('before the engine sees it', seen)
  whole(seen)
  equal((await overlaps.stop()).most, 1, 'containers that had the database open at once')
  equal([await tagOf(service.app), await gates(service)], [to, []])
})

test('stop-first: what else ran in the old one holds the new one back until it is gone, though process 1 has left all it had', async () => {
  const service = alone as HeldService
  const { State } = await engine.inspect(service.app)
  // who waits for the end of its child is outside, and stands still: so the child is not gone before that
  const inside = ['nsenter', '-t', String(State.Pid), '-p', 'sh', '-c', 'trap "" TERM; echo; while :; do sleep 1; done']
  const outside = spawn(inside[0] ?? '', inside.slice(1), { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(outside.stdout, 'data')
  outside.kill('SIGSTOP')
  const to = other(await tagOf(service.app))
  const seen = await underLoad(engine, service, 1, async () => {
    const deployment = command(engine.socketPath, service.app, to, NOT_TRIED)
    await until('the end of its application', async () => (await openFiles(State.Pid)) === 0)
    await sleep(UNSEEN_MS)
    equal((await gates(service)).length, 1)
    outside.kill('SIGCONT')
    const { code, out } = await deployment.ended
    equal(code, 0, out)
  })
  tell('held back by another process', seen)
  whole(seen)
  equal([await tagOf(service.app), await gates(service)], [to, []])
})

test.long('stop-first: of an old one in the pid namespace of its host, the engine’s word counts', async () => {
  const service = await heldService(engine, { name: 'wide', port: 8233, repository, address })
  await engine.docker('rm', '-f', service.app)
  await engine.docker('run', '-d', '--pid', 'host', ...service.again('v1.0.0'))
  await healthy(engine, service.app)
  const { State } = await engine.inspect(service.app)
  const { deployment, goOn } = await blindAtStop(service, 'v1.1.0')
  await until('its end', async () => (await openFiles(State.Pid)) === 0)
  await sleep(UNSEEN_MS)
  equal((await gates(service)).length, 1)
  // the next run finds an old one that has ended, and the gate of this one
  process.kill((await engine.inspect(`${service.app}-baton-switch`)).State.Pid, 'SIGKILL')
  goOn()
  const { code, out } = await deployment.ended
  equal(code, 0, out)
  equal(await gates(service), [])
  await engine.docker('rm', '-f', service.app, `${service.app}-baton-previous`, service.door)
})

test.long(
  'stop-first: an application in its holder’s own network knows no gate: it is started after the old one’s end',
  async () => {
    const service = await heldService(engine, { name: 'inside', port: 8232, repository, address })
    await engine.docker('rm', '-f', service.app)
    await engine.docker('run', '-d', '--network', `container:${service.door}`, ...service.again('v1.0.0'))
    await healthy(engine, service.app)
    const overlaps = await watchDatabase(engine, service.app)
    const seen = await underLoad(engine, service, 1, () => deployed(service.app, 'v1.1.0'))
    tell('in its holder’s network', seen)
    equal((await overlaps.stop()).most, 1, 'containers that had the database open at once')
    whole(seen)
    await engine.docker('rm', '-f', service.app, `${service.app}-baton-previous`, service.door)
  },
)

test('start-first: both serve on one socket through the probation, and nobody waits, is refused or loses anything', async () => {
  const service = both as HeldService
  const seen = await underLoad(engine, service, ROUNDS, async (round) => {
    const before = await engine.inspect(service.app)
    const deployment = command(engine.socketPath, service.app, round % 2 === 0 ? 'v1.1.0' : 'v1.0.0', [
      ...NOT_TRIED,
      '--probation',
      '1s',
    ])
    await until('both to serve', async () => (await healthyOnes(service.app)) === 2)
    equal((await gates(service)).length, 1, 'the old one has its turn')
    const { code, out } = await deployment.ended
    equal(code, 0, out)
    const [now, old] = [await engine.inspect(service.app), await engine.inspect(`${service.app}-baton-previous`)]
    equal([old.Id, old.State.Running], [before.Id, false])
    ok(Date.parse(old.State.FinishedAt) - Date.parse(now.State.StartedAt) > 1000)
    equal(await gates(service), [])
  })
  tell('start-first', seen)
  whole(seen)
})

test.long(
  'start-first: a new one that dies in the probation is put away, and the old one was never stopped',
  async () => {
    const service = both as HeldService
    const before = await engine.inspect(service.app)
    const to = other(await tagOf(service.app))
    const deployment = command(engine.socketPath, service.app, to, [...NOT_TRIED, '--probation', '20s'])
    await until('both to serve', async () => (await healthyOnes(service.app)) === 2)
    process.kill((await engine.inspect(service.app)).State.Pid, 'SIGKILL')
    const { code, out } = await deployment.ended
    equal(code, 8, out)
    const now = await engine.inspect(service.app)
    equal([now.Id, now.State.StartedAt, await gates(service)], [before.Id, before.State.StartedAt, []])
  },
)

test.after(async () => {
  await uncable()
  await close()
})

test.run()

async function tagOf(name: string): Promise<string> {
  return (await engine.inspect(name)).Config.Labels['org.opencontainers.image.version']
}

/** How many of the old and the new container answer inside. */
async function healthyOnes(name: string): Promise<number> {
  const isWell = async (one: string) =>
    await engine.docker('exec', one, '/usr/local/bin/service', 'healthcheck').then(
      () => true,
      () => false,
    )
  return (await Promise.all([name, `${name}-baton-predecessor`].map(isWell))).filter(Boolean).length
}

/** A deployment; from when the old container has been told to end, the engine sees nothing of it, up to `goOn`. */
async function blindAtStop({ app, address: host, port }: HeldService, release: string) {
  const { Id, State } = await engine.inspect(app)
  const client = await connectEngine(engine.socketPath)
  const over = new AbortController()
  const signals = await client.signals(Id, over.signal)
  const deployment = command(engine.socketPath, app, release, NOT_TRIED)
  // while such a connection is open, the application is about to answer on it: it does not end at once
  const agent = new Agent({ keepAlive: true })
  const asked = get({ host, port, agent })
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  answer.resume()
  for await (const _ of signals) break
  const shim = Number(/^PPid:\t(\d+)$/m.exec(await readFile(`/proc/${State.Pid}/status`, 'utf8'))?.[1])
  process.kill(shim, 'SIGSTOP')
  agent.destroy()
  over.abort()
  client.close()
  return { deployment, goOn: () => process.kill(shim, 'SIGCONT') }
}

/** 0: it has ended, whatever is left of it */
async function openFiles(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`).catch(() => [])).length
}

async function said({ address: host, port }: HeldService): Promise<string> {
  const answer = await fetch(`http://${host}:${port}/`, { signal: AbortSignal.timeout(2000) }).catch(() => null)
  return (await answer?.text().catch(() => '')) ?? ''
}

function other(tag: string): string {
  return tag === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
}

async function deployed(name: string, release: string): Promise<void> {
  const { code, out } = await command(engine.socketPath, name, release, NOT_TRIED).ended
  equal(code, 0, out)
}

/** Names of gates and turns that are left in the volume. */
async function gates({ door }: HeldService): Promise<string[]> {
  const { Mounts } = await engine.inspect(door)
  return (await readdir(Mounts[0].Source)).filter((name) => /^(gate|turn)-/.test(name))
}
