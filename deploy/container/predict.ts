// Predicts the inspection of a container that is not created yet, by the engine's own merge of a specification and an image.
// Pure. `--dry-run` needs it, as it creates nothing. A deployment also compares the real inspection before it stops anything.

import type { ContainerInspection, Endpoint, Fields, ImageInspection, Mount } from './inspection.ts'
import { isEmpty, isSame } from './inspection.ts'
import { atLeast, type EngineTraits } from './engine/engine.ts'
import type { Specification } from './specification.ts'

const FROM_IMAGE = ['User', 'WorkingDir', 'StopSignal', 'Shell', 'OnBuild', 'ArgsEscaped'] as const

export function predict(
  before: ContainerInspection,
  { body, connect, disconnect }: Specification,
  image: ImageInspection,
  { kind, apiVersion }: Pick<EngineTraits, 'kind' | 'apiVersion'>,
): ContainerInspection {
  const { HostConfig: host, NetworkingConfig: networking, ...config } = body
  const fresh = image.Config ?? {}
  const merged: Fields = { ...config }
  for (const key of FROM_IMAGE) if (isEmpty(merged[key])) merged[key] = fresh[key]
  const env = (config['Env'] ?? []) as string[]
  const names = new Set(env.map(nameOfVariable))
  merged['Env'] = [...env, ...(fresh.Env ?? []).filter((entry) => !names.has(nameOfVariable(entry)))]
  merged['Labels'] = { ...fresh.Labels, ...(config['Labels'] as Fields) }
  merged['ExposedPorts'] = { ...fresh.ExposedPorts, ...(config['ExposedPorts'] as Fields) }
  merged['Volumes'] = { ...fresh.Volumes, ...(config['Volumes'] as Fields) }
  merged['Healthcheck'] = { ...fresh.Healthcheck, ...(config['Healthcheck'] as Fields) }
  if (isEmpty(config['Entrypoint'])) {
    merged['Entrypoint'] = fresh.Entrypoint
    if (isEmpty(config['Cmd'])) merged['Cmd'] = fresh.Cmd
  } else if (isSame(config['Entrypoint'], [''])) merged['Entrypoint'] = null
  if (isEmpty(merged['Hostname'])) merged['Hostname'] = before.Config.Hostname // it will be the new id: no difference

  const first = Object.values(networking?.EndpointsConfig ?? {})[0]
  if (atLeast(apiVersion, '1.44') && isEmpty(merged['MacAddress']) && !isEmpty(first?.MacAddress))
    merged['MacAddress'] = first?.MacAddress // the engine shows the first network's address here, if it was asked for

  if (kind === 'podman') {
    // podman's inspection does not show what the image exposes and mounts, and shows limits in its own words
    for (const key of ['ExposedPorts', 'Volumes']) merged[key] = before.Config[key]
  }

  const networks: Record<string, Endpoint> = Object.fromEntries(
    Object.entries(before.NetworkSettings.Networks ?? {}).map(([name]) => [name, {}]),
  )
  for (const [name, endpoint] of Object.entries(networking?.EndpointsConfig ?? {})) networks[name] = endpoint
  for (const { network, endpoint } of connect) networks[network] = endpoint
  for (const network of disconnect) delete networks[network]
  const present = new Set(before.Mounts.map(({ Destination }) => Destination))
  const made: Mount[] = Object.keys(fresh.Volumes ?? {})
    .filter((destination) => !present.has(destination))
    .map((Destination) => ({
      Type: 'volume',
      Name: '(new)',
      Source: '(new)',
      Destination,
      Driver: 'local',
      Mode: '',
      RW: true,
      Propagation: '',
    }))
  return {
    ...before,
    Config: merged as ContainerInspection['Config'],
    // what is not said, the engine fills in: the dry run cannot know whether it masks more than the one before
    HostConfig: kind === 'podman' ? before.HostConfig : { MaskedPaths: before.HostConfig['MaskedPaths'], ...host },
    Mounts: [...before.Mounts, ...made],
    NetworkSettings: { Networks: networks },
  }
}

function nameOfVariable(entry: string): string {
  return entry.split('=', 1)[0] ?? ''
}
