// The engine's calls about containers.

import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import { firstFileIn, TAR_END, TAR_EXTRA_BYTES, tarHeader, tarPadded } from '../../lib/tar.ts'
import type { ContainerInspection, CreateBody, Endpoint, RestartPolicy } from '../inspection.ts'
import { bytesOf, type Connection, engineStatusOf } from './connection.ts'
import { outputEnd } from './output.ts'

export interface ContainerCalls {
  /** Container by name or id; null if there is none. */
  container(nameOrId: string): Promise<ContainerInspection | null>
  /** Ids of all containers, running or not; `label` is `key` or `key=value`. */
  containers(label?: string): Promise<string[]>
  create(name: string, body: CreateBody): Promise<string>
  connect(network: string, container: string, endpoint: Endpoint): Promise<void>
  disconnect(network: string, container: string): Promise<void>
  start(container: string): Promise<void>
  /** Waits for as long as the container's own stop timeout says. */
  stop(container: string, timeoutSeconds: number | null): Promise<void>
  signal(container: string, signal: 'SIGINT'): Promise<void>
  /** Stops and starts it, in one call of the engine: a killed caller leaves no container stopped. */
  restart(container: string, timeoutSeconds: number | null): Promise<void>
  rename(container: string, name: string): Promise<void>
  setRestartPolicy(container: string, policy: RestartPolicy): Promise<void>
  /** Never removes its named volumes. `force`: also a container that runs, and its unnamed volumes. */
  remove(container: string, force?: boolean): Promise<void>
  /** Last lines of stdout and stderr, of the last 64 KiB. */
  logs(container: string, lines: number): Promise<string[]>
  /** All lines of a container with a terminal, from the first one on; ends when the container does. */
  follow(container: string): AsyncIterable<string>
  volumes(): Promise<Volume[]>
  /** such as `bridge`; '' if there is no such network */
  networkDriver(network: string): Promise<string>
  /** Paths changed in the container's own layer. */
  changes(container: string): Promise<string[]>
  /** Bytes of a file or folder in the container, running or not; null if it is not there, or if the engine does not say. */
  sizeOf(container: string, path: string): Promise<number | null>
  /**
   * Copies a file or a folder, with its name, owner and mode, into a folder of another container. Nothing of it is kept in memory.
   * Resolves to the bytes of the tar. Throws if there are more than `maxBytes`; a part of it is there then.
   */
  copyFile(
    from: { container: string; path: string },
    to: { container: string; folder: string },
    maxBytes: number,
  ): Promise<number>
  /** Makes a folder in a folder that is there; everybody may write to it. */
  makeFolder(container: string, folder: string, name: string): Promise<void>
  /** Makes a file of root's, which everybody may read. */
  writeFile(container: string, folder: string, name: string, text: string): Promise<void>
  /** A file of at most `maxBytes`; null if it is not there, no file, or larger. */
  readFile(container: string, path: string, maxBytes: number): Promise<Buffer | null>
  /**
   * Runs a command in the container, with these variables beside its own; returns its exit code and the end of its output. Throws if it
   * could not be started.
   */
  exec(
    container: string,
    command: readonly string[],
    timeoutMs: number,
    environment?: Readonly<Record<string, string>>,
  ): Promise<{ exitCode: number; output: string }>
}

export interface Volume {
  /** on the engine's host */
  Mountpoint: string
  /** of its driver: `device` may be another folder of the host */
  Options?: Record<string, string> | null
}

const STOP_DEFAULT_SECONDS = 10
const SILENT_MS = 24 * 3600_000
const COPY_SILENT_MS = 5 * 60_000
/** of a command in a container: an older release prints nothing while it copies its database */
const EXEC_SILENT_MS = 15 * 60_000

export function containerCalls(connection: Connection, kind: 'docker' | 'podman'): ContainerCalls {
  const { call, ask, open } = connection
  const act = async (id: string, what: string, options: Parameters<typeof call>[2] = {}): Promise<void> =>
    void (await call('POST', `/containers/${id}/${what}`, options))
  return {
    container: async (name) =>
      (await ask(`/containers/${encodeURIComponent(name)}/json`, { absent: 404 })) as ContainerInspection | null,
    async containers(label) {
      const filters = label === undefined ? '' : `&filters=${encodeURIComponent(JSON.stringify({ label: [label] }))}`
      const list = (await ask(`/containers/json?all=1${filters}`)) as { Id: string }[]
      return list.map(({ Id }) => Id)
    },
    async create(name, body) {
      const path = `/containers/create?name=${encodeURIComponent(name)}`
      return ((await call('POST', path, { body })) as { Id: string }).Id
    },
    connect: async (network, Container, EndpointConfig) =>
      void (await call('POST', `/networks/${encodeURIComponent(network)}/connect`, {
        body: { Container, EndpointConfig },
      })),
    disconnect: async (network, Container) =>
      void (await call('POST', `/networks/${encodeURIComponent(network)}/disconnect`, {
        body: { Container, Force: true },
      })),
    start: async (id) => await act(id, 'start'),
    stop: async (id, timeoutSeconds) => await act(id, ...within('stop', timeoutSeconds)),
    restart: async (id, timeoutSeconds) => await act(id, ...within('restart', timeoutSeconds)),
    signal: async (id, signal) => await act(id, `kill?signal=${signal}`),
    rename: async (id, name) => await act(id, `rename?name=${encodeURIComponent(name)}`),
    // podman before 5 has no such call; but it never restarts a container that was stopped, whatever the policy
    setRestartPolicy: async (id, RestartPolicy) =>
      await act(id, 'update', { body: { RestartPolicy }, ...(kind === 'podman' ? { absent: 404 } : {}) }),
    remove: async (id, force = false) =>
      void (await call('DELETE', `/containers/${id}${force ? '?force=1&v=1' : ''}`, { absent: 404 })),
    logs: async (id, lines) => await lastLines(connection, id, lines),
    async *follow(id) {
      const response = await open('GET', `/containers/${id}/logs?follow=1&stdout=1&stderr=1`, { timeoutMs: SILENT_MS })
      yield* createInterface({ input: response, crlfDelay: Infinity })
    },
    async volumes() {
      const { Volumes } = (await ask('/volumes')) as { Volumes?: Volume[] | null }
      return Volumes ?? []
    },
    async networkDriver(network) {
      const found = (await ask(`/networks/${encodeURIComponent(network)}`, { absent: 404 })) as {
        Driver?: string
      } | null
      return found?.Driver ?? ''
    },
    async changes(id) {
      const list = (await ask(`/containers/${id}/changes`, { absent: 404 })) as { Path: string }[] | null
      return (list ?? []).map(({ Path }) => Path)
    },
    ...fileCalls(connection),
    exec: async (id, command, timeoutMs, environment = {}) =>
      await exec(connection, id, command, { timeoutMs, environment }),
  }
}

/** A call that waits for the end of the container's process. */
function within(what: string, seconds: number | null): [string, { timeoutMs: number }] {
  const timeoutMs = ((seconds ?? STOP_DEFAULT_SECONDS) + 60) * 1000
  return [`${what}${seconds === null ? '' : `?t=${seconds}`}`, { timeoutMs }]
}

type FileCalls = Pick<ContainerCalls, 'sizeOf' | 'copyFile' | 'makeFolder' | 'writeFile' | 'readFile'>

function fileCalls({ call, open }: Connection): FileCalls {
  const at = (id: string, path: string) => `/containers/${id}/archive?path=${encodeURIComponent(path)}`
  const sizeOf = async (id: string, path: string): Promise<number | null> => {
    try {
      const response = await open('HEAD', at(id, path))
      response.resume()
      const said = String(response.headers['x-docker-container-path-stat'] ?? '')
      const { size } = JSON.parse(Buffer.from(said, 'base64').toString() || '{}') as { size?: unknown }
      return typeof size === 'number' && Number.isFinite(size) ? size : null
    } catch (error) {
      if (engineStatusOf(error) === 404) return null
      throw error
    }
  }
  return {
    sizeOf,
    async copyFile(from, to, maxBytes) {
      const tar = await open('GET', at(from.container, from.path), { timeoutMs: COPY_SILENT_MS })
      let bytes = 0
      const count = async function* (pieces: AsyncIterable<Buffer>) {
        for await (const piece of pieces) {
          bytes += piece.length
          if (bytes > maxBytes) throw new Error(`${from.path} has more than the ${maxBytes} bytes that are left for it`)
          yield piece
        }
      }
      const upload = Readable.from(count(tar), { objectMode: false })
      await call('PUT', at(to.container, to.folder), { upload, timeoutMs: COPY_SILENT_MS })
      return bytes
    },
    async makeFolder(id, folder, name) {
      const upload = Readable.from([tarHeader(`${name}/`, 0, 0o777, '5'), TAR_END])
      await call('PUT', at(id, folder), { upload })
    },
    async writeFile(id, folder, name, text) {
      const body = Buffer.from(text)
      const upload = Readable.from([tarHeader(name, body.length, 0o644), tarPadded(body), TAR_END])
      await call('PUT', at(id, folder), { upload })
    },
    async readFile(id, path, maxBytes) {
      const size = await sizeOf(id, path)
      if (size === null || !(size <= maxBytes)) return null
      const tar = await bytesOf(await open('GET', at(id, path)), maxBytes + TAR_EXTRA_BYTES)
      return tar === null ? null : firstFileIn(tar)
    },
  }
}

async function exec(
  { call, open }: Connection,
  id: string,
  command: readonly string[],
  { timeoutMs, environment }: { timeoutMs: number; environment: Readonly<Record<string, string>> },
) {
  const Env = Object.entries(environment).map(([name, value]) => `${name}=${value}`)
  const body = { Cmd: command, Env, AttachStdout: true, AttachStderr: true }
  const { Id } = (await call('POST', `/containers/${id}/exec`, { body })) as { Id: string }
  const signal = AbortSignal.timeout(timeoutMs)
  const silentMs = Math.min(timeoutMs, EXEC_SILENT_MS)
  const response = await open('POST', `/exec/${Id}/start`, {
    body: { Detach: false, Tty: false },
    signal,
    timeoutMs: silentMs,
  })
  const output = await outputEnd(response)
  const { ExitCode: exitCode } = (await call('GET', `/exec/${Id}/json`)) as { ExitCode: number | null }
  return { exitCode: exitCode ?? -1, output }
}

async function lastLines({ open }: Connection, id: string, lines: number): Promise<string[]> {
  const path = `/containers/${id}/logs?stdout=1&stderr=1&tail=${lines}`
  // another log driver, gone, or cut off: there is nothing to show
  const output = await open('GET', path)
    .then(outputEnd)
    .catch(() => '')
  return output
    .split('\n')
    .filter((line) => line !== '')
    .slice(-lines)
}
