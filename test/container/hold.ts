// A container whose sockets another one holds, on a real engine, under strict clients: whoever recreates it, nobody is refused.
// CI does some rounds of each; `npm run soak -- --holder` does 20.

import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { run } from '../../deploy/lib/shell.ts'
import { equal, is, match, ok } from '../assert.ts'
import { isLong, suite } from '../suite.ts'
import { type Inspection, labFolder, ofCompose, openLab, publish } from '../lab/docker.ts'
import {
  answers,
  BORROWS,
  cable,
  heldService,
  type HeldService,
  keptRows,
  logsOf,
  ordinaryService,
  tell,
  SMALL,
  uncable,
  underLoad,
  whole,
} from './held-service.ts'
import { serviceImages } from './images.ts'
import { deployIn, healthy, probeImage, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container hold', { timeoutMs: 600_000, skip })
const ROUNDS = isLong ? 20 : 1
let [repository, address] = ['', '']
let held: HeldService

test.before(async () => {
  address = (await cable()).address
  repository = await serviceImages(engine, registry)
  // while clients wait, nothing is pulled: on a busy machine that takes longer than they do
  await engine.docker('pull', '-q', `${repository}:v1.1.0`)
  held = await heldService(engine, { name: 'held', port: 8200, repository, address })
})

test('the holder is small in rights, and its socket is for its group', async () => {
  const { Config, HostConfig, Mounts } = await engine.inspect(held.door)
  equal([Config.User, HostConfig.ReadonlyRootfs, HostConfig.CapDrop], ['65531:65531', true, ['ALL']])
  const [{ Source }] = Mounts
  equal((await run(['stat', '-c', '%a %u:%g', Source, join(Source, 'socket')])).stdout.trim().split('\n'), [
    '750 65531:65531',
    '660 65531:65531',
  ])
  match(await logsOf(engine, held.door), /gave uid 65532 gid 65532 the sockets/)
  const image = (
    await run(['docker', 'image', 'ls', '--format', '{{.Size}}', `${repository}:holder`], { env: engine.environment })
  ).stdout
  match(image, /^5\d\.\dkB$/m)
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
// in CI hold-moves.ts restarts a container, and recreates one by compose
for (const [what, act] of isLong ? recreations : recreations.slice(1))
  test(`${what}: nobody is refused and nothing is lost`, async () => {
    const seen = await underLoad(engine, held, ROUNDS, act)
    tell(what, seen)
    whole(seen)
    await keptRows(engine, held.app, seen.ids)
  })

test.long('docker-compose up -d --force-recreate: nobody is refused and nothing is lost', async () => {
  const own = await composed('composed', 8201)
  const { compose, app } = own
  await compose('up', '-d')
  await healthy(engine, app)
  const service = { ...held, app, door: ofCompose('composed', 'holder'), port: 8201 }
  const seen = await underLoad(engine, service, ROUNDS, () =>
    compose('up', '-d', '--force-recreate', '--no-deps', 'beacon'),
  )
  tell('compose', seen)
  whole(seen)
  await keptRows(engine, app, seen.ids)
  await compose('down', '-v')
})

test.long(
  'rm -f and kill -9 of the application: nobody is refused, and only what it had accepted is lost',
  async () => {
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
    await keptRows(engine, held.app, [...seen.ids, ...killed.ids])
  },
)

// in CI hold-moves.ts updates by this process too, and hold-waits.ts by a switcher
test.long('our own tool, forth and back: nobody is refused and nothing is lost', async () => {
  const seen = await underLoad(engine, held, ROUNDS, async (round) => {
    const release = version(await engine.inspect(held.app)) === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
    const end = await deployIn(engine, { container: held.app, release })
    const expected = release === 'v1.1.0' ? 'updated' : 'rolled_back'
    equal([end.outcome, end.error?.message], [expected, undefined], `round ${round}`)
    match(end.downMeasured ?? '', /through the container’s holder/)
  })
  tell('our tool', seen)
  whole(seen)
  await keptRows(engine, held.app, seen.ids)
})

test('a release that is broken goes back by itself, and the queue stands meanwhile', async () => {
  const exits = { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null }
  const hangs = { Entrypoint: ['/bin/sh', '-c', 'exec busybox sleep 1000'], Cmd: null }
  const inside = {} // it is well inside, and asks nobody for sockets
  const eats = { Entrypoint: ['/bin/sh', '-c', 'exec busybox tail /dev/zero'], Cmd: null }
  const broken = { 'v1.2.1': exits, 'v1.2.3': inside, ...(isLong ? { 'v1.2.2': hangs, 'v1.2.4': eats } : {}) }
  await engine.docker('update', '--memory', '400m', '--memory-swap', '400m', held.app)
  const before = await engine.inspect(held.app)
  for (const [tag, config] of Object.entries(broken)) {
    await publish(registry.host, 'beacon', [tag], probeImage(tag, config))
    const seen = await underLoad(engine, held, 1, async () => {
      // to take all its memory a container needs some seconds on a busy machine
      const healthTimeoutMs = tag === 'v1.2.4' ? 30_000 : 3000
      const end = await deployIn(engine, { container: held.app, release: tag, healthTimeoutMs })
      equal([end.outcome, end.healthy], ['reverted', true], tag)
      if (tag === 'v1.2.4')
        match(
          end.error?.message ?? '',
          /the new container exited(?: with code 137)?(?:, out of memory| and was restarted)/,
        )
      if (tag === 'v1.2.3') match(end.error?.message ?? '', /cannot be reached through its holder/)
    })
    tell(`broken ${tag}`, seen)
    equal([seen.refused, seen.lost], [0, 0])
    equal((await engine.inspect(held.app)).Image, before.Image)
  }
  await engine.docker('rm', '-f', `${held.app}-baton-failed`)
})

test.long('an ordinary container, restarted in the same way, refuses', async () => {
  await ordinaryService(engine, { name: 'plain', port: 8202, repository, address })
  const service = { ...held, app: 'plain', port: 8202 }
  const seen = await underLoad(engine, service, Math.min(ROUNDS, 3), () => engine.docker('restart', 'plain'))
  tell('ordinary, docker restart', seen)
  ok(seen.refused > 0)
  await engine.docker('rm', '-f', 'plain')
})

test('kill -9 of the holder: the service answers again soon, by itself', async () => {
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
    ok(tookMs < 15_000, `${tookMs} ms`) // two seconds on a machine that does nothing else; the faults that this is about took minutes
    const now = await engine.inspect(held.app)
    equal([now.Id, now.State.Pid], [Id, State.Pid], 'the same process took the new socket')
  }
})

test.long('whichever of the two begins first, and both recreated at once: it serves', async () => {
  const own = await composed('both', 8203)
  await own.compose('up', '-d', 'beacon')
  await until('its word', async () => /waiting for the holder/.test(await logsOf(engine, own.app)))
  await own.compose('up', '-d')
  await healthy(engine, own.app)
  await until('an answer', () => answers(address, 8203))
  await own.compose('up', '-d', '--force-recreate')
  await healthy(engine, own.app)
  await until('an answer', () => answers(address, 8203))
  await own.compose('down', '-v')
})

test('an engine that is stopped or killed: the service answers again by itself, soon after its start', async () => {
  // hold-engines.ts stops and kills the engine alone
  const ways = isLong ? Array.from({ length: 5 }, () => ['stop', 'crash'] as const).flat() : (['crash'] as const)
  for (const way of ways) {
    await engine[way]()
    const began = performance.now()
    await engine.start()
    await until('an answer', () => answers(address, 8200))
    const tookMs = performance.now() - began
    process.stdout.write(`  engine ${way}: answered ${Math.round(tookMs)} ms after its start\n`)
    ok(tookMs < 60_000, `${tookMs} ms`) // the faults that this is about took minutes
    await healthy(engine, held.app)
  }
})

test('an application outside of the group does not begin, and says why', async () => {
  const volume = ['-v', 'held-hold:/run/hold:ro', ...BORROWS.slice(2)]
  await engine.docker('run', '-d', '--name', 'stranger', ...volume, ...SMALL, `${repository}:v1.0.0`)
  await until('its word', async () => /EACCES[^]*--group-add 65531/.test(await logsOf(engine, 'stranger')))
  await engine.docker('rm', '-f', 'stranger')
})

test.after(async () => {
  await uncable()
  await close()
})

test.run()

function version({ Config }: Inspection): string {
  return Config.Labels['org.opencontainers.image.version']
}

/** A project that is not up yet. */
async function composed(name: string, port: number) {
  const folder = join(labFolder(), name)
  await mkdir(folder)
  await writeFile(join(folder, 'compose.yaml'), await composeFile(port))
  const compose = (...args: string[]) => run(['docker-compose', ...args], { cwd: folder, env: engine.environment })
  return { app: ofCompose(name, 'beacon'), compose }
}

/** The file of the guide. */
async function composeFile(port: number): Promise<string> {
  const page = await readFile(join(import.meta.dirname, '../../docs/operator/container.md'), 'utf8')
  const file = /^```yaml\n(services:\n {2}holder:[^]*?)^```$/m.exec(page)?.[1] ?? ''
  const here = file
    .replaceAll('registry.example/shop', repository)
    .replaceAll(/\bshop\b/g, 'beacon')
    .replace('${SHOP_TAG}', 'v1.0.0')
  return here.replace('127.0.0.1:8080:8080', `${address}:${port}:8080`)
}
