// What goes wrong with an image, a registry, a disk or a container: the old container serves again and nothing is deleted.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createServer, request as httpRequest } from 'node:http'
import { isLong, suite } from '../suite.ts'
import { equal, match, ok, rejects, withCode } from '../assert.ts'
import { makeSignedDist, targetsOf } from '../lab/signed-dist.ts'
import { labFolder, openLab, publish, startEngine, startRegistry } from '../lab/docker.ts'
import { type DeployEvent, endEvent, formatDeployEvent } from '../../deploy/container/report.ts'
import { cleanIn, deployIn, healthy, probeImage, publishGood, statusIn, until } from './probe.ts'
import { sideBySide } from './side-by-side.ts'
import { wayBack } from './way-back.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container that goes wrong', { timeoutMs: 180_000, skip })
const MAIN = '../../deploy/deploy-container.ts'
const AT_ONCE = 4
/** what harms no other container of the engine */
const beside = sideBySide(test, AT_ONCE)

/** A healthy container of v1.0.0; `options` are of `docker run`. */
async function old(name: string, ...options: string[]) {
  await engine.docker(
    'run',
    '-d',
    '--name',
    name,
    '--restart',
    'always',
    '-v',
    `${name}-data:/data`,
    ...options,
    `${registry.host}/beacon:v1.0.0`,
  )
  await healthy(engine, name)
  await engine.docker('exec', name, '/bin/busybox', 'touch', '/data/here')
  return await engine.inspect(name)
}

/** The very container, running and healthy, with its restart policy and its data. */
async function serves(
  name: string,
  before: { Id: string; HostConfig: { RestartPolicy: { Name: string } } },
): Promise<void> {
  await healthy(engine, name)
  const now = await engine.inspect(name)
  equal([now.Id, now.HostConfig.RestartPolicy.Name], [before.Id, before.HostConfig.RestartPolicy.Name])
  await engine.docker('exec', name, '/bin/busybox', 'ls', '/data/here')
}

const names = async (prefix: string): Promise<string[]> =>
  (await engine.names()).filter((name) => name.startsWith(prefix))

test.before(async () => {
  await publishGood(registry.host)
  const release = (tag: string, config: Record<string, unknown>) =>
    publish(registry.host, 'beacon', [tag], probeImage(tag, config))
  await release('v1.2.0', {
    Healthcheck: { Test: ['CMD', '/bin/busybox', 'sh', '-c', 'echo no luck; exit 1'], Interval: 2e8, Retries: 2 },
  })
  // warms up for longer than its author's own check has patience; and is ill right before the end of a short probation
  const later = (tag: string, mark: string) => ({
    Entrypoint: ['/bin/sh', '-c', `(sleep 4; touch ${mark}) & exec httpd -f -p 8080 -h /www-${tag}`],
    Cmd: null,
  })
  const check = (...test: string[]) => ({ Test: ['CMD', '/bin/busybox', 'test', ...test], Interval: 2e8, Retries: 2 })
  await release('v1.2.7', { ...later('v1.2.7', '/well'), Healthcheck: check('-e', '/well') })
  await release('v1.2.8', { ...later('v1.2.8', '/ill'), Healthcheck: { ...check('!', '-e', '/ill'), Retries: 99 } })
  await release('v1.2.1', { Entrypoint: ['/bin/sh', '-c', 'echo cannot start; exit 3'], Cmd: null })
  await release('v1.2.2', { Entrypoint: ['/bin/sh', '-c', 'httpd -p 8080 -h /www-v1.2.2; sleep 6; exit 4'], Cmd: null })
  await release('v1.2.3', { Healthcheck: { Test: ['CMD', '/bin/busybox', 'echo', 'beacon v1.0.9'], Interval: 2e8 } })
  await release('v1.2.4', { Entrypoint: ['/bin/not-there'] })
  await release('v1.2.5', { Labels: { 'org.opencontainers.image.version': 'v1.2.6' } })
  await publish(registry.host, 'beacon', ['v1.3.0'], { ...probeImage('v1.3.0'), architecture: 's390x' })
  await publish(registry.host, 'beacon', ['v1.4.0'], probeImage('v1.4.0', {}, 40_000_000))
})

const FAILING = [
  ['v1.2.0', 'never becomes healthy', /not healthy after 6s: no luck/],
  ['v1.2.1', 'crashes', /the new container exited/],
  ['v1.2.2', 'dies in probation', /during probation: the new container exited/],
  ['v1.2.3', 'says another version', /expected version v1\.2\.3, got v1\.0\.9/],
  ['v1.2.4', 'cannot be started', /not-there/],
] as const

/** crashes: the test of what is printed */
const FAILING_IN_CI = FAILING.filter(([release]) => release === 'v1.2.0' || release === 'v1.2.2')

for (const [release, what, message] of isLong ? FAILING : FAILING_IN_CI) {
  beside(`puts the old container back when the image ${what}`, async () => {
    const name = `bad-${release}`
    const before = await old(name)
    const limits = { probationMs: 15_000, ...(release === 'v1.2.0' ? { healthTimeoutMs: 6000 } : {}) }
    const ended = await deployIn(engine, { container: name, release, ...limits })
    equal([ended.outcome, ended.error?.code === 'undo_failed' ? ended.error.message : ''], ['reverted', ''])
    match(ended.error?.message ?? '', message)
    const [log, longer] = [
      `for details, see \`docker logs ${name}-baton-failed\``,
      '; if it needs longer, raise `--health-timeout`',
    ]
    ok(
      ended.error?.hint?.startsWith(release === 'v1.2.4' ? 'the new container was removed' : log),
      ended.error?.hint ?? '',
    )
    equal(ended.error?.hint?.includes(longer), release === 'v1.2.0')
    equal((ended.events.at(-1) as { exit?: number }).exit, 8)
    ok((ended.downMs ?? 0) > 0, `how long it was away is told: ${ended.downMs}, ${ended.downMeasured}`)
    await serves(name, before)
    equal((await names(name)).includes(`${name}-baton-predecessor`), false)
    if (release === 'v1.2.1') {
      ok(
        ended.events.some((event) => event.event === 'log' && event.line === 'cannot start'),
        'its last lines are shown',
      )
      match(await engine.docker('logs', `${name}-baton-failed`), 'cannot start')
    }
    await engine.docker('rm', '-f', name)
  })
}

beside(
  'a release that never listens, and hears no signal, is killed at once: clients wait for the health timeout and not for a stop too',
  async () => {
    const deaf = ['/bin/sh', '-c', 'trap "" TERM; exec sleep 1000']
    const image = probeImage('v1.2.9', { Entrypoint: deaf, Cmd: null, StopSignal: 'SIGTERM' })
    await publish(registry.host, 'beacon', ['v1.2.9'], image)
    const { Id } = await old('deaf')
    const stops: [string, number | null][] = []
    const ended = await deployIn(engine, { container: 'deaf', release: 'v1.2.9', healthTimeoutMs: 3000 }, (client) => ({
      ...client,
      async stop(id, seconds) {
        stops.push([id === Id ? 'old' : 'new', seconds])
        await client.stop(id, seconds)
      },
    }))
    equal([ended.outcome, ended.healthy], ['reverted', true], ended.error?.message)
    equal(
      stops.filter(([which]) => which === 'new'),
      [['new', 0]],
    )
    await engine.docker('rm', '-f', ...(await names('deaf')))
  },
)

beside.long(
  'a release that is not healthy in time, and answers clients, has a moment to end what it answers',
  async () => {
    const ends = [
      '/bin/sh',
      '-c',
      'trap "sleep 1; echo ended; exit 0" TERM; httpd -p 8080 -h /www-v1.2.9; while :; do sleep 0.1; done',
    ]
    const Healthcheck = { Test: ['CMD', '/bin/busybox', 'false'], Interval: 1e9, Retries: 3 }
    const release = (config: Record<string, unknown>) => probeImage('v1.2.9', { Healthcheck, ...config })
    await publish(registry.host, 'ends', ['v1.2.9'], release({ Entrypoint: ends, Cmd: null, StopSignal: 'SIGTERM' }))
    await publish(registry.host, 'dies', ['v1.2.9'], release({}))
    for (const [image, exitCode] of [
      ['ends', 0],
      ['dies', 137],
    ] as const) {
      const before = await old(image)
      const repository = `${registry.host}/${image}`
      const ended = await deployIn(engine, { container: image, repository, release: 'v1.2.9', healthTimeoutMs: 4000 })
      equal([ended.outcome, ended.error?.code], ['reverted', 'restart_failed'])
      equal((await engine.inspect(`${image}-baton-failed`)).State.ExitCode, exitCode)
      const lost = ended.events.filter(
        (event) => event.event === 'warning' && /requests in progress were lost/.test(event.message),
      )
      equal(lost.length, exitCode === 0 ? 0 : 1)
      await serves(image, before)
      await engine.docker('rm', '-f', ...(await names(image)))
    }
  },
)

beside(
  'refuses an image that nobody would reach, and that would begin without the data, before it stops anything',
  async () => {
    const own = { Entrypoint: ['/bin/busybox', 'httpd', '-f'], Cmd: ['-p', '3000'], Labels: {}, ExposedPorts: {} }
    await publish(registry.host, 'own', ['v1.0.0'], probeImage('v1.0.0', { ...own, Healthcheck: null }))
    const Labels = { 'baton.service': 'notes', 'baton.port': '8080', 'baton.state-directory': '/var/lib/notes' }
    await publish(registry.host, 'own', ['v1.1.0'], probeImage('v1.1.0', { Labels, Volumes: { '/var/lib/notes': {} } }))
    await engine.docker('run', '-d', '--name', 'own', '-p', '127.0.0.1:13001:3000', `${registry.host}/own:v1.0.0`)
    const { Id } = await engine.inspect('own')
    for (const dryRun of [true, false]) {
      const error = await rejects(
        deployIn(engine, { container: 'own', release: 'v1.1.0', dryRun }),
        withCode('refused'),
      )
      match(
        error.message,
        /own:v1\.1\.0 listens on port 8080, but `own` publishes 3000; \S+ keeps its state in \/var\/lib\/notes/,
      )
      match(error.message, /in a volume at \/data and would be left behind/)
      match((error as { hint?: string }).hint ?? '', /-p HOST_PORT:8080.* and `-v [0-9a-f]{64}:\/var\/lib\/notes`/)
    }
    const now = await engine.inspect('own')
    equal([now.Id, now.State.Running, await names('own')], [Id, true, ['own']])
    await engine.docker('rm', '-f', 'own')
  },
)

beside('what tells no version is called by its image, and never by a word of the command', async () => {
  const nameless = (version: string) => probeImage(version, { Labels: {} })
  await publish(registry.host, 'nameless', ['one'], nameless('v1.0.0'))
  await publish(registry.host, 'nameless', ['two'], nameless('v1.1.0'))
  await engine.docker('run', '-d', '--name', 'nameless', `${registry.host}/nameless:one`)
  await healthy(engine, 'nameless')
  const { Image } = await engine.inspect('nameless')
  await deployIn(engine, { container: 'nameless', release: 'two' })
  const back = await deployIn(engine, { container: 'nameless', release: null })
  const [line = ''] = formatDeployEvent(back.events.at(-1) as DeployEvent)
  ok(line.startsWith(`rolled back: nameless runs the image ${Image.slice(7, 19)}`), line)
  await publish(registry.host, 'nameless', ['latest'], nameless('v1.2.0'))
  const newest = await deployIn(engine, { container: 'nameless', release: 'latest' })
  const [said = ''] = formatDeployEvent(newest.events.at(-1) as DeployEvent)
  equal([newest.outcome, newest.to, / runs the image [0-9a-f]{12}/.test(said)], ['updated', null, true], said)
  await engine.docker('rm', '-f', ...(await names('nameless')))
})

beside('a release that its own check calls unhealthy while it warms up is waited for', async () => {
  await old('warming')
  let wasUnhealthy = false
  const ended = await deployIn(engine, { container: 'warming', release: 'v1.2.7' }, (client) => ({
    ...client,
    async container(id) {
      const found = await client.container(id)
      wasUnhealthy ||= found?.State.Health?.Status === 'unhealthy'
      return found
    },
  }))
  equal([ended.outcome, ended.error?.message], ['updated', undefined])
  ok(wasUnhealthy)
  await engine.docker('rm', '-f', 'warming', 'warming-baton-previous')
})

beside.long('a release that is ill at the end of a short probation is put away', async () => {
  const before = await old('late')
  const ended = await deployIn(engine, { container: 'late', release: 'v1.2.8', probationMs: 4500 })
  equal([ended.outcome, ended.error?.message], ['reverted', 'during probation: its health check keeps failing'])
  await serves('late', before)
  await engine.docker('rm', '-f', 'late')
})

beside.long('a container that crashes before and after is not said to run', async () => {
  await publish(
    registry.host,
    'beacon',
    ['v0.9.0'],
    probeImage('v0.9.0', { Entrypoint: ['/bin/sh', '-c', 'sleep 0.2; exit 3'], Cmd: null }),
  )
  await engine.docker('run', '-d', '--name', 'crashing', '--restart', 'always', `${registry.host}/beacon:v0.9.0`)
  await until('a restart', async () => (await engine.inspect('crashing')).RestartCount > 0)
  const ended = await deployIn(engine, { container: 'crashing', release: 'v1.2.1' })
  equal([ended.outcome, ended.healthy, ended.downMs], ['reverted', false, null])
  const [line = ''] = formatDeployEvent(ended.events.at(-1) as DeployEvent)
  match(line, /^reverted: crashing runs v0\.9\.0 again, but is not healthy/)
  ok(ended.events.some((event) => event.event === 'warning' && /was not healthy before/.test(event.message)))
  equal((await engine.inspect('crashing')).HostConfig.RestartPolicy.Name, 'always')
  await engine.docker('rm', '-f', ...(await names('crashing')))
})

beside(
  '`--status` calls only that healthy which has passed its check: one that has just started is starting, and one without a check has none',
  async () => {
    const Entrypoint = ['/bin/sh', '-c', '(sleep 6; touch /well) & exec httpd -f -p 8080 -h /www-v1.2.9']
    const Healthcheck = { Test: ['CMD', '/bin/busybox', 'test', '-e', '/well'], Interval: 5e8, StartPeriod: 6e10 }
    await publish(registry.host, 'warms', ['v1.2.9'], probeImage('v1.2.9', { Entrypoint, Cmd: null, Healthcheck }))
    await publish(registry.host, 'bare', ['v1.2.9'], probeImage('v1.2.9', { Healthcheck: { Test: ['NONE'] } }))
    const told = async (name: string) => {
      const end = await statusIn(engine, name)
      return [end.health, end.healthy, formatDeployEvent(endEvent(name, end))[0]]
    }
    for (const name of ['warms', 'bare'])
      await engine.docker('run', '-d', '--name', name, `${registry.host}/${name}:v1.2.9`)
    equal(await told('warms'), ['starting', false, 'warms runs v1.2.9, starting (its health check has not passed yet)'])
    equal(await told('bare'), ['unchecked', null, 'bare runs v1.2.9, without a health check'])
    await healthy(engine, 'warms')
    equal(await told('warms'), ['healthy', true, 'warms runs v1.2.9, healthy'])
    await engine.docker('stop', '-t', '1', 'warms')
    equal(await told('warms'), ['stopped', false, 'warms has v1.2.9, but is stopped'])
    const exits = probeImage('v1.2.9', { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null })
    await publish(registry.host, 'falls', ['v1.2.9'], exits)
    await engine.docker('run', '-d', '--restart', 'always', '--name', 'falls', `${registry.host}/falls:v1.2.9`)
    await until('the engine to wait for seconds', async () => {
      const { RestartCount, State } = await engine.inspect('falls')
      return RestartCount > 5 && State.Status === 'restarting'
    })
    const falls =
      'falls runs v1.2.9, but its process has exited and will be restarted (until then, clients get no answer)'
    equal(await told('falls'), ['restarting', false, falls])
    await engine.docker('rm', '-f', 'warms', 'bare', 'falls')
  },
)

wayBack({ engine, registry, beside, old, names })

beside(
  'does not try a `latest` again that has failed here, tidied or not, until its tag has tried it and it is well',
  async () => {
    const Entrypoint = ['/bin/sh', '-c', '[ -e /data/ok ] || exit 3; exec httpd -f -p 8080 -h /www-v1.2.1']
    await publish(registry.host, 'fickle', ['v1.0.0'], probeImage('v1.0.0'))
    await publish(registry.host, 'fickle', ['v1.2.1', 'latest'], probeImage('v1.2.1', { Entrypoint, Cmd: null }))
    await engine.docker('run', '-d', '--name', 'fickle', '-v', 'fickle-data:/data', `${registry.host}/fickle:v1.0.0`)
    await healthy(engine, 'fickle')
    const deployed = async (release: string | null) =>
      (await deployIn(engine, { container: 'fickle', release })).outcome
    const refused = async (message: RegExp) => {
      const error = await rejects(deployed('latest'), withCode('refused'))
      match(error.message, message)
      match(
        (error as { hint?: string }).hint ?? '',
        /pass its tag to try it again; `docker rmi baton-failed:fickle` clears/,
      )
    }
    const status = async () => formatDeployEvent(endEvent('fickle', await statusIn(engine, 'fickle')))
    const says = 'fickle runs v1.0.0, healthy; v1.2.1 has failed here'
    equal(await deployed('latest'), 'reverted')
    equal(await status(), [`${says}; left over: fickle-baton-failed, which \`--clean\` removes`])
    equal((await statusIn(engine, 'fickle')).left, ['fickle-baton-failed'])
    await refused(/^v1\.2\.1 has failed here before \(see `docker logs fickle-baton-failed`\)$/)
    await cleanIn(engine, 'fickle')
    equal([await names('fickle'), await status()], [['fickle'], [says]])
    await refused(/^v1\.2\.1 has failed here before$/)
    await engine.docker('exec', 'fickle', '/bin/busybox', 'touch', '/data/ok')
    equal(
      [await deployed('v1.2.1'), await deployed(null), await deployed('latest')],
      ['updated', 'rolled_back', 'updated'],
    )
    equal(await status(), ['fickle runs v1.2.1, healthy; previously v1.0.0'])
    await engine.docker('rm', '-f', ...(await names('fickle')))
  },
)

beside(
  'what has no database, or names no command that copies it, is untried: the plan says so, and the run',
  async () => {
    const copies = (command: string[]) => ({ 'baton.snapshot': JSON.stringify(command) })
    const Labels = (version: string) => ({
      'org.opencontainers.image.version': version,
      ...copies(['/bin/sh', '-c', ':']),
    })
    for (const tag of ['v1.0.0', 'v1.1.0'])
      await publish(registry.host, 'empty', [tag], probeImage(tag, { Labels: Labels(tag) }))
    for (const [repository, planned, why] of [
      [
        'empty',
        /^try the release on that copy, .*; skipped if there is no copy$/m,
        'the running release declares no database, or has none yet, so nothing was copied',
      ],
      ['beacon', /^not tried on .*: the image has no command/m, 'the image has no command for copying a database'],
    ] as const) {
      const name = `untried-${repository}`
      await engine.docker('run', '-d', '--name', name, `${registry.host}/${repository}:v1.0.0`)
      await healthy(engine, name)
      const { events } = await deployIn(engine, { container: name, release: 'v1.1.0', rehearse: true })
      match(events.flatMap((event) => (event.event === 'plan' ? event.plan : [])).join('\n'), planned)
      const notes = events.flatMap((event) => (event.event === 'note' ? event.message : []))
      ok(notes.includes(`not tried on a copy of your data: ${why}`), notes.join('\n'))
      await engine.docker('rm', '-f', ...(await names(name)))
    }
  },
)

const UNTOUCHED = [
  [
    'v1.2.5',
    'whose label says another version',
    'verify_failed',
    /the version label of .* says v1\.2\.6, not v1\.2\.5/,
  ],
  [
    'v1.3.0',
    'of another architecture',
    'verify_failed',
    /linux\/amd64.*, got linux\/s390x|linux\/arm64.*, got linux\/s390x/,
  ],
  ['v1.9.9', 'that is not there', 'release_not_found', /v1\.9\.9/],
] as const

for (const [release, what, code, message] of isLong ? UNTOUCHED : UNTOUCHED.slice(0, 1)) {
  beside(`changes nothing for a release ${what}`, async () => {
    const name = `same-${release}`
    const before = await old(name)
    match((await rejects(deployIn(engine, { container: name, release }), withCode(code))).message, message)
    await serves(name, before)
    equal(await names(name), [name])
    await engine.docker('rm', '-f', name)
  })
}

beside('from a signed feed the image is the one that is signed, whatever its tag says now', async () => {
  const labels = (version: string) => ({ 'org.opencontainers.image.version': version, 'baton.service': 'beacon' })
  const repository = `${registry.host}/signed`
  const image = (version: string, env: string[]) => probeImage(version, { Labels: labels(version), Env: env })
  await publish(registry.host, 'signed', ['v1.0.0'], image('v1.0.0', []))
  const digest = await publish(registry.host, 'signed', ['v1.1.0', 'latest'], image('v1.1.0', []))
  await publish(registry.host, 'signed', ['v1.1.0', 'latest'], image('v1.1.0', ['TAKEN=over']))
  await using feed = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  const targets = await targetsOf(feed.dist.dir, 'beacon', { 'v1.1.0': { image: { repository, digest } } })
  await feed.publish({ targets })
  const root = join(labFolder(), 'root.json')
  await writeFile(root, feed.anchor.root)
  const signedBy = { feed: feed.dist.dir, root }

  await engine.docker('run', '-d', '--name', 'signed', `${repository}:v1.0.0`)
  await healthy(engine, 'signed')
  await rejects(deployIn(engine, { container: 'signed', release: 'v1.0.0', signedBy }), withCode('not_signed'))
  await rejects(
    deployIn(engine, { container: 'signed', release: 'v1.1.0', signedBy: { ...signedBy, root: null } }),
    withCode('not_signed'),
  )
  const updated = await deployIn(engine, { container: 'signed', release: 'latest', signedBy })
  equal([updated.outcome, updated.to, updated.digest], ['updated', 'v1.1.0', digest])
  equal((await engine.inspect('signed')).Config.Env.includes('TAKEN=over'), false)
  await engine.docker('rm', '-f', ...(await names('signed')))
})

beside('changes nothing when the registry is down', async () => {
  const other = await startRegistry(5001)
  await publishGood(other.host)
  await engine.docker('run', '-d', '--name', 'alone', `${other.host}/beacon:v1.0.0`)
  await healthy(engine, 'alone')
  const { Id } = await engine.inspect('alone')
  await other.stop()
  await rejects(deployIn(engine, { container: 'alone', release: 'latest' }), withCode('check_failed'))
  equal((await engine.inspect('alone')).Id, Id)
  await engine.docker('rm', '-f', 'alone')
})

beside.long('changes nothing when the registry goes away in the middle of the pull', async () => {
  await using proxy = await cuttingProxy(registry.host, 5002, 1_000_000)
  await engine.docker('run', '-d', '--name', 'cut', `${registry.host}/beacon:v1.0.0`)
  await healthy(engine, 'cut')
  const { Id } = await engine.inspect('cut')
  const error = await rejects(
    deployIn(engine, { container: 'cut', release: 'v1.4.0', repository: '127.0.0.1:5002/beacon' }),
    withCode('download_failed'),
  )
  match(error.message, /EOF|reset|unexpected/i)
  ok(proxy.cuts() > 0)
  equal([(await engine.inspect('cut')).Id, await names('cut')], [Id, ['cut']])
  await engine.docker('rm', '-f', 'cut')
})

beside('changes nothing when the disk is full', async () => {
  const small = await startEngine({ diskMb: 24 })
  try {
    await small.docker('run', '-d', '--name', 'small', `${registry.host}/beacon:v1.0.0`)
    await healthy(small, 'small')
    const { Id } = await small.inspect('small')
    const error = await rejects(deployIn(small, { container: 'small', release: 'v1.4.0' }), withCode('refused'))
    match(error.message, /no space left/)
    match((error as { hint?: string }).hint ?? '', /free up disk space/)
    await healthy(small, 'small')
    equal((await small.inspect('small')).Id, Id)
  } finally {
    await small.docker('rm', '-f', 'small')
    await small.stop()
  }
})

const REFUSED: [title: string, options: string[], then: string[][], message: RegExp, hint: RegExp][] = [
  ['was started with --rm', ['--rm', '--restart', 'no'], [], /--rm/, /without --rm/],
  ['is paused', [], [['pause', 'NAME']], /is paused/, /docker unpause/],
  ['is stopped', [], [['stop', 'NAME']], /is not running/, /docker start/],
  [
    'belongs to a systemd unit',
    ['--label', 'PODMAN_SYSTEMD_UNIT=beacon.service'],
    [],
    /belongs to the systemd unit beacon\.service/,
    /systemctl restart beacon\.service/,
  ],
  [
    'shares a network',
    [],
    [['run', '-d', '--name', 'NAME-guest', '--network', 'container:NAME', '--no-healthcheck', 'OLD', '-p', '81']],
    /cannot be replaced while NAME-guest is linked to it or shares its network/,
    /remove NAME-guest/,
  ],
]

/** each is read off the same inspection */
const REFUSED_IN_CI = ['was started with --rm', 'shares a network']

for (const [i, [what, options, then, message, hint]] of REFUSED.entries()) {
  if (!isLong && !REFUSED_IN_CI.includes(what)) continue
  beside(`refuses a container that ${what}, and says what to do instead`, async () => {
    const name = `refused${i}`
    const image = `${registry.host}/beacon:v1.0.0`
    await engine.docker('run', '-d', '--name', name, ...options, image)
    await healthy(engine, name)
    for (const line of then)
      await engine.docker(...line.map((word) => word.replaceAll('NAME', name).replaceAll('OLD', image)))
    const error = await rejects(deployIn(engine, { container: name, release: 'latest' }), withCode('refused'))
    const filled = (pattern: RegExp) => new RegExp(pattern.source.replaceAll('NAME', name))
    match(error.message, filled(message))
    match((error as { hint?: string }).hint ?? '', filled(hint))
    await engine.docker('rm', '-f', ...(await names(name)))
  })
}

beside('a container of this route that somebody has started by hand is in the way, not a riddle', async () => {
  const before = await old('riddle')
  await engine.docker(
    'run',
    '-d',
    '--name',
    'riddle-baton-successor',
    '--label',
    `baton.recreated-from=${JSON.stringify({ format: 1, name: 'riddle', predecessor: before.Id, restart: { Name: 'always' } })}`,
    `${registry.host}/beacon:v1.1.0`,
  )
  const error = await rejects(deployIn(engine, { container: 'riddle', release: 'v1.1.0' }), withCode('refused'))
  match(error.message, /the name .riddle-baton-successor. is taken/)
  await serves('riddle', before)
  await engine.docker('rm', '-f', ...(await names('riddle')))
})

beside('refuses while another deployment of the same container is under way, and says whose it is', async () => {
  await old('locked')
  const first = deployIn(engine, { container: 'locked', release: 'latest', probationMs: 3000 })
  await until('the predecessor', async () => (await names('locked')).includes('locked-baton-predecessor'))
  const error = await rejects(deployIn(engine, { container: 'locked', release: 'latest' }), withCode('locked'))
  match(error.message, new RegExp(`pid ${process.pid}`))
  equal((await first).outcome, 'updated')
  await engine.docker('rm', '-f', 'locked')
})

beside.long('makes the old container anew from its image when it was pruned during the probation', async () => {
  const before = await old('pruned', '-e', 'OWN=1')
  const ended = deployIn(engine, { container: 'pruned', release: 'v1.2.2', probationMs: 15_000 })
  await until('the predecessor', async () => (await names('pruned')).includes('pruned-baton-predecessor'))
  // a prune takes it as soon as it is stopped
  for (let gone = false; !gone;)
    gone = await engine.docker('rm', 'pruned-baton-predecessor').then(
      () => true,
      () => false,
    )
  equal((await ended).outcome, 'reverted')
  const now = await engine.inspect('pruned')
  equal(
    [now.Image, now.HostConfig.RestartPolicy.Name, now.Config.Env.includes('OWN=1')],
    [before.Image, 'always', true],
  )
  await engine.docker('exec', 'pruned', '/bin/busybox', 'ls', '/data/here')
  await engine.docker('rm', '-f', 'pruned')
})

beside('exits with the code of the outcome and prints one JSON object a line', async () => {
  const before = await old('told', '--init')
  const env = { ...process.env, ...engine.environment }
  const program = new URL(MAIN, import.meta.url).pathname
  const run = async (...args: string[]) => {
    const child = spawn(
      process.execPath,
      [...process.execArgv, program, '--container', 'told', '--probation', '300ms', ...args],
      { env },
    )
    let [out, err] = ['', '']
    child.stdout.on('data', (chunk: Buffer) => void (out += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => void (err += chunk.toString()))
    const [code] = (await once(child, 'close')) as [number]
    return { code, out, err }
  }
  const reverted = await run('--release', 'v1.2.1', '--json')
  const events = reverted.out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { event: string; outcome?: string })
  equal([reverted.code, events.at(-1)?.event, events.at(-1)?.outcome], [8, 'error', 'reverted'])
  await serves('told', before)
  const drawn = await run('--release', 'v1.2.1')
  match(drawn.err, /^reverted: told runs v1\.0\.0; no requests were served for .*$/m)
  const steps = drawn.err.split('\n').filter((line) => /^(failed|done) +(switch|health|probation|revert)\b/.test(line))
  match(
    steps.join('\n'),
    /^done switch .*\nfailed health(?: +[\d.]+ m?s)?\ndone revert +to v1\.0\.0: the new container exited with code 3/,
  )
  match(
    drawn.err,
    /^error: the new container exited with code 3\nhint: for details, see `docker logs told-baton-failed`$/m,
  )
  equal(
    drawn.err.split('\n').filter((line) => / 0 ms|docker-init|refused in the meantime/.test(line)), // it publishes no port
    [],
  )
  await serves('told', before)
  const planned = (await run('--release', 'v1.1.0', '--dry-run', '--json')).out.trim().split('\n').at(-1) ?? ''
  const { event, outcome, would } = JSON.parse(planned) as { event: string; outcome: string; would: string }
  equal([event, outcome, would], ['result', 'planned', 'updated'])
  const dry = await run('--release', 'v1.1.0', '--dry-run')
  match(dry.out, /image +Config\.Env\.COLOR: "=red" -> "=green"/)
  equal([dry.code, (await engine.inspect('told')).Id], [0, before.Id])
  if (!isLong) return void (await engine.docker('rm', '-f', 'told'))
  const updated = await run('--release', 'v1.1.0')
  equal(updated.code, 0)
  match(updated.err, /updated: told runs v1\.1\.0; no requests were served for /)
  equal([(await run('--release', 'v1.1.0')).code, (await run('--rollback')).code], [0, 0])
  const wrong = await Promise.all([run(), run('--release', '1.0'), run('--release', 'v8.8.8')])
  equal(
    wrong.map(({ code }) => code),
    [2, 2, 4],
  )
  await engine.docker('rm', '-f', 'told')
})

test('rolls back by image, not by tag, and back again; a prune in between takes nothing that is needed', async () => {
  await publish(registry.host, 'moving', ['latest'], probeImage('v1.0.0'))
  await engine.docker('run', '-d', '--name', 'moving', '-v', 'moving-data:/data', `${registry.host}/moving:latest`)
  await healthy(engine, 'moving')
  const { Image: first } = await engine.inspect('moving')
  await publish(registry.host, 'moving', ['latest'], probeImage('v1.1.0'))
  equal((await deployIn(engine, { container: 'moving', release: 'latest' })).outcome, 'updated')
  const { Image: second } = await engine.inspect('moving')
  ok(first !== second)
  await engine.docker('system', 'prune', '--force')
  equal(await names('moving'), ['moving'], 'the old container is pruned')
  const back = await deployIn(engine, { container: 'moving', release: null })
  equal([back.outcome, back.to, (await engine.inspect('moving')).Image], ['rolled_back', 'v1.0.0', first])
  await engine.docker('rm', 'moving-baton-previous')
  await engine.docker('rmi', '--force', second)
  equal(await rejects(engine.docker('image', 'inspect', second)).then(() => 'gone'), 'gone')
  const again = await deployIn(engine, { container: 'moving', release: null })
  equal(
    [again.outcome, again.to, (await engine.inspect('moving')).Image],
    ['rolled_back', 'v1.1.0', second],
    'pulled by its digest',
  )
  await engine.docker('rm', '-f', ...(await names('moving')))
})

test(`one tag keeps the old image of a service, also if its releases lie in two repositories${isLong ? ' and if one fails' : ''}`, async () => {
  const [name, here, there] = ['tagged', `${registry.host}/here`, `${registry.host}/there`]
  await publish(registry.host, 'here', ['v1.0.0'], probeImage('v1.0.0'))
  for (const tag of ['v1.1.0', 'v1.3.1']) await publish(registry.host, 'there', [tag], probeImage(tag))
  await publish(registry.host, 'here', ['v1.2.1'], probeImage('v1.2.1', { Entrypoint: ['/bin/false'], Cmd: null }))
  const kept = async () => {
    const lines = (await engine.docker('images', '--no-trunc', '--format', '{{.ID}} {{.Repository}}:{{.Tag}}')).split(
      '\n',
    )
    return lines.filter((line) => line.endsWith(`:baton-rollback-${name}`)).toSorted()
  }
  const imageOf = async () => (await engine.inspect(name)).Image
  const deployed = async (release: string, repository: string) =>
    (await deployIn(engine, { container: name, release, repository })).outcome
  await engine.docker('run', '-d', '--name', name, `${here}:v1.0.0`)
  await healthy(engine, name)
  const first = await imageOf()
  equal(await deployed('v1.1.0', there), 'updated')
  equal(await kept(), [`${first} ${here}:baton-rollback-${name}`])
  const second = await imageOf()
  equal(await deployed('v1.3.1', there), 'updated')
  equal(await kept(), [`${second} ${there}:baton-rollback-${name}`])
  if (!isLong) return void (await engine.docker('rm', '-f', ...(await names(name))))
  // an older release is a rollback, also by its tag, as a host says it
  const older = { container: name, release: 'v1.0.0', repository: here }
  const { outcome: planned, would } = await deployIn(engine, { ...older, dryRun: true })
  equal([planned, would], ['planned', 'rolled_back'])
  equal((await deployIn(engine, older)).outcome, 'rolled_back')
  const third = await kept()
  equal(third.length, 1)
  match(third[0] ?? '', / \S+\/there:baton-rollback-tagged$/)
  // it tags what runs, and takes that back
  equal(await deployed('v1.2.1', here), 'reverted')
  equal(await kept(), third)
  await engine.docker('rm', '-f', ...(await names(name)))
})

test.long('refuses a task of a swarm service, and names the command of swarm', async () => {
  await engine.docker('swarm', 'init', '--advertise-addr', '127.0.0.1')
  try {
    const image = `${registry.host}/beacon:v1.0.0`
    await engine.docker(
      'service',
      'create',
      '--detach',
      '--name',
      'swarmed',
      '--network',
      'host',
      '--no-resolve-image',
      image,
    )
    let task = ''
    await until('the task', async () => {
      for (const name of (await engine.names()).filter((each) => each.startsWith('swarmed.'))) {
        const { State } = await engine.inspect(name).catch(() => ({ State: {} })) // swarm is still making it
        if (State.Running === true) task = name
      }
      return task !== ''
    })
    const error = await rejects(deployIn(engine, { container: task, release: 'latest' }), withCode('refused'))
    match((error as { hint?: string }).hint ?? '', /docker service update .* swarmed/)
  } finally {
    await engine.docker('swarm', 'leave', '--force')
  }
})

test.after(close)

test.run()

/** A registry that ends the connection after `afterBytes` of any one blob. */
async function cuttingProxy(to: string, port: number, afterBytes: number) {
  let cuts = 0
  const server = createServer((request, response) => {
    const onward = httpRequest(
      `http://${to}${request.url}`,
      { method: request.method, headers: { ...request.headers, host: to } },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        let sent = 0
        answer.on('data', (chunk: Buffer) => {
          sent += chunk.length
          if (sent > afterBytes && request.url?.includes('/blobs/') && request.method === 'GET') {
            cuts++
            response.destroy()
            answer.destroy()
          } else response.write(chunk)
        })
        answer.on('end', () => response.end())
        answer.on('error', () => response.destroy())
      },
    )
    onward.on('error', () => response.destroy())
    request.pipe(onward)
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    cuts: () => cuts,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
