// podman, where it differs from Docker: its service speaks the same API, but shows and takes some fields in its own way.
// Its health checks need systemd timers, which the lab does not have; so these containers have none.

import { isLong, suite } from '../suite.ts'
import { equal, match, ok, rejects, withCode } from '../assert.ts'
import { type Inspection, labReason, publish, type Registry, startPodman, startRegistry } from '../lab/docker.ts'
import { connectEngine } from '../../deploy/container/engine/engine.ts'
import { deployIn, probeImage, publishGood } from './probe.ts'

const lab = labReason() === null ? { registry: await startRegistry() } : null
const podman = lab === null ? null : await startPodman(lab.registry.host)
const skip = labReason() ?? (podman === null ? 'needs `apt-get install -y --no-install-recommends podman`' : null)
const test = suite('container of podman', { timeoutMs: 60_000, skip })
const engine = podman as NonNullable<typeof podman>
const registry = lab?.registry as Registry

interface Case {
  title: string
  options: string[]
  command?: string[]
  /** what a person set, read from an inspection: the same before and after */
  keeps: (inspection: Inspection) => unknown
}

const CASES: Case[] = [
  {
    title: 'variables and labels',
    options: ['-e', 'OWN=a b', '-e', 'COLOR=blue', '--label', 'own=1'],
    keeps: ({ Config }) => [own(Config.Env), Config.Labels.own],
  },
  {
    title: 'a user, a working directory, a host name',
    options: ['--user', '1000:1000', '-w', '/data', '--hostname', 'beacon'],
    keeps: ({ Config }) => [Config.User, Config.WorkingDir],
  },
  { title: 'a command', options: [], command: ['-p', '8123', '-h', '/'], keeps: ({ Config }) => Config.Cmd },
  {
    title: 'limits',
    options: [
      '--memory',
      '64m',
      '--cpus',
      '0.5',
      '--pids-limit',
      '100',
      '--ulimit',
      'nofile=1024:2048',
      '--ulimit',
      'nproc=1024:2048',
    ],
    keeps: ({ HostConfig: { Memory, NanoCpus, PidsLimit, Ulimits } }) => [Memory, NanoCpus, PidsLimit, Ulimits],
  },
  {
    title: 'capabilities and a read-only root',
    options: ['--cap-drop', 'ALL', '--read-only', '--tmpfs', '/scratch', '--security-opt', 'no-new-privileges'],
    keeps: ({ HostConfig: { CapDrop, ReadonlyRootfs, SecurityOpt } }) => [
      CapDrop.toSorted(),
      ReadonlyRootfs,
      SecurityOpt,
    ],
  },
  {
    title: 'a restart policy',
    options: ['--restart', 'on-failure:3'],
    keeps: ({ HostConfig }) => HostConfig.RestartPolicy,
  },
]

test.before(async () => {
  await publishGood(registry.host)
  await publish(
    registry.host,
    'beacon',
    ['v1.2.1'],
    probeImage('v1.2.1', { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null }),
  )
})

test('is recognised, at the version of the API that it has', async () => {
  const client = await connectEngine(engine.socketPath)
  equal([client.kind, client.apiVersion], ['podman', '1.41'])
  client.close()
})

/** container/table.ts has all of them on Docker */
const IN_CI = ['capabilities and a read-only root']

for (const [i, { title, options, command = [], keeps }] of CASES.entries()) {
  if (!isLong && !IN_CI.includes(title)) continue
  test(`recreates a container with ${title}, and takes it back`, async () => {
    const name = `p${i}`
    const before = await old(name, options, command)
    const updated = await deployIn(engine as never, { container: name, release: 'v1.1.0' })
    equal([updated.outcome, updated.error?.message], ['updated', undefined])
    const after = await engine.inspect(name)
    equal(keeps(after), keeps(before))
    match(after.Config.Labels['org.opencontainers.image.version'], 'v1.1.0')
    await engine.docker('exec', name, '/bin/busybox', 'ls', '/data/here', '/named/here')
    const plan = updated.events.find(({ event }) => event === 'plan') as { differences: { because: string }[] }
    ok(
      plan.differences.every(({ because }) => because !== 'unexplained'),
      JSON.stringify(plan.differences),
    )
    equal((await deployIn(engine as never, { container: name, release: null })).outcome, 'rolled_back')
    equal(keeps(await engine.inspect(name)), keeps(before))
    await engine.docker('rm', '-f', name, `${name}-baton-previous`)
  })
}

test('puts the old container back when the new one crashes', async () => {
  const before = await old('crash', [], [])
  equal(
    (await deployIn(engine as never, { container: 'crash', release: 'v1.2.1', probationMs: 1000 })).outcome,
    'reverted',
  )
  const { Id, State } = await engine.inspect('crash')
  equal([Id, State.Running], [before.Id, true])
  await engine.docker('rm', '-f', 'crash', 'crash-baton-failed')
})

test('refuses a container that a systemd unit owns', async () => {
  await old('owned', ['--label', 'PODMAN_SYSTEMD_UNIT=beacon.service'], [])
  await rejects(deployIn(engine as never, { container: 'owned', release: 'v1.1.0' }), withCode('refused'))
  await engine.docker('rm', '-f', 'owned')
})

test.after(async () => {
  await podman?.stop()
  await lab?.registry.stop()
})

test.run()

async function old(name: string, options: string[], command: string[]): Promise<Inspection> {
  const fixed = ['-d', '--name', name, '--network', 'none', '--no-healthcheck', '-v', `${name}-named:/named`]
  await engine.docker('run', ...fixed, ...options, `${registry.host}/beacon:v1.0.0`, ...command)
  await engine.docker('exec', '--user', '0', name, '/bin/busybox', 'touch', '/data/here', '/named/here')
  return await engine.inspect(name)
}

function own(env: string[]): string[] {
  return env.filter((entry) => /^(OWN|COLOR)=/.test(entry)).toSorted()
}
