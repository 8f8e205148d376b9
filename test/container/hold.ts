// A container whose sockets another one holds, on a real engine, under strict clients: whoever recreates it, nobody is refused.
// CI does some rounds of each; `npm run soak -- --hold` does 20.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { buildImage } from '../../deploy/image.ts'
import { createProgress } from '../../deploy/lib/progress.ts'
import { run } from '../../deploy/lib/shell.ts'
import { equal, is, match, ok, rejects, withCode } from '../assert.ts'
import { witnessed } from '../fixtures/deploy-container.ts'
import { publishTo, releases } from '../fixtures/releases.ts'
import { isLong, suite } from '../suite.ts'
import {
  type Inspection,
  labFolder,
  labReason,
  type LabEngine,
  publish,
  publishBase,
  type Registry,
  startEngine,
  startRegistry,
} from '../lab/docker.ts'
import { BORROWS, cable, heldService, type HeldService, type Seen, SMALL, uncable, underLoad } from './held-service.ts'
import { deployIn, healthy, probeImage, until } from './probe.ts'

const skip = labReason()
const test = suite('container hold', { timeoutMs: 600_000, skip })
const lab = skip === null ? { engine: await startEngine(), registry: await startRegistry() } : null
const engine = lab?.engine as LabEngine
const registry = lab?.registry as Registry
const ROUNDS = isLong ? 20 : 3
let [repository, address] = ['', '']
let held: HeldService

test.before(async () => {
  repository = `${registry.host}/beacon`
  address = (await cable()).address
  const base = await publishBase(registry.host)
  const dist = await publishTo(join(labFolder(), 'dist'), await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }]))
  const common = { dist, repository, base, arch: process.arch, push: true, revision: '', source: '' }
  const { environment } = engine
  for (const tag of ['v1.0.0', 'v1.1.0'])
    await buildImage({ ...common, tag, environment, progress: createProgress({ quiet: true }) })
  held = await heldService(engine, { name: 'held', port: 8200, repository, address })
})

test('the holder is small in rights, and its socket is for its group', async () => {
  const { Config, HostConfig, Mounts } = await engine.inspect(held.door)
  equal([Config.User, HostConfig.ReadonlyRootfs, HostConfig.CapDrop], ['65534:65531', true, ['ALL']])
  const [{ Source }] = Mounts
  equal((await run(['stat', '-c', '%a %u:%g', Source, join(Source, 'socket')])).stdout.trim().split('\n'), [
    '750 65534:65531',
    '660 65534:65531',
  ])
  match(await engine.docker('logs', held.door).then(() => logsOf(held.door)), /gave uid 65532 gid 65532 the sockets/)
  const image = (
    await run(['docker', 'image', 'ls', '--format', '{{.Size}}', `${repository}:holder`], { env: engine.environment })
  ).stdout
  match(image, /^4\d\.\dkB$/m)
  // its own check asks inside the application's container
  await until('its own check', async () => (await engine.inspect(held.app)).State.Health.Status === 'healthy')
})

const recreations: [string, (round: number) => Promise<unknown>][] = [
  ['docker restart', () => engine.docker('restart', held.app)],
  [
    'stop, rm, create, start, as Watchtower does it',
    async (round) => {
      await engine.docker('stop', held.app)
      await engine.docker('rm', held.app)
      await engine.docker('create', ...held.again(round % 2 === 0 ? 'v1.1.0' : 'v1.0.0'))
      await engine.docker('start', held.app)
    },
  ],
]
for (const [what, act] of recreations)
  test(`${what}: nobody is refused and nothing is lost`, async () => {
    const seen = await underLoad(engine, held, ROUNDS, act)
    tell(what, seen)
    whole(seen)
    await keptRows(held.app, seen.ids)
  })

test('docker-compose up -d --force-recreate: nobody is refused and nothing is lost', async () => {
  const own = await composed('composed', 8201)
  const { compose, app } = own
  await compose('up', '-d')
  await healthy(engine, app)
  const service = { ...held, app, door: 'composed_door_1', port: 8201 }
  const seen = await underLoad(engine, service, ROUNDS, () =>
    compose('up', '-d', '--force-recreate', '--no-deps', 'beacon'),
  )
  tell('compose', seen)
  whole(seen)
  await keptRows(app, seen.ids)
  await compose('down', '-v')
})

test('rm -f and kill -9 of the application: nobody is refused, and only what it had accepted is lost', async () => {
  const seen = await underLoad(engine, held, ROUNDS, async (round) => {
    await engine.docker('rm', '-f', held.app)
    await engine.docker('run', '-d', ...held.again(round % 2 === 0 ? 'v1.1.0' : 'v1.0.0'))
  })
  tell('rm -f', seen)
  is(seen.refused, 0)
  // at most what is on its way at one instant: 8 clients
  ok(seen.lost <= 8 * ROUNDS, JSON.stringify(seen.errors))
  const killed = await underLoad(engine, held, Math.min(ROUNDS, 5), async () => {
    const { Pid } = (await engine.inspect(held.app)).State
    process.kill(Pid, 'SIGKILL')
    await until('the next', async () => ![0, Pid].includes((await engine.inspect(held.app)).State.Pid))
    await sleep(isLong ? 10_500 : 1000) // after 10 s the engine forgets the earlier end, and restarts at once
  })
  tell('kill -9', killed)
  is(killed.refused, 0)
  await keptRows(held.app, [...seen.ids, ...killed.ids])
})

test('our own tool, forth and back: nobody is refused and nothing is lost', async () => {
  const seen = await underLoad(engine, held, ROUNDS, async (round) => {
    const release = version(await engine.inspect(held.app)) === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
    const end = await deployIn(engine, { container: held.app, release })
    equal([end.outcome, end.error?.message], ['updated', undefined], `round ${round}`)
    match(end.downMeasured ?? '', /at its holder, where clients wait and are not refused/)
  })
  tell('our tool', seen)
  whole(seen)
  await keptRows(held.app, seen.ids)
})

test('a release that is broken goes back by itself, and the queue stands meanwhile', async () => {
  const exits = { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null }
  const hangs = { Entrypoint: ['/bin/sh', '-c', 'exec busybox sleep 1000'], Cmd: null }
  const inside = {} // it is well inside, and asks nobody for sockets
  const broken = { 'v1.2.1': exits, 'v1.2.2': hangs, 'v1.2.3': inside }
  const before = await engine.inspect(held.app)
  for (const [tag, config] of Object.entries(broken)) {
    await publish(registry.host, 'beacon', [tag], probeImage(tag, config))
    const seen = await underLoad(engine, held, 1, async () => {
      const end = await deployIn(engine, { container: held.app, release: tag, healthTimeoutMs: 3000 })
      equal([end.outcome, end.healthy], ['reverted', true], tag)
      if (tag === 'v1.2.3') match(end.error?.message ?? '', /answers nothing of what its holder gets/)
    })
    tell(`broken ${tag}`, seen)
    equal([seen.refused, seen.lost], [0, 0])
    equal((await engine.inspect(held.app)).Image, before.Image)
  }
  await engine.docker('rm', '-f', `${held.app}-baton-failed`)
})

test('--hold moves an ordinary container behind a holder and --no-hold out again, with all that it had', async () => {
  await engine.docker('network', 'create', '--subnet', '172.31.77.0/24', 'own')
  const given = ['--network', 'own', '--network-alias', 'shop', '--ip', '172.31.77.7', '--label', 'traefik.enable=true']
  const more = [
    '--label',
    'mine=1',
    '-p',
    `${address}:8204:8080`,
    '-v',
    'moved-rows:/var/lib/beacon',
    '--group-add',
    '77',
  ]
  const rights = ['--restart', 'unless-stopped', ...SMALL]
  await engine.docker('run', '-d', '--name', 'moved', ...given, ...more, ...rights, `${repository}:v1.0.0`)
  await healthy(engine, 'moved')
  const before = await engine.inspect('moved')

  const dry = await deployIn(engine, { container: 'moved', release: 'hold', dryRun: true })
  const plan = dry.events.flatMap((event) => (event.event === 'plan' ? event.plan : []))
  ok(
    plan.some((line) => /clients are refused once/.test(line)) && plan.some((line) => /create moved-holder/.test(line)),
  )
  equal((await engine.inspect('moved')).Id, before.Id)
  await rejects(engine.inspect('moved-holder'))

  const moved = await deployIn(engine, { container: 'moved', release: 'hold' })
  equal([moved.outcome, moved.error?.message], ['updated', undefined])
  const [app, door] = [await engine.inspect('moved'), await engine.inspect('moved-holder')]
  equal([app.HostConfig.PortBindings, app.HostConfig.GroupAdd], [{}, ['77', '65531']])
  equal([app.Config.Labels['mine'], app.Config.Labels['traefik.enable']], ['1', undefined])
  equal([door.Config.Labels['traefik.enable'], door.HostConfig.RestartPolicy.Name], ['true', 'always'])
  equal(
    [door.NetworkSettings.Networks.own.IPAddress, app.HostConfig.RestartPolicy.Name],
    ['172.31.77.7', 'unless-stopped'],
  )
  ok(
    door.NetworkSettings.Networks.own.Aliases.includes('shop') &&
      !app.NetworkSettings.Networks.own.Aliases.includes('shop'),
  )
  await rejects(deployIn(engine, { container: 'moved', release: 'hold' }), /has a holder already/)
  const service = { ...held, app: 'moved', door: 'moved-holder', port: 8204 }
  whole(await underLoad(engine, service, 1, () => deployIn(engine, { container: 'moved', release: 'v1.1.0' })))

  const out = await deployIn(engine, { container: 'moved', release: 'no-hold' })
  equal([out.outcome, out.error?.message], ['updated', undefined])
  const after = await engine.inspect('moved')
  for (const key of ['PortBindings', 'GroupAdd', 'Binds', 'RestartPolicy'])
    equal(after.HostConfig[key] ?? [], before.HostConfig[key] ?? [], key)
  equal([after.Config.Labels['traefik.enable'], after.NetworkSettings.Networks.own.IPAddress], ['true', '172.31.77.7'])
  ok(after.NetworkSettings.Networks.own.Aliases.includes('shop'))
  ok(!after.Config.Env.some((entry: string) => entry.startsWith('BATON_HOLDER')))
  equal(
    (await engine.names()).filter((name) => name.startsWith('moved')),
    ['moved', 'moved-baton-previous'],
  )
  await until('an answer', () => answers(8204))
  await rejects(deployIn(engine, { container: 'moved', release: 'no-hold' }), /has no holder/)
  await engine.docker('rm', '-f', 'moved', 'moved-baton-previous')
})

test('--hold refuses by name what cannot be held, and changes nothing', async () => {
  await engine.docker('network', 'create', '-d', 'macvlan', '-o', 'parent=lo', 'cable').catch(() => null)
  const hasMacvlan = (await engine.docker('network', 'ls', '--format', '{{.Driver}}')).includes('macvlan')
  const cases: [string, string[], RegExp][] = [
    ['host', ['--network', 'host'], /in the host’s network \(--network host\)/],
    ['shared', ['--network', `container:${held.app}`], /shares the network of/],
    ['silent', [], /publishes no port/],
    ['datagrams', ['-p', `${address}:8205:53/udp`], /publishes 53\/udp/],
    ...(hasMacvlan
      ? [['cabled', ['--network', 'cable'], /in the macvlan network cable/] as [string, string[], RegExp]]
      : []),
  ]
  for (const [name, options, said] of cases) {
    const program = ['--entrypoint', '/bin/busybox', `${registry.host}/beacon:v1.2.3`, 'sleep', '1000']
    await engine.docker('run', '-d', '--name', name, ...options, ...program)
    const names = await engine.names()
    const error = await rejects(deployIn(engine, { container: name, release: 'hold' }), withCode('refused'))
    match(error.message, said)
    equal(await engine.names(), names)
    await engine.docker('rm', '-f', name)
  }
})

test('--hold and --no-hold that are killed before any of their changes are finished or undone by the next run', async () => {
  const published = ['-p', `${address}:8206:8080`, '-v', 'cut-rows:/var/lib/beacon']
  await engine.docker(
    'run',
    '-d',
    '--name',
    'cut',
    '--restart',
    'always',
    ...published,
    ...SMALL,
    `${repository}:v1.0.0`,
  )
  await healthy(engine, 'cut')
  for (const release of ['hold', 'no-hold']) {
    const isDone = async () => (await engine.names()).includes('cut-holder') === (release === 'hold')
    for (let n = 1; ; n += isLong ? 1 : 3) {
      let count = 0
      await deployIn(engine, { container: 'cut', release, probationMs: 0 }, (client) =>
        witnessed(client, (at) => {
          count = Math.max(count, at)
          if (at >= n) throw new Error('cut short') // and nothing after it is done either
        }),
      ).catch(() => null)
      if (count < n) break // all was done
      const end = await deployIn(engine, { container: 'cut', release, probationMs: 0 }).catch((error: Error) => error)
      ok(
        !(end instanceof Error) || /has a holder already|has no holder/.test(end.message),
        `${release} ${n}: ${String(end)}`,
      )
      await healthy(engine, 'cut')
      await until(`an answer after ${release} ${n}`, () => answers(8206))
      ok(await isDone(), `${release} ${n}: ${JSON.stringify(end)}`)
      // and back, for the next
      await deployIn(engine, { container: 'cut', release: release === 'hold' ? 'no-hold' : 'hold', probationMs: 0 })
    }
    ok(await isDone())
    equal(
      (await engine.names()).filter((name) => /^cut-baton-(?!previous)/.test(name)),
      [],
    )
  }
  await engine.docker('rm', '-f', 'cut', 'cut-baton-previous')
})

test('an ordinary container, restarted in the same way, refuses', async () => {
  const published = ['-p', `${address}:8202:8080`, '-v', 'plain-rows:/var/lib/beacon']
  await engine.docker(
    'run',
    '-d',
    '--name',
    'plain',
    '--restart',
    'always',
    ...published,
    ...SMALL,
    `${repository}:v1.0.0`,
  )
  await healthy(engine, 'plain')
  const service = { ...held, app: 'plain', port: 8202 }
  const seen = await underLoad(engine, service, Math.min(ROUNDS, 3), () => engine.docker('restart', 'plain'))
  tell('ordinary, docker restart', seen)
  ok(seen.refused > 0)
  await engine.docker('rm', '-f', 'plain')
})

test('kill -9 of the holder: the service answers again within two seconds, by itself', async () => {
  for (let round = 0; round < (isLong ? 5 : 1); round++) {
    if (round > 0) await sleep(10_500) // after 10 s the engine forgets the earlier end, and restarts at once
    const { Pid } = (await engine.inspect(held.door)).State
    const { Id, State } = await engine.inspect(held.app)
    process.kill(Pid, 'SIGKILL')
    const began = performance.now()
    await until('an end', async () => (await engine.inspect(held.door)).State.Pid !== Pid)
    await until('an answer', () =>
      fetch(`http://${address}:8200/`).then(
        ({ ok: is200 }) => is200,
        () => false,
      ),
    )
    const tookMs = performance.now() - began
    process.stdout.write(`  kill -9 of the holder: answered after ${Math.round(tookMs)} ms\n`)
    ok(tookMs < 2000, `${tookMs} ms`)
    const now = await engine.inspect(held.app)
    equal([now.Id, now.State.Pid], [Id, State.Pid], 'the same process took the new socket')
  }
})

test('whichever of the two begins first, and both recreated at once: it serves', async () => {
  const own = await composed('both', 8203)
  await own.compose('up', '-d', 'beacon')
  await until('its word', async () => /waiting for the holder/.test(await logsOf(own.app)))
  await own.compose('up', '-d')
  await healthy(engine, own.app)
  await until('an answer', () => answers(8203))
  await own.compose('up', '-d', '--force-recreate')
  await healthy(engine, own.app)
  await until('an answer', () => answers(8203))
  await own.compose('down', '-v')
})

test('an engine that is stopped or killed: the service answers again by itself within 15 s of its start', async () => {
  for (const way of ['stop', 'crash'] as const) {
    await engine[way]()
    const began = performance.now()
    await engine.start()
    await until('an answer', () => answers(8200))
    const tookMs = performance.now() - began
    process.stdout.write(`  engine ${way}: answered ${Math.round(tookMs)} ms after its start\n`)
    ok(tookMs < 15_000, `${tookMs} ms`)
    await healthy(engine, held.app)
  }
})

test('an application outside of the group waits, and says why', async () => {
  const volume = ['-v', 'held-hold:/run/hold:ro', ...BORROWS.slice(2)]
  await engine.docker('run', '-d', '--name', 'stranger', ...volume, ...SMALL, `${repository}:v1.0.0`)
  await until('its word', async () => /EACCES.*--group-add 65531/.test(await logsOf('stranger')))
  await engine.docker('rm', '-f', 'stranger')
})

test.after(async () => {
  await uncable()
  await lab?.engine.stop()
  await lab?.registry.stop()
})

test.run()

function version({ Config }: Inspection): string {
  return Config.Labels['org.opencontainers.image.version']
}

function whole(seen: Seen): void {
  const { refused, lost, closed } = seen
  equal({ refused, lost, closed }, { refused: 0, lost: 0, closed: 0 }, JSON.stringify(seen.errors))
  ok(seen.ok > 100)
}

function tell(what: string, { ok: answered, refused, lost, closed, longestMs }: Seen): void {
  process.stdout.write(
    `  ${what}: ${answered} answered, refused ${refused}, lost ${lost}, closed ${closed}, longest wait ${longestMs} ms\n`,
  )
}

/** What a container has written to both of its streams. */
async function logsOf(name: string): Promise<string> {
  const { stdout, stderr } = await run(['docker', 'logs', name], { env: engine.environment })
  return stdout + stderr
}

async function keptRows(app: string, ids: readonly string[]): Promise<void> {
  ok(ids.length > 0)
  const { Mounts } = await engine.inspect(app)
  const place = Mounts.find(({ Destination }: { Destination: string }) => Destination === '/var/lib/beacon').Source
  await engine.docker('stop', app)
  const database = new DatabaseSync(join(place, 'beacon.db'))
  try {
    const kept = new Set(
      database
        .prepare('select message from logs')
        .all()
        .map((row) => row['message']),
    )
    equal(
      ids.filter((id) => !kept.has(id)),
      [],
    )
  } finally {
    database.close()
  }
  await engine.docker('start', app)
  await healthy(engine, app)
}

/** A project that is not up yet. */
async function composed(name: string, port: number) {
  const folder = join(labFolder(), name)
  await mkdir(folder)
  await writeFile(join(folder, 'compose.yaml'), composeFile(port))
  const compose = (...args: string[]) => run(['docker-compose', ...args], { cwd: folder, env: engine.environment })
  return { app: `${name}_beacon_1`, compose }
}

async function answers(port: number): Promise<boolean> {
  const answer = await fetch(`http://${address}:${port}/`, { signal: AbortSignal.timeout(2000) }).catch(() => null)
  await answer?.arrayBuffer().catch(() => null)
  return answer?.status === 200
}

function composeFile(port: number): string {
  return `services:
  door: { image: '${repository}:holder', command: ['8080'], restart: always, ports: ['${address}:${port}:8080'], volumes: ['hold:/run/hold'] }
  beacon:
    image: ${repository}:v1.0.0
    restart: always
    group_add: ['65531']
    environment: { BATON_HOLDER: /run/hold/socket }
    volumes: ['hold:/run/hold:ro', 'rows:/var/lib/beacon']
volumes: { hold: {}, rows: {} }
`
}
