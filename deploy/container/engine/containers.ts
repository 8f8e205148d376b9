// The engine's calls about containers.

import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { firstFileIn, TAR_END, TAR_EXTRA_BYTES, tarHeader, tarPadded } from '../../lib/tar.ts'
import type { ContainerInspection, CreateBody, Endpoint, RestartPolicy } from '../inspection.ts'
import { bytesOf, type Connection, engineStatusOf, linesIn } from './connection.ts'

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
/** kept of what a container prints: its engine sends all, and a command of an application may print for as long as it runs */
const KEPT_BYTES = 64 * 1024
const HEAD_BYTES = 8

export function containerCalls(connection: Connection, kind: 'docker' | 'podman') {
  const { ask, open } = connection
  return {
    /** By name or id; null if there is none. */
    container: async (nameOrId: string) =>
      (await ask(`/containers/${encodeURIComponent(nameOrId)}/json`, { absent: 404 })) as ContainerInspection | null,
    /** Ids of all containers, running or not; `label` is `key` or `key=value`. */
    async containers(label?: string) {
      const filters = label === undefined ? '' : `&filters=${encodeURIComponent(JSON.stringify({ label: [label] }))}`
      const list = (await ask(`/containers/json?all=1${filters}`)) as { Id: string }[]
      return list.map(({ Id }) => Id)
    },
    ...moveCalls(connection, kind),
    /** Last lines of stdout and stderr, of the last 64 KiB. */
    logs: async (id: string, lines: number) => await lastLines(connection, id, lines),
    /** All lines of a container with a terminal, from the first one on; ends when the container does. */
    async *follow(id: string) {
      const response = await open('GET', `/containers/${id}/logs?follow=1&stdout=1&stderr=1`, { timeoutMs: SILENT_MS })
      yield* linesIn(response)
    },
    /** Numbers of the signals that the engine sends to a container from now on, each when it has been sent. */
    async signals(id: string, over: AbortSignal) {
      const filters = encodeURIComponent(JSON.stringify({ type: ['container'], container: [id], event: ['kill'] }))
      return signalsIn(await open('GET', `/events?filters=${filters}`, { timeoutMs: SILENT_MS, signal: over }))
    },
    async volumes() {
      const { Volumes } = (await ask('/volumes')) as { Volumes?: Volume[] | null }
      return Volumes ?? []
    },
    /** such as `bridge`; '' if there is no such network */
    async networkDriver(network: string) {
      const found = (await ask(`/networks/${encodeURIComponent(network)}`, { absent: 404 })) as {
        Driver?: string
      } | null
      return found?.Driver ?? ''
    },
    /** Paths changed in the container's own layer. */
    async changes(id: string) {
      const list = (await ask(`/containers/${id}/changes`, { absent: 404 })) as { Path: string }[] | null
      return (list ?? []).map(({ Path }) => Path)
    },
    ...fileCalls(connection),
    /**
     * Runs a command in the container, with these variables beside its own; returns its exit code and the end of its output. Throws if it
     * could not be started.
     */
    exec: async (
      id: string,
      command: readonly string[],
      timeoutMs: number,
      environment: Readonly<Record<string, string>> = {},
    ) => await exec(connection, id, command, { timeoutMs, environment }),
  }
}

async function* signalsIn(response: IncomingMessage): AsyncGenerator<number> {
  for await (const line of linesIn(response)) {
    const { Actor } = JSON.parse(line) as { Actor: { Attributes: Record<string, string> } }
    yield Number(Actor.Attributes['signal'])
  }
}

function moveCalls({ call }: Connection, kind: 'docker' | 'podman') {
  const act = async (id: string, what: string, options: Parameters<typeof call>[2] = {}): Promise<void> =>
    void (await call('POST', `/containers/${id}/${what}`, options))
  return {
    async create(name: string, body: CreateBody) {
      const path = `/containers/create?name=${encodeURIComponent(name)}`
      return ((await call('POST', path, { body })) as { Id: string }).Id
    },
    connect: async (network: string, Container: string, EndpointConfig: Endpoint) =>
      void (await call('POST', `/networks/${encodeURIComponent(network)}/connect`, {
        body: { Container, EndpointConfig },
      })),
    disconnect: async (network: string, Container: string) =>
      void (await call('POST', `/networks/${encodeURIComponent(network)}/disconnect`, {
        body: { Container, Force: true },
      })),
    start: async (id: string) => await act(id, 'start'),
    /** Waits for as long as the container's own stop timeout says. */
    stop: async (id: string, timeoutSeconds: number | null) => await act(id, ...within('stop', timeoutSeconds)),
    /** Stops and starts it, in one call of the engine: a killed caller leaves no container stopped. */
    restart: async (id: string, timeoutSeconds: number | null) => await act(id, ...within('restart', timeoutSeconds)),
    signal: async (id: string, signal: 'SIGINT') => await act(id, `kill?signal=${signal}`),
    rename: async (id: string, name: string) => await act(id, `rename?name=${encodeURIComponent(name)}`),
    // podman before 5 has no such call; but it never restarts a container that was stopped, whatever the policy
    setRestartPolicy: async (id: string, RestartPolicy: RestartPolicy) =>
      await act(id, 'update', { body: { RestartPolicy }, ...(kind === 'podman' ? { absent: 404 } : {}) }),
    /** Never removes its named volumes. `force`: also a container that runs, and its unnamed volumes. */
    remove: async (id: string, force = false) =>
      void (await call('DELETE', `/containers/${id}${force ? '?force=1&v=1' : ''}`, { absent: 404 })),
  }
}

/** A call that waits for the end of the container's process. */
function within(what: string, seconds: number | null): [string, { timeoutMs: number }] {
  const timeoutMs = ((seconds ?? STOP_DEFAULT_SECONDS) + 60) * 1000
  return [`${what}${seconds === null ? '' : `?t=${seconds}`}`, { timeoutMs }]
}

function fileCalls({ call, open }: Connection) {
  const at = (id: string, path: string) => `/containers/${id}/archive?path=${encodeURIComponent(path)}`
  /** Bytes of a file or folder in the container, running or not; null if it is not there, or if the engine does not say. */
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
    /**
     * Copies a file or a folder, with its name, owner and mode, into a folder of another container. Nothing of it is kept in memory.
     * Resolves to the bytes of the tar. Throws if there are more than `maxBytes`; a part of it is there then.
     */
    async copyFile(
      from: { container: string; path: string },
      to: { container: string; folder: string },
      maxBytes: number,
    ) {
      const tar = await open('GET', at(from.container, from.path), { timeoutMs: COPY_SILENT_MS })
      let bytes = 0
      const count = async function* (pieces: AsyncIterable<Buffer>) {
        for await (const piece of pieces) {
          bytes += piece.length
          if (bytes > maxBytes) throw new Error(`${from.path} is larger than the ${maxBytes} bytes allowed for it`)
          yield piece
        }
      }
      const upload = Readable.from(count(tar), { objectMode: false })
      await call('PUT', at(to.container, to.folder), { upload, timeoutMs: COPY_SILENT_MS })
      return bytes
    },
    /** Makes a folder in a folder that is there; everybody may write to it. */
    async makeFolder(id: string, folder: string, name: string) {
      const upload = Readable.from([tarHeader(`${name}/`, 0, 0o777, '5'), TAR_END])
      await call('PUT', at(id, folder), { upload })
    },
    /** Makes a file of root's, which everybody may read. */
    async writeFile(id: string, folder: string, name: string, text: string) {
      const body = Buffer.from(text)
      const upload = Readable.from([tarHeader(name, body.length, 0o644), tarPadded(body), TAR_END])
      await call('PUT', at(id, folder), { upload })
    },
    /** A file of at most `maxBytes`; null if it is not there, no file, or larger. */
    async readFile(id: string, path: string, maxBytes: number) {
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

/**
 * The last `KEPT_BYTES` of what a container has printed. Without a terminal, stdout and stderr come in frames: eight bytes, then as many
 * as these announce. Reads to the end.
 */
export async function outputEnd(response: AsyncIterable<Buffer>): Promise<string> {
  const kept = keepEnd()
  const head = Buffer.alloc(HEAD_BYTES)
  let [headBytes, left, isFramed] = [0, 0, null as boolean | null]
  for await (let piece of response) {
    while (piece.length > 0) {
      if (isFramed === false || left > 0) {
        const part = isFramed === false ? piece : piece.subarray(0, left)
        kept.add(part)
        left -= isFramed === false ? 0 : part.length
        piece = piece.subarray(part.length)
        continue
      }
      const part = piece.subarray(0, HEAD_BYTES - headBytes)
      headBytes += part.copy(head, headBytes)
      piece = piece.subarray(part.length)
      if (headBytes < HEAD_BYTES) continue
      isFramed ??= head.readUInt8(0) <= 2 && head.readUIntBE(1, 3) === 0
      if (isFramed) [left, headBytes] = [head.readUInt32BE(4), 0]
      else kept.add(head)
    }
  }
  if (isFramed === null) kept.add(head.subarray(0, headBytes)) // too short for a frame
  return kept.text()
}

function keepEnd() {
  const room = Buffer.alloc(2 * KEPT_BYTES)
  let filled = 0
  return {
    add(piece: Buffer): void {
      const last = piece.subarray(-KEPT_BYTES)
      if (filled + last.length > room.length) {
        room.copyWithin(0, filled - KEPT_BYTES, filled)
        filled = KEPT_BYTES
      }
      filled += last.copy(room, filled)
    },
    text: () => room.toString('utf8', Math.max(0, filled - KEPT_BYTES), filled),
  }
}
