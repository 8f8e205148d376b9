// The pure parts of the container route: references, the version of the API, what is carried on engines that the lab does not
// have (newer Docker, podman), compose files, arguments. The engine itself is in the other container tests.

import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { suite } from './suite.ts'
import { equal, is, match, ok, rejects, throws, withCode } from './assert.ts'
import { parseContainerSettings } from '../deploy/container/command.ts'
import { run } from '../deploy/lib/shell.ts'
import { imageIn } from '../deploy/container/compose.ts'
import { nextLines } from '../deploy/image.ts'
import { variablesIn } from '../deploy/container/compose-program.ts'
import { withVariable } from '../deploy/container/environment-file.ts'
import { containerIdIn } from '../agent/sockets/process.ts'
import { BatonError } from '../agent/words.ts'
import { compare, unexplained } from '../deploy/container/difference.ts'
import { credentialsFor } from '../deploy/container/engine/credentials.ts'
import { connectEngine, type Engine, type EngineTraits, isAway, negotiate } from '../deploy/container/engine/engine.ts'
import { outputEnd } from '../deploy/container/engine/containers.ts'
import type { ContainerInspection, ImageInspection } from '../deploy/container/inspection.ts'
import { type Job, type JobOrigin, type Site, unfinishedAt } from '../deploy/container/job.ts'
import { again, ensureRunning } from '../deploy/container/moves.ts'
import {
  digestIn,
  fullRepository,
  IMAGE_LABELS,
  ORIGIN_LABEL,
  parseReference,
  repositoryIn,
} from '../deploy/container/reference.ts'
import { copyInSwitch, lastExchange, settleData } from '../deploy/container/own-data.ts'
import { PACKAGES } from '../deploy/container/program.ts'
import { rehearseInContainer } from '../deploy/container/rehearsal.ts'
import type { DeployEvent } from '../deploy/container/report.ts'
import { holderImage } from '../deploy/container/hold.ts'
import type { Tools } from '../deploy/container/request.ts'
import { becomesHealthy, check } from '../deploy/container/health.ts'
import { refuseMisfit } from '../deploy/container/refusal.ts'
import { cleanUp } from '../deploy/container/recreate.ts'
import { restoreState } from '../deploy/container/restore.ts'
import { watchOutage } from '../deploy/container/outage.ts'
import { candidateSockets } from '../deploy/container/engine/socket.ts'
import { loadEsbuild } from '../deploy/make/bundle.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { type ContainerSnapshot, takenIn, takeSnapshot } from '../deploy/container/snapshot.ts'
import { predict } from '../deploy/container/predict.ts'
import { specify } from '../deploy/container/specification.ts'
import { temporary } from './lab/temporary.ts'
import { until } from './fixtures/evidence.ts'

const test = suite('container, pure')
const DIGEST = `sha256:${'a'.repeat(64)}`

test('reads references, and takes no image id for one', () => {
  equal(parseReference('beacon'), { repository: 'beacon', tag: null, digest: null })
  equal(parseReference('127.0.0.1:5000/a/beacon'), { repository: '127.0.0.1:5000/a/beacon', tag: null, digest: null })
  equal(parseReference('127.0.0.1:5000/a/beacon:v1.0.0'), {
    repository: '127.0.0.1:5000/a/beacon',
    tag: 'v1.0.0',
    digest: null,
  })
  equal(parseReference(`r.example/b:v1@${DIGEST}`), { repository: 'r.example/b', tag: 'v1', digest: DIGEST })
  equal([parseReference(DIGEST), parseReference('a'.repeat(64)), parseReference('')], [null, null, null])
  const id = `sha256:${'0123456789ab'.padEnd(64, 'c')}`
  equal(
    [id, id.slice(7), '0123456789ab', 'sha256:0123456789ab', 'beacon', 'facade', 'r.example/0123456789ab'].map((name) =>
      repositoryIn(name, id),
    ),
    [null, null, null, null, 'beacon', 'facade', 'r.example/0123456789ab'],
  )
})

test('a repository of Docker Hub is the same under its short and its full name', () => {
  equal(['beacon', 'me/beacon', 'index.docker.io/me/beacon', 'r.example/beacon', 'localhost/b'].map(fullRepository), [
    'docker.io/library/beacon',
    'docker.io/me/beacon',
    'docker.io/me/beacon',
    'r.example/beacon',
    'localhost/b',
  ])
  equal(digestIn([`docker.io/library/beacon@${DIGEST}`], 'beacon'), DIGEST)
  equal(digestIn([`other@${DIGEST}`], 'beacon'), null)
})

test('agrees on the newest version of the API that both know', () => {
  equal([negotiate('1.41', '1.12'), negotiate('1.47', '1.24'), negotiate('1.60', '1.44')], ['1.41', '1.47', '1.51'])
  throws(() => negotiate('1.40', '1.12'), withCode('unsupported_host'))
  throws(() => negotiate('1.70', '1.60'), withCode('unsupported_host'))
})

test('keeps a hardware address that a person set, and never one that the engine shows in a network', () => {
  const random = { MacAddress: 'de:fa:3b:8f:2e:ab', IPAddress: '10.91.1.2' } // as engines from 28 on make them up
  const own = { HostConfig: { NetworkMode: 'own' }, NetworkSettings: { Networks: { own: random, other: random } } }
  const made = specifyOn({ apiVersion: '1.51' }, inspection(own))
  equal([made.body.NetworkingConfig, made.connect], [undefined, [{ network: 'other', endpoint: {} }]])

  const mac = '92:d0:c6:0a:29:33'
  const asked = inspection({ ...own, Config: { Image: 'beacon:v1.0.0', MacAddress: mac } })
  const { body, connect } = specifyOn({ apiVersion: '1.51' }, asked)
  equal([body['MacAddress'], body.NetworkingConfig], [undefined, { EndpointsConfig: { own: { MacAddress: mac } } }])
  equal(connect, [{ network: 'other', endpoint: {} }])
  equal(specifyOn({ apiVersion: '1.43' }, asked).body['MacAddress'], mac)
})

test('what an engine hides by itself is left to the engine; what a person hides or shows is carried', () => {
  const usual =
    '/proc/asound /proc/acpi /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware'
  const masked = (paths: string[]) => inspection({ HostConfig: { NetworkMode: 'own', MaskedPaths: paths } })
  const said = (paths: string[]) => specifyOn({}, masked(paths)).body.HostConfig['MaskedPaths']
  const older = usual.split(' ')
  const newer = [...older, '/proc/interrupts']
  equal([said(older), said(newer), said([]), said(['/proc/kcore'])], [undefined, undefined, [], ['/proc/kcore']])
  const image = imageInspection({})
  const reason = (was: string[], is: string[]) =>
    compare({ before: masked(was), after: masked(is), oldImage: image, newImage: image }).map(({ because }) => because)
  equal([reason(older, newer), reason(newer, older), reason([], older)], [['engine'], ['unexplained'], ['unexplained']])
  equal(reason([...older, '/proc/own'], newer), ['unexplained'])
  const after = predict(masked(older), specifyOn({}, masked(older)), image, { kind: 'docker', apiVersion: '1.51' })
  const paths = compare({ before: masked(older), after, oldImage: image, newImage: image }).map(({ path }) => path)
  equal(paths, ['Config.Image'])
})

test('a dry run says what the engine will show of a hardware address', () => {
  const mac = '92:d0:c6:0a:29:33'
  const before = inspection({ HostConfig: { NetworkMode: 'own' }, NetworkSettings: { Networks: { own: {} } } })
  const specification = specifyOn({ apiVersion: '1.51' }, before)
  const image = imageInspection({})
  const shown = (apiVersion: string) => {
    const after = predict(before, specification, image, { kind: 'docker', apiVersion })
    return unexplained(compare({ before, after, oldImage: image, newImage: image })).map(({ path }) => path)
  }
  equal(shown('1.51'), [])
  specification.body.NetworkingConfig = { EndpointsConfig: { own: { MacAddress: mac } } } // made up by a wrong rule
  equal([shown('1.51'), shown('1.43')], [['Config.MacAddress'], []])
})

test('a network by id is joined under the name that it has', () => {
  const id = 'f'.repeat(64)
  const networks = { own: { NetworkID: id, Aliases: ['abcabcabcabc', 'web'] } }
  const container = inspection({ HostConfig: { NetworkMode: id }, NetworkSettings: { Networks: networks } })
  const { body, connect, disconnect } = specifyOn({}, container)
  equal(body.NetworkingConfig, { EndpointsConfig: { own: { Aliases: ['web'] } } })
  equal([connect, disconnect], [[], []])
})

test('sends podman only what it takes back', () => {
  const container = inspection({
    HostConfig: {
      NetworkMode: 'bridge',
      NanoCpus: 5e8,
      CpuPeriod: 100_000,
      CpuQuota: 50_000,
      MemorySwappiness: 0,
      Devices: [{ PathOnHost: '/dev/null', PathInContainer: '/dev/void', CgroupPermissions: '' }],
      Ulimits: [{ Name: 'RLIMIT_NOFILE', Soft: 10, Hard: 20 }],
    },
  })
  const { HostConfig: host } = specifyOn({ kind: 'podman' }, container).body
  equal([host['CpuPeriod'], host['CpuQuota'], host['MemorySwappiness']], [undefined, undefined, undefined])
  equal(host['Devices'], [{ PathOnHost: '/dev/null', PathInContainer: '/dev/void', CgroupPermissions: 'rwm' }])
  equal(host['Ulimits'], [{ Name: 'nofile', Soft: 10, Hard: 20 }])
})

test('the comparison finds whatever is lost, one field at a time', () => {
  const image = imageInspection({ Env: ['FROM_IMAGE=1'] })
  const before = inspection({
    Config: { Image: 'beacon:v1', Env: ['OWN=1', 'FROM_IMAGE=1'], Labels: { own: '1' }, User: '1000', Cmd: ['serve'] },
    HostConfig: { NetworkMode: 'own', Memory: 1000, Binds: ['data:/data'], CapDrop: ['ALL'] },
    Mounts: [{ Type: 'volume', Name: 'data', Source: '/v', Destination: '/data', Mode: '', RW: true, Propagation: '' }],
    NetworkSettings: { Networks: { own: { Aliases: ['web'], IPAMConfig: { IPv4Address: '10.0.0.9' } } } },
  })
  const lost = (change: (after: ContainerInspection) => void): string[] => {
    const after = structuredClone(before)
    change(after)
    return unexplained(compare({ before, after, oldImage: image, newImage: image })).map(({ path }) => path)
  }
  equal(
    lost(() => {}),
    [],
  )
  equal(
    lost(({ Config }) => void (Config.Env = ['FROM_IMAGE=1'])),
    ['Config.Env.OWN'],
  )
  equal(
    lost(({ Config }) => void (Config.Env = ['OWN=1'])),
    ['Config.Env.FROM_IMAGE'],
  )
  equal(
    lost(({ Config }) => void (Config.Labels = {})),
    ['Config.Labels.own'],
  )
  equal(
    lost(({ Config }) => void (Config['User'] = '')),
    ['Config.User'],
  )
  equal(
    lost(({ Config }) => void (Config.Cmd = null)),
    ['Config.Cmd'],
  )
  equal(
    lost(({ HostConfig }) => void delete HostConfig['Memory']),
    ['HostConfig.Memory'],
  )
  equal(
    lost(({ HostConfig }) => void (HostConfig['CapDrop'] = null)),
    ['HostConfig.CapDrop'],
  )
  equal(
    lost(({ HostConfig }) => void (HostConfig.Binds = ['other:/data'])),
    ['HostConfig.Binds'],
  )
  equal(
    lost(({ Mounts }) => void (Mounts[0] = { ...Mounts[0], Name: 'fresh' } as never)),
    ['Mounts./data.Name'],
  )
  equal(
    lost(({ NetworkSettings }) => void (NetworkSettings.Networks = {})),
    ['NetworkSettings.Networks.own'],
  )
  equal(
    lost(({ NetworkSettings }) => void (NetworkSettings.Networks = { own: {} })),
    ['NetworkSettings.Networks.own.IPAMConfig', 'NetworkSettings.Networks.own.Aliases'],
  )
})

test('tells from names and labels where an interrupted deployment was left', () => {
  const old = inspection({ Id: 'old' })
  const origin = { format: 1, name: 'app', predecessor: 'old' } as JobOrigin
  const fresh = inspection({ Id: 'new', Config: { Image: 'b', Labels: { [ORIGIN_LABEL]: JSON.stringify(origin) } } })
  const none: Site = {
    main: null,
    successor: null,
    predecessor: null,
    reverting: null,
    previous: null,
    failed: null,
    switcher: null,
  }
  const at = (site: Partial<Site>) => unfinishedAt({ ...none, ...site })?.at ?? null
  equal(at({ main: old }), null)
  equal(at({ main: old, successor: fresh }), 'prepared')
  equal(at({ predecessor: old, successor: fresh }), 'renaming')
  equal(at({ main: fresh, predecessor: old }), 'switching')
  equal(at({ predecessor: old, reverting: fresh }), 'reverting')
  equal(at({ main: old, reverting: fresh }), 'reverting')
  equal(at({ main: fresh, previous: old }), null)
  equal(at({ main: inspection({ Id: 'foreign' }), successor: fresh }), null)
})

test('a health check whose answer the engine loses is asked again, and counts against the container only if that does not end', async () => {
  const container = inspection({ Config: { Healthcheck: { Test: ['CMD', 'check'] } }, State: { Running: true } })
  for (const [losses, well] of [
    [0, true],
    [5, true],
    [6, false],
  ] as const) {
    let asked = 0
    const engine = {
      awake: () => Promise.resolve(),
      exec: () =>
        asked++ < losses
          ? Promise.reject(Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' }))
          : Promise.resolve({ exitCode: 0, output: 'v1.0.0\n' }),
    } as unknown as Engine
    equal([losses, (await check(container, null, engine)).well], [losses, well])
  }
  let asked = 0
  const broken = { exec: () => Promise.reject(new Error(`no such container ${asked++}`)) } as unknown as Engine
  equal([(await check(container, null, broken)).well, asked], [false, 1])
})

test('a copy of the database that finds a full disk says where to make room, whoever says so and however', async () => {
  const fulls = ['EDQUOT: quota exceeded', 'database or disk is full', 'write: No space left on device', 'ENOSPC']
  for (const said of [...fulls, 'it is not a database']) {
    const engine = { exec: () => Promise.resolve({ exitCode: 1, output: `error: ${said}\n` }) } as unknown as Engine
    const error = await rejects(takeSnapshot(inspection({}), ['x', 'backup'], engine), withCode('refused'))
    equal([said, /free up disk space/.test((error as BatonError).hint ?? '')], [said, fulls.includes(said)])
  }
})

test('an error inside a pull that was answered with 200 is an error, and so is a stream that just ends; what a registry says is told once', async () => {
  const lines = {
    refused: '{"status":"Pulling"}\n{"errorDetail":{"message":"no space left"},"error":"no space left"}\n',
    cut: '{"status":"Pulling"}\n',
  }
  await using engine = await fakeEngine((url, response) => {
    if (url.includes('/distribution/')) return response.writeHead(500).end('{"message":"manifest unknown"}')
    if (!url.includes('/images/create')) return false
    response.writeHead(200, { 'content-type': 'application/json' })
    if (url.includes('refused')) response.end(lines.refused)
    else {
      response.write(lines.cut)
      setTimeout(() => response.destroy(), 50)
    }
    return true
  })
  const client = await connectEngine(engine.path)
  try {
    equal(client.apiVersion, '1.43')
    await rejects(
      client.pull('refused', 'v1.0.0', null, { progress: () => {} }),
      /pulling refused:v1\.0\.0: no space left/,
    )
    await rejects(client.pull('cut', 'v1.0.0', null, { progress: () => {} }), withCode('download_failed'))
    const missing = await rejects(client.distribution('r.example/b:v1', null), withCode('release_not_found'))
    const { message, hint } = missing as BatonError
    match(hint ?? '', /^check the tag and the repository/) // no feed has it, which the code's own hint speaks of
    match(message, /^there is no image r\.example\/b:v1: the engine returned 500 for GET \S+: manifest unknown$/)
  } finally {
    client.close()
  }
})

test('finds the image of a service in what compose prints, and sets one variable of a .env', () => {
  const yaml =
    'networks: {}\nservices:\n  a:\n    command: x\n    image: r.example/a:v1\n  beacon:\n    environment:\n      image: no\n    image: "r.example/b:v2"\nvolumes:\n  image: no\n'
  equal([imageIn(yaml, 'a'), imageIn(yaml, 'beacon'), imageIn(yaml, 'c')], ['r.example/a:v1', 'r.example/b:v2', null])
  equal(variablesIn('${PORT:-1}:$HOST ${BEACON_TAG:-latest} ${PORT}'), ['BEACON_TAG', 'PORT', 'HOST'])
  equal(variablesIn('x:${PATH} $LD_PRELOAD ${PYTHONPATH} ${DOCKER_HOST} ${DOCKER_TAG}'), ['DOCKER_TAG'])
  equal(withVariable('', 'TAG', 'v2'), 'TAG=v2\n')
  equal(withVariable('A=1\nTAG=v1\nMYTAG=v1\n', 'TAG', 'v2'), 'A=1\nTAG=v2\nMYTAG=v1\n')
  equal(withVariable('A=1', 'TAG', 'v2'), 'A=1\nTAG=v2\n')
})

test('reads the arguments, and refuses what it cannot do', () => {
  const good = parseContainerSettings(['--container', 'app', '--release', 'v1.2.3', '--probation', '1500ms'])
  equal([good?.release, good?.probationMs, good?.healthTimeoutMs, good?.engine], ['v1.2.3', 1500, 60_000, 'auto'])
  equal(parseContainerSettings(['--container', 'app', '--rollback'])?.release, null)
  equal(parseContainerSettings(['latest', '--container', 'app']).release, 'latest')
  equal(parseContainerSettings(['--rollback', 'v1.0.0']).backTo, 'v1.0.0')
  throws(() => parseContainerSettings(['v1.0.0', '--release', 'v1.0.0']), /expected one release/)
  throws(
    () => parseContainerSettings(['--container', 'app']),
    /expected a release, such as v1.1.0 or latest, or --rollback/,
  )
  throws(() => parseContainerSettings(['--release', 'latest', '--rollback']), withCode('invalid_tag'))
  throws(
    () => parseContainerSettings(['--release', 'latest', '--status']),
    /expected only one of these: a release, --rollback, --status, --restore-state or --clean/,
  )
  const restore = parseContainerSettings(['--restore-state', 'app.db.v1.2.3.x'])
  equal([restore?.act, restore?.copy], ['restore', 'app.db.v1.2.3.x'])
  throws(() => parseContainerSettings(['--restore-state', 'x', '--rollback']), /--restore-state or --clean/)
  throws(() => parseContainerSettings(['--release', 'latest', '--digest', 'sha256:12']), /--digest/)
  equal(parseContainerSettings(['--release', 'latest'])?.container, null)
  const back = parseContainerSettings(['--rollback', '--release', 'v1.0.0'])
  equal([back?.release, back?.backTo], [null, 'v1.0.0'])
  throws(() => parseContainerSettings(['--container', 'app', '--release', '1.2.3']), withCode('invalid_tag'))
  throws(
    () => parseContainerSettings(['--container', 'app', '--release', 'latest', '--probation', '60']),
    withCode('invalid_request'),
  )
  throws(
    () => parseContainerSettings(['--container', 'app', '--release', 'latest', '--engine', 'lxc']),
    withCode('invalid_request'),
  )
  throws(() => parseContainerSettings(['--nonsense']), withCode('invalid_request'))
})

test('looks for sockets where DOCKER_HOST says, and only for local ones', () => {
  equal(candidateSockets('auto', { DOCKER_HOST: 'unix:///x/d.sock' }), ['/x/d.sock'])
  equal(candidateSockets('auto', {}).slice(0, 2), ['/var/run/docker.sock', '/run/podman/podman.sock'])
  equal(candidateSockets('podman', { XDG_RUNTIME_DIR: '/run/user/1' }).at(-1), '/run/user/1/podman/podman.sock')
  throws(() => candidateSockets('docker', { DOCKER_HOST: 'tcp://example:2375' }), withCode('unsupported_host'))
})

test('gives the registry what `docker login` wrote, and nothing to another', async () => {
  await using made = await temporary('docker')
  const folder = made.path
  const auth = Buffer.from('me:se:cret').toString('base64')
  await writeFile(
    join(folder, 'config.json'),
    JSON.stringify({ auths: { 'r.example': { auth }, 'https://index.docker.io/v1/': { auth } } }),
  )
  const read = async (repository: string) => {
    const header = await credentialsFor(repository, { DOCKER_CONFIG: folder })
    return header === null ? null : JSON.parse(Buffer.from(header, 'base64url').toString())
  }
  equal(await read('r.example/beacon'), { username: 'me', password: 'se:cret', serveraddress: 'r.example' })
  equal((await read('beacon')).username, 'me')
  equal(await read('other.example/beacon'), null)
})

test('tells the id of the own container from what the engine mounts there, else from the host name', () => {
  const id = 'a'.repeat(64)
  const line = `600 590 8:1 /var/lib/docker/containers/${id}/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw`
  equal(containerIdIn(`1 2 0:1 / / rw\n${line}`, 'beacon'), id)
  const podman = `/containers/storage/overlay-containers/${id}/userdata/resolv.conf /etc/resolv.conf rw`
  equal(containerIdIn(podman, 'beacon'), id)
  equal(
    [containerIdIn('1 2 0:1 / / rw', 'abcabcabcabc'), containerIdIn('1 2 0:1 / / rw', 'beacon')],
    ['abcabcabcabc', null],
  )
})

test('measures how long nobody answered: HTTP where a port speaks it, else a connection, and nothing where none is open', async () => {
  let status = 200
  const server = createServer((_, response) => response.writeHead(status).end())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const container = (labels: Record<string, string>) =>
    inspection({
      Config: { Image: 'beacon:v1.0.0', Labels: labels },
      HostConfig: { NetworkMode: 'host' },
      State: { Running: true },
    })
  const none = await watchOutage(container({ 'baton.port': '1' }), {} as Engine)
  match((await none.end()).downMeasured ?? '', /none of the container’s ports answers/)
  const watch = await watchOutage(container({ 'baton.port': `${port}`, 'baton.health-path': '/healthz' }), {} as Engine)
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  const answers = watch.answers ?? (async () => null)
  equal(await answers(), false)
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  equal(await answers(), true)
  const { downMs, downMeasured } = await watch.end()
  equal(downMeasured, `GET /healthz on port ${port} every 10 ms, from the container’s own network`)
  ok((downMs ?? 0) > 0)
  // clients are answered while it is ill
  const second = await watchOutage(
    container({ 'baton.port': `${port}`, 'baton.health-path': '/healthz' }),
    {} as Engine,
  )
  status = 503
  await until('it to be ill', async () => (await second.answers?.()) === false)
  status = 200
  const ended = await second.end()
  equal([ended.downMs, (ended.illMs ?? 0) > 0], [0, true])
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

test('at a holder the time that is told is the longest that a client waited, and not the sum of all slow answers', async () => {
  const delays: number[] = []
  let [delayMs, asked] = [0, 0]
  const server = createServer((_, response) => {
    asked++
    const [ms, began] = [delayMs, performance.now()]
    setTimeout(() => {
      if (ms > 0) delays.push(performance.now() - began)
      response.end()
    }, ms)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const at = { HostConfig: { NetworkMode: 'host' }, State: { Running: true } }
  const volume = { Destination: '/run/hold', Source: '/v', RW: true }
  const labels = { 'baton.port': `${port}`, 'baton.health-path': '/healthz' }
  const Config = { Image: 'beacon:v1.0.0', Labels: labels, Env: ['BATON_HOLDER=/run/hold/socket'] }
  const holder = inspection({ ...at, Mounts: [volume] })
  const engine = { containers: async () => ['holder'], container: async () => holder } as unknown as Engine
  const watch = await watchOutage(inspection({ ...at, Config, Mounts: [volume] }), engine)
  for (const [ms, times] of [
    [150, 5],
    [400, 6],
  ] as const) {
    delayMs = ms
    await until('the answers', async () => delays.length >= times)
  }
  delayMs = 0
  const before = asked
  await until('the next question, which follows the last answer', async () => asked > before)
  const { downMs, downMeasured } = await watch.end()
  match(downMeasured ?? '', / through the container’s holder$/)
  const [said, sum] = [downMs ?? 0, delays.reduce((all, ms) => all + ms, 0)]
  ok(said >= Math.max(...delays) - 20, `said ${said} ms, answers took ${delays.map(Math.round).join(', ')} ms`)
  ok(said < sum - 400, `said ${said} ms, answers took ${Math.round(sum)} ms in all`)
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

test('`--keep-port --pull never` pulls no holder: it names the image that is built beside the release', async () => {
  const engine = { image: async () => null } as unknown as Engine
  const tools = { engine, report: () => ok(false, 'it began a step') } as unknown as Tools
  const refused = await rejects(holderImage('r.example/shop', { pull: 'never' }, tools), withCode('release_not_found'))
  match(refused.message, /^r\.example\/shop:holder is not on this host, and `--pull never` prevents pulling it$/)
  match((refused as { hint?: string }).hint ?? '', '--holder-image r.example/shop:TAG-holder')
})

test('a deploy script that cannot run says in one line what to do', async () => {
  await using made = await temporary('scripts')
  const folder = made.path
  const scripts = join(import.meta.dirname, '../deploy')
  await mkdir(join(folder, 'deploy/lib'), { recursive: true })
  await mkdir(join(folder, 'bin'))
  for (const name of ['deploy-container.sh', 'deploy-systemd.sh', 'deploy-fleet.sh', 'lib/node.sh'])
    await copyFile(join(scripts, name), join(folder, 'deploy', name))
  const { stdout: dirname } = await run(['sh', '-c', 'command -v dirname'])
  await symlink(dirname.trim(), join(folder, 'bin/dirname'))
  const said = async (name: string) => {
    const options = { env: { PATH: join(folder, 'bin') }, allowFailure: true }
    const { exitCode, stderr } = await run(['/bin/sh', join(folder, 'deploy', name), '--help'], options)
    return `${exitCode} ${stderr}`
  }
  for (const name of ['deploy-container.sh', 'deploy-systemd.sh', 'deploy-fleet.sh'])
    match(await said(name), /^3 error: expected the packages of this checkout in .*npm ci --ignore-scripts\)\n$/)
  await mkdir(join(folder, 'node_modules/zx'), { recursive: true })
  match(
    await said('deploy-container.sh'),
    /^3 error: expected Node 24 or newer, got none; run: .*, which brings one\n$/,
  )
})

test('an image of other ports or another state is refused only where nobody can have told it of these', () => {
  const kit = (service: string, port: number) => {
    const state = `/var/lib/${service}`
    const Labels = { 'baton.service': service, 'baton.port': `${port}`, 'baton.state-directory': state }
    const Env = [`STATE_DIRECTORY=${state}`, `${service.toUpperCase()}_CONFIG=/etc/${service}/config.json`]
    return imageInspection({ Labels, Env, Volumes: { [state]: {} }, ExposedPorts: { [`${port}/tcp`]: {} } })
  }
  const plain = imageInspection({ Volumes: { '/data': {} }, Cmd: ['serve'], Env: ['PORT=3000'] })
  interface Given {
    old?: ImageInspection
    next?: ImageInspection
    config?: Record<string, unknown>
    host?: Record<string, unknown>
    mounts?: { Type: string; Name?: string; Destination: string }[]
    door?: Record<string, unknown>
  }
  const data = { Type: 'volume', Name: 'unnamed', Destination: '/data' }
  const misfits = ({ old = plain, next = kit('notes', 8080), config, host, mounts = [], door }: Given): number => {
    const Config = { ...old.Config, ...config }
    const HostConfig = { NetworkMode: 'default', PortBindings: { '3000/tcp': [{ HostPort: '3001' }] }, ...host }
    const container = inspection({ Config, HostConfig, Mounts: mounts })
    const publisher = door === undefined ? container : inspection({ HostConfig: { NetworkMode: 'default', ...door } })
    try {
      refuseMisfit({ container, oldImage: old, door: publisher, newImage: next, reference: 'r/notes:v1.1.0' })
      return 0
    } catch (error) {
      ok(withCode('refused')(error as Error))
      return (error as Error).message.split('; ').length
    }
  }
  const none = { PortBindings: {} }
  const refused: Given[] = [
    {},
    { host: none, mounts: [data] },
    { host: none, door: { PortBindings: { '3000/tcp': [] } } },
    { old: kit('notes', 3000) },
    { old: kit('beacon', 8080), mounts: [{ ...data, Destination: '/var/lib/beacon' }] },
  ]
  equal(refused.map(misfits), [1, 1, 1, 1, 1])
  equal(misfits({ mounts: [data] }), 2)
  const goesOn: Given[] = [
    { host: { PortBindings: { '8080/tcp': [], '3000/tcp': [] } } },
    { host: { PublishAllPorts: true } },
    { host: { NetworkMode: 'host' } },
    { host: { PortBindings: { '53/udp': [] } } },
    { next: plain, mounts: [data] },
    { old: kit('notes', 8080) }, // its configuration says 3000, or only neighbours ask it
    { config: { ExposedPorts: { '8080/tcp': {} } } },
    { config: { Env: ['PORT=3000', 'HTTP_PORT=3000'] } },
    { config: { Cmd: ['serve', '--port=3000'] } },
    { config: { Env: ['NOTES_CONFIG=/data/config.json'] }, mounts: [data] },
    { mounts: [data, { Type: 'bind', Destination: '/etc/notes' }] },
    { host: none, mounts: [data, { Type: 'bind', Destination: '/var/lib/notes' }] },
    { host: none, mounts: [data, { Type: 'volume', Name: 'all', Destination: '/var/lib' }] },
    { host: { ...none, Tmpfs: { '/var/lib/notes': '' } }, mounts: [data] },
    { host: none, mounts: [{ Type: 'bind', Destination: '/data' }] },
    { host: none, mounts: [{ ...data, Destination: '/more' }] }, // a person's own
    { host: none, mounts: [data], config: { Env: ['STATE_DIRECTORY=/data'] } },
    { host: none, mounts: [data], config: { Env: ['DATA_DIR=/data/notes'] } },
    { host: none, door: { PortBindings: { '8080/tcp': [] } } },
  ]
  equal(
    goesOn.filter((given) => misfits(given) > 0),
    [],
  )
})

test('an engine that does not say how large a file is gives no size, and none that is no number', async () => {
  const stat = { header: '' }
  await using server = await fakeEngine((url, response) => {
    if (!url.includes('/archive')) return false
    if (stat.header !== '') response.setHeader('x-docker-container-path-stat', stat.header)
    return response.end()
  })
  const engine = await connectEngine(server.path)
  try {
    const sizes = []
    for (const said of ['', '{}', '{"size":"large"}', '{"size":null}', '{"size":1e999}', '{"size":7}']) {
      stat.header = Buffer.from(said).toString('base64')
      sizes.push(await engine.sizeOf('one', '/state/copy'))
    }
    equal(sizes, [null, null, null, null, null, 7])
  } finally {
    engine.close()
  }
})

test('an image says which files a rehearsal needs beside the copy; what leads out of the state directory is left out', () => {
  const files = ['uploads/a', 'keys/', '/etc/passwd', '../other', 'a/../../b', '', 7, './x']
  equal(takenIn(`${JSON.stringify({ files })}\n/state/copy\n`).database, {
    path: '/state/copy',
    files: ['uploads/a', 'keys', 'x'],
  })
  const nothing = { copies: [], owesMs: null }
  equal(takenIn('a warning\n/state/copy\n'), { database: { path: '/state/copy', files: [] }, ...nothing })
  equal(takenIn('.\n.\nnull\n/state/copy'), { database: { path: '/state/copy', files: [] }, ...nothing })
  for (const none of ['\n', '.\n.\n', '{}']) equal(takenIn(none), { database: null, ...nothing }, none)
})

test('an old container says what else it has copied, or will; nonsense is left out', () => {
  const dump = { path: '/state/update/snapshots/dump.v1.0.0.x', bytes: 7, ms: 3 }
  const said = (more: object) => takenIn(`.\n${JSON.stringify({ files: [], copies: [], owesMs: null, ...more })}\n`)
  equal(said({ copies: [dump] }), { database: null, copies: [dump], owesMs: null })
  equal(said({ owesMs: 30_000 }), { database: null, copies: [], owesMs: 30_000 })
  equal(said({ owesMs: 1e15 }).owesMs, 3 * 86_400_000)
  const nonsense = [null, 'x', {}, { ...dump, bytes: -1 }, { ...dump, path: 7 }]
  equal(said({ copies: nonsense, owesMs: '7' }), { database: null, copies: [], owesMs: null })
  const second = [dump, { ...dump, path: '/a\u001b[31m\nb' }, dump]
  equal(
    said({ copies: second }).copies.map(({ path }) => path),
    [dump.path, '/a b'],
  )
})

test('what is copied between containers has a bound', async () => {
  await using server = await fakeEngine((url, response) => {
    if (!url.includes('/archive')) return false
    return response.end(url.includes('/one/') ? 'x'.repeat(2000) : '')
  })
  const engine = await connectEngine(server.path)
  try {
    const [from, to] = [
      { container: 'one', path: '/state/uploads' },
      { container: 'two', folder: '/state' },
    ]
    equal(await engine.copyFile(from, to, 2000), 2000)
    match((await rejects(engine.copyFile(from, to, 1999), () => true)).message, 'is larger than the 1999 bytes')
  } finally {
    engine.close()
  }
})

test('of what a command in a container prints only the end is kept, however it comes in', async () => {
  const frame = (text: string) => {
    const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0])
    head.writeUInt32BE(Buffer.byteLength(text), 4)
    return Buffer.concat([head, Buffer.from(text)])
  }
  const pieces = async function* (bytes: Buffer, size: number) {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
  }
  const framed = Buffer.concat(['one\n', '', 'two', '\nthree'].map(frame))
  for (const size of [1, 3, 8, 9, framed.length]) equal(await outputEnd(pieces(framed, size)), 'one\ntwo\nthree')
  for (const raw of ['', 'short', 'a line of a terminal\n']) equal(await outputEnd(pieces(Buffer.from(raw), 3)), raw)

  await using server = await fakeEngine((url, response) => {
    if (url.endsWith('/exec')) return response.end('{"Id":"e"}')
    if (url.endsWith('/exec/e/json')) return response.end('{"ExitCode":0}')
    if (!url.endsWith('/exec/e/start')) return false
    for (let n = 0; n < 40; n++) response.write(frame('x'.repeat(60_000)))
    return response.end(frame('\n/state/copy\n'))
  })
  const engine = await connectEngine(server.path)
  try {
    const { exitCode, output } = await engine.exec('one', ['loud'], 60_000)
    equal([exitCode, output.length, takenIn(output).database?.path], [0, 64 * 1024, '/state/copy'])
  } finally {
    engine.close()
  }
})

test('a rehearsal copies no more than the database had when it was looked at', async () => {
  const labels = { [IMAGE_LABELS.state]: '/state' }
  const image = (Id: string) => ({
    ...imageInspection({ Labels: labels, Entrypoint: ['/app'], Volumes: { '/state': {} } }),
    Id,
  })
  let taken = 0
  await using server = await fakeEngine((url, response, method) => {
    if (url.endsWith('/json')) return response.writeHead(404).end('{"message":"none"}')
    if (url.includes('/create')) return response.end('{"Id":"cage"}')
    if (!url.includes('/archive')) return false
    if (method === 'PUT') {
      response.req.on('data', (piece: Buffer) => (taken += piece.length))
      response.req.on('end', () => response.end()).on('error', () => {})
      return null
    }
    const stat = { size: 4096 } // as of a folder, or of a file that has grown since
    response.setHeader('x-docker-container-path-stat', Buffer.from(JSON.stringify(stat)).toString('base64'))
    return response.end(method === 'HEAD' ? '' : Buffer.alloc(8 * 1024 ** 2))
  })
  const engine = await connectEngine(server.path)
  try {
    const notes: string[] = []
    const tools = {
      engine,
      report: (event: DeployEvent) => void (event.event === 'note' && notes.push(event.message)),
      stop: new AbortController().signal,
    }
    const origin = { name: 'app', kind: 'update', from: 'v1.0.0', version: 'v1.1.0', release: 'v1.1.0' }
    await rehearseInContainer(
      { origin, predecessor: 'one', successor: 'two', image: 'new' } as Job,
      { images: { present: image('old'), candidate: image('new') }, copy: { path: '/state/copy', files: [] } },
      { rehearse: true, allowIrreversible: false, healthTimeoutMs: 1000 },
      tools as unknown as Tools,
    )
    match(notes.join('\n'), 'is larger than the 69632 bytes')
    ok(taken <= 69632, `got ${taken}`)
  } finally {
    engine.close()
  }
})

test('a release that is late in its rehearsal, or takes all memory there, is refused with a hint that names the flags of this command', async () => {
  const run = { ms: 1, failure: null, refused: null, requests: 0, writes: 0 }
  const late = { ...run, ms: null, failure: 'it was not healthy after 60 s', lateMs: 60_000 }
  const config = { Labels: { [IMAGE_LABELS.state]: '/state' }, Entrypoint: ['/app'], Volumes: { '/state': {} } }
  const image = (Id: string) => ({ ...imageInspection(config), Id })
  let said: object = {}
  const engine = {
    epoch: () => 0,
    container: async () => null,
    create: async () => 'cage',
    sizeOf: async () => 10,
    copyFile: async () => 10,
    writeFile: async () => {},
    start: async () => {},
    readFile: async () => Buffer.from(JSON.stringify(said)),
  } as unknown as Engine
  const origin = { name: 'app', kind: 'update', from: 'v1.0.0', version: 'v1.1.0', release: 'v1.1.0' }
  const refused = async (report: object): Promise<unknown> => {
    said = { phase: 'candidate', present: run, candidate: null, ...report }
    const tools = { engine, report: () => {}, stop: new AbortController().signal } as unknown as Tools
    const images = { present: image('old'), candidate: image('new') }
    const asked = { rehearse: true, allowIrreversible: false, healthTimeoutMs: 1000 }
    const job = { origin, predecessor: 'one', successor: 'two', image: 'new' } as Job
    const copy = { path: '/state/copy', files: [] } as unknown as ContainerSnapshot
    return ((await rejects(rehearseInContainer(job, { images, copy }, asked, tools))) as BatonError).hint
  }
  const untouched = 'nothing has changed; the trial used only a copy of the data'
  equal(
    await refused({ candidate: late }),
    `${untouched}; if it only needs more time, set a longer \`--health-timeout\` and try again`,
  )
  equal(await refused({}), `${untouched}; to install the release without a trial, use \`--trial never\``)
})

test('an engine that says of itself that it is not well, or loses the same act each time, is not asked for ever', async () => {
  let [pings, starts] = [0, 0]
  let isWell = false
  await using fake = await fakeEngine((url, response) => {
    if (url === '/_ping') return response.writeHead(isWell ? 200 : 503).end(`ping ${++pings}`)
    if (url.endsWith('/start') && ++starts > 0) return response.destroy()
    return url.endsWith('/json') ? response.end(JSON.stringify({ State: { Running: false } })) : false
  })
  const engine = await connectEngine(fake.path)
  try {
    const away = await rejects(engine.awake(300), withCode('unsupported_host'))
    match(away.message, /is not available: GET \/_ping returned 503: ping \d+$/)
    ok(isAway(away) && pings > 1)
    isWell = true
    ok(isAway(await rejects(ensureRunning('one', engine))))
    ok(isAway(await rejects(again(engine, () => engine.start('one')))))
    equal(starts, 20)
  } finally {
    engine.close()
  }
})

test('a connection that is lost once while it is asked what was exchanged is no engine that went away', async () => {
  const mark = {
    containers: [],
    ended: [],
    owner: 'v1.0.0',
    exchanged: { aside: '/s/aside', restored: '/s/kept' },
    rows: 2,
  }
  let asked = 0
  const engine = {
    awake: async () => {},
    readFile: async () => Buffer.from(JSON.stringify(mark)),
    async sizeOf() {
      if (asked++ === 0) throw Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' })
      return 1
    },
  } as unknown as Engine
  const container = inspection({ Config: { Labels: { 'baton.state-directory': '/s' } } })
  equal(await lastExchange(container, engine), { ...mark.exchanged, rows: 2 })
})

test('of two copies of the data from before, the one that was made once the old container had ended is named', async () => {
  const [aside, other] = ['/s/update/aside/app.db.v1.1.0.x', '/s/update/snapshots/app.db.v1.0.0.y']
  const mark = { containers: ['old', 'new'], ended: [], owner: 'v1.1.0', exchanged: null, other: null as object | null }
  const found = inspection({
    Config: { Labels: { 'baton.state-directory': '/s' } },
    Mounts: [{ Type: 'volume', Source: '/volumes/app', Destination: '/s' }],
  })
  const engine = {
    container: async () => found,
    readFile: async () => Buffer.from(JSON.stringify(mark)),
  } as unknown as Engine
  const named = async (one: string) => (await copyInSwitch('new', one, engine))?.snapshotOnHost ?? null
  equal(await named('new'), null)
  Object.assign(mark, { other: { tag: 'v1.0.0', path: other } })
  const there = '/volumes/app/update/snapshots/app.db.v1.0.0.y'
  equal([await named('new'), await named('another')], [there, null])
  // the old one is back: the other data are those that lie aside
  Object.assign(mark, { exchanged: { aside, restored: other }, other: { tag: 'v1.1.0', path: aside } })
  equal(await named('new'), there)
  Object.assign(mark, { containers: [], ended: ['old', 'new'] })
  equal(await named('new'), there)
})

test('an engine that hangs up on an order again and again while the container ends is asked once more when that has started again', async () => {
  const mark = { containers: ['one'], ended: [], owner: 'v1.0.0', exchanged: null }
  const labels = { 'baton.state-directory': '/s', 'baton.snapshot': '["snapshot"]' }
  const found = inspection({ Id: 'one', Config: { Labels: labels }, State: { Running: true, StartedAt: 'then' } })
  let [asked, isGone] = [0, false]
  const away = () => new BatonError('unsupported_host', 'it does not answer', { members: { engine: 'away' } })
  const engine = {
    awake: async () => {
      if (isGone) throw away()
    },
    container: async () => found,
    readFile: async () => Buffer.from(JSON.stringify(mark)),
    async exec() {
      if (asked++ < 15) throw Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' })
      return { exitCode: 0, output: '{"moved":{"aside":"/s/aside","restored":"/s/kept","rows":2}}' }
    },
  } as unknown as Engine
  equal(await settleData('one', 'one', engine), { aside: '/s/aside', restored: '/s/kept', rows: 2 })
  ;[asked, isGone] = [0, true]
  ok(isAway(await rejects(settleData('one', 'one', engine))))
})

test('a new container has its own time to become healthy from the moment on at which it owes no copy, also if none could be ordered', async () => {
  const found = inspection({
    Id: 'next',
    Config: { Labels: { 'baton.state-directory': '/s' }, Healthcheck: { Test: ['CMD', 'ask'] } },
    State: { Running: true, Status: 'running' },
    RestartCount: 0,
  })
  let owed: object | null = null
  const engine = {
    epoch: () => 0,
    container: async () => found,
    exec: async () => ({ exitCode: 1, output: 'not yet' }),
    readFile: async (_: string, path: string) =>
      owed !== null && path === '/s/update/owed.json' ? Buffer.from(JSON.stringify(owed)) : null,
  } as unknown as Engine
  const job = { origin: { owesMs: 60_000 }, successor: 'next', image: DIGEST } as unknown as Job
  const lateMs = async () => {
    const began = performance.now()
    const tools = { engine, stop: new AbortController().signal }
    const asked = { answers: null, again: async () => {} }
    await rejects(
      becomesHealthy(job, { healthTimeoutMs: 100, probationMs: 0 }, tools, asked),
      /not healthy after .*: not yet/,
    )
    return performance.now() - began
  }
  ok((await lateMs()) < 20_000)
  owed = { owes: 'snapshot', container: 'another' }
  ok((await lateMs()) < 20_000)
  owed = { owes: 'snapshot', container: 'next' }
  setTimeout(() => (owed = null), 1500)
  ok((await lateMs()) >= 1500)
})

test('a container without a health check is asked what became of a restore once it has taken it', async () => {
  const labels = { 'baton.state-directory': '/s', 'baton.snapshot': '["snapshot"]' }
  const main = inspection({ Id: 'main', Config: { Labels: labels }, State: { Running: true, Status: 'running' } })
  let looks = 0
  const noteAt = (path: string): object | null => {
    if (path === '/s/update/owed.json') return looks++ < 3 ? { owes: 'restore', container: 'main' } : null
    const isPaid = path === '/s/update/paid.json' && looks > 3
    return isPaid ? { by: 'dump.x', copies: [], aside: null, error: 'no archive' } : null
  }
  const engine = {
    container: async (name: string) => (['app', 'main'].includes(name) ? main : null),
    exec: async () => ({ exitCode: 0, output: '{"moved":null,"mostMs":60000}' }),
    restart: async () => {},
    readFile: async (_: string, path: string) => {
      const note = noteAt(path)
      return note === null ? null : Buffer.from(JSON.stringify(note))
    },
  } as unknown as Engine
  await rejects(
    restoreState(
      'app',
      'dump.x',
      { healthTimeoutMs: 1000, dryRun: false, allowIrreversible: false },
      { engine, report: async () => {} },
    ),
    /no archive; `app` is running on its previous data/,
  )
})

test('a restore that the container refuses is told in its own words, with one `error:` before them', async () => {
  const labels = { 'baton.state-directory': '/s', 'baton.snapshot': '["snapshot"]' }
  const main = inspection({ Id: 'main', Config: { Labels: labels }, State: { Running: true, Status: 'running' } })
  const engine = {
    container: async (name: string) => (name === 'app' ? main : null),
    exec: async () => ({
      exitCode: 4,
      output: 'error: there is no copy of the data yet\n',
    }),
  } as unknown as Engine
  const limits = { healthTimeoutMs: 1000, dryRun: false, allowIrreversible: false }
  const fault = await rejects(restoreState('app', 'x', limits, { engine, report: async () => {} }))
  match(fault.message, /^there is no copy of the data yet/)
})

test('a copy of a newer release is refused, before anything is ordered, unless a person allows it', async () => {
  const labels = { 'baton.state-directory': '/s', 'baton.snapshot': '["snapshot"]', [IMAGE_LABELS.version]: '1.1.0' }
  const main = inspection({ Id: 'main', Config: { Labels: labels }, State: { Running: true, Status: 'running' } })
  const said: string[] = []
  const orders: unknown[] = []
  for (const [tag, allowIrreversible] of [
    ['v1.0.0', false],
    ['v1.1.0', false],
    ['v1.2.0', true],
    ['v1.2.0', false],
  ] as const) {
    const engine = {
      container: async (name: string) => (name === 'app' ? main : null),
      exec: async (_id: string, _command: string[], _ms: number, { BATON_STATE_ORDER }: Record<string, string>) => {
        orders.push((JSON.parse(BATON_STATE_ORDER ?? '') as { do: string }).do)
        return { exitCode: 0, output: JSON.stringify({ moved: null, mostMs: 0, tag }) }
      },
      restart: async () => {
        throw new BatonError('unexpected', `restarted after ${said.splice(0).join()}`)
      },
    } as unknown as Engine
    const report = (event: DeployEvent) => void (event.event === 'warning' && said.push(event.message))
    const limits = { healthTimeoutMs: 1000, dryRun: false, allowIrreversible }
    const { message } = await rejects(restoreState('app', 'x', limits, { engine, report }))
    const told = tag === 'v1.2.0' ? 'x holds the data of v1.2.0, which v1.1.0 may not be able to read' : ''
    is(message, tag === 'v1.2.0' && !allowIrreversible ? told : `restarted after ${told}`)
  }
  equal(orders, ['find', 'restore', 'find', 'restore', 'find', 'restore', 'find'])
})

test('a dry run restores nothing and removes nothing: it asks the container for the copy, and names what would go', async () => {
  const labels = { 'baton.state-directory': '/s', 'baton.snapshot': '["snapshot"]' }
  const main = inspection({ Id: 'main', Config: { Labels: labels }, State: { Running: true, Status: 'running' } })
  const failed = inspection({ Id: 'failed', Name: '/app-baton-failed' })
  const asked: unknown[] = []
  const engine = {
    container: async (name: string) => ({ app: main, 'app-baton-failed': failed })[name] ?? null,
    named: async () => ['baton-switch:1'],
    exec: async (_id: string, _command: string[], _ms: number, { BATON_STATE_ORDER }: Record<string, string>) => {
      asked.push(JSON.parse(BATON_STATE_ORDER ?? ''))
      return { exitCode: 0, output: '{"moved":null,"mostMs":0,"tag":"v1.0.0"}' }
    },
  } as unknown as Engine // it has no restart, and no remove
  const said: string[] = []
  const report = (event: DeployEvent) => void (event.event === 'note' && said.push(event.message))
  const tools = { engine, report }
  await restoreState('app', 'x', { healthTimeoutMs: 1000, dryRun: true, allowIrreversible: false }, tools).catch(
    () => {},
  ) // the status asks for more
  equal(asked, [{ do: 'find', name: 'x' }])
  await cleanUp('app', { dryRun: true }, tools).catch(() => {})
  equal(said, [
    '`app` would be restarted, and would restore x as it starts',
    'would remove the container app-baton-failed',
    'would remove the image baton-switch:1',
  ])
})

test('says plainly that there is no engine', async () => {
  match((await rejects(connectEngine('/nonexistent/engine.sock'), withCode('unsupported_host'))).message, /nonexistent/)
})

test('who has made an image is told how a first container is made, and how one that runs is updated', async () => {
  const lines = (push: boolean, holder = true) =>
    nextLines({ service: 'shop', port: 3000 }, { tag: 'v1.2.0', repository: 'registry.example/shop', push, holder })
  const [, first = '', , then = ''] = lines(true, false)
  match(
    first,
    /^ {2}docker run -d --name shop .* -p 127\.0\.0\.1:3000:3000 -v shop-state:\/var\/lib\/shop .* registry\.example\/shop:v1\.2\.0$/,
  )
  const words = (line: string) => line.slice(line.indexOf('v1.2.0')).split(' ')
  equal(parseContainerSettings(words(then)).release, 'v1.2.0')
  // an image that no registry has is taken from this engine
  equal(parseContainerSettings(words(lines(false, false)[3] ?? '')).pull, 'never')
  // behind a holder they are the guide's own two commands, whose order of flags is another
  const guide = (await readFile(join(PROJECT, 'docs/operator/container.md'), 'utf8')).replaceAll('\\\n', ' ')
  const flags = (line: string) =>
    line
      .trim()
      .split(/ (?=-)|(?<=privileges) /)
      .map((word) => word.trim())
      .toSorted()
  for (const line of lines(true).slice(1, 3)) {
    const [name = ''] = /--name \S+/.exec(line) ?? []
    const own = guide.split('\n').find((text) => text.startsWith('docker run -d') && text.includes(`${name} `)) ?? ''
    equal(flags(line.replaceAll('3000', '8080').replaceAll('v1.2.0', 'v1.0.0')), flags(own))
  }
})

test('the image of the deploying program has each package that its sources can import, but those of signatures, which no switch reads', async () => {
  const { build } = await loadEsbuild(PROJECT)
  const { metafile } = await build({
    absWorkingDir: PROJECT,
    entryPoints: ['deploy/deploy-container.ts'],
    outdir: 'unwritten',
    bundle: true,
    write: false,
    splitting: true,
    format: 'esm',
    platform: 'node',
    packages: 'external',
    metafile: true,
    logLevel: 'silent',
  })
  const imported = Object.values(metafile.inputs).flatMap(({ imports }) => imports.filter(({ external }) => external))
  const names = imported.map(({ path }) => /^(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? '')
  const needed = new Set(names.filter((name) => !name.startsWith('node:') && !/^(?:tuf-js|@tufjs)/.test(name)))
  ok(needed.size > 2)
  equal(
    [...needed].filter((name) => !PACKAGES.includes(name)),
    [],
  )
})

test.run()

function inspection(fields: Record<string, unknown>): ContainerInspection {
  return {
    Id: `abcabcabcabc${'0'.repeat(52)}`,
    Name: '/app',
    Image: DIGEST,
    Config: { Image: 'beacon:v1.0.0' },
    HostConfig: { NetworkMode: 'default' },
    Mounts: [],
    NetworkSettings: { Networks: {} },
    ...fields,
  } as unknown as ContainerInspection
}

function imageInspection(config: Record<string, unknown>): ImageInspection {
  return { Id: DIGEST, RepoTags: [], RepoDigests: [], Architecture: 'amd64', Os: 'linux', Config: config }
}

function specifyOn(traits: Partial<EngineTraits>, container: ContainerInspection) {
  const engine: EngineTraits = { kind: 'docker', apiVersion: '1.41', hostName: 'host', ...traits }
  return specify(
    { container, image: imageInspection({}), inherited: new Map() },
    { reference: 'beacon:v2', labels: {}, engine },
  )
}

async function fakeEngine(answer: (url: string, response: ServerResponse, method: string) => unknown) {
  const folder = await mkdtemp(join(tmpdir(), 'baton-engine-'))
  const path = join(folder, 'engine.sock')
  const server = createServer((request, response) => {
    const url = request.url ?? ''
    if (answer(url, response, request.method ?? '') !== false) return
    if (url.includes('/events')) {
      response.writeHead(200).flushHeaders()
      return
    }
    const version = { Version: '24.0.0', ApiVersion: '1.43', MinAPIVersion: '1.12', Arch: 'amd64', Os: 'linux' }
    response.end(JSON.stringify(url === '/version' ? version : { Name: 'host' }))
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  return {
    path,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      await rm(folder, { recursive: true })
    },
  }
}
