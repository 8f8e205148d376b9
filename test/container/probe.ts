// A tiny image that serves its version, in releases that are good or bad in one way each; and one deployment of a container.

import { randomBytes } from 'node:crypto'
import { deploy } from '../../deploy/container/command.ts'
import { connectEngine, type Engine } from '../../deploy/container/engine/engine.ts'
import { cleanUp, containerStatus } from '../../deploy/container/recreate.ts'
import type { ContainerRequest } from '../../deploy/container/request.ts'
import type { DeployEvent, ContainerEnd } from '../../deploy/container/report.ts'
import { type ImageOptions, type LabEngine, publish } from '../lab/docker.ts'

const BUSYBOX = '/bin/busybox'
const MS = 1_000_000
const IS_WELL = [() => true, () => false] as const

type Asked = Pick<LabEngine, 'docker' | 'inspect'>

/** An image of busybox whose release `version` differs from the others in every field that an image can set. */
export function probeImage(version: string, config: Record<string, unknown> = {}, padBytes = 0): ImageOptions {
  const folder = `/www-${version}`
  return {
    files: {
      [BUSYBOX]: { from: BUSYBOX },
      '/bin/sh': { link: 'busybox' },
      [`${folder}/version`]: `beacon ${version}\n`,
      '/etc/passwd': 'root:x:0:0::/:/bin/busybox\n',
      ...(padBytes > 0 ? { '/pad': noise(padBytes) } : {}),
    },
    config: {
      Entrypoint: [BUSYBOX, 'httpd', '-f', ...(version === 'v1.0.0' ? [] : ['-v'])],
      Cmd: ['-p', '8080', '-h', folder],
      Env: ['PATH=/bin', `COLOR=${version === 'v1.0.0' ? 'red' : 'green'}`, `ONLY_${version.replaceAll('.', '_')}=1`],
      Labels: { 'org.opencontainers.image.version': version, shape: version, [`only.${version}`]: 'yes' },
      ExposedPorts: { '8080/tcp': {}, ...(version === 'v1.0.0' ? { '7070/tcp': {} } : { '9090/tcp': {} }) },
      Volumes: { '/data': {}, ...(version === 'v1.0.0' ? {} : { '/more': {} }) },
      WorkingDir: folder,
      StopSignal: 'SIGKILL', // process 1 of busybox has no handler, and the tests no time
      Healthcheck: {
        Test: ['CMD', BUSYBOX, 'wget', '-q', '-O', '-', 'http://127.0.0.1:8080/version'],
        // a check is a process, and dozens of containers stand beside each other
        Interval: (version === 'v1.0.0' ? 1000 : 1100) * MS,
        Timeout: 5000 * MS,
        Retries: version === 'v1.0.0' ? 5 : 6,
      },
      ...config,
    },
  }
}

/** v1.0.0 and v1.1.0 are good; `latest` is v1.1.0. */
export async function publishGood(host: string, repository = 'beacon'): Promise<void> {
  await publish(host, repository, ['v1.0.0'], probeImage('v1.0.0'))
  await publish(host, repository, ['v1.1.0', 'latest'], probeImage('v1.1.0'))
}

export interface Deployed extends ContainerEnd {
  events: DeployEvent[]
}

export const QUICK: Omit<ContainerRequest, 'container' | 'release'> = {
  backTo: null,
  repository: null,
  digest: null,
  signedBy: null,
  healthTimeoutMs: 60_000,
  probationMs: 300,
  withShared: false,
  allowIrreversible: false,
  rehearse: true,
  dryRun: false,
}

/** One deployment in this process. `around` may replace the engine's calls. */
export async function deployIn(
  engine: LabEngine,
  request: Partial<ContainerRequest> & { container: string; release: string | null },
  around: (engine: Engine) => Engine = (same) => same,
): Promise<Deployed> {
  const client = await connectEngine(engine.socketPath)
  const events: DeployEvent[] = []
  try {
    const given = { engine: around(client), report: (event: DeployEvent) => void events.push(event) }
    const ended = await deploy({ ...QUICK, ...request }, given)
    return { ...ended, events }
  } finally {
    client.close()
  }
}

/** What `--status` says. */
export async function statusIn(engine: Pick<LabEngine, 'socketPath'>, name: string): Promise<ContainerEnd> {
  return await connected(engine, (client) => containerStatus(name, { engine: client }))
}

/** `--clean`. */
export async function cleanIn(engine: Pick<LabEngine, 'socketPath'>, name: string): Promise<ContainerEnd> {
  return await connected(engine, (client) => cleanUp(name, { dryRun: false }, { engine: client, report: () => {} }))
}

async function connected<T>(
  { socketPath }: Pick<LabEngine, 'socketPath'>,
  work: (client: Engine) => Promise<T>,
): Promise<T> {
  const client = await connectEngine(socketPath)
  try {
    return await work(client)
  } finally {
    client.close()
  }
}

/**
 * Resolves when the container is healthy: by what the engine knows, or by its health check, run now. So the engine's own check may
 * be rare, which costs less than what is tested where many containers stand beside each other.
 */
export async function healthy(engine: Asked, name: string, timeoutMs = 60_000): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; ;) {
    const { State, Config } = await engine.inspect(name)
    const { Running, Status, Health } = State
    if (Running && (Health === undefined || Health.Status === 'healthy')) return
    const [kind, ...check] = Config.Healthcheck?.Test ?? []
    const command = kind === 'CMD' ? check : ['/bin/sh', '-c', ...check]
    const isWell = Running && (await engine.docker('exec', name, ...command).then(...IS_WELL))
    if (isWell) return
    if (Date.now() > deadline) throw new Error(`${name} is ${Status} ${JSON.stringify(Health ?? {}).slice(0, 500)}`)
    await new Promise((resolve) => setTimeout(resolve, Running ? 200 : 50)) // each check starts processes
  }
}

/** Waits until it is so; throws with `what` after two minutes. */
export async function until(what: string, isSo: () => Promise<boolean> | boolean): Promise<void> {
  for (const deadline = Date.now() + 120_000; !(await isSo());) {
    if (Date.now() > deadline) throw new Error(`${what}: not after two minutes`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Text that does not compress. */
function noise(bytes: number): string {
  return randomBytes(Math.ceil((bytes * 3) / 4))
    .toString('base64')
    .slice(0, bytes)
}
