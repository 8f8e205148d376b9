// Moves a container in and out of a holder: the container that publishes its ports and keeps their queues while it is recreated
// (container/holder/). Says what the two containers must be; prepare.ts, moves.ts and switch.ts make them so.
// Must hold: it refuses, by name, what a holder cannot hold, before anything has changed. A container that moves out has again what it
// had before.

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { BatonError, HOLDER, parsedJson } from '../../agent/words.ts'
import { composeProjectOf } from './compose.ts'
import type { Engine } from './engine/engine.ts'
import {
  type ContainerInspection,
  type Endpoint,
  type Fields,
  isEmpty,
  labelsOf,
  type Mount,
  nameOf,
} from './inspection.ts'
import type { HoldWay } from './job.ts'
import { createBeside } from './moves.ts'
import { HOLDER_LABEL, IMAGE_LABELS, parseReference, TAKEN_LABEL } from './reference.ts'
import { refuseClaims } from './refusal.ts'
import { type ContainerRequest, notHere, step, type Tools } from './request.ts'
import { endpointsOf, type Specification, withoutKeys } from './specification.ts'
import { imageOfContainer } from './survey.ts'

const [FOLDER, GROUP] = ['/run/hold', '65531']
/** The user of holders before this kit's, which many other things on a host run as. */
const NOBODY = 65534
/** bounds the queue, and belongs to the network that the socket is in */
const QUEUE = 'net.core.somaxconn'
/** a holder takes no more */
const PORTS_MAX = 32
/** labels of proxies that find their services by label */
const PROXY_LABEL = /^(traefik\.|caddy($|[._]))/
/** drivers that give a container its own address in the network of the host's cable */
const OWN_ADDRESS = new Set(['macvlan', 'ipvlan'])

/** What the holder took from the container, to give it back. */
interface Taken {
  ports: Fields
  labels: Record<string, string>
  endpoints: Record<string, Pick<Endpoint, 'Aliases' | 'IPAMConfig'>>
}

export interface HoldPlan {
  way: HoldWay
  /** name or id */
  holder: string
  volume?: string
  /** null: it is there */
  specification: Specification | null
  /** the container as it is, and as it must be */
  present: ContainerInspection
  container: ContainerInspection
}

export function holdWayOf(release: string | null): HoldWay | null {
  return release === 'hold' || release === 'no-hold' ? release : null
}

export function holderNames(name: string): { holder: string; volume: string } {
  return { holder: `${name}-holder`, volume: `${name}-hold` }
}

/** The volume, or the folder of the host, in which this container finds its holder's socket; null: it has no holder. */
export function volumeOfHolder({ Config, Mounts }: ContainerInspection): Mount | null {
  const path = (Config.Env ?? []).find((entry) => entry.startsWith(`${HOLDER}=`))?.slice(HOLDER.length + 1) ?? ''
  return Mounts.find(({ Destination }) => Destination === dirname(path)) ?? null
}

/** The holder of this container, made by this command or not; null if there is none. */
export async function holderOf(container: ContainerInspection, engine: Engine): Promise<ContainerInspection | null> {
  const found = await holderBeside(container, engine)
  return found?.isUsed === true ? found.holder : null
}

/** As `holderOf`, and also one whose volume this container only mounts: it does not name it, so nobody answers that holder's clients. */
export async function holderBeside(
  container: ContainerInspection,
  engine: Engine,
): Promise<{ holder: ContainerInspection; isUsed: boolean } | null> {
  const named = volumeOfHolder(container)
  const sources = (named === null ? container.Mounts : [named]).map(({ Source }) => Source).filter(Boolean) // a tmpfs has none
  if (sources.length === 0) return null
  for (const id of await engine.containers(HOLDER_LABEL)) {
    const holder = await engine.container(id)
    if (holder?.Mounts.some(({ Source, RW }) => RW && sources.includes(Source)))
      return { holder, isUsed: named !== null }
  }
  return null
}

/** Resolves as `holderOf`. Throws BatonError refused if nobody would be served: its holder is stopped, or it does not name it. */
export async function servingHolderOf(
  container: ContainerInspection,
  engine: Engine,
): Promise<ContainerInspection | null> {
  const found = await holderBeside(container, engine)
  if (found === null) return null
  const [name, holder] = [nameOf(container), nameOf(found.holder)]
  if (!found.isUsed) {
    const message = `\`${name}\` mounts the volume of the holder \`${holder}\`, but does not have ${HOLDER} set, so clients of the holder get no answer`
    throw new BatonError('refused', message, {
      hint: `recreate the container with \`-e ${HOLDER}=/run/hold/socket\` and \`--group-add 65531\``,
    })
  }
  if (!found.holder.State.Running)
    throw new BatonError('refused', `\`${holder}\`, the holder of \`${name}\`, is not running`, {
      hint: `run \`docker start ${holder}\`, then deploy again`,
    })
  return found.holder
}

/**
 * Gives a volume of a holder that ran as nobody to the user of this kit's holders, whose number is the group's. Both may write there
 * then: the one that runs goes on, also after a restart of its own. No other folder is changed, and a link is not followed.
 */
export async function carryVolume(folder: string): Promise<void> {
  const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants
  await using there = await open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
  const { uid, gid } = await there.stat()
  const first = gid - Number(GROUP) // of the engine's range of users, if it has one of its own (`userns-remap`)
  if (first < 0 || uid - first !== NOBODY) return
  await there.chmod(0o770) // before the owner changes: if this is killed in between, the next deployment begins here again
  await there.chown(gid, gid)
}

/** Throws BatonError refused for a container whose ports no other container could publish in its place. */
export async function refuseUnheld(container: ContainerInspection, engine: Engine): Promise<void> {
  const name = nameOf(container)
  const refuse = (message: string, hint: string): never => {
    throw new BatonError('refused', `\`${name}\` ${message}`, { hint })
  }
  const { NetworkMode: mode, PortBindings, PublishAllPorts } = container.HostConfig
  if (engine.kind === 'podman')
    refuse('runs in podman, and holders have not been tested with podman', 'use a systemd socket unit to keep the port')
  const project = composeProjectOf(container)
  if (project !== null)
    refuse(
      `belongs to the compose project ${project.name}`,
      'add the holder to its compose file, as a separate service that publishes the ports',
    )
  if (mode === 'host')
    refuse('uses the host’s network (--network host), where no port is published', 'start it with -p instead')
  if (mode.startsWith('container:'))
    refuse(`shares the network of ${mode.slice('container:'.length, 30)}`, 'put that container behind a holder')
  if (mode === 'none') refuse('has no network (--network none)', 'start it on a network, with -p')
  if ((await holderOf(container, engine)) !== null) refuse('already has a holder', 'no action is needed')
  for (const network of Object.keys(container.NetworkSettings.Networks ?? {})) {
    const driver = await engine.networkDriver(network)
    if (OWN_ADDRESS.has(driver))
      refuse(
        `is on the ${driver} network ${network}, which gives it its own address`,
        'publish a port on a bridge network instead',
      )
  }
  if (PublishAllPorts === true) refuse('publishes whatever its image exposes (-P)', 'publish each port with -p instead')
  const ports = Object.keys(PortBindings ?? {})
  const other = ports.find((port) => !/\/(tcp|udp)$/.test(port))
  if (other !== undefined) refuse(`publishes ${other}`, 'a holder supports only TCP and UDP')
  if (ports.length > PORTS_MAX) refuse(`publishes ${ports.length} ports`, `a holder supports at most ${PORTS_MAX}`)
  if (ports.length === 0) refuse('publishes no port', 'start it with -p first')
  if (ports.every(isUdp))
    refuse('publishes only UDP ports, so there is no way to check that it answers', 'set up a holder yourself')
}

/** The container as it must be behind a holder. Pure. */
export function behindHolder(container: ContainerInspection): ContainerInspection {
  const { volume } = holderNames(nameOf(container))
  const taken = takenFrom(container)
  const { Config, HostConfig, NetworkSettings, Mounts } = container
  const mount: Mount = { ...VOLUME, Source: '', Name: volume, Destination: FOLDER, RW: false, Mode: 'ro' }
  const groups = (HostConfig['GroupAdd'] ?? []) as string[]
  const networks = Object.entries(NetworkSettings.Networks ?? {}).map(([network, endpoint]) => {
    const { Aliases: _, IPAMConfig: __, ...rest } = endpoint
    return [network, rest]
  })
  return {
    ...container,
    Config: {
      ...Config,
      Env: [...(Config.Env ?? []), `${HOLDER}=${FOLDER}/socket`],
      Labels: withoutKeys(Config.Labels, taken.labels),
    },
    HostConfig: {
      ...HostConfig,
      PortBindings: {},
      PublishAllPorts: false,
      Binds: [...(HostConfig.Binds ?? []), `${volume}:${FOLDER}:ro`],
      GroupAdd: [...groups, GROUP],
    },
    Mounts: [...Mounts, mount],
    NetworkSettings: { Networks: Object.fromEntries(networks) },
  }
}

/** The container as it was before `behindHolder`. Throws BatonError refused if this command did not make its holder. Pure. */
export function withoutHolder(container: ContainerInspection, holder: ContainerInspection): ContainerInspection {
  const taken = (parsedJson(labelsOf(holder)[TAKEN_LABEL] ?? '') ?? null) as Taken | null
  if (taken === null) {
    const message = `\`${nameOf(holder)}\`, which holds the port of \`${nameOf(container)}\`, was not created by this command`
    throw new BatonError('refused', message, {
      hint: 'remove the holder from the file that defines it, such as a compose file',
    })
  }
  const { Config, HostConfig, NetworkSettings, Mounts } = container
  const networks = Object.entries(NetworkSettings.Networks ?? {}).map(([network, endpoint]) => [
    network,
    { ...endpoint, ...taken.endpoints[network] },
  ])
  const groups = ((HostConfig['GroupAdd'] ?? []) as string[]).filter((group) => group !== GROUP)
  return {
    ...container,
    Config: {
      ...Config,
      Env: (Config.Env ?? []).filter((entry) => !entry.startsWith(`${HOLDER}=`)),
      Labels: { ...Config.Labels, ...taken.labels },
    },
    HostConfig: {
      ...HostConfig,
      PortBindings: taken.ports,
      Binds: (HostConfig.Binds ?? []).filter((bind) => bind.split(':')[1] !== FOLDER),
      GroupAdd: groups,
    },
    Mounts: Mounts.filter(({ Destination }) => Destination !== FOLDER),
    NetworkSettings: { Networks: Object.fromEntries(networks) },
  }
}

/** The holder of this container, which no engine may start by itself before the commit. */
export function holderFor(container: ContainerInspection, reference: string): Specification {
  const taken = takenFrom(container)
  const { HostConfig } = container
  const queue = (HostConfig['Sysctls'] as Record<string, string> | null | undefined)?.[QUEUE]
  const { own, others } = endpointsOf(container)
  const isPlain = own === undefined || isEmpty(own.endpoint)
  return {
    body: {
      Image: reference,
      Cmd: [...new Set(Object.keys(taken.ports).map((port) => port.replace(/\/tcp$/, '')))],
      Labels: { ...taken.labels, [TAKEN_LABEL]: JSON.stringify(taken) },
      ExposedPorts: Object.fromEntries(Object.keys(taken.ports).map((port) => [port, {}])),
      HostConfig: {
        NetworkMode: HostConfig.NetworkMode,
        PortBindings: taken.ports,
        Binds: [`${holderNames(nameOf(container)).volume}:${FOLDER}`],
        RestartPolicy: { Name: 'no' },
        ReadonlyRootfs: true,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ...(queue === undefined ? {} : { Sysctls: { [QUEUE]: queue } }),
      },
      ...(isPlain ? {} : { NetworkingConfig: { EndpointsConfig: { [own.network]: own.endpoint } } }),
    },
    connect: others,
    disconnect: [],
  }
}

/** The holder's image, pulled if it is not here. Throws BatonError refused if it is none. */
export async function holderImage(
  repository: string,
  { holder = null, pull }: Pick<ContainerRequest, 'holder' | 'pull'>,
  tools: Tools,
): Promise<string> {
  const { engine, credentials, stop } = tools
  const reference = holder ?? `${repository}:holder`
  const parsed = parseReference(reference)
  if (parsed === null) throw new BatonError('invalid_request', `expected an image for --holder-image, got ${reference}`)
  if ((await engine.image(reference)) === null) {
    if (pull === 'never')
      throw notHere(reference, `use \`--holder-image ${repository}:TAG-holder\`, which \`baton image TAG\` makes`)
    await step(tools, 'pull', reference)
    const what = parsed.digest ?? parsed.tag ?? 'latest'
    const header = await credentials(parsed.repository)
    await engine.pull(parsed.repository, what, header, { progress: () => {}, signal: stop })
  }
  const image = await engine.image(reference)
  if (image !== null) refuseClaims(image, reference)
  const says = image === null ? 'no such image' : labelsOf(image)[HOLDER_LABEL]
  if (says === '1') return reference
  const message = `expected ${reference} to be a holder image (with the label ${HOLDER_LABEL}=1), got ${says ?? 'no such label'}`
  throw new BatonError('refused', message, {
    hint: 'build one with `baton image`, or choose another with --holder-image',
  })
}

const VOLUME = { Type: 'volume', Driver: 'local', Propagation: '' }

function takenFrom({ Id, Config, HostConfig, NetworkSettings }: ContainerInspection): Taken {
  const labels = Object.entries(Config.Labels ?? {}).filter(([key]) => PROXY_LABEL.test(key))
  const endpoints = Object.entries(NetworkSettings.Networks ?? {}).map(([network, endpoint]) => {
    const Aliases = (endpoint.Aliases ?? []).filter((alias) => !Id.startsWith(alias))
    const IPAMConfig = endpoint.IPAMConfig ?? null
    return [network, { ...(isEmpty(Aliases) ? {} : { Aliases }), ...(isEmpty(IPAMConfig) ? {} : { IPAMConfig }) }]
  })
  return {
    ports: HostConfig.PortBindings ?? {},
    labels: Object.fromEntries(labels),
    endpoints: Object.fromEntries(endpoints),
  }
}

/** What a deployment that moves the container in or out has to make; null for any other. Changes nothing but pulls. */
export async function planHold(
  container: ContainerInspection,
  repository: string,
  request: ContainerRequest,
  tools: Tools,
): Promise<HoldPlan | null> {
  const { engine } = tools
  const way = holdWayOf(request.release)
  const name = nameOf(container)
  if (way === null) return null
  const { holder, volume } = holderNames(name)
  if (way === 'no-hold') {
    const present = await holderOf(container, engine)
    if (present === null) throw new BatonError('refused', `\`${name}\` has no holder`, { hint: 'no action is needed' })
    refuseClaims(await imageOfContainer(present, engine), `the image of \`${nameOf(present)}\``)
    return {
      way,
      holder: present.Id,
      specification: null,
      present: container,
      container: withoutHolder(container, present),
    }
  }
  await refuseUnheld(container, engine)
  const there = await engine.container(holder)
  if (there !== null && there.State.Status !== 'created')
    throw new BatonError('refused', `a container named \`${holder}\` already exists`, {
      hint: `\`docker rm ${holder}\``,
    })
  const reference = await holderImage(repository, request, tools)
  const specification = holderFor(container, reference)
  return { way, holder, volume, specification, present: container, container: behindHolder(container) }
}

/** of an image that `baton image` did not make: its author may have the kit inside all the same */
const UNMARKED =
  "the image has no label showing that it contains baton-kit: only an application with baton-kit/auto on Node 26 can use a holder's ports; with any other, clients get no answer until you undo this"

/** For `--dry-run`, and before anything is done. */
export function holdLines(held: HoldPlan | null): string[] {
  if (held === null) return []
  const gap = 'new connections are refused for about a second, while the ports move from one container to the other'
  if (held.specification === null)
    return [
      `${gap}; the holder is stopped before the new container starts, and removed once the new one has proved itself`,
    ]
  const ports = Object.keys(held.specification.body.HostConfig.PortBindings ?? {})
  const { Image } = held.specification.body
  const udp = ports.filter(isUdp).join(', ')
  return [
    `create ${held.holder} from ${Image}: it publishes ${ports.join(', ')} from now on and is the only container that may write to the volume ${held.volume}`,
    `${gap}; after that, no client is refused when the container is recreated`,
    ...(labelsOf(held.container)[IMAGE_LABELS.service] === undefined ? [UNMARKED] : []),
    ...(udp === ''
      ? []
      : [
          `${udp}: only an application that imports baton-kit/auto gets UDP ports from a holder, and there is no way to check that yours does`,
        ]),
  ]
}

function isUdp(port: string): boolean {
  return port.endsWith('/udp')
}

/** Resolves to the holder's id. */
export async function makeHolder({ holder, specification }: HoldPlan, engine: Engine): Promise<string> {
  return specification === null ? holder : await createBeside(holder, specification, engine)
}

/** The container as it must be, with the place that its engine has given the holder's volume. */
export async function withVolume(
  container: ContainerInspection,
  held: HoldPlan | null,
  engine: Engine,
): Promise<ContainerInspection> {
  if (held === null || held.specification === null) return container
  const { Mounts = [] } = (await engine.container(held.holder)) ?? {}
  const Source = Mounts.find(({ Destination }) => Destination === FOLDER)?.Source ?? ''
  return {
    ...container,
    Mounts: container.Mounts.map((mount) => (mount.Destination === FOLDER ? { ...mount, Source } : mount)),
  }
}
