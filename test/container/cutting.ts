// What the tests have in common in which a deployment is cut: containers that have something to lose, deployments by the command
// and by a program that is killed, and what must be so at the end.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { equal } from '../assert.ts'
import { type EngineGate, engineGate } from '../lab/engine-gate.ts'
import { labFolder, type LabEngine, publish, type Registry } from '../lab/docker.ts'
import type { Killed } from '../fixtures/deploy-container.ts'
import { healthy, probeImage, publishGood, QUICK } from './probe.ts'

const PROGRAM = join(import.meta.dirname, '../fixtures/deploy-container.ts')
const COMMAND = join(import.meta.dirname, '../../deploy/deploy-container.ts')
const AT_ONCE = 4

export interface Point {
  name: string
  /** the change that is held, from 1 */
  n: number
  gate: EngineGate
  deployment: ReturnType<typeof command>
}

export function cutting(engine: LabEngine, registry: Registry) {
  async function prepare(): Promise<void> {
    await publishGood(registry.host)
    const crashes = { Entrypoint: ['/bin/sh', '-c', 'sleep 0.3; exit 3'], Cmd: null }
    await publish(registry.host, 'beacon', ['v1.2.1'], probeImage('v1.2.1', crashes))
    for (const tag of ['v1.0.0', 'v1.1.0', 'v1.2.1'])
      await engine.docker('pull', '-q', `${registry.host}/beacon:${tag}`)
    await engine.docker('network', 'create', 'first')
    await engine.docker('network', 'create', 'second')
    // the first deployment makes the image of the program
    await old('first-one')
    const { code, out } = await command(engine.socketPath, 'first-one', 'v1.1.0').ended
    equal(code, 0, out)
    await gone('first-one')
  }

  async function old(name: string, restart = 'always') {
    // its own check is rare: where a dozen of them stand beside each other it would take most of the processor
    const options = [
      '--health-interval',
      '30s',
      '--restart',
      restart,
      '-v',
      `${name}-data:/data`,
      '--network',
      'first',
      '--stop-signal',
      'SIGKILL',
    ]
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
    const kept = (await leftovers(name))
      .filter((left) => !left.endsWith('-switch'))
      .map((left) => left.split('-').at(-1))
    return [Config.Labels['org.opencontainers.image.version'], HostConfig.RestartPolicy.Name, ...kept].join(' ')
  }

  async function leftovers(name: string): Promise<string[]> {
    return (await engine.names()).filter((other) => other.startsWith(`${name}-baton-`))
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
  async function killed(name: string, release: string | null, killBefore: number): Promise<string[]> {
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

  async function someAtOnce<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
    const queue = [...all]
    const worker = async (): Promise<void> => {
      for (let one = queue.shift(); one !== undefined; one = queue.shift()) await act(one)
    }
    await Promise.all(Array.from({ length: AT_ONCE }, worker))
  }

  return { prepare, old, gone, runs, standing, leftovers, heldEverywhere, killed, someAtOnce }
}

export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i)
}

/** what the kit calls a move behind a holder and out again, as a person types it */
const MOVES: Record<string, string[]> = { hold: ['--keep-port'], 'no-hold': ['--no-keep-port'] }

/** One deployment by the command, as a person runs it. */
export function command(
  socketPath: string,
  name: string,
  release: string | null,
  more: readonly string[] = [],
  environment: Record<string, string> = {},
) {
  const what = release === null ? ['--rollback'] : (MOVES[release] ?? ['--release', release])
  const args = ['--container', name, ...what, '--json', '--probation', '300ms', ...more]
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', COMMAND, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, DOCKER_HOST: `unix://${socketPath}`, ...environment },
  })
  let out = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => void (out += chunk.toString()))
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, out }))
  return { child, ended, said: () => out }
}

/** a rehearsal makes changes, too; rehearsal.ts cuts it short */
export const NOT_TRIED = ['--trial', 'never']
let gates = 0

/** A deployment that is held before its n-th change. One that fails before that, with nothing changed, is begun again. */
export async function heldBefore({ socketPath }: LabEngine, name: string, release: string, n: number) {
  for (let left = 3; ; left--) {
    const gate = await engineGate(socketPath, join(labFolder(), `gate${gates++}.sock`), n)
    const deployment = command(gate.socketPath, name, release, NOT_TRIED)
    const early = deployment.ended.then(({ code, out }) => `ended with ${code}: ${out}`)
    const end = await Promise.race([gate.held.then(() => null), early])
    if (end === null) return { gate, ...deployment }
    await gate.close()
    // the end of a snapshot's output may come as a reset through the gate
    if (left === 0 || !end.includes('socket hang up') || gate.changes.length > 0)
      throw new Error(`${release}: expected to be held at change ${n}, it ${end}`)
  }
}
