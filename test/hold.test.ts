// What `--keep-port` makes of a container, and what `--no-keep-port` makes of it again. On a real engine: test/container/hold-moves.ts.

import { parseContainerSettings } from '../deploy/container/command.ts'
import { behindHolder, holderFor, withoutHolder } from '../deploy/container/hold.ts'
import { type ContainerInspection, type ImageInspection, isSame } from '../deploy/container/inspection.ts'
import { TAKEN_LABEL } from '../deploy/container/reference.ts'
import { claims, refuseClaims } from '../deploy/container/refusal.ts'
import { equal, match, ok, throws, withCode } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('hold, pure')
const CONTAINER = {
  Id: `abcabcabcabc${'0'.repeat(52)}`,
  Name: '/app',
  Image: 'sha256:0',
  Config: {
    Image: 'beacon:v1.0.0',
    Env: ['A=1'],
    Labels: { mine: '1', 'traefik.enable': 'true', caddy: 'app.example', caddyish: 'no' },
  },
  HostConfig: {
    NetworkMode: 'own',
    GroupAdd: ['77'],
    Binds: ['rows:/var/lib/beacon'],
    Sysctls: { 'net.core.somaxconn': '9000', 'net.ipv4.ip_local_port_range': '1 2' },
    PortBindings: {
      '8080/tcp': [{ HostIp: '', HostPort: '80' }],
      '9090/tcp': [{ HostIp: '127.0.0.1', HostPort: '9090' }],
    },
  },
  Mounts: [{ Type: 'volume', Name: 'rows', Source: '/rows', Destination: '/var/lib/beacon', RW: true }],
  NetworkSettings: {
    Networks: { own: { Aliases: ['shop', 'abcabcabcabc'], IPAMConfig: { IPv4Address: '10.0.0.7' } } },
  },
} as unknown as ContainerInspection

test('the holder gets ports, aliases, fixed addresses, the labels of proxies and the bound of the queue, and no right', () => {
  const { body } = holderFor(CONTAINER, 'beacon:holder')
  const { HostConfig, Cmd, NetworkingConfig } = body
  equal([HostConfig.PortBindings, Cmd], [CONTAINER.HostConfig.PortBindings, ['8080', '9090']])
  equal(
    [HostConfig['ReadonlyRootfs'], HostConfig['CapDrop'], HostConfig['SecurityOpt']],
    [true, ['ALL'], ['no-new-privileges']],
  )
  equal([HostConfig.Binds, HostConfig['Sysctls']], [['app-hold:/run/hold'], { 'net.core.somaxconn': '9000' }])
  equal(NetworkingConfig?.EndpointsConfig['own'], { Aliases: ['shop'], IPAMConfig: { IPv4Address: '10.0.0.7' } })
  const labels = body['Labels'] as Record<string, string>
  equal(Object.keys(labels).toSorted(), [TAKEN_LABEL, 'caddy', 'traefik.enable'])
  equal(HostConfig.RestartPolicy, { Name: 'no' }, 'no engine starts it before the commit')
})

test('the container keeps the rest, and what moves out has what it had before', () => {
  const held = behindHolder(CONTAINER)
  equal(held.Config.Env, ['A=1', 'BATON_HOLDER=/run/hold/socket'])
  equal(held.Config.Labels, { mine: '1', caddyish: 'no' })
  equal(held.HostConfig.Binds, ['rows:/var/lib/beacon', 'app-hold:/run/hold:ro'])
  equal([held.HostConfig.PortBindings, held.HostConfig['GroupAdd']], [{}, ['77', '65531']])
  equal(held.NetworkSettings.Networks, { own: {} })
  const { body } = holderFor(CONTAINER, 'beacon:holder')
  const holder = { ...CONTAINER, Name: '/app-holder', Config: { Image: 'beacon:holder', Labels: body['Labels'] } }
  const back = withoutHolder(held, holder as ContainerInspection)
  const before = structuredClone(CONTAINER)
  ;(before.NetworkSettings.Networks as Record<string, object>)['own'] = {
    Aliases: ['shop'],
    IPAMConfig: { IPv4Address: '10.0.0.7' },
  }
  ok(isSame(back, { ...before, HostConfig: { ...before.HostConfig, PublishAllPorts: false } }), JSON.stringify(back))
  const other = { ...holder, Config: { Image: 'beacon:holder', Labels: {} } } as ContainerInspection
  throws(() => withoutHolder(held, other), withCode('refused'))
})

test('an image cannot say what a holder took', () => {
  const image = {
    Config: { Labels: { 'baton.holder': '1', [TAKEN_LABEL]: '{"ports":{}}' } },
  } as unknown as ImageInspection
  equal(claims(image), [TAKEN_LABEL])
  throws(() => refuseClaims(image, 'beacon:holder'), withCode('refused'))
})

test('--keep-port and --no-keep-port stand alone', () => {
  equal(parseContainerSettings(['--container', 'app', '--keep-port'])?.release, 'hold')
  equal(parseContainerSettings(['--container', 'app', '--no-keep-port'])?.release, 'no-hold')
  equal(parseContainerSettings(['--keep-port', '--holder-image', 'x/y:1'])?.holder, 'x/y:1')
  for (const more of [['--release', 'latest'], ['--rollback'], ['--status']])
    throws(() => parseContainerSettings(['--keep-port', ...more]), withCode('invalid_request'))
  match(
    throws(() => parseContainerSettings(['--no-keep-port', '--holder-image', 'x'])).message,
    /--holder-image works only with --keep-port/,
  )
  throws(() => parseContainerSettings(['--release', 'hold']), withCode('invalid_tag'))
})

test.run()
