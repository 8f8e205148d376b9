// The ways in which a container is replaced by one of another release, each with a service, ports and volumes of its own: without
// anything in front, behind a holder, and behind a proxy that is told of a second container.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { deploy } from '../../deploy/container/command.ts'
import type { Engine } from '../../deploy/container/engine/engine.ts'
import { programInImage, SOURCES } from '../../deploy/container/program.ts'
import { findProgram, run } from '../../deploy/lib/shell.ts'
import { BORROWS, heldService, RARE_CHECK } from '../container/held-service.ts'
import { switching } from '../container/images.ts'
import { healthy } from '../container/probe.ts'
import { labFolder, type LabEngine, ofCompose } from '../lab/docker.ts'
import { end, start as startProcess } from './processes.ts'

export interface ReplacingWay {
  name: string
  port: number
  begin(): Promise<unknown>
  /** done when the new container serves and the old one is gone */
  to(tag: string): Promise<unknown>
}

export interface Ground {
  engine: LabEngine
  client: Engine
  repository: string
  /** where clients reach published ports */
  address: string
}

const REQUEST = {
  backTo: null,
  digest: null,
  signedBy: null,
  withShared: false,
  allowIrreversible: false,
  rehearse: false, // it is over before clients can notice anything
  repository: null,
  healthTimeoutMs: 60_000,
  probationMs: 0,
  dryRun: false,
}

export const HELD = 'a holder, `deploy-container.sh`, stop-first'

export async function replacingWays(ground: Ground): Promise<ReplacingWay[]> {
  const { engine, client, repository, address } = ground
  const start: Start = (name, tag, options) => {
    const usual = ['--restart', 'always', '-v', `${name.replace(/-.*/, '')}-rows:/var/lib/beacon`]
    const image = `${repository}:${tag}`
    return engine.docker('run', '-d', '--name', name, ...usual, ...options, ...RARE_CHECK, image)
  }
  const published = (port: number) => ['-p', `${address}:${port}:8080`]
  const ordered = (container: string) => (release: string) =>
    deploy(
      { ...REQUEST, container, release },
      { engine: client, report: () => {}, program: () => programInImage(client, SOURCES.clone) },
    )
  const anew = async (name: string, again: () => Promise<unknown>) => {
    await engine.docker('stop', name)
    await engine.docker('rm', name)
    await again()
  }
  const held = (name: string, port: number, from = repository) =>
    heldService(engine, { name, port, repository: from, address })
  const borrowing = (name: string) => ['-v', `${name}-hold:/run/hold:ro`, ...BORROWS]
  const plainProject = await project(ground, 'plain', 8302, false)
  const heldProject = await project(ground, 'held', 8312, true)
  const ways: ReplacingWay[] = [
    {
      name: '`deploy-container.sh`',
      port: 8301,
      begin: () => start('baton', 'v1.0.0', published(8301)),
      to: ordered('baton'),
    },
    { name: '`docker-compose up -d` (1.29)', port: 8302, begin: () => plainProject('v1.0.0'), to: plainProject },
    {
      name: '`docker stop`, `rm`, `run`',
      port: 8303,
      begin: () => start('hand', 'v1.0.0', published(8303)),
      to: (tag) => anew('hand', () => start('hand', tag, published(8303))),
    },
    {
      name: HELD,
      port: 8311,
      begin: () => held('door', 8311),
      to: ordered('door'),
    },
    {
      name: '… an image of an older kit',
      port: 8315,
      begin: async () => held('older', 8315, await switching(engine, repository, '')),
      to: ordered('older'),
    },
    {
      name: '… start-first',
      port: 8316,
      begin: async () => held('twice', 8316, await switching(engine, repository, 'start-first')),
      to: ordered('twice'),
    },
    { name: 'a holder, `docker-compose up -d`', port: 8312, begin: () => heldProject('v1.0.0'), to: heldProject },
    {
      name: 'a holder, `docker stop`, `rm`, `run`',
      port: 8313,
      begin: () => held('held', 8313),
      to: (tag) => anew('held', () => start('held', tag, borrowing('held'))),
    },
    await besideEachOther(ground, start, borrowing),
  ]
  const nginx = await findProgram('nginx')
  return nginx === null ? ways : [...ways, await behindProxy(ground, nginx, start)]
}

type Start = (name: string, tag: string, options: readonly string[]) => Promise<unknown>

/** Two containers accept on one socket for a while, for a service that may run twice. */
async function besideEachOther(
  { engine, repository, address }: Ground,
  start: Start,
  borrowing: (name: string) => string[],
): Promise<ReplacingWay> {
  let round = 0
  return {
    name: 'a holder, the new container beside the old one',
    port: 8314,
    begin: () => heldService(engine, { name: 'both', port: 8314, repository, address }),
    async to(tag) {
      const [old, next] = [round === 0 ? 'both' : `both-${round}`, `both-${round + 1}`]
      round++
      await start(next, tag, borrowing('both'))
      await healthy(engine, next)
      await engine.docker('stop', old)
      await engine.docker('rm', old)
    },
  }
}

/** As docker-rollout and Kamal do it: the new one is started and healthy, the proxy is told, the old one is stopped after a while. */
async function behindProxy({ engine, address }: Ground, nginx: string, start: Start): Promise<ReplacingWay> {
  const folder = join(labFolder(), 'nginx')
  await mkdir(folder)
  const configuration = join(folder, 'nginx.conf')
  const tell = async (name: string) => {
    const to = (await engine.inspect(name)).NetworkSettings.IPAddress
    await writeFile(configuration, proxyConfiguration(folder, `${address}:8321`, `${to}:8080`))
  }
  const command = [nginx, '-p', folder, '-c', configuration, '-e', 'error.log']
  let round = 0
  return {
    name: 'nginx in front, the new container beside the old one',
    port: 8321,
    async begin() {
      await start('front', 'v1.0.0', [])
      await healthy(engine, 'front')
      await tell('front')
      const started = startProcess(command[0] ?? '', command.slice(1))
      await started.exited // it runs in the background
    },
    async to(tag) {
      const [old, next] = [round === 0 ? 'front' : `front-${round}`, `front-${round + 1}`]
      round++
      await start(next, tag, [])
      await healthy(engine, next)
      await tell(next)
      await run([...command, '-s', 'reload'])
      await sleep(DRAIN_MS)
      await engine.docker('stop', old)
      await engine.docker('rm', old)
    },
  }
}

/** how long the proxy's old processes may finish, before the old container is stopped */
const DRAIN_MS = 2000

function proxyConfiguration(folder: string, listen: string, upstream: string): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  )
  return `user root;
worker_processes 1;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events { worker_connections 1024; }
http {
  ${temporary.join(' ')}
  access_log off;
  keepalive_requests 100000000;
  proxy_buffering off;
  map $http_upgrade $upgraded { default upgrade; '' ''; }
  server {
    listen ${listen} backlog=4096;
    location / { proxy_pass http://${upstream}; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $upgraded; }
  }
}
`
}

/** A project of compose; returns what brings it up with a release. */
async function project({ engine, repository, address }: Ground, name: string, port: number, isHeld: boolean) {
  const folder = join(labFolder(), `${name}-project`)
  await mkdir(folder)
  const published = `ports: ['${address}:${port}:8080']`
  const door = `  door: { image: '${repository}:holder', command: ['8080'], restart: always, ${published}, volumes: ['hold:/run/hold'] }\n`
  const borrows = `environment: { BATON_HOLDER: /run/hold/socket }\n    group_add: ['65531']`
  const volumes = `volumes: ['rows:/var/lib/beacon'${isHeld ? `, 'hold:/run/hold:ro'` : ''}]`
  const file = `services:\n${isHeld ? door : ''}  beacon:\n    image: ${repository}:\${TAG}\n    restart: always\n    ${isHeld ? borrows : published}\n    ${volumes}\n    healthcheck: { interval: 20s }\nvolumes: { rows: {}, hold: {} }\n`
  await writeFile(join(folder, 'compose.yaml'), file)
  return async (tag: string) => {
    await writeFile(join(folder, '.env'), `TAG=${tag}\n`)
    await run(['docker-compose', 'up', '-d'], { cwd: folder, env: engine.environment })
    await healthy(engine, ofCompose(`${name}-project`, 'beacon'))
  }
}

/** Ends what is no container. */
export async function endWays(): Promise<void> {
  const pid = Number((await run(['cat', join(labFolder(), 'nginx', 'nginx.pid')], { allowFailure: true })).stdout)
  if (pid > 0) await end(pid, 'SIGTERM', 5000)
}
