// Turns a container's inspection into the body that creates its successor. Carries what a person set; leaves out what came from
// the old image, so that the new image's value takes its place. Pure.
// Each rule that is not obvious names the engine's own merge (moby `daemon/create.go`, `runconfig.Merge`) or the bug it avoids.

import type {
  ContainerConfig,
  ContainerInspection,
  CreateBody,
  Endpoint,
  Fields,
  Healthcheck,
  HostConfig,
  ImageConfig,
  ImageInspection,
  Mount,
} from './inspection.ts'
import { isEmpty, isSame, shortId } from './inspection.ts'
import { atLeast, type EngineTraits } from './engine/engine.ts'
import { ORIGIN_LABEL } from './reference.ts'

export interface SpecificationSource {
  container: ContainerInspection
  image: ImageInspection
  /** destination -> volume name, of mounts that come from `VolumesFrom`; they must not be carried twice */
  inherited: ReadonlyMap<string, string>
}

export interface ContainerTarget {
  /** what the new container's `Config.Image` says */
  reference: string
  /** the label that makes the deployment resumable, and compose's labels about the image */
  labels: Record<string, string>
  engine: EngineTraits
}

export interface Specification {
  body: CreateBody
  /** networks to join after creation, and those to leave */
  connect: { network: string; endpoint: Endpoint }[]
  disconnect: string[]
}

/** Fields of `Config` with a single value that an image can set. */
const FROM_IMAGE = ['User', 'WorkingDir', 'StopSignal', 'Shell'] as const
/** Fields of `Config` that only a person sets. `OnBuild`, `ArgsEscaped` and `Image` are the image's. */
const PERSONAL = [
  'Domainname',
  'AttachStdin',
  'AttachStdout',
  'AttachStderr',
  'Tty',
  'OpenStdin',
  'StdinOnce',
  'StopTimeout',
  'NetworkDisabled',
  'MacAddress',
] as const
/**
 * What every engine since 18.09 masks if nobody says otherwise. Newer ones mask more. An inspection shows what the engine that made the
 * container masked, as if a person had set it; carried on, it would keep the masks of that engine for ever.
 */
const MASKED = [
  '/proc/asound',
  '/proc/acpi',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
]
const PREDEFINED = new Set(['default', 'bridge', 'host', 'none', 'podman', 'slirp4netns', 'pasta', 'private'])

export function specify(source: SpecificationSource, target: ContainerTarget): Specification {
  const { container } = source
  const { primary, own, others } = endpointsOf(container)
  const config = configFor(source, target)
  const body: CreateBody = { ...config, Image: target.reference, HostConfig: hostConfigFor(source, target.engine) }
  const mac = container.Config.MacAddress ?? ''
  if (mac !== '' && own !== undefined && !PREDEFINED.has(own.network) && atLeast(target.engine.apiVersion, '1.44')) {
    // the engine takes the container's own field there only if `NetworkMode` is the network's name, and not its id
    own.endpoint.MacAddress = mac
    delete body['MacAddress']
  }
  if (own !== undefined && !isEmpty(own.endpoint)) {
    body.NetworkingConfig = { EndpointsConfig: { [own.network]: own.endpoint } }
  }
  const joins = !/^(container:|ns:|none$|host$)/.test(container.HostConfig.NetworkMode)
  return {
    body,
    // engines before API 1.44 take one network at creation, so all of them get the others one by one (portainer#1491)
    connect: joins ? others : [],
    // a person may have disconnected the container from the network that it was created in
    disconnect: joins && primary !== null && own === undefined ? [primary] : [],
  }
}

/** A person's settings of each network: of the primary one, which a container is created in, and of those that it joins afterwards. */
export function endpointsOf(container: ContainerInspection) {
  const networks = container.NetworkSettings.Networks ?? {}
  const primary = primaryNetwork(container.HostConfig.NetworkMode, networks)
  const all = Object.entries(networks).map(([network, endpoint]) => ({
    network,
    endpoint: endpointFor(network, endpoint, container),
  }))
  const [own] = all.filter(({ network }) => network === primary)
  return { primary, own, others: all.filter((one) => one !== own) }
}

/** The network of `Networks` that `NetworkMode` means, by name or by id; if it is none of them, the mode itself as a name. */
function primaryNetwork(mode: string, networks: Record<string, Endpoint>): string | null {
  if (/^(container:|ns:)/.test(mode)) return null
  const wanted = mode === 'default' ? ['bridge', 'default', 'podman'] : [mode]
  const byName = Object.keys(networks).find((name) => wanted.includes(name))
  const byId = Object.keys(networks).find(
    (name) => (networks[name]?.NetworkID ?? '') !== '' && networks[name]?.NetworkID === mode,
  )
  return byName ?? byId ?? wanted[0] ?? null
}

function configFor({ container, image }: SpecificationSource, { labels, engine }: ContainerTarget): Fields {
  const { Config: config, HostConfig: host } = container
  const old: ImageConfig = image.Config ?? {}
  const result: Fields = {}
  for (const key of PERSONAL) if (!isEmpty(config[key])) result[key] = config[key]
  for (const key of FROM_IMAGE) if (!isSame(config[key], old[key])) result[key] = config[key]
  const hostname = hostnameFor(container, engine)
  if (hostname !== null) result['Hostname'] = hostname

  result['Env'] = (config.Env ?? []).filter((entry) => !(old.Env ?? []).includes(entry))
  Object.assign(result, commandFor(config, old))
  const healthcheck = healthcheckFor(config.Healthcheck ?? null, old.Healthcheck ?? null)
  if (healthcheck !== null) result['Healthcheck'] = healthcheck
  result['Labels'] = { ...withoutPairs(config.Labels, old.Labels), ...labels }
  const volumes = withoutKeys(config.Volumes, old.Volumes)
  if (!isEmpty(volumes)) result['Volumes'] = volumes
  // a published port stays exposed, even if the old image exposed it and the new one does not
  const exposed = { ...withoutKeys(config.ExposedPorts, old.ExposedPorts), ...emptyValues(host.PortBindings) }
  if (!isEmpty(exposed) && !host.NetworkMode.startsWith('container:')) result['ExposedPorts'] = exposed
  return result
}

/**
 * The host name that a person set, else null. The engine names a container after its id. A container in the host's UTS namespace,
 * or in another container's, does not have its own host name.
 */
function hostnameFor(container: ContainerInspection, engine: EngineTraits): string | null {
  const { Hostname: name = '' } = container.Config
  const { NetworkMode: mode, UTSMode } = container.HostConfig
  if (name === '' || name === shortId(container.Id) || mode.startsWith('container:') || UTSMode === 'host') return null
  return mode === 'host' && name === engine.hostName ? null : name
}

/**
 * `Cmd` comes from the image only together with its `Entrypoint`: if a person gives an entrypoint, the engine drops the
 * image's command. An entrypoint that a person emptied is `null` in the inspection and must be sent as `['']`.
 */
function commandFor(config: ContainerConfig, old: ImageConfig): Fields {
  if (isSame(config.Entrypoint, old.Entrypoint)) return isSame(config.Cmd, old.Cmd) ? {} : { Cmd: config.Cmd }
  const entrypoint = isEmpty(config.Entrypoint) ? [''] : config.Entrypoint
  return isEmpty(config.Cmd) ? { Entrypoint: entrypoint } : { Entrypoint: entrypoint, Cmd: config.Cmd }
}

/** The engine merges a health check field by field. */
function healthcheckFor(set: Healthcheck | null, old: Healthcheck | null): Healthcheck | null {
  if (set === null) return null
  const entries = Object.entries(set).filter(
    ([key, value]) => !isEmpty(value) && !isSame(value, old?.[key as keyof Healthcheck]),
  )
  return entries.length === 0 ? null : Object.fromEntries(entries)
}

function hostConfigFor(source: SpecificationSource, engine: EngineTraits): HostConfig {
  const { container } = source
  const host: HostConfig = structuredClone(container.HostConfig)
  delete host['ContainerIDFile'] // only the client that ran the first container writes it, once
  host.Mounts = (host.Mounts ?? []).map((mount) => named(mount, container.Mounts))
  host.Binds = [...(host.Binds ?? []), ...carriedVolumes(source).map(bindFor)]
  // inspect says `/other:/this/alias`, create wants `other:alias`
  host.Links = (host.Links ?? []).map((link) => link.replace(/^\/?([^:]+):(?:.*\/)?([^/]+)$/, '$1:$2'))
  for (const key of ['Mounts', 'Binds', 'Links'] as const) if (isEmpty(host[key])) delete host[key]
  const masked = (host['MaskedPaths'] ?? []) as string[]
  if (engine.kind === 'docker' && MASKED.every((path) => masked.includes(path))) delete host['MaskedPaths']
  return engine.kind === 'podman' ? forPodman(host) : host
}

/** Names the existing volume of an unnamed mount: the engine would make a new volume otherwise (compose-cli#1815 lost data). */
function named(mount: Fields, mounts: readonly Mount[]): Fields {
  if (mount['Type'] !== 'volume' || !isEmpty(mount['Source'])) return mount
  const there = mounts.find(({ Type, Destination }) => Type === 'volume' && Destination === mount['Target'])
  return there?.Name === undefined ? mount : { ...mount, Source: there.Name }
}

/** Volumes that `HostConfig` does not name: made for a `VOLUME` of the image or a `-v /path`. */
export function carriedVolumes({ container, inherited }: SpecificationSource): Mount[] {
  const { Binds, Mounts, Tmpfs } = container.HostConfig
  const said = new Set<unknown>([
    ...(Binds ?? []).map((bind) => destinationOf(bind)),
    ...(Mounts ?? []).map((mount) => mount['Target']),
    ...Object.keys((Tmpfs as Fields | null | undefined) ?? {}),
  ])
  return container.Mounts.filter(
    ({ Type, Name, Destination }) =>
      Type === 'volume' &&
      Name !== undefined &&
      Name !== '' &&
      !said.has(Destination) &&
      inherited.get(Destination) !== Name,
  )
}

function bindFor({ Name, Destination, RW, Mode }: Mount): string {
  const selinux = /\b[zZ]\b/.exec(Mode)?.[0]
  const options = [...(RW ? [] : ['ro']), ...(selinux === undefined || selinux === 'z' ? [] : [selinux])]
  return [Name, Destination, ...(options.length > 0 ? [options.join(',')] : [])].join(':')
}

function destinationOf(bind: string): string {
  const parts = bind.split(':')
  return (parts.length === 1 ? parts[0] : parts[1]) ?? ''
}

/**
 * A person's settings of one network. Leaves out what the engine assigned at run time (containrrr/watchtower#78, #521, #1723).
 * Its `MacAddress` is the address in use, and nothing says whether a person set it: engines from 28 on make up random ones. What a
 * person set for the first network is in `Config.MacAddress` (API_NEWEST in engine/engine.ts); for another one no engine before API
 * 1.54 obeys a join.
 */
function endpointFor(network: string, endpoint: Endpoint, container: ContainerInspection): Endpoint {
  const result: Endpoint = {}
  if (PREDEFINED.has(network)) return result // no aliases or addresses there (nickfedor/watchtower#160)
  const aliases = (endpoint.Aliases ?? []).filter((alias) => alias === '' || !container.Id.startsWith(alias))
  if (aliases.length > 0) result.Aliases = aliases
  if (!isEmpty(endpoint.IPAMConfig)) result.IPAMConfig = endpoint.IPAMConfig as Fields
  if (!isEmpty(endpoint.Links)) result.Links = endpoint.Links as string[]
  if (!isEmpty(endpoint.DriverOpts)) result.DriverOpts = endpoint.DriverOpts as Fields
  if (!isEmpty(endpoint.GwPriority)) result.GwPriority = endpoint.GwPriority as number
  return result
}

/** podman's inspection shows resolved values that its own create refuses together. */
function forPodman(host: HostConfig): HostConfig {
  if (!isEmpty(host['NanoCpus'])) {
    delete host['CpuPeriod']
    delete host['CpuQuota']
  }
  if (host['MemorySwappiness'] === 0 || host['MemorySwappiness'] === -1) delete host['MemorySwappiness']
  const devices = host['Devices'] as { CgroupPermissions?: string }[] | null | undefined
  if (devices)
    host['Devices'] = devices.map((device) => ({ ...device, CgroupPermissions: device.CgroupPermissions || 'rwm' }))
  const ulimits = host['Ulimits'] as { Name: string }[] | null | undefined
  if (ulimits) {
    host['Ulimits'] = ulimits.map((ulimit) => ({ ...ulimit, Name: ulimit.Name.replace(/^RLIMIT_/, '').toLowerCase() }))
  }
  return host
}

function withoutPairs(all: Record<string, string> | null | undefined, old: Record<string, string> | null | undefined) {
  return Object.fromEntries(
    Object.entries(all ?? {}).filter(([key, value]) => old?.[key] !== value && key !== ORIGIN_LABEL),
  )
}

export function withoutKeys<T>(
  all: Record<string, T> | null | undefined,
  old: Fields | null | undefined,
): Record<string, T> {
  return Object.fromEntries(Object.entries(all ?? {}).filter(([key]) => old?.[key] === undefined))
}

function emptyValues(all: Fields | null | undefined): Fields {
  return Object.fromEntries(Object.keys(all ?? {}).map((key) => [key, {}]))
}
