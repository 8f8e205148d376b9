// `deploy-container.sh --keep-port` and `--no-keep-port` on a real engine: what moves, what is refused, and what a kill leaves.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { suite, isLong } from '../suite.ts'
import { equal, match, ok, rejects, withCode } from '../assert.ts'
import type { Engine } from '../../deploy/container/engine/engine.ts'
import { type DeployEvent, endEvent, formatDeployEvent } from '../../deploy/container/report.ts'
import { witnessed } from '../fixtures/deploy-container.ts'
import { run } from '../../deploy/lib/shell.ts'
import { labFolder, openLab, publish } from '../lab/docker.ts'
import {
  answers,
  cable,
  heldService,
  type HeldService,
  logsOf,
  ordinaryService,
  uncable,
  underLoad,
  whole,
} from './held-service.ts'
import { serviceImages } from './images.ts'
import { command } from './cutting.ts'
import { type Deployed, deployIn, healthy, probeImage, statusIn, until } from './probe.ts'
import { askThree, type ThreePorts, threeKinds, whileAsked } from './three-kinds.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container hold moves', { timeoutMs: 300_000, skip })
let [repository, address] = ['', '']
let held: HeldService

test.before(async () => {
  address = (await cable()).address
  repository = await serviceImages(engine, registry)
  held = await heldService(engine, { name: 'held', port: 8200, repository, address })
  await publish(registry.host, 'beacon', ['v1.2.3'], probeImage('v1.2.3'))
})

test('--keep-port moves an ordinary container behind a holder and --no-keep-port out again, with all that it had', async () => {
  await engine.docker('network', 'create', '--subnet', '172.31.77.0/24', 'own')
  const given = ['--network', 'own', '--network-alias', 'shop', '--ip', '172.31.77.7', '--label', 'traefik.enable=true']
  const more = ['--label', 'mine=1', '--group-add', '77', '--restart', 'unless-stopped']
  await ordinaryService(engine, { name: 'moved', port: 8204, repository, address }, [...given, ...more])
  const before = await engine.inspect('moved')

  const dry = await deployIn(engine, { container: 'moved', release: 'hold', dryRun: true })
  const plan = dry.events.flatMap((event) => (event.event === 'plan' ? event.plan : []))
  ok(
    plan.some((line) => /new connections are refused/.test(line)) &&
      plan.some((line) => /create moved-holder/.test(line)),
  )
  ok(!plan.some((line) => /has no label showing that it contains baton-kit/.test(line)))
  const differences = dry.events.flatMap((event) => (event.event === 'plan' ? event.differences : []))
  ok(differences.every(({ because }) => because === 'holder'))
  const paths = differences.map(({ path }) => path)
  for (const path of ['HostConfig.PortBindings', 'HostConfig.GroupAdd', 'Config.Env.BATON_HOLDER', 'HostConfig.Binds'])
    ok(paths.includes(path), `${path} of ${paths.join(', ')}`)
  equal(told(dry), [
    'planned: moved would be moved behind a holder; nothing has changed, but the image may have been pulled',
  ])
  equal((await engine.inspect('moved')).Id, before.Id)
  await rejects(engine.inspect('moved-holder'))

  const moved = await deployIn(engine, { container: 'moved', release: 'hold' })
  equal([moved.outcome, moved.error?.message], ['updated', undefined])
  match(told(moved).join('\n'), /^moved behind a holder: moved runs v1\.0\.0; /)
  match(
    told(moved).join('\n'),
    /from the container’s own network\n {2}clients were refused in the meantime; from now on, the holder keeps them waiting instead/,
  )
  const [app, door] = [await engine.inspect('moved'), await engine.inspect('moved-holder')]
  const status = await statusIn(engine, 'moved')
  match(
    formatDeployEvent(endEvent('moved', status))[0] ?? '',
    /^moved runs v1\.0\.0, healthy, behind its holder moved-holder; previously/,
  )
  equal(status.holder, { name: 'moved-holder', runs: true, isUsed: true })
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
  await rejects(deployIn(engine, { container: 'moved', release: 'hold' }), /already has a holder/)
  const service = { ...held, app: 'moved', door: 'moved-holder', port: 8204 }
  let updated = moved
  whole(
    await underLoad(engine, service, 1, async () => {
      updated = await deployIn(engine, { container: 'moved', release: 'v1.1.0' })
    }),
  )
  match(
    told(updated).join('\n'),
    /^updated: moved runs v1\.1\.0; requests waited up to [^]* through the container’s holder/,
  )
  equal(updated.refused, null)

  const out = await deployIn(engine, { container: 'moved', release: 'no-hold' })
  equal([out.outcome, out.error?.message], ['updated', undefined])
  match(
    told(out).join('\n'),
    /^moved out from behind its holder: moved runs v1\.1\.0; [^]*refused in the meantime, as they will be/,
  )
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
  await until('an answer', () => answers(address, 8204))
  await rejects(deployIn(engine, { container: 'moved', release: 'no-hold' }), /has no holder/)
  const back = await deployIn(engine, { container: 'moved', release: 'v1.0.0', rehearse: false })
  match(
    told(back).join('\n'),
    /\n {2}clients were refused in the meantime; with `--keep-port`, a holder container would keep them waiting instead$/m,
  )
  await engine.docker('rm', '-f', 'moved', 'moved-baton-previous')
})

test.long(
  'a volume of an older holder, which ran as nobody, is given to the holder’s own user by the next deployment; the older one goes on',
  async () => {
    const place = async (volume: string) =>
      await engine.docker('volume', 'inspect', '--format', '{{.Mountpoint}}', `${volume}-hold`)
    const owner = async (volume: string) => (await run(['stat', '-c', '%a %u:%g', await place(volume)])).stdout.trim()
    const doorAnswers = () => until('an answer', () => answers(address, 8200))
    const deployed = async (name: string, release: string) => {
      const { code, out } = await command(engine.socketPath, name, release).ended
      equal([code, code === 0 ? '' : out], [0, ''])
    }
    equal(await owner('held'), '750 65531:65531')
    await engine.docker('stop', held.door)
    await run(['chown', '-R', '65534:65531', await place('held')])
    // without a deployment a new holder cannot begin there, and says why
    await held.anotherDoor()
    await until('its word', async () => /belongs to uid 65534: it keeps nothing/.test(await logsOf(engine, held.door)))
    await held.anotherDoor('--user', '65534:65531')
    await doorAnswers()

    whole(await underLoad(engine, held, 1, () => deployed(held.app, 'v1.1.0')))
    equal(await owner('held'), '770 65531:65531')
    await engine.docker('restart', held.door)
    await doorAnswers()
    await held.anotherDoor()
    await doorAnswers()
    const { Pid } = (await engine.inspect(held.door)).State
    match(await readFile(`/proc/${Pid}/status`, 'utf8'), /^Uid:\t65531\t65531\t65531\t65531$/m)

    // what an earlier `--no-keep-port` has left
    await ordinaryService(engine, { name: 'again', port: 8207, repository, address })
    await engine.docker('volume', 'create', 'again-hold')
    await writeFile(join(await place('again'), 'socket'), '')
    await run(['chown', '-R', '65534:65531', await place('again')])
    await deployed('again', 'hold')
    equal(await owner('again'), '770 65531:65531')
    await until('an answer', () => answers(address, 8207))
    await engine.docker('rm', '-f', 'again', 'again-holder', 'again-baton-previous')
  },
)

test('the plan of --keep-port warns of an image that does not say that it has the kit', async () => {
  const program = ['--entrypoint', '/bin/busybox', `${registry.host}/beacon:v1.2.3`, 'sleep', '1000']
  await engine.docker('run', '-d', '--name', 'foreign', '-p', `${address}:8205:8080`, ...program)
  const request = { container: 'foreign', release: 'hold', holder: `${repository}:holder`, dryRun: true }
  const { events } = await deployIn(engine, request)
  const plan = events.flatMap((event) => (event.event === 'plan' ? event.plan : []))
  match(plan.join('\n'), /has no label showing that it contains baton-kit: only an application with baton-kit\/auto/)
  await engine.docker('rm', '-f', 'foreign')
})

test('--keep-port refuses by name what cannot be held, and changes nothing', async () => {
  const cases: [string, string[], RegExp][] = [
    ['host', ['--network', 'host'], /uses the host’s network \(--network host\)/],
    ['shared', ['--network', `container:${held.app}`], /shares the network of/],
    ['silent', [], /publishes no port/],
    ['datagrams', ['-p', `${address}:8205:53/udp`], /publishes only UDP/],
    ['exposed', ['-P', '--expose', '9999'], /publishes whatever its image exposes \(-P\)/],
    ['alone', ['--network', 'none'], /has no network \(--network none\)/],
    ['many', ['-p', `${address}:8400-8432:8400-8432`], /publishes 33 ports/],
  ]
  for (const [name, options, said] of isLong ? cases : cases.slice(1, 3)) {
    const program = ['--entrypoint', '/bin/busybox', `${registry.host}/beacon:v1.2.3`, 'sleep', '1000']
    await engine.docker('run', '-d', '--name', name, ...options, ...program)
    const names = await engine.names()
    const error = await rejects(deployIn(engine, { container: name, release: 'hold' }), withCode('refused'))
    match(error.message, said)
    equal(await engine.names(), names)
    await engine.docker('rm', '-f', name)
  }
  // what an engine has is the kernel's matter: most labs have neither of these drivers, nor SCTP
  const drivers = ['macvlan', 'ipvlan'].map((driver) => ({
    driver,
    said: new RegExp(`is on the ${driver} network bridge`),
  }))
  const unseen = [{ driver: 'bridge', said: /publishes 53\/sctp/ }, ...drivers]
  for (const { driver, said } of isLong ? unseen : unseen.slice(0, 1)) {
    await ordinaryService(engine, { name: 'cabled', port: 8205, repository, address })
    const around = (client: Engine): Engine => ({
      ...client,
      networkDriver: () => Promise.resolve(driver),
      async container(id) {
        const found = await client.container(id)
        return found && { ...found, HostConfig: { ...found.HostConfig, PortBindings: { '53/tcp': [], '53/sctp': [] } } }
      },
    })
    const error = await rejects(deployIn(engine, { container: 'cabled', release: 'hold' }, around), withCode('refused'))
    match(error.message, said)
    await engine.docker('rm', '-f', 'cabled')
  }
  for (const release of isLong ? ['hold', 'no-hold', 'v1.1.0'] : ['v1.1.0']) {
    const error = await rejects(deployIn(engine, { container: held.door, release }), withCode('refused'))
    match(error.message, /`held-door` is the holder of another container’s ports/)
  }
})

test.long(
  'HTTP, lines and datagrams of one container: `--keep-port` moves all in; recreated in each way, nothing is refused and nothing lost',
  async () => {
    const three = await threeKinds(engine, registry)
    const ports = { address, http: 8250, lines: 8251, datagrams: 8252 }
    const published = [`${address}:8250:8080`, `${address}:8251:9000`, `${address}:8252:5353/udp`]
    const options = published.flatMap((one) => ['-p', one])
    await engine.docker('run', '-d', '--name', 'three', '--restart', 'always', ...options, `${three}:v1.0.0`)
    await until('an answer', () => answers(address, 8250))
    await askThree(ports)
    const image = `${repository}:holder`
    const moved = await deployIn(engine, { container: 'three', release: 'hold', holder: image })
    equal([moved.outcome, moved.error?.message], ['updated', undefined])
    equal((await engine.inspect('three-holder')).Config.Cmd.toSorted(), ['5353/udp', '8080', '9000'])
    await askThree(ports)
    const ways: [string, () => Promise<unknown>][] = [
      ['docker restart', () => engine.docker('restart', 'three')],
      ['our tool', () => deployIn(engine, { container: 'three', release: 'v1.1.0' })],
    ]
    for (const [what, act] of ways) await unhurt(what, ports, act)
    equal((await engine.inspect('three')).Config.Labels['org.opencontainers.image.version'], 'v1.1.0')
    const out = await deployIn(engine, { container: 'three', release: 'no-hold' })
    equal([out.outcome, out.error?.message], ['updated', undefined])
    await askThree(ports)
    await engine.docker('rm', '-f', 'three', 'three-baton-previous')

    const compose = await composedThree(three, image, published)
    await compose('up', '-d')
    await until('an answer', () => answers(address, 8250))
    await unhurt('docker-compose', ports, () => compose('up', '-d', '--force-recreate', '--no-deps', 'app'))
    await compose('down', '-v')
  },
)

function told({ events }: Deployed): string[] {
  return formatDeployEvent(events.at(-1) as DeployEvent)
}

async function unhurt(what: string, ports: ThreePorts, act: () => Promise<unknown>): Promise<void> {
  const { wrong, right } = await whileAsked(ports, act)
  process.stdout.write(`  three kinds, ${what}: ${right} right\n`)
  equal(wrong, [], what)
  ok(right > 20)
}

async function composedThree(three: string, holder: string, published: string[]) {
  const folder = join(labFolder(), 'three')
  await mkdir(folder)
  const door = { image: holder, command: ['8080', '9000', '5353/udp'], ports: published, volumes: ['hold:/run/hold'] }
  const environment = { BATON_HOLDER: '/run/hold/socket' }
  const app = { image: `${three}:v1.0.0`, environment, group_add: ['65531'], volumes: ['hold:/run/hold:ro'] }
  const file = { version: '3.7', services: { door, app }, volumes: { hold: {} } }
  await writeFile(join(folder, 'docker-compose.yml'), JSON.stringify(file))
  return (...args: string[]) => run(['docker-compose', ...args], { cwd: folder, env: engine.environment })
}

test.long(
  '--keep-port and --no-keep-port that are killed before any of their changes are finished or undone by the next run',
  async () => {
    await ordinaryService(engine, { name: 'cut', port: 8206, repository, address })
    for (const release of ['hold', 'no-hold']) {
      const isDone = async () => (await engine.names()).includes('cut-holder') === (release === 'hold')
      for (let n = 1; ; n++) {
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
          !(end instanceof Error) || /already has a holder|has no holder/.test(end.message),
          `${release} ${n}: ${end instanceof Error ? end.message : end.outcome}`,
        )
        await healthy(engine, 'cut')
        await until(`an answer after ${release} ${n}`, () => answers(address, 8206))
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
  },
)

test.after(async () => {
  await uncable()
  await close()
})

test.run()
