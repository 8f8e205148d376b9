// A real Docker engine and a real registry for tests, in separate namespaces (docker.sh) and gone afterwards.
// Needs root and the packages of NEEDS; if one is missing, the tests are skipped and say so.
// A test file calls `inLab('folder/tests.ts')`, which runs that file inside; there `startEngine()` and `startRegistry()`.

import { type ChildProcess, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { access, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { type IncomingMessage, request as httpRequest } from 'node:http'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { run } from '../../deploy/lib/shell.ts'

/** Program -> the Debian package that has it. */
const NEEDS = {
  dockerd: 'docker.io',
  docker: 'docker.io',
  'docker-registry': 'docker-registry',
  busybox: 'busybox-static',
  'docker-compose': 'docker-compose',
  unshare: 'util-linux',
  ip: 'iproute2',
} as const

/** What a current engine beside Debian's own needs, as .ci/run unpacks it from Debian's development version. */
const CURRENT_ENGINE = process.env['BATON_TEST_CURRENT_ENGINE'] ?? '/var/cache/baton-test/current-engine'
/** Its programs; runc is Debian's own. */
const CURRENT_NEEDS = ['usr/sbin/dockerd', 'usr/bin/docker', 'usr/bin/docker-compose', 'usr/bin/containerd']

/** Short forms of the tests write to memory. The long ones write for too long, and a bench measures the disk too. */
const MEMORY = process.env['BATON_TEST_LONG'] === '1' ? null : '6g'

/** Why the tests cannot run here; null if they can. */
export async function whyNot(): Promise<string | null> {
  if (process.platform !== 'linux') return 'needs Linux'
  if (process.getuid?.() !== 0) return 'needs root'
  const missing: string[] = []
  for (const [program, debian] of Object.entries(NEEDS)) if ((await where(program)) === null) missing.push(debian)
  return missing.length === 0
    ? null
    : `needs \`apt-get install -y --no-install-recommends ${[...new Set(missing)].join(' ')}\``
}

/** As whyNot(), of the current engine. */
async function whyNotCurrent(): Promise<string | null> {
  const debians = await whyNot()
  if (debians !== null) return debians
  for (const path of CURRENT_NEEDS)
    if (!(await isProgram(join(CURRENT_ENGINE, path)))) return 'needs a current engine: `.ci/current-engine`'
  return null
}

/**
 * Runs `inLab` with the current engine and its compose. `store`: it keeps images in containerd and speaks no API before 1.44, as a
 * new installation does from 29 on.
 */
export async function inCurrentLab(
  file: string,
  options: { store?: 'overlay2' | 'containerd'; deadlineMs?: number } = {},
): Promise<never> {
  const { store = 'overlay2', deadlineMs = 600_000 } = options
  const reason = await takeCurrentEngine(store)
  // .ci/run says so where sid's engine does not run, and this is the one skip that fails no run there
  if (reason !== null && process.env['BATON_TEST_WITHOUT_CURRENT_ENGINE'] === '1')
    process.env['BATON_TEST_NO_SKIP'] = '0'
  process.exit(await runInLab(file, { reason, deadlineMs, memory: MEMORY }))
}

/** Each lab that this process starts from now on has the current engine. Resolves to why it cannot be had, else null. */
export async function takeCurrentEngine(store: 'overlay2' | 'containerd'): Promise<string | null> {
  process.env['BATON_LAB_ENGINE'] = CURRENT_ENGINE
  // what a deployment in the tests' own process finds: this engine's compose, not Debian's
  process.env['PATH'] = [join(CURRENT_ENGINE, 'usr/bin'), process.env['PATH'] ?? ''].join(':')
  process.env['BATON_LAB_STORE'] = store
  return await whyNotCurrent()
}

/**
 * Runs the tests of `file` inside the lab and ends this process with their exit code. If there can be no lab, the file runs outside
 * and finds the reason in `labReason()`.
 */
export async function inLab(file: string, deadlineMs = 600_000): Promise<never> {
  const reason = await whyNot()
  process.exit(await runInLab(file, { reason, deadlineMs, memory: MEMORY }))
}

/** Runs one of this repository's programs inside the lab, with this process's stdout and stderr; resolves to its exit code. */
export async function runInLab(
  file: string,
  options: { reason?: string | null; deadlineMs?: number; args?: string[]; memory?: string | null } = {},
): Promise<number> {
  const { reason = null, deadlineMs = 600_000, args = [], memory = null } = options
  const program = [process.execPath, ...process.execArgv, file, ...args]
  const folder = await mkdtemp(join(tmpdir(), 'baton-lab-'))
  const command = reason === null ? [join(import.meta.dirname, 'docker.sh'), folder, ...program] : program
  const child = spawn(command[0] ?? '', command.slice(1), {
    stdio: 'inherit',
    env: { ...process.env, BATON_LAB: folder, BATON_LAB_REASON: reason ?? '', BATON_LAB_MEMORY: memory ?? '' },
  })
  const stop = (): void => void child.kill('SIGTERM')
  // before the listeners of whoever asks for a lab: they may end this process
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.prependOnceListener(signal, stop)
  const timer = setTimeout(stop, deadlineMs)
  const code = await new Promise<number>((resolve) => child.once('exit', (exit) => resolve(exit ?? 1)))
  clearTimeout(timer)
  await rm(folder, { recursive: true, force: true })
  return code
}

/** For `suite(…, { skip })` inside. */
export function labReason(): string | null {
  return process.env['BATON_LAB_REASON'] || null
}

/** What a test file works with inside: an engine and a registry, unless `skip` says why there can be none. `close` ends both. */
export async function openLab() {
  const skip = labReason()
  const lab = skip === null ? { engine: await startEngine(), registry: await startRegistry() } : null
  const close = async () => {
    await lab?.engine.stop()
    await lab?.registry.stop()
  }
  return { skip, engine: lab?.engine as LabEngine, registry: lab?.registry as Registry, close }
}

export interface LabEngine {
  socketPath: string
  /** environment for programs: `{ DOCKER_HOST, DOCKER_CONFIG, DOCKER_BUILDKIT, PATH }` */
  environment: Record<string, string>
  /** runs the docker command; resolves to its output */
  docker(...args: string[]): Promise<string>
  /** asks the engine directly: starting the docker command for each look costs too much */
  inspect(name: string): Promise<Inspection>
  /** names of all containers, also of ended ones, in order */
  names(): Promise<string[]>
  /** stops the engine as an operating system does at shutdown, starts it again and waits for it */
  restart(): Promise<void>
  stop(): Promise<void>
  /** `flags`: of dockerd, until the next start */
  start(flags?: Record<string, string>): Promise<void>
  /** kill -9 of the engine alone: what it runs lives on, until it starts again */
  kill(): Promise<void>
  /** an engine that is `former` is replaced by the current one, which finds its containers */
  upgrade(): Promise<void>
  /** a power cut: kills the engine and everything that it runs at once */
  crash(): Promise<void>
}

// oxlint-disable-next-line typescript/no-explicit-any -- tests read the engine's answers freely
export type Inspection = any

export interface EngineOptions {
  /** size of a separate file system for images and containers, in MB; default: they are on the disk */
  diskMb?: number
  /** Debian's own in the lab of the current one, until `upgrade`; it keeps images as Debian's does */
  former?: boolean
}

let engines = 0
const OTHER_ENGINE = process.env['BATON_LAB_ENGINE']
/** Whether the lab's engine is a current one, and not Debian's own. */
export const isCurrent = OTHER_ENGINE !== undefined
const CONTAINERD_STORE = process.env['BATON_LAB_STORE'] === 'containerd'
/** The container of a compose project's service: compose 1 writes `project_service_1`, compose 2 `project-service-1`. */
export function ofCompose(project: string, service: string): string {
  return [project, service, '1'].join(isCurrent ? '-' : '_')
}
const DEBIANS = ['/usr/bin', '/usr/sbin', '/bin', '/sbin']
/** Where the lab's programs are, the engine's first: another one on PATH may be newer than the engine. */
const FOLDERS = [
  ...(OTHER_ENGINE === undefined ? [] : [join(OTHER_ENGINE, 'usr/bin'), join(OTHER_ENGINE, 'usr/sbin')]),
  ...DEBIANS,
]

/** Starts a private dockerd, which ends with the lab. */
export async function startEngine(options: EngineOptions = {}): Promise<LabEngine> {
  const number = engines++
  const folder = join(labFolder(), `engine${number}`)
  await mkdir(join(folder, 'client'), { recursive: true })
  await mkdir(join(folder, 'data'))
  if (options.diskMb !== undefined)
    await run(['mount', '-t', 'tmpfs', '-o', `size=${options.diskMb}m`, 'tmpfs', join(folder, 'data')])
  const socketPath = join(folder, 'docker.sock')
  // a second engine would give the bridge of the first another address
  const address = `172.31.${250 - number}.1/24`
  const bridge = number === 0 ? { bip: address } : { bridge: await ownBridge(`baton${number}`, address) }
  const flags = {
    'data-root': join(folder, 'data'),
    'exec-root': join(folder, 'exec'),
    pidfile: join(folder, 'pid'),
    host: `unix://${socketPath}`,
    ip: '127.0.0.1',
    ...bridge,
    'default-address-pool': `base=172.${16 + number}.0.0/16,size=24`,
    'shutdown-timeout': '3',
    'cgroup-parent': process.env['BATON_LAB_CGROUP'] ?? 'baton-lab',
    'max-download-attempts': '1',
    ...(CONTAINERD_STORE && options.former !== true
      ? { feature: 'containerd-snapshotter=true' }
      : { 'storage-driver': 'overlay2' }),
  }
  const args = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`)
  const environment = {
    DOCKER_HOST: `unix://${socketPath}`,
    DOCKER_CONFIG: join(folder, 'client'),
    DOCKER_BUILDKIT: '0',
    COMPOSE_DOCKER_CLI_BUILD: '0',
    PATH: [...FOLDERS, process.env['PATH'] ?? ''].join(':'),
  }
  let daemon: ChildProcess | null = null
  let isFormer = options.former === true
  const engine: LabEngine = {
    socketPath,
    environment,
    docker: async (...command) =>
      (await run([await program('docker'), ...command], { env: environment })).stdout.trim(),
    inspect: (name) => inspect(socketPath, name),
    names: () => names(socketPath),
    async restart() {
      await engine.stop()
      await engine.start()
    },
    async upgrade() {
      await engine.stop()
      isFormer = false
      await engine.start()
    },
    async stop() {
      const own = daemon
      if (own === null || own.exitCode !== null) return
      own.ref()
      const ended = new Promise((resolve) => own.once('exit', resolve))
      own.kill('SIGTERM')
      await ended
      daemon = null
    },
    async crash() {
      const own = daemon
      if (own === null || own.pid === undefined) return
      own.ref()
      const ended = new Promise((resolve) => own.once('exit', resolve))
      const all = await below(own.pid)
      for (const pid of [own.pid, ...all]) kill(pid)
      await ended
      // also the shims whose parent is process 1 by now, and what they run: the engine has lost them
      for (let left = await inFolder(folder); left.length > 0; left = await inFolder(folder)) {
        for (const pid of left) for (const one of [pid, ...(await below(pid))]) kill(one)
        await sleep(20)
      }
      await rm(join(folder, 'pid'), { force: true })
      await rm(join(folder, 'exec', 'containerd', 'containerd.pid'), { force: true })
      daemon = null
    },
    async kill() {
      const own = daemon
      if (own === null) return
      own.ref()
      const ended = new Promise((resolve) => own.once('exit', resolve))
      own.kill('SIGKILL')
      await ended
      daemon = null
    },
    async start(more = {}) {
      const all = [...args, ...Object.entries(more).map(([flag, value]) => `--${flag}=${value}`)]
      const own = spawn(isFormer ? '/usr/sbin/dockerd' : await program('dockerd'), all, {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: {
          ...process.env,
          PATH: isFormer ? DEBIANS.join(':') : environment.PATH, // of containerd, its shim and runc
          ...(CONTAINERD_STORE ? { DOCKER_MIN_API_VERSION: '1.44' } : {}),
        },
      })
      own.unref()
      daemon = own
      let said = ''
      for (const stream of [own.stdout, own.stderr]) {
        stream.on('data', (chunk: Buffer) => void (said = (said + chunk.toString()).slice(-4000)))
        ;(stream as Socket).unref() // the lab ends its processes
      }
      for (let waited = 0; waited < 200; waited++) {
        if (own.exitCode !== null) break
        if ((await ping(socketPath)) === 200) return
        await sleep(50)
      }
      throw new Error(`the engine did not start: ${said}`)
    },
  }
  await engine.start()
  return engine
}

/** All processes below one. */
async function below(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '')
  const own = text.trim().split(' ').filter(Boolean).map(Number)
  return [...own, ...(await Promise.all(own.map(below))).flat()]
}

/** Processes that name this folder in their arguments, but not this one. */
async function inFolder(folder: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const named = await Promise.all(
    pids.map(async (pid) => {
      const text = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
      return /^[^\0]*\/usr\/bin\/containerd-shim/.test(text) && text.includes(folder) ? pid : 0
    }),
  )
  return named.filter((pid) => pid > 1)
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // it has ended
  }
}

async function ownBridge(name: string, address: string): Promise<string> {
  await run(['ip', 'link', 'add', name, 'type', 'bridge'])
  await run(['ip', 'address', 'add', address, 'dev', name])
  await run(['ip', 'link', 'set', name, 'up'])
  return name
}

/** Starts podman's service on a private socket, for the same `docker` command; null if there is no podman. */
export async function startPodman(
  registryHost: string,
): Promise<Omit<LabEngine, 'restart' | 'start' | 'kill' | 'crash' | 'upgrade'> | null> {
  const podman = await where('podman')
  if (podman === null) return null
  const folder = join(labFolder(), 'podman')
  await mkdir(join(folder, 'client'), { recursive: true })
  const socketPath = join(folder, 'podman.sock')
  await writeFile(
    join(folder, 'containers.conf'),
    '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n',
  )
  await writeFile(join(folder, 'registries.conf'), `[[registry]]\nlocation = "${registryHost}"\ninsecure = true\n`)
  await writeFile(join(folder, 'policy.json'), '{"default": [{"type": "insecureAcceptAnything"}]}\n')
  const environment = { DOCKER_HOST: `unix://${socketPath}`, DOCKER_CONFIG: join(folder, 'client') }
  const flags = { root: join(folder, 'root'), runroot: join(folder, 'run'), 'storage-driver': 'overlay' }
  const args = [
    ...Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`),
    'system',
    'service',
    '--time=0',
    `unix://${socketPath}`,
  ]
  const service = spawn(podman, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {
      ...process.env,
      CONTAINERS_CONF: join(folder, 'containers.conf'),
      CONTAINERS_REGISTRIES_CONF: join(folder, 'registries.conf'),
    },
  })
  let said = ''
  service.stderr.on('data', (chunk: Buffer) => void (said = (said + chunk.toString()).slice(-4000)))
  service.unref()
  ;(service.stderr as Socket).unref()
  const engine = {
    socketPath,
    environment,
    docker: async (...command: string[]) =>
      (await run([await program('docker'), ...command], { env: environment })).stdout.trim(),
    inspect: (name: string) => inspect(socketPath, name),
    names: () => names(socketPath),
    async stop() {
      service.ref()
      const ended = new Promise((resolve) => service.once('exit', resolve))
      service.kill('SIGTERM')
      await ended
    },
  }
  for (let waited = 0; waited < 100; waited++) {
    if ((await ping(socketPath)) === 200) return engine
    if (service.exitCode !== null) break
    await sleep(50)
  }
  throw new Error(`podman did not start: ${said}`)
}

export interface Registry {
  /** `127.0.0.1:PORT` */
  host: string
  /** folder of its files */
  data: string
  stop(): Promise<void>
  start(): Promise<void>
}

/** Starts a registry on the lab's loopback, which engines treat as an insecure one. */
export async function startRegistry(port = 5000): Promise<Registry> {
  const folder = join(labFolder(), `registry${port}`)
  const host = `127.0.0.1:${port}`
  await mkdir(folder, { recursive: true })
  const data = join(folder, 'data')
  const storage = `storage: {filesystem: {rootdirectory: ${data}}, delete: {enabled: true}}`
  await writeFile(
    join(folder, 'registry.yml'),
    `version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n${storage}\nhttp: {addr: ${host}}\n`,
  )
  let server: ChildProcess | null = null
  const registry: Registry = {
    host,
    data,
    async start() {
      server = spawn('docker-registry', ['serve', join(folder, 'registry.yml')], { stdio: 'ignore' })
      server.unref()
      for (let waited = 0; waited < 200; waited++) {
        if (
          await fetch(`http://${host}/v2/`).then(
            (answer) => answer.ok,
            () => false,
          )
        )
          return
        await sleep(50)
      }
      throw new Error('the registry did not start')
    },
    async stop() {
      const own = server
      if (own === null) return
      own.ref()
      const ended = new Promise((resolve) => own.once('exit', resolve))
      own.kill('SIGKILL')
      await ended
      server = null
    },
  }
  await registry.start()
  return registry
}

/** The parts of an image that is put into a registry without an engine. */
export interface ImageOptions {
  /** path inside -> content */
  files: Record<string, string | { from: string; mode?: number } | { link: string }>
  /** as in an image's configuration: Env, Cmd, Labels, Healthcheck, … */
  config: Record<string, unknown>
  architecture?: string
}

/** Publishes an image of one layer under each of `tags`; returns its digest. */
export async function publish(
  host: string,
  repository: string,
  tags: string[],
  options: ImageOptions,
): Promise<string> {
  const folder = await mkdtemp(join(labFolder(), 'layer-'))
  const root = join(folder, 'root')
  for (const [path, content] of Object.entries(options.files)) {
    const to = join(root, path)
    await mkdir(dirname(to), { recursive: true })
    if (typeof content === 'string') await writeFile(to, content)
    else if ('link' in content) await symlink(content.link, to)
    else {
      await cp(content.from, to, { dereference: true })
      await run(['chmod', (content.mode ?? 0o755).toString(8), to])
    }
  }
  const tar = join(folder, 'layer.tar')
  await run([
    'tar',
    '-C',
    root,
    '--sort=name',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--mtime=@0',
    '-cf',
    tar,
    '.',
  ])
  const layer = await readFile(tar)
  await rm(folder, { recursive: true, force: true })
  const config = Buffer.from(
    JSON.stringify({
      architecture: options.architecture ?? (process.arch === 'x64' ? 'amd64' : process.arch),
      os: 'linux',
      config: options.config,
      rootfs: { type: 'layers', diff_ids: [sha256(layer)] },
      history: [{ created_by: 'baton lab' }],
    }),
  )
  const blobs = [
    { mediaType: 'application/vnd.docker.image.rootfs.diff.tar', bytes: layer },
    { mediaType: 'application/vnd.docker.container.image.v1+json', bytes: config },
  ]
  for (const { bytes } of blobs) await upload(host, repository, bytes)
  const descriptor = ({ mediaType, bytes }: (typeof blobs)[number]) => ({
    mediaType,
    size: bytes.length,
    digest: sha256(bytes),
  })
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.docker.distribution.manifest.v2+json',
      config: descriptor(blobs[1] as (typeof blobs)[number]),
      layers: [descriptor(blobs[0] as (typeof blobs)[number])],
    }),
  )
  for (const tag of tags) {
    const headers = { 'content-type': 'application/vnd.docker.distribution.manifest.v2+json' }
    await good(fetch(`http://${host}/v2/${repository}/manifests/${tag}`, { method: 'PUT', body: manifest, headers }))
  }
  return sha256(manifest)
}

async function upload(host: string, repository: string, bytes: Buffer): Promise<void> {
  const digest = sha256(bytes)
  const present = await fetch(`http://${host}/v2/${repository}/blobs/${digest}`, { method: 'HEAD' })
  if (present.ok) return
  const begun = await good(fetch(`http://${host}/v2/${repository}/blobs/uploads/`, { method: 'POST' }))
  const place = new URL(begun.headers.get('location') ?? '', `http://${host}`)
  place.searchParams.set('digest', digest)
  await good(fetch(place, { method: 'PUT', body: bytes, headers: { 'content-type': 'application/octet-stream' } }))
}

async function good(answer: Promise<Response>): Promise<Response> {
  const response = await answer
  if (response.ok) return response
  throw new Error(`${response.url}: ${response.status} ${await response.text()}`)
}

function sha256(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

async function inspect(socketPath: string, name: string): Promise<Inspection> {
  const { status, text } = await ask(socketPath, `/containers/${encodeURIComponent(name)}/json`)
  if (status === 200) return JSON.parse(text)
  throw new Error(`inspecting ${name}: ${status} ${text.slice(0, 200)}`)
}

async function names(socketPath: string): Promise<string[]> {
  const { status, text } = await ask(socketPath, '/containers/json?all=true')
  if (status !== 200) throw new Error(`listing containers: ${status} ${text.slice(0, 200)}`)
  // a container that another one links to also has a name of the form /other/alias
  const all = (JSON.parse(text) as { Names: string[] }[]).flatMap(({ Names }) => Names.map((name) => name.slice(1)))
  return all.filter((name) => !name.includes('/')).toSorted()
}

async function ping(socketPath: string): Promise<number> {
  return (await ask(socketPath, '/_ping')).status
}

/** Resolves to status 0 if there is no answer. */
function ask(socketPath: string, path: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve) => {
    const none = () => resolve({ status: 0, text: '' })
    const request = httpRequest({ socketPath, path, agent: false, timeout: 10_000 }, (response: IncomingMessage) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
      response.on('error', none)
    })
    request.on('timeout', () => request.destroy())
    request.on('error', none)
    request.end()
  })
}

export function labFolder(): string {
  const folder = process.env['BATON_LAB']
  if (folder === undefined) throw new Error('this runs inside the lab only: see `inLab`')
  return folder
}

/** Path of a program, as FOLDERS says. */
async function program(name: string): Promise<string> {
  return (await where(name)) ?? name
}

async function where(name: string): Promise<string | null> {
  for (const folder of [...FOLDERS, ...(process.env['PATH'] ?? '').split(':')]) {
    const path = join(folder, name)
    if (await isProgram(path)) return path
  }
  return null
}

function isProgram(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  )
}

/**
 * Publishes a base image for executables, made of this machine's own libraries: the lab can fetch no other. `programs`: what
 * it has besides, path inside -> path here.
 */
export async function publishBase(host: string, programs: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run(['ldd', process.execPath])
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1] ?? '')
  const inside = { ...Object.fromEntries(libraries.map((path) => [path, path])), ...programs }
  const files = Object.fromEntries(Object.entries(inside).map(([path, from]) => [path, { from }]))
  await publish(host, 'base', ['1'], { files, config: { Env: ['PATH=/usr/local/bin'] } })
  return `${host}/base:1`
}
