// A deployment that is cut: the command or the container that does the switch killed with -9, the engine restarted, the power gone,
// at every change of the engine. One of the two serves again without anybody's help, and the data is there.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { suite } from '../suite.ts'
import { equal, match, ok } from '../assert.ts'
import { type EngineGate, engineGate } from '../lab/engine-gate.ts'
import {
  labFolder,
  labReason,
  type LabEngine,
  publish,
  type Registry,
  startEngine,
  startRegistry,
} from '../lab/docker.ts'
import { type Killed, witnessed } from '../fixtures/deploy-container.ts'
import { deployIn, healthy, probeImage, publishGood, QUICK } from './probe.ts'

const skip = labReason()
const test = suite('container cut short', { timeoutMs: 300_000, skip })
const lab = skip === null ? { engine: await startEngine(), registry: await startRegistry() } : null
const engine = lab?.engine as LabEngine
const registry = lab?.registry as Registry
const PROGRAM = join(import.meta.dirname, '../fixtures/deploy-container.ts')
const COMMAND = join(import.meta.dirname, '../../deploy/deploy-container.ts')
const AT_ONCE = 4
/** the long form: every change also where another test has one for all */
const isLong = process.env['BATON_TEST_LONG'] === '1'
/** of the switch: rename, rename, stop, start, policy, policy, rename */
const SWITCH = ['rename', 'rename', 'stop', 'start', 'update', 'update', 'rename']
/** of the way back after `start`: rename, rename, start, rename */
const BACK = ['rename', 'rename', 'start', 'rename']
/** what comes before the switch in an update with a second network: tag, create, connect, tag */
const BEFORE = 4

test.before(async () => {
  await publishGood(registry.host)
  const crashes = { Entrypoint: ['/bin/sh', '-c', 'sleep 0.3; exit 3'], Cmd: null }
  await publish(registry.host, 'beacon', ['v1.2.1'], probeImage('v1.2.1', crashes))
  for (const tag of ['v1.0.0', 'v1.1.0', 'v1.2.1']) await engine.docker('pull', '-q', `${registry.host}/beacon:${tag}`)
  await engine.docker('network', 'create', 'first')
  await engine.docker('network', 'create', 'second')
  // the first deployment makes the image of the program
  await old('first-one')
  const { code, out } = await command(engine.socketPath, 'first-one', 'v1.1.0').ended
  equal(code, 0, out)
  await gone('first-one')
})

test('whoever does the switch killed with -9 before any change: it is started again and finishes, by itself', async () => {
  const points = await heldEverywhere('killed', 'v1.1.0', isLong ? range(1, SWITCH.length) : [1, 4, 6])
  for (const { name, gate } of points) {
    gate.open()
    const { State } = await engine.inspect(`${name}-baton-switch`)
    process.kill(State.Pid, 'SIGKILL')
  }
  await someAtOnce(points, async ({ name, gate, deployment, n }) => {
    equal(gate.changes.slice(0, n), SWITCH.slice(0, n))
    const { code, out } = await deployment.ended
    equal(code, 0, `${name}: ${out}`)
    await runs(name, 'v1.1.0')
    equal(await leftovers(name), [`${name}-baton-previous`])
    await gate.close()
  })
})

test('the power gone before any change, the command with it: one of the two serves again, and the update is finished', async () => {
  const started = SWITCH.indexOf('start') + 1
  const points = await heldEverywhere('power', 'v1.1.0', range(1, SWITCH.length))
  const back = await heldEverywhere('return', 'v1.2.1', range(started + 1, started + BACK.length))
  for (const { deployment } of [...points, ...back]) deployment.child.kill('SIGKILL')
  await engine.crash()
  for (const { gate } of [...points, ...back]) gate.open()
  await engine.start()
  await someAtOnce([...points, ...back], async ({ name, n, gate }) => {
    const [version, kept] = name.startsWith('power') ? ['v1.1.0', 'previous'] : ['v1.0.0', 'failed']
    await until(`${name} (cut at ${n}) stands`, async () => (await standing(name)) === `${version} always ${kept}`)
    await runs(name, version)
    await gate.close()
  })
})

test('the command killed with -9 in the switch: nobody notices, and a command in between is told that it is locked', async () => {
  await old('left')
  const { child } = command(engine.socketPath, 'left', 'v1.1.0', '--probation', '3')
  await until('the switch', async () => (await leftovers('left')).includes('left-baton-predecessor'))
  child.kill('SIGKILL')
  const second = await command(engine.socketPath, 'left', 'v1.1.0').ended
  equal(second.code, 6)
  match(second.out, /docker logs -f left-baton-switch/)
  await until('the end', async () => (await engine.inspect('left-baton-switch')).State.Running === false)
  equal(await standing('left'), 'v1.1.0 always previous')
  equal((await deployIn(engine, { container: 'left', release: 'v1.1.0' })).outcome, 'up_to_date')
  await gone('left')
})

for (const [signal, when] of [
  ['SIGINT', 'switch'],
  ['SIGTERM', 'switch'],
  ['SIGINT', 'plan'],
  ['SIGHUP', 'switch'],
] as const) {
  const isFinished = signal === 'SIGHUP'
  test(`${signal} at the ${when}: ${isFinished ? 'finishes' : 'goes back'}, and says so`, async () => {
    const name = `signal-${signal}-${when}`.toLowerCase()
    const before = await old(name)
    const { child, said, ended } = command(engine.socketPath, name, 'v1.1.0', '--probation', isFinished ? '1' : '20')
    await until(`${when} of ${name}`, async () => said().includes(when === 'plan' ? '"plan"' : '"probation"'))
    child.kill(signal)
    const { code, out } = await ended
    const last = JSON.parse(
      out
        .trim()
        .split('\n')
        .findLast((line) => line.startsWith('{')) ?? '{}',
    )
    if (isFinished) equal([code, last.outcome], [0, 'updated'])
    else {
      match(last.message, new RegExp(`stopped by ${signal}|asked to go back`))
      equal([code, last.outcome], when === 'plan' ? [1, 'failed'] : [8, 'reverted'], out)
      equal((await engine.inspect(name)).Id, before.Id)
    }
    await runs(name, isFinished ? 'v1.1.0' : 'v1.0.0')
    equal(
      (await leftovers(name)).filter((left) => !/(previous|failed)$/.test(left)),
      [],
    )
    await gone(name)
  })
}

test('without a container for the switch, killed before any change: a second run finishes it', async () => {
  const points = isLong ? range(1, BEFORE + SWITCH.length) : [...range(1, BEFORE), BEFORE + 4]
  await someAtOnce(points, async (n) => {
    const name = `kill${n}`
    const before = await old(name)
    const said = await killed(name, 'v1.1.0', n)
    equal(said.length, n, `${name}: ${said.join(', ')}`)
    const ended = await deployIn(engine, { container: name, release: 'v1.1.0' })
    equal([ended.outcome, ended.error?.message], ['updated', undefined], `${name} at ${said.at(-1)}`)
    await runs(name, 'v1.1.0')
    await engine.inspect(before.Id)
    equal(await leftovers(name), [`${name}-baton-previous`])
    await gone(name)
  })
})

test('without it, killed before some changes of an update: --rollback undoes it', async () => {
  // up to `create` nothing is there to undo, and it says so
  await someAtOnce([3, BEFORE + 1, BEFORE + 4, BEFORE + SWITCH.length], async (n) => {
    const name = `undo${n}`
    const before = await old(name)
    const said = await killed(name, 'v1.1.0', n)
    const ended = await deployIn(engine, { container: name, release: null })
    equal([ended.outcome, ended.to], ['rolled_back', 'v1.0.0'], `${name} at ${said.at(-1)}`)
    await runs(name, 'v1.0.0')
    equal((await engine.inspect(name)).Id, before.Id)
    equal(
      (await leftovers(name)).filter((left) => !left.endsWith('-failed')),
      [],
    )
    await gone(name)
  })
})

for (const [i, restart] of (['always', 'no'] as const).entries()) {
  test(`the engine restarted before every ${i === 0 ? 'even' : 'odd'} change, restart policy ${restart}: the update is finished`, async () => {
    const name = `engine${i}`
    const before = await old(name, restart)
    const restarts: string[] = []
    const ended = await deployIn(engine, { container: name, release: 'v1.1.0' }, (client) =>
      witnessed(client, async (n, change) => {
        if (n % 2 !== i || n <= BEFORE) return
        restarts.push(change)
        await engine.restart()
      }),
    )
    equal([ended.outcome, ended.error?.message], ['updated', undefined])
    ok(restarts.length >= 2, restarts.join(', '))
    await runs(name, 'v1.1.0', restart)
    await engine.inspect(before.Id)
    await gone(name)
  })
}

test.after(async () => {
  await lab?.engine.stop()
  await lab?.registry.stop()
})

test.run()

async function old(name: string, restart = 'always') {
  const options = ['--restart', restart, '-v', `${name}-data:/data`, '--network', 'first', '--stop-signal', 'SIGKILL']
  await engine.docker('run', '-d', '--name', name, ...options, `${registry.host}/beacon:v1.0.0`)
  await engine.docker('network', 'connect', 'second', name)
  await healthy(engine, name)
  await engine.docker('exec', name, '/bin/busybox', 'touch', '/data/here')
  return await engine.inspect(name)
}

async function gone(name: string): Promise<void> {
  await engine.docker('rm', '-f', name, ...(await leftovers(name)))
}

/** Healthy, of this version, with its policy, both its networks and its data. */
async function runs(name: string, version: string, restart = 'always'): Promise<void> {
  await healthy(engine, name)
  const { Config, HostConfig, NetworkSettings } = await engine.inspect(name)
  equal(Config.Labels['org.opencontainers.image.version'], version)
  equal(HostConfig.RestartPolicy.Name, restart)
  equal(Object.keys(NetworkSettings.Networks).toSorted(), ['first', 'second'])
  await engine.docker('exec', name, '/bin/busybox', 'ls', '/data/here')
}

/** `v1.1.0 always previous`: what serves, its policy, and what is kept beside it; '' where nothing serves yet. */
async function standing(name: string): Promise<string> {
  const { Config, HostConfig, State } = await engine.inspect(name).catch(() => ({ State: {} }))
  if (State.Running !== true) return ''
  const kept = (await leftovers(name)).filter((left) => !left.endsWith('-switch')).map((left) => left.split('-').at(-1))
  return [Config.Labels['org.opencontainers.image.version'], HostConfig.RestartPolicy.Name, ...kept].join(' ')
}

async function leftovers(name: string): Promise<string[]> {
  const all = (await engine.docker('ps', '-a', '--format', '{{.Names}}')).split('\n')
  return all.filter((other) => other.startsWith(`${name}-baton-`)).toSorted()
}

/** One deployment by the command, as a person runs it. */
function command(socketPath: string, name: string, release: string, ...more: string[]) {
  const args = ['--container', name, '--release', release, '--json', '--probation', '0.3', ...more]
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', COMMAND, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, DOCKER_HOST: `unix://${socketPath}` },
  })
  let out = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => void (out += chunk.toString()))
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, out }))
  return { child, ended, said: () => out }
}

interface Point {
  name: string
  /** the change that is held, from 1 */
  n: number
  gate: EngineGate
  deployment: ReturnType<typeof command>
}

/** A deployment for each of these changes, held right before it. */
async function heldEverywhere(prefix: string, release: string, changes: number[]): Promise<Point[]> {
  const points: Point[] = []
  await someAtOnce(changes, async (n) => {
    const name = `${prefix}${n}`
    await old(name)
    const gate = await engineGate(engine.socketPath, join(labFolder(), `${name}.sock`), n)
    const deployment = command(gate.socketPath, name, release)
    const early = deployment.ended.then(({ code, out }) => `ended with ${code}: ${out}`)
    const end = await Promise.race([gate.held.then(() => null), early])
    if (end !== null) throw new Error(`${name}: expected to be held at change ${n}, it ${end}`)
    points.push({ name, n, gate, deployment })
  })
  return points
}

/** Runs the program that is killed before its n-th change; gives back the changes it came to. */
async function killed(name: string, release: string, killBefore: number): Promise<string[]> {
  const what: Killed = { socketPath: engine.socketPath, request: { ...QUICK, container: name, release }, killBefore }
  const child = spawn(process.execPath, [...process.execArgv, PROGRAM, JSON.stringify(what)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  child.stdout.on('data', (chunk: Buffer) => void (said += chunk.toString()))
  const [, signal] = (await once(child, 'close')) as [number | null, string | null]
  const got = said.replaceAll('\n', ', ')
  equal(signal, 'SIGKILL', `${name}: expected to be killed before change ${killBefore}, got ${got}`)
  return said.trim().split('\n')
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 120_000; !(await isSo());) {
    if (Date.now() > deadline) throw new Error(`${what}: not after two minutes; ${await engine.docker('ps', '-a')}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

async function someAtOnce<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  const queue = [...all]
  const worker = async (): Promise<void> => {
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) await act(one)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i)
}
