// The client of the Engine API on its unix socket: Docker, and podman's compatible one. Only the calls that this route needs.
// Why not a package: docs/decisions/0006-engine-client.md

import { BatonError, reasonOf } from '../../../agent/words.ts'
import type { Fields } from '../inspection.ts'
import { openConnection, rawJson } from './connection.ts'
import { containerCalls } from './containers.ts'
import { imageCalls } from './images.ts'

export { isAway, isReplaced, isUnreachable } from './connection.ts'
export type { OnProgress, Platform } from './images.ts'

export interface EngineTraits {
  kind: 'docker' | 'podman'
  /** such as `1.41` */
  apiVersion: string
  /** name of the engine's host; the engine gives it to a container in the host's network, if nobody named that container */
  hostName: string
}

/**
 * The supported range. Tried: Debian's Docker 20.10, which says 1.41, and Docker 28.5, which says 1.51. From 1.52 on an inspection
 * does not tell a hardware address that a person set from one that the engine made up (no `Config.MacAddress`). Newer engines answer
 * 1.51 too, as 29 does from 1.44 on, and then they still tell.
 */
export const API_OLDEST = '1.41'
export const API_NEWEST = '1.51'

export type Engine = Awaited<ReturnType<typeof connectEngine>>

/** Connects and agrees on a version of the API. Throws BatonError unsupported_host. */
export async function connectEngine(socketPath: string) {
  const first = await rawJson(socketPath, '/version').catch((cause: unknown) => {
    throw new BatonError('unsupported_host', `contacting the engine at ${socketPath}: ${reasonOf(cause)}`, {
      cause,
      hint: 'start Docker, or podman with `systemctl start podman.socket`, and run this as a user with access to its socket',
    })
  })
  const said = first as {
    Version: string
    ApiVersion: string
    MinAPIVersion?: string
    Arch: string
    Os: string
    Components?: Fields[]
  }
  const apiVersion = negotiate(said.ApiVersion, said.MinAPIVersion ?? said.ApiVersion)
  if (said.Os !== 'linux')
    throw new BatonError('unsupported_host', `expected an engine for Linux containers, got ${said.Os}`)
  const kind: EngineTraits['kind'] = (said.Components ?? []).some(({ Name }) => /podman/i.test(String(Name)))
    ? 'podman'
    : 'docker'
  const info = (await rawJson(socketPath, `/v${apiVersion}/info`)) as {
    Name?: string
    DockerRootDir?: string
    LiveRestoreEnabled?: boolean
  }
  const connection = openConnection(socketPath, `/v${apiVersion}`)
  const { epoch, awake, close } = connection
  return {
    kind,
    apiVersion,
    hostName: info.Name ?? '',
    socketPath,
    /** such as `20.10.24` */
    version: said.Version,
    /** containers live on while the engine is away; when it is back, it starts those that are stopped and have the policy `always` */
    liveRestore: info.LiveRestoreEnabled === true,
    /** where the engine's host keeps volumes, images and containers */
    dataRoot: info.DockerRootDir || '/var/lib/docker',
    /** as images name it: `amd64`, `arm64` */
    architecture: said.Arch,
    epoch,
    awake,
    close,
    ...containerCalls(connection, kind),
    ...imageCalls(connection),
  }
}

/** The newest version that the engine and this program both know. Throws BatonError unsupported_host if there is none. */
export function negotiate(newest: string, oldest: string): string {
  const common = atLeast(newest, API_NEWEST) ? API_NEWEST : newest
  if (atLeast(common, API_OLDEST) && atLeast(common, oldest)) return common
  throw new BatonError(
    'unsupported_host',
    `expected an engine that supports an API version from ${API_OLDEST} to ${API_NEWEST}, got ${oldest} to ${newest}`,
  )
}

export function atLeast(version: string, least: string): boolean {
  const [a = 0, b = 0] = version.split('.').map(Number)
  const [c = 0, d = 0] = least.split('.').map(Number)
  return a > c || (a === c && b >= d)
}
