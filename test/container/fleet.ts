// Hosts that run the container, in one fleet with one that does not: the same waves, report and exit codes. The real tool image,
// on a real engine, called by the real Ansible; only what ssh would reach is this machine.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { equal, is, match } from '../assert.ts'
import { labReason, startEngine, startRegistry } from '../lab/docker.ts'
import { makeStubFleet, noAnsible } from '../lab/stub-fleet.ts'
import { suite } from '../suite.ts'
import { serviceImages } from './images.ts'
import { healthy } from './probe.ts'

const skip = labReason() ?? noAnsible
const test = suite('container fleet', { timeoutMs: 300_000, skip })

test('a mixed fleet moves in waves, and goes back where the gate says no', async () => {
  const [engine, registry] = [await startEngine(), await startRegistry()]
  const repository = await serviceImages(engine, registry)
  for (const name of ['one', 'two']) {
    await engine.docker('run', '-d', '--name', name, '--health-interval', '300ms', `${repository}:v1.0.0`)
    await healthy(engine, name)
  }
  await using fleet = await makeStubFleet(1)
  const container = (name: string) => ({
    ansible_connection: 'local',
    route: 'container',
    fleet_container: name,
    fleet_image: `${repository}:deploy`,
    fleet_engine_socket: engine.socketPath,
    fleet_container_probation: 1,
  })
  const stub = { ansible_connection: 'local', fleet_command: join(fleet.folder, 'h1', 'beacon') }
  const hosts = { c1: container('one'), h1: stub, c2: container('two') }
  await writeFile(fleet.inventory, JSON.stringify({ all: { hosts } }))
  const { DOCKER_HOST, DOCKER_CONFIG } = engine.environment
  Object.assign(process.env, { DOCKER_HOST, DOCKER_CONFIG })
  const running = async () =>
    await Promise.all(
      ['one', 'two'].map(
        async (name) => (await engine.inspect(name)).Config.Labels['org.opencontainers.image.version'],
      ),
    )

  const none = await fleet.move('--release', 'v9.9.9', '--soak', '0')
  is(none.code, 4, none.stderr)
  equal(await running(), ['v1.0.0', 'v1.0.0'])

  const forward = await fleet.move('--release', 'v1.1.0', '--soak', '0', '--waves', '1,100%')
  is(forward.code, 0, forward.stderr)
  equal(
    ['c1', 'h1', 'c2'].map((name) => [forward.rows[name]?.wave, forward.rows[name]?.outcome]),
    [
      [1, 'updated'],
      [2, 'updated'],
      [2, 'updated'],
    ],
  )
  equal(await running(), ['v1.1.0', 'v1.1.0'])
  is((await fleet.move('--release', 'v1.1.0', '--soak', '0')).result?.outcome, 'up_to_date')

  const back = await fleet.move('--rollback', '--release', 'v1.0.0', '--soak', '0', '--waves', '100%')
  is(back.code, 0, back.stderr)
  equal(await running(), ['v1.0.0', 'v1.0.0'])

  const gate = ['--gate', 'test $BATON_WAVE = 1', '--on-failure', 'fleet']
  const stopped = await fleet.move('--release', 'latest', '--soak', '0', '--waves', '1,100%', ...gate)
  is(stopped.code, 8, stopped.stderr)
  match(stopped.stderr, 'the gate did not let the deployment continue')
  equal(await running(), ['v1.0.0', 'v1.0.0'])
  equal(await fleet.running(), ['v1.0.0'])
})

test.run()
