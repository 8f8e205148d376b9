// The table: containers in many configurations, each recreated with a newer image on a real engine.
// The oracle shares nothing with the product: a control container, made by the same `docker create` line from the new image,
// must look the same as the recreated one.

import { isLong, suite } from '../suite.ts'
import { equal, match, ok } from '../assert.ts'
import { type Inspection, isCurrent, type LabEngine, openLab, startEngine } from '../lab/docker.ts'
import { deployIn, healthy, publishGood } from './probe.ts'
import { sideBySide } from './side-by-side.ts'

interface Case {
  title: string
  /** one of `many at once`, a part of another case, or like one: alone only in the long form */
  long?: true
  /** also in the short form on the current engine, which tries what engines since 25 show otherwise. `only`: no older one has it */
  current?: true | 'only'
  /** of `docker run`, before the image */
  options?: string[]
  /** after the image */
  command?: string[]
  /** `docker` lines before and after the container is made; NAME is its name */
  prepare?: string[][]
  afterwards?: string[][]
  /** paths, as in the flattened inspection, that may differ from the control, and why */
  differs?: RegExp
  /** what else must be so; `before` and `after` are inspections */
  check?: (before: Inspection, after: Inspection, engine: LabEngine) => void | Promise<void>
}

const HTTPD = ['-p', '8080', '-h', '/']
const TRUE = ['--health-cmd', 'true', '--health-interval', '700ms']
const CARRIED = /^HostConfig\.Binds/

const ALL: Case[] = [
  { title: 'nothing set', differs: CARRIED },
  {
    title: 'many at once',
    current: true,
    options: [
      '--label',
      'own=1',
      '--user',
      '1000:1000',
      '--group-add',
      '2000',
      '-w',
      '/data',
      '--memory',
      '64m',
      '--cpus',
      '0.75',
      '--pids-limit',
      '100',
      '--device',
      '/dev/null:/dev/void:rw',
      '--log-opt',
      'max-size=1m',
      '--restart',
      'unless-stopped',
      '--init',
      '--stop-timeout',
      '3',
      '--hostname',
      'beacon',
      '--add-host',
      'db:10.0.0.9',
      '--dns',
      '10.0.0.53',
      '--ulimit',
      'nofile=1024:2048',
      '--shm-size',
      '8m',
      '--oom-score-adj',
      '100',
      '--health-cmd',
      'true',
      '--health-interval',
      '770ms',
    ],
    differs: CARRIED,
  },
  {
    title: 'variables: its own, one of the image changed, empty, with spaces, = and line ends',
    options: [
      '-e',
      'COLOR=blue',
      '-e',
      'OWN=a b',
      '-e',
      'EMPTY=',
      '-e',
      'EQUALS=a=b=c',
      '-e',
      'LINES=one\ntwo',
      '-e',
      'UMLAUT=ä€',
    ],
    differs: CARRIED,
  },
  {
    title: 'labels: its own, and one of the image changed',
    long: true,
    options: ['--label', 'shape=round', '--label', 'own=1'],
    differs: CARRIED,
  },
  { title: 'a command', long: true, command: HTTPD, differs: CARRIED, options: noCheck() },
  {
    title: 'an entrypoint with a command',
    long: true,
    options: ['--entrypoint', '/bin/busybox', ...noCheck()],
    command: ['httpd', '-f', ...HTTPD],
    differs: CARRIED,
  },
  {
    title: 'an entrypoint without a command',
    long: true,
    options: ['--entrypoint', '/bin/sh', '--no-healthcheck', '-t'],
    differs: CARRIED,
    check: (_, after) => equal([after.Config.Entrypoint, after.Config.Cmd], [['/bin/sh'], null]),
  },
  {
    title: 'an emptied entrypoint',
    long: true,
    options: ['--entrypoint', '', ...noCheck()],
    command: ['/bin/busybox', 'httpd', '-f', ...HTTPD],
    differs: CARRIED,
    check: (_, after) => equal(after.Config.Entrypoint, null),
  },
  {
    title: 'a health check of its own',
    long: true,
    options: ['--health-cmd', 'true', '--health-interval', '770ms'],
    differs: CARRIED,
  },
  { title: 'no health check', long: true, options: ['--no-healthcheck'], differs: CARRIED },
  {
    title: 'one field of the health check',
    long: true,
    options: ['--health-retries', '7'],
    differs: CARRIED,
    check: (_, after) =>
      equal([after.Config.Healthcheck.Retries, after.Config.Healthcheck.Interval], [7, 1_100_000_000]),
  },
  {
    title: 'a user and groups',
    long: true,
    options: ['--user', '1000:1000', '--group-add', '2000', '--group-add', '2001'],
    differs: CARRIED,
  },
  { title: 'a working directory', long: true, options: ['-w', '/data'], differs: CARRIED },
  {
    title: 'published ports: fixed, random, udp, exposed by nobody else',
    options: ['-p', '127.0.0.1:18011:8080', '-p', '127.0.0.1::9999', '-p', '18012:5353/udp', '--expose', '6060'],
    differs: CARRIED,
  },
  { title: 'all ports published', long: true, options: ['-P'], differs: CARRIED },
  {
    title: 'a port published that only the old image exposes',
    long: true,
    options: ['-p', '127.0.0.1:18013:7070'],
    differs: CARRIED,
  },
  {
    title: 'a named volume and a bind mount, read-only',
    prepare: [['volume', 'create', 'kept']],
    options: ['-v', 'kept:/kept', '-v', '/etc/hostname:/etc/machine:ro', '-v', 'named-data:/data'],
    afterwards: [['exec', 'NAME', '/bin/busybox', 'touch', '/kept/here', '/data/here']],
    check: async (_, { Name }, engine) =>
      void (await engine.docker('exec', Name.slice(1), '/bin/busybox', 'ls', '/kept/here', '/data/here')),
  },
  {
    title: 'anonymous volumes, of the image and of a person: the data is there',
    options: ['-v', '/scratch'],
    afterwards: [['exec', 'NAME', '/bin/busybox', 'touch', '/data/here', '/scratch/here']],
    differs: CARRIED,
    check: async (before, after, engine) => {
      await engine.docker('exec', after.Name.slice(1), '/bin/busybox', 'ls', '/data/here', '/scratch/here')
      const volumes = (of: Inspection) =>
        of.Mounts.filter((mount: Inspection) => mount.Destination !== '/more')
          .map((mount: Inspection) => mount.Name)
          .toSorted()
      equal(volumes(after), volumes(before))
    },
  },
  {
    title: 'mounts: a volume without a name, a volume with options, a tmpfs',
    options: [
      '--mount=type=volume,dst=/unnamed',
      '--mount=type=volume,src=with-options,dst=/data,volume-nocopy',
      '--mount=type=tmpfs,dst=/scratch,tmpfs-size=1048576',
      '--mount=type=bind,src=/usr,dst=/host-usr,readonly',
    ],
    afterwards: [['exec', 'NAME', '/bin/busybox', 'touch', '/unnamed/here']],
    differs: /^HostConfig\.(Binds|Mounts)/,
    check: async (_, { Name }, engine) =>
      void (await engine.docker('exec', Name.slice(1), '/bin/busybox', 'ls', '/unnamed/here')),
  },
  {
    title: 'volumes from another container',
    long: true,
    prepare: [['create', '--name', 'NAME-lender', '-v', 'lent:/lent', '-v', '/also', 'OLD']],
    options: ['--volumes-from', 'NAME-lender'],
    check: (_, after) => equal(after.HostConfig.Binds, null),
  },
  {
    title: 'a network of its own with aliases',
    long: true,
    prepare: [['network', 'create', 'NAME-net']],
    options: ['--network', 'NAME-net', '--network-alias', 'one', '--network-alias', 'two'],
    differs: CARRIED,
  },
  {
    title: 'two networks with fixed addresses',
    current: true,
    prepare: [
      ['network', 'create', '--subnet', '10.91.1.0/24', 'NAME-a'],
      ['network', 'create', '--subnet', '10.91.2.0/24', 'NAME-b'],
    ],
    options: ['--network', 'NAME-a', '--ip', '10.91.1.77', '--network-alias', 'first'],
    afterwards: [['network', 'connect', '--ip', '10.91.2.77', '--alias', 'second', 'NAME-b', 'NAME']],
    differs: CARRIED,
    check: (_, { Name, NetworkSettings: { Networks } }) =>
      equal(
        [Networks[`${Name.slice(1)}-a`].IPAddress, Networks[`${Name.slice(1)}-b`].IPAddress],
        ['10.91.1.77', '10.91.2.77'],
      ),
  },
  {
    title: 'a network left and another one joined',
    current: true,
    prepare: [
      ['network', 'create', 'NAME-left'],
      ['network', 'create', 'NAME-joined'],
    ],
    options: ['--network', 'NAME-left'],
    afterwards: [
      ['network', 'disconnect', 'NAME-left', 'NAME'],
      ['network', 'connect', 'NAME-joined', 'NAME'],
    ],
    differs: CARRIED,
    check: (_, { Name, NetworkSettings: { Networks } }) => equal(Object.keys(Networks), [`${Name.slice(1)}-joined`]),
  },
  {
    title: 'a link of the old kind',
    long: true,
    prepare: [['run', '-d', '--name', 'NAME-other', 'OLD']],
    options: ['--link', 'NAME-other:other'],
    differs: CARRIED,
    check: (_, { Name, HostConfig }) => equal(HostConfig.Links, [`/${Name.slice(1)}-other:${Name}/other`]),
  },
  {
    title: "the host's network",
    options: ['--network', 'host', ...TRUE],
    command: ['-p', '18021', '-h', '/'],
    differs: CARRIED,
  },
  { title: 'no network', long: true, options: ['--network', 'none'], differs: CARRIED },
  {
    title: "another container's network",
    long: true,
    prepare: [['run', '-d', '--name', 'NAME-other', 'OLD']],
    options: ['--network', 'container:NAME-other', ...TRUE],
    command: ['-p', '18022', '-h', '/'],
    differs: CARRIED,
  },
  {
    title: 'limits of memory, processors and processes',
    long: true,
    options: [
      '--memory',
      '64m',
      '--memory-swap',
      '96m',
      '--memory-reservation',
      '32m',
      '--cpus',
      '0.75',
      '--cpu-shares',
      '512',
      '--cpuset-cpus',
      '0',
      '--pids-limit',
      '100',
    ],
    differs: CARRIED,
  },
  {
    title: 'capabilities, security options, read-only root',
    options: [
      '--cap-drop',
      'ALL',
      '--cap-add',
      'NET_BIND_SERVICE',
      '--security-opt',
      'no-new-privileges',
      '--security-opt',
      'seccomp=unconfined',
      '--read-only',
      '--tmpfs',
      '/tmp:size=1m',
    ],
    differs: CARRIED,
  },
  {
    title: 'devices',
    long: true,
    options: ['--device', '/dev/null:/dev/void:rw', '--device-cgroup-rule', 'c 42:* rmw'],
    differs: CARRIED,
  },
  {
    title: 'log options',
    long: true,
    options: ['--log-driver', 'json-file', '--log-opt', 'max-size=1m', '--log-opt', 'max-file=2'],
    differs: CARRIED,
  },
  { title: 'another log driver', long: true, options: ['--log-driver', 'local'], differs: CARRIED },
  {
    title: 'restart on failure, at most three times',
    long: true,
    options: ['--restart', 'on-failure:3'],
    differs: CARRIED,
  },
  { title: 'restart unless stopped', long: true, options: ['--restart', 'unless-stopped'], differs: CARRIED },
  {
    title: 'an init, a stop signal, a stop timeout',
    long: true,
    options: ['--init', '--stop-signal', 'SIGTERM', '--stop-timeout', '3'],
    differs: CARRIED,
  },
  {
    title: 'host name, domain, hosts, resolver',
    long: true,
    options: [
      '--hostname',
      'beacon',
      '--domainname',
      'example.org',
      '--add-host',
      'db:10.0.0.9',
      '--dns',
      '10.0.0.53',
      '--dns-search',
      'example.org',
      '--dns-option',
      'ndots:2',
    ],
    differs: CARRIED,
  },
  {
    title: 'ulimits, sysctls, shared memory',
    long: true,
    options: [
      '--ulimit',
      'nofile=1024:2048',
      '--sysctl',
      'net.ipv4.ip_local_port_range=20000 60000',
      '--shm-size',
      '8m',
      '--ipc',
      'shareable',
    ],
    differs: CARRIED,
  },
  {
    title: 'a terminal and an open input',
    long: true,
    options: ['-it'],
    differs: /^HostConfig\.Binds|^Config\.StdinOnce/,
    check: (before, after) => equal(after.Config.StdinOnce, before.Config.StdinOnce),
  },
  {
    title: "the host's processes and host name",
    long: true,
    options: ['--pid', 'host', '--uts', 'host'],
    differs: CARRIED,
  },
  {
    title: 'a hardware address',
    long: true,
    options: ['--mac-address', '92:d0:c6:0a:29:33'],
    differs: CARRIED,
    check: (_, { NetworkSettings: { Networks } }) => equal(Networks['bridge'].MacAddress, '92:d0:c6:0a:29:33'),
  },
  {
    title: 'a hardware address in a network of its own',
    current: true,
    long: true,
    prepare: [['network', 'create', '--subnet', '10.91.3.0/24', 'NAME-c']],
    options: ['--network', 'NAME-c', '--mac-address', '92:d0:c6:0a:29:34'],
    differs: CARRIED,
    check: (_, { Name, NetworkSettings: { Networks } }) =>
      equal(Networks[`${Name.slice(1)}-c`].MacAddress, '92:d0:c6:0a:29:34'),
  },
  {
    title: 'networks given at once, with a gateway that is preferred and a setting of the interface',
    current: 'only',
    prepare: [
      ['network', 'create', '--subnet', '10.91.4.0/24', 'NAME-d'],
      ['network', 'create', '--subnet', '10.91.5.0/24', 'NAME-e'],
    ],
    options: [
      '--network=name=NAME-d,ip=10.91.4.77,alias=one,driver-opt=com.docker.network.endpoint.sysctls=net.ipv4.conf.IFNAME.log_martians=1',
      '--network=name=NAME-e,alias=two,gw-priority=7',
    ],
    differs: CARRIED,
    check: (_, { Name, NetworkSettings: { Networks } }) => {
      const [first, second] = ['d', 'e'].map((network) => Networks[`${Name.slice(1)}-${network}`])
      equal([first.IPAddress, first.GwPriority, second.GwPriority], ['10.91.4.77', 0, 7])
      match(JSON.stringify(first.DriverOpts), /log_martians=1/)
    },
  },
  {
    title:
      'mounts as engines know them since 25: a part of a volume, an image, a bind whose own mounts stay as they are',
    current: 'only',
    prepare: [
      ['volume', 'create', 'parts'],
      ['run', '--rm', '-v', 'parts:/parts', '--entrypoint', '/bin/busybox', 'OLD', 'mkdir', '/parts/one'],
    ],
    options: [
      '--mount=type=volume,src=parts,dst=/one,volume-subpath=one',
      '--mount=type=image,src=OLD,dst=/an-image',
      '--mount=type=bind,src=/usr,dst=/host-usr,readonly,bind-recursive=writable',
    ],
    afterwards: [['exec', 'NAME', '/bin/busybox', 'touch', '/one/here']],
    differs: CARRIED,
    check: async (_, { Name }, engine) => {
      await engine.docker('exec', Name.slice(1), '/bin/busybox', 'ls', '/one/here', '/an-image/bin/busybox')
      equal(
        await engine.docker(
          'run',
          '--rm',
          '-v',
          'parts:/parts',
          '--entrypoint',
          '/bin/busybox',
          `${registry.host}/beacon:v1.1.0`,
          'ls',
          '/parts/one',
        ),
        'here',
      )
    },
  },
  {
    title: 'annotations, and a health check of its own for the start',
    current: 'only',
    options: [
      '--annotation',
      'org.example.kept=yes',
      '--health-start-period',
      '5s',
      '--health-start-interval',
      '300ms',
    ],
    differs: CARRIED,
    check: (_, after) =>
      equal(
        [after.HostConfig.Annotations, after.Config.Healthcheck.StartInterval],
        [{ 'org.example.kept': 'yes' }, 300_000_000],
      ),
  },
  {
    title: 'a name that is not plain',
    long: true,
    options: ['--oom-score-adj', '100', '--cgroupns', 'host'],
    differs: CARRIED,
  },
]

const CASES = ALL.filter(({ long, current }) =>
  isCurrent ? isLong || current !== undefined : current !== 'only' && (isLong || long !== true),
)
const AT_ONCE = 4
const { skip, engine, registry, close } = await openLab()
const test = suite('container table', { timeoutMs: 120_000, skip })
const beside = sideBySide(test, AT_ONCE)

test.before(() => publishGood(registry.host))

for (const [i, one] of CASES.entries()) beside(`recreates a container with ${one.title}`, () => recreated(one, i))

// what an inspection shows of it is what that engine made of it, and no engine that made it anew would show the same
if (isCurrent)
  test('a container that an older engine has made is updated when a current one has taken its place, and hides of the host what that hides', async () => {
    const one = await startEngine({ former: true })
    const [old, fresh] = [`${registry.host}/beacon:v1.0.0`, `${registry.host}/beacon:v1.1.0`]
    const options = ['--restart', 'always', '--network', 'own', '--network-alias', 'shop', '-v', 'kept:/data', ...TRUE]
    await one.docker('network', 'create', 'own')
    await one.docker('run', '-d', '--name', 'kept', ...options, old)
    await one.docker(
      'run',
      '-d',
      '--name',
      'bare',
      '--restart',
      'always',
      '--security-opt',
      'systempaths=unconfined',
      ...TRUE,
      old,
    )
    const before = await one.inspect('kept')
    await one.upgrade()
    for (const name of ['kept', 'bare']) {
      await healthy(one, name)
      const ended = await deployIn(one, { container: name, release: 'v1.1.0' })
      equal([ended.outcome, ended.error?.message ?? null], ['updated', null])
    }
    await one.docker('create', '--name', 'control', fresh)
    const [after, bare, control] = await Promise.all(['kept', 'bare', 'control'].map((name) => one.inspect(name)))
    ok(control.HostConfig.MaskedPaths.length > before.HostConfig.MaskedPaths.length)
    equal(after.HostConfig.MaskedPaths, control.HostConfig.MaskedPaths)
    equal(bare.HostConfig.MaskedPaths, [])
    await one.docker('rm', '-f', ...(await one.names()))
    await one.stop()
  })

test.after(close)

test.run()

async function recreated(one: Case, i: number): Promise<void> {
  const name = i % 7 === 6 ? `t${i}.A_b-c` : `t${i}`
  const [old, fresh] = [`${registry.host}/beacon:v1.0.0`, `${registry.host}/beacon:v1.1.0`]
  const fill = (line: readonly string[], as = name) =>
    line.map((word) => word.replace(/\bNAME\b/g, as).replace(/\bOLD\b/g, old))
  const ownNames = (line: readonly string[], as: string) => fill(line, name).map((word) => (word === name ? as : word))

  for (const line of one.prepare ?? []) await engine.docker(...fill(line))
  await engine.docker('run', '-d', '--name', name, ...fill(one.options ?? []), old, ...(one.command ?? []))
  for (const line of one.afterwards ?? []) await engine.docker(...fill(line))
  await healthy(engine, name)
  const before = await engine.inspect(name)

  const dry =
    isCurrent || i % 3 === 0 ? await deployIn(engine, { container: name, release: 'v1.1.0', dryRun: true }) : null
  equal((await engine.inspect(name)).Id, before.Id, 'a dry run changes nothing')
  const ended = await deployIn(engine, { container: name, release: 'v1.1.0' })
  equal([ended.outcome, ended.error?.message ?? null], ['updated', null])
  const after = await engine.inspect(name)
  ok(after.State.Running)
  ok(after.Id !== before.Id)

  const control = `${name}-control`
  await engine.docker('create', '--name', control, ...fill(one.options ?? []), fresh, ...(one.command ?? []))
  for (const line of one.afterwards ?? []) if (line[0] === 'network') await engine.docker(...ownNames(line, control))
  const [is, should] = [after, await engine.inspect(control)].map(flatten) as [Map<string, string>, Map<string, string>]
  const wrong = [...new Set([...is.keys(), ...should.keys()])]
    .filter((path) => is.get(path) !== should.get(path) && !(one.differs?.test(path) ?? false))
    .map((path) => `${path}: expected ${should.get(path)}, got ${is.get(path)}`)
  equal(wrong, [])
  await one.check?.(before, after, engine)

  // the plan told the truth: what differs now is what the dry run said
  const planned = (events: typeof ended.events) =>
    events.find(({ event }) => event === 'plan') as { differences: { path: string; because: string }[] } | undefined
  const lines = (list: { path: string; because: string }[] = []) =>
    list.map(({ path, because }) => `${because} ${path}`).toSorted()
  if (dry !== null) equal(lines(planned(dry.events)?.differences), lines(planned(ended.events)?.differences))
  equal(
    lines(planned(ended.events)?.differences).filter((line) => line.startsWith('unexplained')),
    [],
  )
  await engine.docker('rm', '-f', name, control, `${name}-baton-previous`)
}

/** `path` -> JSON of the value, for all that a person or an image sets. */
function flatten(inspection: Inspection): Map<string, string> {
  const { Config, HostConfig, Mounts, NetworkSettings, Id, Name } = inspection
  const result = new Map<string, string>()
  const put = (path: string, value: Inspection): void => {
    if (
      value === null ||
      value === undefined ||
      value === '' ||
      (typeof value === 'object' && Object.keys(value).length === 0)
    )
      return
    if (typeof value === 'object' && !Array.isArray(value)) {
      for (const [key, one] of Object.entries(value)) put(`${path}.${key}`, one)
    } else
      result.set(
        path,
        JSON.stringify(path === 'HostConfig.Binds' ? value.toSorted() : value).replaceAll(`${Name}/`, '/SELF/'),
      )
  }
  const { Labels, Hostname, Env, ...config } = Config
  // `docker create` attaches where `docker run -d` does not
  for (const stream of ['AttachStdin', 'AttachStdout', 'AttachStderr']) delete config[stream]
  put('Config', config)
  put('Config.Env', Env.toSorted())
  // a container in another one's network shows that one's name, once it runs
  if (Hostname !== Id.slice(0, 12) && !HostConfig.NetworkMode.startsWith('container:')) put('Config.Hostname', Hostname)
  put('Config.Labels', { ...Labels, 'baton.recreated-from': undefined })
  put('HostConfig', { ...HostConfig, ContainerIDFile: undefined })
  for (const { Type, Name: volume, Destination, RW, Driver } of Mounts) {
    put(`Mounts.${Destination}`, { Type, RW, Driver, volume: /^[0-9a-f]{64}$/.test(volume) ? 'anonymous' : volume })
  }
  for (const [network, { IPAMConfig, Links, Aliases, DriverOpts, GwPriority }] of Object.entries<Inspection>(
    NetworkSettings.Networks,
  )) {
    const aliases = (Aliases ?? []).filter((alias: string) => alias !== Id.slice(0, 12))
    put(`Networks.${network}`, { joined: 'yes', IPAMConfig, Links, aliases, DriverOpts, GwPriority })
  }
  return result
}

function noCheck(): string[] {
  return ['--no-healthcheck']
}
