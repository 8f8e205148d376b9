// A deployment that is cut short: killed with -9 before each of its changes, or with the engine restarted under it.
// Every time: the old container still exists, a second run finishes the work (or undoes it), and the data is there.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { suite } from '../suite.ts'
import { equal, ok } from '../assert.ts'
import { labReason, type LabEngine, publish, type Registry, startEngine, startRegistry } from '../lab/docker.ts'
import { type Killed, witnessed } from '../fixtures/deploy-container.ts'
import { deployIn, healthy, probeImage, publishGood, QUICK } from './probe.ts'

const skip = labReason()
const test = suite('container cut short', { timeoutMs: 240_000, skip })
const lab = skip === null ? { engine: await startEngine(), registry: await startRegistry() } : null
const engine = lab?.engine as LabEngine
const registry = lab?.registry as Registry
const PROGRAM = join(import.meta.dirname, '../fixtures/deploy-container.ts')
const AT_ONCE = 4
/** of an update with a second network, the image there: tag, create, connect, tag, policy, rename, rename, stop, start, rename */
const CHANGES = 10
/** the last but one, and those of the way back: policy, stop, rename, rename, policy, start, rename */
const CHANGES_BACK = 16

test.before(async () => {
  await publishGood(registry.host)
  await publish(
    registry.host,
    'beacon',
    ['v1.2.1'],
    probeImage('v1.2.1', { Entrypoint: ['/bin/sh', '-c', 'sleep 0.3; exit 3'], Cmd: null }),
  )
  for (const tag of ['v1.0.0', 'v1.1.0', 'v1.2.1']) await engine.docker('pull', '-q', `${registry.host}/beacon:${tag}`)
  await engine.docker('network', 'create', 'first')
  await engine.docker('network', 'create', 'second')
})

test('killed before any change of an update: a second run finishes it', async () => {
  await everyPoint(CHANGES, async (n) => {
    const name = `kill${n}`
    const before = await old(name)
    const said = await killed(name, 'v1.1.0', n)
    equal(said.length, n, `${name}: ${said.join(', ')}`)
    await engine.inspect(before.Id) // still there
    const ended = await deployIn(engine, { container: name, release: 'v1.1.0' })
    equal([ended.outcome, ended.error?.message], ['updated', undefined], `${name} at ${said.at(-1)}`)
    await runs(name, 'v1.1.0')
    await engine.inspect(before.Id)
    equal(await leftovers(name), [`${name}-baton-previous`])
    await engine.docker('rm', '-f', name, `${name}-baton-previous`)
  })
})

test('killed before any change of an update: --rollback undoes it', async () => {
  // up to `create` nothing is there to undo, and it says so
  await everyPoint(4, async (i) => {
    const n = 2 * i + (i > 3 ? 2 : 1) // 3, 5, 7, 10
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
    await engine.docker('rm', '-f', name, ...(await leftovers(name)))
  })
})

test('killed before any change of the way back: a second run brings the old one back', async () => {
  await everyPoint(CHANGES_BACK - CHANGES + 1, async (i) => {
    const n = CHANGES - 1 + i
    const name = `back${n}`
    const before = await old(name)
    const said = await killed(name, 'v1.2.1', n)
    const ended = await deployIn(engine, { container: name, release: 'v1.2.1' })
    equal(ended.outcome, 'reverted', `${name} at ${said.join(', ')}`)
    await runs(name, 'v1.0.0')
    equal([(await engine.inspect(name)).Id, await leftovers(name)], [before.Id, [`${name}-baton-failed`]])
    await engine.docker('rm', '-f', name, `${name}-baton-failed`)
  })
})

for (const [i, restart] of (['always', 'no', 'always', 'no'] as const).entries()) {
  test(`the engine restarted before every ${['first', 'second', 'third', 'fourth'][i]} of four changes, restart policy ${restart}: the update is finished`, async () => {
    const name = `engine${i}`
    const before = await old(name, restart)
    const restarts: string[] = []
    const ended = await deployIn(engine, { container: name, release: 'v1.1.0' }, (client) =>
      witnessed(client, async (n, change) => {
        if (n % 4 !== i) return
        restarts.push(change)
        await engine.restart()
      }),
    )
    equal([ended.outcome, ended.error?.message], ['updated', undefined])
    ok(restarts.length >= 2, restarts.join(', '))
    await runs(name, 'v1.1.0')
    await engine.inspect(before.Id)
    await engine.docker('rm', '-f', name, `${name}-baton-previous`)
  })
}

test('the engine restarted while the new container proves itself, and away for a while: the update is finished', async () => {
  await old('late', 'no')
  const busy = deployIn(engine, { container: 'late', release: 'v1.1.0', probationMs: 2500 })
  while (
    (await engine.docker('ps', '--format', '{{.Names}} {{.Image}}'))
      .split('\n')
      .every((line) => !/^late .*v1\.1\.0$/.test(line))
  )
    await new Promise((resolve) => setTimeout(resolve, 20))
  await engine.stop()
  await new Promise((resolve) => setTimeout(resolve, 1000))
  await engine.start()
  equal((await busy).outcome, 'updated')
  await runs('late', 'v1.1.0')
  await engine.docker('rm', '-f', 'late', 'late-baton-previous')
})

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

/** Healthy, of this version, with its policy, both its networks and its data. */
async function runs(name: string, version: string): Promise<void> {
  await healthy(engine, name)
  const { Config, HostConfig, NetworkSettings } = await engine.inspect(name)
  equal(Config.Labels['org.opencontainers.image.version'], version)
  equal(HostConfig.RestartPolicy.Name, /^(engine[13]|late)$/.test(name) ? 'no' : 'always')
  equal(Object.keys(NetworkSettings.Networks).toSorted(), ['first', 'second'])
  await engine.docker('exec', name, '/bin/busybox', 'ls', '/data/here')
}

async function leftovers(name: string): Promise<string[]> {
  const all = (await engine.docker('ps', '-a', '--format', '{{.Names}}')).split('\n')
  return all.filter((other) => other.startsWith(`${name}-baton-`)).toSorted()
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
  equal(
    signal,
    'SIGKILL',
    `${name}: expected to be killed before change ${killBefore}, got ${said.replaceAll('\n', ', ')}`,
  )
  return said.trim().split('\n')
}

/** 1 … count, some at once. */
async function everyPoint(count: number, act: (n: number) => Promise<void>): Promise<void> {
  const queue = Array.from({ length: count }, (_, i) => i + 1)
  const worker = async (): Promise<void> => {
    for (let n = queue.shift(); n !== undefined; n = queue.shift()) await act(n)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}
