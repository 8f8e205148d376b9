// Containers of a compose project, with the real docker-compose: its file stays the truth, and going back goes by image id.

import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { suite } from '../suite.ts'
import { equal, match, ok, rejects, withCode } from '../assert.ts'
import { run } from '../../deploy/lib/shell.ts'
import { witnessed } from '../fixtures/deploy-container.ts'
import {
  labFolder,
  labReason,
  type LabEngine,
  publish,
  type Registry,
  startEngine,
  startRegistry,
} from '../lab/docker.ts'
import { deployIn, healthy, probeImage, publishGood } from './probe.ts'

const skip = labReason()
const test = suite('container of compose', { timeoutMs: 180_000, skip })
const lab = skip === null ? { engine: await startEngine(), registry: await startRegistry() } : null
const engine = lab?.engine as LabEngine
const registry = lab?.registry as Registry

test.before(async () => {
  await publishGood(registry.host)
  await publish(
    registry.host,
    'beacon',
    ['v1.2.1'],
    probeImage('v1.2.1', { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null }),
  )
})

test('sets the variable in .env, keeps the data, and goes back with --rollback', async () => {
  const { name, environment, compose } = await project(
    'variable',
    '${BEACON_TAG:-latest}',
    'OTHER=1\nBEACON_TAG=v1.0.0\n# end\n',
  )
  const dry = await deployIn(engine, { container: name, release: 'v1.1.0', dryRun: true })
  ok(
    dry.events.some(
      (event) => event.event === 'plan' && event.plan.some((line) => line.startsWith('set BEACON_TAG=v1.1.0')),
    ),
  )
  equal(await readFile(environment, 'utf8'), 'OTHER=1\nBEACON_TAG=v1.0.0\n# end\n')

  const updated = await deployIn(engine, { container: name, release: 'v1.1.0' })
  equal([updated.outcome, updated.from, updated.to, updated.error?.message], ['updated', 'v1.0.0', 'v1.1.0', undefined])
  ok(
    updated.events.some((event) => event.event === 'note' && /restart policy is `no`/.test(event.message)),
    'what a dead engine means for it is said',
  )
  equal(await readFile(environment, 'utf8'), 'OTHER=1\nBEACON_TAG=v1.1.0\n# end\n')
  equal((await stat(environment)).mode & 0o777, 0o600)
  await runs(name, 'v1.1.0')
  const { Id } = await engine.inspect(name)
  await compose('up', '-d')
  equal((await engine.inspect(name)).Id, Id, 'compose takes it for its own, and has nothing to do')

  await engine.docker('image', 'prune', '--force')
  const back = await deployIn(engine, { container: name, release: null })
  equal([back.outcome, back.to], ['rolled_back', 'v1.0.0'])
  equal(await readFile(environment, 'utf8'), 'OTHER=1\nBEACON_TAG=v1.0.0\n# end\n')
  await runs(name, 'v1.0.0')
  await writeFile(environment, 'BEACON_TAG=v1.1.0\n')
  await compose('up', '-d')
  const moved = await rejects(deployIn(engine, { container: name, release: null }), withCode('no_backup'))
  match(moved.message, /made by hand or by compose since the last deployment/)
})

test('puts the old release back when the new one fails', async () => {
  const { name, environment } = await project('failing', '${BEACON_TAG}', 'BEACON_TAG=v1.0.0\n')
  const ended = await deployIn(engine, { container: name, release: 'v1.2.1' })
  equal(ended.outcome, 'reverted')
  // by the very steps of a container that is nobody's: it is away no longer
  await engine.docker('run', '-d', '--name', 'plain', `${registry.host}/beacon:v1.0.0`)
  await healthy(engine, 'plain')
  const plain = await deployIn(engine, { container: 'plain', release: 'v1.2.1' })
  equal(plain.outcome, 'reverted')
  const [downMs, plainMs] = [ended.downMs ?? Infinity, plain.downMs ?? 0]
  ok(plainMs > 0 && downMs < 2 * plainMs + 1000, `with compose ${downMs} ms, without ${plainMs} ms`)
  equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.0.0\n')
  await runs(name, 'v1.0.0')
})

test('a file that names `latest` itself is followed; any other tag is refused, with the line to write', async () => {
  await publish(registry.host, 'moved', ['latest'], probeImage('v1.0.0'))
  const { name } = await project('literal', 'latest', '', 'moved')
  await publish(registry.host, 'moved', ['v1.1.0', 'latest'], probeImage('v1.1.0'))
  const error = await rejects(deployIn(engine, { container: name, release: 'v1.1.0' }), withCode('refused'))
  match((error as { hint?: string }).hint ?? '', /BEACON_TAG/)
  equal((await deployIn(engine, { container: name, release: 'latest' })).outcome, 'updated')
  await runs(name, 'v1.1.0')
  equal((await deployIn(engine, { container: name, release: null })).outcome, 'rolled_back')
  await runs(name, 'v1.0.0')
})

test('cut short after the old one was stopped: a second run finishes it, and only then the file says so', async () => {
  const { name, environment } = await project('cut', '${BEACON_TAG:-latest}', 'BEACON_TAG=v1.0.0\n')
  let isCut = false
  const stopped = await deployIn(engine, { container: name, release: 'v1.1.0' }, (client) =>
    witnessed(client, (_, change) => {
      isCut ||= change === 'start'
      if (isCut) throw new Error('cut short') // and nothing after it is done either
    }),
  )
  equal(stopped.error?.code, 'undo_failed')
  equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.0.0\n')
  equal((await deployIn(engine, { container: name, release: 'v1.1.0' })).outcome, 'updated')
  await runs(name, 'v1.1.0')
  equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.1.0\n')
  equal(
    await engine.docker('ps', '-aq', '--filter', `name=${name}-baton`),
    '',
    'nothing that compose would take for its own',
  )
})

test('refuses a service that is scaled', async () => {
  const { compose, name } = await project('scaled', '${BEACON_TAG:-latest}', 'BEACON_TAG=v1.0.0\n')
  await compose('up', '-d', '--scale', 'beacon=2')
  await rejects(deployIn(engine, { container: name, release: 'v1.1.0' }), /has 2 containers/)
})

test.after(async () => {
  await lab?.engine.stop()
  await lab?.registry.stop()
})

test.run()

/** A project that is up, healthy and has data. */
async function project(name: string, tag: string, environmentText: string, repository = 'beacon') {
  const folder = join(labFolder(), name)
  await mkdir(folder)
  const environment = join(folder, '.env')
  await writeFile(environment, environmentText, { mode: 0o600 })
  const file = `services:\n  beacon:\n    image: ${registry.host}/${repository}:${tag}\n    volumes: ['data:/data']\nvolumes:\n  data: {}\n`
  await writeFile(join(folder, 'compose.yaml'), file)
  const compose = (...args: string[]) => run(['docker-compose', ...args], { cwd: folder, env: engine.environment })
  await compose('up', '-d')
  const container = `${name}_beacon_1`
  await healthy(engine, container)
  await engine.docker('exec', container, '/bin/busybox', 'touch', '/data/here')
  return { name: container, environment, compose }
}

async function runs(name: string, version: string): Promise<void> {
  await healthy(engine, name)
  equal((await engine.inspect(name)).Config.Labels['org.opencontainers.image.version'], version)
  await engine.docker('exec', name, '/bin/busybox', 'ls', '/data/here')
}
