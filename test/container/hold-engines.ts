// A holder and its service under other engines: one that is killed, with and without live-restore, one without the userland proxy, and
// one with IPv6 on its bridge. What clients see is told; what must hold is that the service answers again by itself.

import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { run } from '../../deploy/lib/shell.ts'
import { equal, match, ok } from '../assert.ts'
import { labFolder, openLab } from '../lab/docker.ts'
import { suite } from '../suite.ts'
import {
  answers,
  cable,
  heldService,
  type HeldService,
  strictClients,
  tell,
  uncable,
  underLoad,
  watchDatabase,
  whole,
} from './held-service.ts'
import { serviceImages } from './images.ts'
import { command } from './cutting.ts'
import { healthy, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container hold engines', { timeoutMs: 300_000, skip })
const ROUNDS = 5
/** as in hold.ts: the faults that this is about took minutes */
const ANSWERS_MS = 60_000
let [repository, address] = ['', '']
let held: HeldService

test.before(async () => {
  address = (await cable()).address
  repository = await serviceImages(engine, registry)
  held = await heldService(engine, { name: 'held', port: 8240, repository, address })
})

test('kill -9 of the engine: the service answers again by itself, soon after its start', async () => {
  for (let round = 0; round < ROUNDS; round++) {
    const clients = await strictClients(held, await cable())
    await sleep(300)
    await engine.kill()
    const began = performance.now()
    await engine.start()
    await until('an answer', () => answers(address, held.port))
    const tookMs = performance.now() - began
    ok(tookMs < ANSWERS_MS, `${tookMs} ms`)
    await healthy(engine, held.app)
    await sleep(300)
    tell(`kill -9 of the engine, ${Math.round(tookMs)} ms`, await clients.stop())
  }
})

test('with live-restore, an engine that is stopped or killed: the same processes serve on, and what waits is answered', async () => {
  await engine.stop()
  const flags = { 'live-restore': 'true' }
  await engine.start(flags)
  await healthy(engine, held.app)
  await until('an answer', () => answers(address, held.port))
  for (const way of ['stop', 'kill'] as const)
    for (let round = 0; round < ROUNDS; round++) {
      const pids = async () => [(await engine.inspect(held.app)).State.Pid, (await engine.inspect(held.door)).State.Pid]
      const before = await pids()
      const clients = await strictClients(held, await cable())
      await sleep(300)
      await engine[way]()
      await sleep(500)
      ok(await answers(address, held.port), 'without an engine')
      await engine.start(flags)
      await healthy(engine, held.app)
      await sleep(500)
      const seen = await clients.stop()
      tell(`live-restore, ${way}`, seen)
      equal(await pids(), before)
      // refused only while the engine rewrites its rules
      equal(seen.lost, 0, JSON.stringify(seen.errors))
      ok(seen.ok > 50)
    }
})

test('with live-restore, an engine that is killed in the probation of an update does not start the old container beside the new one', async () => {
  const overlaps = await watchDatabase(engine, held.app)
  const {
    child: _,
    ended,
    said,
  } = command(engine.socketPath, held.app, 'v1.1.0', ['--trial', 'never', '--probation', '5s'])
  await until('the probation', () => said().includes('"step":"probation"'))
  await engine.kill()
  await engine.start({ 'live-restore': 'true' })
  const { out } = await ended // the switcher may have lost its engine's socket: it is started again, and goes on
  await until('the end', async () => {
    const names = await engine.names()
    return names.includes(`${held.app}-baton-previous`) && !names.includes(`${held.app}-baton-predecessor`)
  })
  await healthy(engine, held.app)
  const { HostConfig, Config } = await engine.inspect(held.app)
  equal([HostConfig.RestartPolicy.Name, Config.Labels['org.opencontainers.image.version']], ['always', 'v1.1.0'])
  equal((await overlaps.stop()).most, 1, out)
  await engine.stop()
})

test('with live-restore, an engine that is killed while the old container ends: the new one answers soon after its start', async () => {
  const flags = { 'live-restore': 'true' }
  await engine.start(flags)
  await healthy(engine, held.app)
  const overlaps = await watchDatabase(engine, held.app)
  const clients = await strictClients(held, await cable())
  const { Config } = await engine.inspect(held.app)
  const release = Config.Labels['org.opencontainers.image.version'] === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
  const { ended } = command(engine.socketPath, held.app, release, ['--trial', 'never'])
  const old = `${held.app}-baton-predecessor`
  // the last change before it is stopped
  await until('its end', async () => {
    const found = await engine.inspect(old).catch(() => null)
    return found?.HostConfig.RestartPolicy.Name === 'no'
  })
  await engine.kill()
  const began = performance.now()
  await engine.start(flags)
  await until('an answer of the new one', async () => {
    const asked = await fetch(`http://${address}:${held.port}/`, { signal: AbortSignal.timeout(2000) }).catch(
      () => null,
    )
    return ((await asked?.text().catch(() => '')) ?? '').includes(release)
  })
  const tookMs = performance.now() - began
  const { out } = await ended
  await until('the end', async () => {
    const names = await engine.names()
    return names.includes(`${held.app}-baton-previous`) && !names.includes(old)
  })
  tell(`live-restore, killed while the old one ends, ${Math.round(tookMs)} ms`, await clients.stop())
  ok(tookMs < ANSWERS_MS, `${tookMs} ms`)
  equal((await engine.inspect(held.app)).Config.Labels['org.opencontainers.image.version'], release)
  equal((await overlaps.stop()).most, 1, out)
  await engine.stop()
})

test('without the userland proxy: nobody is refused when the service is recreated, and its clients have their addresses', async () => {
  await engine.stop()
  await engine.start({ 'userland-proxy': 'false' })
  await healthy(engine, held.app)
  await until('an answer', () => answers(address, held.port))
  const seen = await underLoad(engine, held, ROUNDS, () => engine.docker('restart', held.app))
  tell('userland-proxy=false', seen)
  whole(seen)
})

test('with IPv6 on the bridge: the holder takes both, and recreating the service refuses neither', async () => {
  await engine.stop()
  await engine.start({ ipv6: 'true', 'fixed-cidr-v6': 'fd00:ba70::/64' })
  await engine.docker('rm', '-f', held.app, held.door)
  const six = await heldService(engine, { name: 'six', port: 8241, repository, address })
  const { GlobalIPv6Address } = (await engine.inspect(six.door)).NetworkSettings
  match(GlobalIPv6Address, /^fd00:ba70:/)
  const asked = async () => (await fetch(`http://[${GlobalIPv6Address}]:8080/version`)).status
  // the kernel first makes sure that nobody else has the bridge's new address
  await until('an answer over IPv6', async () => (await asked().catch(() => 0)) === 200)
  let isEnded = false
  const statuses: number[] = []
  const asking = (async () => {
    while (!isEnded) {
      statuses.push(await asked())
      await sleep(20)
    }
  })()
  whole(await underLoad(engine, six, ROUNDS, () => engine.docker('restart', six.app)))
  isEnded = true
  await asking
  ok(statuses.length > 10 && statuses.every((status) => status === 200), String(statuses))
})

test('with userns-remap: the holder lends to a service whose user is another one on the host, and our tool replaces that', async () => {
  await engine.stop()
  for (const name of ['subuid', 'subgid']) {
    const file = join(labFolder(), name)
    await writeFile(file, 'nobody:100000:65536\n')
    await run(['mount', '--bind', file, `/etc/${name}`]) // for this lab alone
  }
  for (const folder of ['', 'engine0', 'engine0/data']) await chmod(join(labFolder(), folder), 0o711)
  await engine.start({ 'userns-remap': 'nobody:nogroup' })
  const own = await serviceImages(engine, registry)
  const mapped = await heldService(engine, { name: 'mapped', port: 8242, repository: own, address })
  const { State } = await engine.inspect(mapped.door)
  match(await readFile(`/proc/${State.Pid}/status`, 'utf8'), /^Uid:\t165531\t/m)
  const seen = await underLoad(engine, mapped, ROUNDS, async (round) => {
    const release = round % 2 === 0 ? 'v1.1.0' : 'v1.0.0'
    const { code, out } = await command(engine.socketPath, mapped.app, release, ['--trial', 'never']).ended
    equal(code, 0, out)
  })
  tell('userns-remap', seen)
  whole(seen)
})

test.after(async () => {
  await uncable()
  await close()
})

test.run()
