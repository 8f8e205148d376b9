// The client of the Engine API on its unix socket: Docker, and podman's compatible one. Only the calls that this route needs.
// Must hold: an answer that is not a success throws with what the engine said; a lost connection is told apart from that,
// so that the caller can look again when the engine is back (`isUnreachable`).
// Why not a package: docs/decisions/0006-engine-client.md

import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError, reasonOf } from '../../agent/words.ts'
import type { ContainerInspection, CreateBody, Endpoint, Fields, ImageInspection, RestartPolicy } from './inspection.ts'
import type { EngineTraits } from './specification.ts'
import { atLeast } from './specification.ts'

export interface Engine extends EngineTraits {
  readonly socketPath: string
  /** such as `20.10.24` */
  readonly version: string
  /** as images name it: `amd64`, `arm64` */
  readonly architecture: string
  /** Goes up each time contact is lost: whoever was running before may not be running after. */
  epoch(): number
  /** Resolves when the engine answers again. Throws BatonError service_down after `timeoutMs`. */
  awake(timeoutMs?: number): Promise<void>
  /** Container by name or id, null where there is none. */
  container(nameOrId: string): Promise<ContainerInspection | null>
  /** Ids of all containers, running or not; `label` is `key` or `key=value`. */
  containers(label?: string): Promise<string[]>
  image(reference: string): Promise<ImageInspection | null>
  /** What the registry says about a tag, asked through the engine. Throws release_not_found, check_failed. */
  distribution(reference: string, credentials: string | null): Promise<{ digest: string; platforms: Platform[] }>
  /** Pulls `repository` by tag or digest. Throws BatonError download_failed, also for an error inside a 200 stream. */
  pull(repository: string, tagOrDigest: string, credentials: string | null, onProgress: OnProgress): Promise<void>
  tag(image: string, repository: string, tag: string): Promise<void>
  untag(reference: string): Promise<void>
  create(name: string, body: CreateBody): Promise<string>
  connect(network: string, container: string, endpoint: Endpoint): Promise<void>
  disconnect(network: string, container: string): Promise<void>
  start(container: string): Promise<void>
  /** Waits for as long as the container's own stop timeout says. */
  stop(container: string, timeoutSeconds: number | null): Promise<void>
  rename(container: string, name: string): Promise<void>
  setRestartPolicy(container: string, policy: RestartPolicy): Promise<void>
  /** Never with its volumes. */
  remove(container: string): Promise<void>
  /** Last lines of stdout and stderr. */
  logs(container: string, lines: number): Promise<string[]>
  /** Paths changed in the container's own layer. */
  changes(container: string): Promise<string[]>
  close(): void
}

export interface Platform {
  architecture: string
  os: string
}

export type OnProgress = (doneBytes: number, totalBytes: number) => void

/** What was tried: 20.10 from Debian says 1.41; nothing newer than 1.52 has been read about. */
export const API_OLDEST = '1.41'
export const API_NEWEST = '1.52'
const AWAKE_TIMEOUT_MS = 60_000
const ANSWER_TIMEOUT_MS = 60_000
const PULL_IDLE_MS = 5 * 60_000
const STOP_DEFAULT_SECONDS = 10
const REQUEST_LOST = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'])

/** Connects and agrees on a version of the API. Throws BatonError unsupported_host. */
export async function connectEngine(socketPath: string): Promise<Engine> {
  const first = await rawJson(socketPath, '/version').catch((cause: unknown) => {
    throw new BatonError('unsupported_host', `asking the engine at ${socketPath}: ${reasonOf(cause)}`, {
      cause,
      hint: 'start Docker, or podman with `systemctl start podman.socket`, and run this as somebody who may use its socket',
    })
  })
  const version = first as {
    Version: string
    ApiVersion: string
    MinAPIVersion?: string
    Arch: string
    Os: string
    Components?: Fields[]
  }
  const apiVersion = negotiate(version.ApiVersion, version.MinAPIVersion ?? version.ApiVersion)
  if (version.Os !== 'linux')
    throw new BatonError('unsupported_host', `expected an engine of linux containers, got ${version.Os}`)
  const kind = (version.Components ?? []).some(({ Name }) => /podman/i.test(String(Name))) ? 'podman' : 'docker'
  const info = (await rawJson(socketPath, `/v${apiVersion}/info`)) as { Name?: string }
  return makeEngine(socketPath, { kind, apiVersion, hostName: info.Name ?? '' }, version.Version, version.Arch)
}

/** The newest version that both sides know. Throws BatonError unsupported_host where there is none. */
export function negotiate(newest: string, oldest: string): string {
  const common = atLeast(newest, API_NEWEST) ? API_NEWEST : newest
  if (atLeast(common, API_OLDEST) && atLeast(common, oldest)) return common
  throw new BatonError(
    'unsupported_host',
    `expected an engine that speaks some API version from ${API_OLDEST} to ${API_NEWEST}, got ${oldest} to ${newest}`,
  )
}

/** Whether the engine went away rather than refused. */
export function isUnreachable(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if ('code' in at && typeof at.code === 'string' && REQUEST_LOST.has(at.code)) return true
  }
  return false
}

function makeEngine(socketPath: string, traits: EngineTraits, version: string, architecture: string): Engine {
  let epoch = 0
  let stream: ClientRequest | null = null

  /** An open stream of events that ends only when the engine does: the one sign of a restart between two requests. */
  const watch = (): void => {
    if (stream !== null) return
    const filters = encodeURIComponent(JSON.stringify({ type: ['daemon'] }))
    const own = httpRequest({ socketPath, path: `/v${traits.apiVersion}/events?filters=${filters}`, agent: false })
    stream = own
    const lost = (): void => {
      if (stream !== own) return
      stream = null
      epoch++
    }
    own.on('socket', (socket) => socket.unref())
    own.on('response', (response) => response.resume().on('close', lost).on('error', lost))
    own.on('error', lost)
    own.end()
  }

  const call = async (method: string, path: string, options: CallOptions = {}): Promise<unknown> => {
    watch()
    const response = await send(socketPath, method, `/v${traits.apiVersion}${path}`, options)
    const text = await textOf(response)
    const status = response.statusCode ?? 0
    if (options.absent !== undefined && options.absent === status) return null
    if (status < 200 || status > 399) throw refusal(method, path, status, text)
    return text.trim() === '' ? null : JSON.parse(text) // podman ends an empty answer with a line end
  }
  /** A question may be asked again when the engine is back. */
  const ask = async (path: string, options: CallOptions = {}): Promise<unknown> => {
    const deadline = Date.now() + AWAKE_TIMEOUT_MS
    for (;;) {
      try {
        return await call('GET', path, options)
      } catch (error) {
        const passing = isUnreachable(error) || (error instanceof BatonError && Number(error.members['status']) === 503)
        if (!passing || Date.now() > deadline) throw error
        await awake()
      }
    }
  }
  const awake = async (timeoutMs = AWAKE_TIMEOUT_MS): Promise<void> => {
    const deadline = Date.now() + timeoutMs
    for (;;) {
      try {
        const response = await send(socketPath, 'GET', '/_ping', { timeoutMs: 2000 })
        await textOf(response)
        if (response.statusCode === 200) return
      } catch (cause) {
        if (Date.now() > deadline) {
          throw new BatonError('service_down', `the engine at ${socketPath} does not answer: ${reasonOf(cause)}`, {
            cause,
          })
        }
      }
      await sleep(100)
    }
  }

  return {
    ...traits,
    socketPath,
    version,
    architecture,
    epoch: () => epoch,
    awake,
    container: async (name) =>
      (await ask(`/containers/${encodeURIComponent(name)}/json`, { absent: 404 })) as ContainerInspection | null,
    async containers(label) {
      const filters = label === undefined ? '' : `&filters=${encodeURIComponent(JSON.stringify({ label: [label] }))}`
      const list = (await ask(`/containers/json?all=1${filters}`)) as { Id: string }[]
      return list.map(({ Id }) => Id)
    },
    image: async (reference) => (await ask(`/images/${reference}/json`, { absent: 404 })) as ImageInspection | null,
    async distribution(reference, credentials) {
      try {
        const answer = (await ask(`/distribution/${reference}/json`, { credentials })) as {
          Descriptor: { digest: string }
          Platforms?: Platform[] | null
        }
        return { digest: answer.Descriptor.digest, platforms: answer.Platforms ?? [] }
      } catch (cause) {
        throw registryError(cause, reference)
      }
    },
    async pull(repository, tagOrDigest, credentials, onProgress) {
      const query = `fromImage=${encodeURIComponent(repository)}&tag=${encodeURIComponent(tagOrDigest)}`
      const doing = `pulling ${repository}${tagOrDigest.includes(':') ? '@' : ':'}${tagOrDigest}`
      watch()
      try {
        const response = await send(socketPath, 'POST', `/v${traits.apiVersion}/images/create?${query}`, {
          credentials,
          timeoutMs: PULL_IDLE_MS,
        })
        const status = response.statusCode ?? 0
        if (status !== 200) throw refusal('POST', '/images/create', status, await textOf(response))
        await followPull(response, onProgress)
      } catch (cause) {
        if (cause instanceof BatonError && Number(cause.members['status']) === 404)
          throw registryError(cause, `${repository}:${tagOrDigest}`)
        throw new BatonError('download_failed', `${doing}: ${reasonOf(cause)}`, { cause })
      }
    },
    tag: async (image, repository, tag) =>
      void (await call(
        'POST',
        `/images/${image}/tag?repo=${encodeURIComponent(repository)}&tag=${encodeURIComponent(tag)}`,
      )),
    untag: async (reference) => void (await call('DELETE', `/images/${reference}?noprune=1`, { absent: 404 })),
    async create(name, body) {
      const answer = (await call('POST', `/containers/create?name=${encodeURIComponent(name)}`, { body })) as {
        Id: string
      }
      return answer.Id
    },
    connect: async (network, container, endpoint) =>
      void (await call('POST', `/networks/${encodeURIComponent(network)}/connect`, {
        body: { Container: container, EndpointConfig: endpoint },
      })),
    disconnect: async (network, container) =>
      void (await call('POST', `/networks/${encodeURIComponent(network)}/disconnect`, {
        body: { Container: container, Force: true },
      })),
    start: async (container) => void (await call('POST', `/containers/${container}/start`)),
    stop: async (container, timeoutSeconds) =>
      void (await call(
        'POST',
        `/containers/${container}/stop${timeoutSeconds === null ? '' : `?t=${timeoutSeconds}`}`,
        {
          timeoutMs: ((timeoutSeconds ?? STOP_DEFAULT_SECONDS) + 60) * 1000,
        },
      )),
    rename: async (container, name) =>
      void (await call('POST', `/containers/${container}/rename?name=${encodeURIComponent(name)}`)),
    // podman before 5 has no such call; it does not start a container again that was stopped, whatever the policy
    setRestartPolicy: async (container, policy) =>
      void (await call('POST', `/containers/${container}/update`, {
        body: { RestartPolicy: policy },
        ...(traits.kind === 'podman' ? { absent: 404 } : {}),
      })),
    remove: async (container) => void (await call('DELETE', `/containers/${container}`, { absent: 404 })),
    async logs(container, lines) {
      const response = await send(
        socketPath,
        'GET',
        `/v${traits.apiVersion}/containers/${container}/logs?stdout=1&stderr=1&tail=${lines}`,
      )
      const bytes = await bytesOf(response)
      if (response.statusCode !== 200) return []
      return plainLog(bytes)
        .split('\n')
        .filter((line) => line !== '')
        .slice(-lines)
    },
    async changes(container) {
      const list = (await ask(`/containers/${container}/changes`, { absent: 404 })) as
        | { Path: string; Kind: number }[]
        | null
      return (list ?? []).map(({ Path }) => Path)
    },
    close() {
      const own = stream
      stream = null
      own?.destroy()
    },
  }
}

interface CallOptions {
  body?: unknown
  credentials?: string | null
  /** this status is answered with null */
  absent?: number
  timeoutMs?: number
}

function send(socketPath: string, method: string, path: string, options: CallOptions = {}): Promise<IncomingMessage> {
  const body = options.body === undefined ? null : JSON.stringify(options.body)
  return new Promise((resolve, reject) => {
    const timeoutMs = options.timeoutMs ?? ANSWER_TIMEOUT_MS
    const request = httpRequest({
      socketPath,
      method,
      path,
      agent: false,
      timeout: timeoutMs,
      headers: {
        host: 'engine',
        ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
        ...(options.credentials ? { 'x-registry-auth': options.credentials } : {}),
      },
    })
    request.on('timeout', () =>
      request.destroy(new Error(`the engine is silent for ${timeoutMs} ms: ${method} ${path}`)),
    )
    request.on('error', reject)
    request.on('response', resolve)
    request.end(body ?? undefined)
  })
}

async function bytesOf(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

async function textOf(response: IncomingMessage): Promise<string> {
  return (await bytesOf(response)).toString()
}

async function rawJson(socketPath: string, path: string): Promise<unknown> {
  const response = await send(socketPath, 'GET', path, { timeoutMs: 10_000 })
  const text = await textOf(response)
  if (response.statusCode !== 200) throw new Error(`GET ${path}: ${response.statusCode}: ${text.slice(0, 200)}`)
  return JSON.parse(text)
}

function refusal(method: string, path: string, status: number, text: string): BatonError {
  let message = text.trim()
  try {
    message = String((JSON.parse(text) as { message: unknown }).message)
  } catch {
    // not JSON: as it is
  }
  return new BatonError(
    'unexpected',
    `the engine answered ${status} to ${method} ${path.split('?')[0]}: ${message.slice(0, 500)}`,
    {
      members: { status },
    },
  )
}

function registryError(cause: unknown, reference: string): BatonError {
  const said = reasonOf(cause)
  const status = cause instanceof BatonError ? Number(cause.members['status']) : 0
  if (status === 401 || status === 403 || /unauthorized|denied|no basic auth/i.test(said)) {
    return new BatonError('check_failed', `the registry refuses ${reference}: ${said}`, {
      cause,
      hint: 'run `docker login` first',
    })
  }
  if (status === 404 || /manifest unknown|not found/i.test(said)) {
    return new BatonError('release_not_found', `there is no image ${reference}: ${said}`, { cause })
  }
  return new BatonError('check_failed', `asking the registry for ${reference}: ${said}`, { cause })
}

interface PullMessage {
  id?: string
  status?: string
  error?: string
  errorDetail?: { message?: string }
  progressDetail?: { current?: number; total?: number }
}

/** Reads the stream to its end; an error in it, or an end that is not one, throws. */
async function followPull(response: IncomingMessage, onProgress: OnProgress): Promise<void> {
  const layers = new Map<string, { current: number; total: number }>()
  for await (const line of createInterface({ input: response, crlfDelay: Infinity })) {
    if (line.trim() === '') continue
    const message = JSON.parse(line) as PullMessage
    const wrong = message.errorDetail?.message ?? message.error
    if (wrong !== undefined) throw new Error(wrong)
    const { current = 0, total = 0 } = message.progressDetail ?? {}
    if (message.id === undefined || message.status !== 'Downloading' || total <= 0) continue
    layers.set(message.id, { current, total })
    const sums = [...layers.values()].reduce((sum, one) => ({
      current: sum.current + one.current,
      total: sum.total + one.total,
    }))
    onProgress(sums.current, sums.total)
  }
  if (!response.complete) throw new Error('the engine closed the connection in the middle of the pull')
}

/** Without a terminal, stdout and stderr come in frames of eight bytes and what they announce. */
function plainLog(bytes: Buffer): string {
  const framed = bytes.length >= 8 && (bytes[0] ?? 9) <= 2 && bytes[1] === 0 && bytes[2] === 0 && bytes[3] === 0
  if (!framed) return bytes.toString()
  const parts: Buffer[] = []
  for (let at = 0; at + 8 <= bytes.length;) {
    const length = bytes.readUInt32BE(at + 4)
    parts.push(bytes.subarray(at + 8, at + 8 + length))
    at += 8 + length
  }
  return Buffer.concat(parts).toString()
}
