// A tiny image that serves its version, in releases that are good or bad in one way each; and one deployment of a container.

import { deploy } from '../../deploy/container/command.ts'
import { connectEngine, type Engine } from '../../deploy/container/engine/engine.ts'
import type { Request } from '../../deploy/container/request.ts'
import type { DeployEvent, Ended } from '../../deploy/container/report.ts'
import { type ImageOptions, type LabEngine, publish } from '../lab/docker.ts'

const BUSYBOX = '/bin/busybox'
const MS = 1_000_000

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
        Interval: (version === 'v1.0.0' ? 500 : 600) * MS,
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

export interface Deployed extends Ended {
  events: DeployEvent[]
}

export const QUICK: Omit<Request, 'container' | 'release'> = {
  backTo: null,
  repository: null,
  digest: null,
  signedBy: null,
  healthTimeoutMs: 60_000,
  probationMs: 300,
  dryRun: false,
}

/** One deployment in this process. `around` may replace the engine's calls. */
export async function deployIn(
  engine: LabEngine,
  request: Partial<Request> & { container: string; release: string | null },
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

/** Resolves when the container is healthy. */
export async function healthy(engine: LabEngine, name: string, timeoutMs = 60_000): Promise<void> {
  for (const deadline = Date.now() + timeoutMs; ;) {
    const { Running, Status, Health } = (await engine.inspect(name)).State
    if (Running && (Health === undefined || Health.Status === 'healthy')) return
    if (Date.now() > deadline) throw new Error(`${name} is ${Status} ${JSON.stringify(Health ?? {}).slice(0, 500)}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Text that does not compress. */
function noise(bytes: number): string {
  let state = 12345
  let text = ''
  while (text.length < bytes) {
    state = (state * 1103515245 + 12345) % 2147483648
    text += state.toString(36)
  }
  return text.slice(0, bytes)
}
