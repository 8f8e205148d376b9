// The Engine API's answers about containers and images. Declares the fields that this route reads; it carries all others unread.
// Pure: shapes, and what "the same" means.

export type Fields = Record<string, unknown>

export interface Mount {
  Type: string
  Name?: string
  Source: string
  Destination: string
  Driver?: string
  Mode: string
  RW: boolean
  Propagation: string
}

export interface Endpoint {
  IPAMConfig?: Fields | null
  Links?: string[] | null
  Aliases?: string[] | null
  DriverOpts?: Fields | null
  NetworkID?: string
  IPAddress?: string
  MacAddress?: string
  GwPriority?: number
}

export interface RestartPolicy {
  Name: string
  MaximumRetryCount?: number
}

export interface Healthcheck {
  Test?: string[] | null
  Interval?: number
  Timeout?: number
  StartPeriod?: number
  StartInterval?: number
  Retries?: number
}

export interface ContainerConfig extends ImageConfig {
  Image: string
  Hostname?: string
  StopTimeout?: number
  StopSignal?: string
  MacAddress?: string
}

export interface HostConfig extends Fields {
  NetworkMode: string
  AutoRemove?: boolean
  RestartPolicy?: RestartPolicy
  Binds?: string[] | null
  Mounts?: Fields[] | null
  Links?: string[] | null
  VolumesFrom?: string[] | null
  PortBindings?: Fields | null
  UTSMode?: string
}

export interface ContainerState {
  Status: string
  Running: boolean
  Paused?: boolean
  /** it has ended, and the engine waits before it starts it again; `Running` is true then */
  Restarting?: boolean
  /** of its process 1, where the engine is; 0 if it does not run */
  Pid: number
  ExitCode: number
  OOMKilled?: boolean
  Error?: string
  StartedAt: string
  Health?: { Status: string; FailingStreak: number; Log?: { ExitCode: number; Output: string }[] | null }
}

export interface ContainerInspection {
  Id: string
  Name: string
  /** image id */
  Image: string
  Created: string
  RestartCount: number
  State: ContainerState
  Config: ContainerConfig
  HostConfig: HostConfig
  Mounts: Mount[]
  NetworkSettings: { Networks: Record<string, Endpoint> | null }
}

export interface ImageConfig extends Fields {
  Env?: string[] | null
  Cmd?: string[] | null
  Entrypoint?: string[] | null
  Labels?: Record<string, string> | null
  Volumes?: Fields | null
  ExposedPorts?: Fields | null
  Healthcheck?: Healthcheck | null
  User?: string
}

export interface ImageInspection {
  Id: string
  RepoTags: string[] | null
  RepoDigests: string[] | null
  Architecture: string
  Os: string
  Variant?: string
  Config: ImageConfig | null
}

/** Body of `POST /containers/create`. */
export type CreateBody = Fields & {
  Image: string
  HostConfig: HostConfig
  NetworkingConfig?: { EndpointsConfig: Record<string, Endpoint> }
}

/** Absent, null, '', 0, false, [] and {} all say "not set" in the Engine API. */
export function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === 0 || value === false) return true
  return typeof value === 'object' && Object.keys(value).length === 0
}

export function isSame(left: unknown, right: unknown): boolean {
  return JSON.stringify(canonical(left)) === JSON.stringify(canonical(right))
}

/** Keys sorted, empty values left out. The order in lists counts. */
function canonical(value: unknown): unknown {
  if (isEmpty(value)) return null
  if (Array.isArray(value)) return value.map((one: unknown) => (typeof one === 'object' ? canonical(one) : one))
  if (typeof value !== 'object') return value
  const entries = Object.entries(value as Fields)
    .filter(([, one]) => !isEmpty(one))
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(entries.map(([key, one]) => [key, canonical(one)]))
}

export function nameOf(container: ContainerInspection): string {
  return container.Name.replace(/^\//, '')
}

export function labelsOf(of: { Config: { Labels?: Record<string, string> | null } | null }): Record<string, string> {
  return of.Config?.Labels ?? {}
}

/** The short form of an id that Docker and podman use as a name. */
export function shortId(id: string): string {
  return id.slice(0, 12)
}
